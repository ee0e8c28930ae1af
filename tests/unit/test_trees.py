"""Trees as vectors and back; which structures are the same, and in which path two differ."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from smpc_dp import trees
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigCheck, ConfigError, PrivacyError
from smpc_dp.trees import Tree, differing, flatten


class Layer(NamedTuple):
    weight: np.ndarray
    bias: np.ndarray


def encoding(length: int, **options: Any) -> Encoding:
    given = {"lower": -4.0, "upper": 4.0, "precision": 2.0**-10, "parties": 4, **options}
    return Encoding.plan(length=length, **given)


def model() -> dict[str, Any]:
    layer = Layer(np.arange(6, dtype=np.float32).reshape(2, 3) / 2, np.zeros(0, np.float32))
    return {"z": [layer, 1.5], "a": {"loss": np.float64(0.25), "odd'key": np.ones((1, 1))}}


def read(tree: dict[str, Any], length: int = 9, **options: Any) -> Tree:
    return flatten(tree, encoding(length), party="alice", **options)


def values_of(tree: Tree) -> list[float]:
    """Return the encoded values, in the session's unit."""
    given = tree.encoding
    grid = tree.encode()[0].astype(np.int64) + given.lowest
    return list(map(float, given.real(grid)))


def issues_of(error: pytest.ExceptionInfo[ConfigError]) -> list[tuple[str, ConfigCheck]]:
    assert all(issue.reason.startswith("alice: ") for issue in error.value.issues)
    return [(issue.where, issue.check) for issue in error.value.issues]


def test_a_tree_becomes_a_vector_and_comes_back() -> None:
    tree = read(model())
    assert values_of(tree) == [0.25, 1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 1.5]
    assert tree.vector.tolist() == values_of(tree)
    assert [leaf.path for leaf in tree.leaves] == [
        "['a']['loss']",
        "['a'][\"odd'key\"]",
        "['z'][0](0)",
        "['z'][0](1)",
        "['z'][1]",
    ]
    back = tree.restore(tree.vector)
    assert list(back) == ["z", "a"]
    layer, number = back["z"]
    assert isinstance(layer, Layer)
    assert layer.weight.dtype == np.float32
    np.testing.assert_array_equal(layer.weight, model()["z"][0].weight)
    assert layer.bias.shape == (0,)
    assert type(number) is float
    assert back["a"]["odd'key"].tolist() == [[1.0]]


def test_each_leaf_says_its_step_and_its_bytes() -> None:
    tree = read(model())
    assert {leaf.step for leaf in tree.leaves} == {2.0**-10}
    assert [leaf.sent_bytes for leaf in tree.leaves] == [2, 2, 12, 0, 2]
    assert sum(leaf.sent_bytes for leaf in tree.leaves) == 9 * encoding(9).element_bytes


def test_each_leaf_is_rounded_within_its_own_bounds() -> None:
    given = {"fine": np.array([0.001, -0.0013]), "coarse": np.array([90.0])}
    bounds = {"['fine']": (-0.004, 0.004), "['coarse']": (0.0, 100.0)}
    tree = read(given, 3, bounds=bounds)
    back = tree.restore(np.array(values_of(tree)))
    coarse, fine = tree.leaves
    assert fine.step == pytest.approx(0.001 / 2**10)
    assert coarse.step == pytest.approx(12.5 / 2**10)
    for leaf, name in ((fine, "fine"), (coarse, "coarse")):
        error = np.max(np.abs(back[name] - given[name]))
        assert 0 < error <= leaf.step / 2 * (1 + 1e-9)
    # The bounds themselves are bounds of the session, whatever rounding does.
    for value, expected in ((0.004, 4.0), (-0.004, -4.0)):
        edge = read({"fine": np.array([value, 0.0]), "coarse": np.array([0.0])}, 3, bounds=bounds)
        assert values_of(edge)[1] == expected


def test_an_average_of_mapped_trees_is_the_mapped_average() -> None:
    bounds = (0.0, 0.3)
    parts = [{"w": np.array([value])} for value in (0.05, 0.1, 0.29)]
    mapped = [read(part, 1, bounds=bounds) for part in parts]
    value = np.mean([values_of(tree) for tree in mapped], axis=0)
    assert mapped[0].restore(value)["w"][0] == pytest.approx(0.44 / 3, abs=mapped[0].leaves[0].step)


def test_bounds_as_wide_as_those_of_the_session_are_moved_back() -> None:
    tree = read({"w": np.array([11.0, 12.5])}, 2, bounds=(8.0, 16.0))
    assert values_of(tree) == [-1.0, 0.5]
    assert tree.restore(np.array(values_of(tree)), exact=True)["w"].tolist() == [11.0, 12.5]


def test_the_last_value_of_the_last_leaf_must_be_a_number_in_any_layout() -> None:
    last = np.zeros((700, 300), np.float32)
    last[-1, -1] = np.nan
    for array, index in ((last, "[699, 299]"), (last.T, "[299, 699]"), (last[::-1], "[0, 299]")):
        tree = read({"a": np.zeros(5), "z": array}, 5 + array.size, clip=True)
        with pytest.raises(PrivacyError) as caught:
            tree.encode()
        assert str(caught.value) == f"alice: ['z']{index} must be finite"


def test_a_model_of_more_values_than_a_session_takes_is_refused_by_its_size() -> None:
    huge = np.broadcast_to(np.float32(0), (1 << 16, 1 << 15))
    with pytest.raises(ConfigError, match=r"has 2147483648 values in 1 leaves, vectors have 3$"):
        read({"w": huge}, 3)
    with pytest.raises(ConfigError, match=r"length: must be between 1 and 67108864, is 2147483648"):
        encoding(1 << 31)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("bounds", [(-0.1, 0.1), (0.7, 0.9), None])
def test_an_exact_average_is_within_the_bounds_of_its_leaf_in_its_type(kind: Any, bounds: Any) -> None:
    lower, upper = bounds or (-0.3, 0.3)
    session = encoding(3, lower=-0.3, upper=0.3, precision=2.0**-30)
    corners = np.clip(np.array([lower, upper, 0.8 * upper]), lower, upper)
    whole = flatten({"w": corners}, session, party="alice", bounds=bounds)
    tree = flatten({"w": corners.astype(kind)}, session, party="alice", bounds=bounds, clip=True)
    # The grid rounds a bound to up to half a step beyond it.
    outward = np.array(values_of(whole)) + 2.0**-31 * np.sign(values_of(whole))
    average = tree.restore(outward, exact=True)["w"]
    assert average.dtype == kind
    assert (average.astype(np.float64) >= lower).all()
    assert (average.astype(np.float64) <= upper).all()
    np.testing.assert_allclose(average, corners, rtol=2 * float(np.finfo(kind).eps), atol=2.0**-30)
    assert flatten({"w": average}, session, party="alice", bounds=bounds).encode()[1] == 0


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_an_exact_average_of_a_number_is_a_number_of_its_type(kind: Any) -> None:
    tree = read({"loss": kind(0.25), "rest": np.zeros(1, kind)}, 2)
    exact = tree.restore(np.array([0.5, 1.0]), exact=True)
    assert type(exact["loss"]) is kind
    assert exact["loss"] == 0.5
    exact["rest"] += 1
    assert exact["rest"].tolist() == [2.0]
    # With noise it is an array without axes, which can be changed.
    noisy = tree.restore(np.array([5.0, 1.0]))["loss"]
    noisy += kind(1)
    assert (noisy.shape, noisy.dtype, float(noisy)) == ((), kind, 6.0)


def test_half_a_step_of_a_leaf_beyond_its_bound_is_the_bound() -> None:
    step = read({"w": np.zeros(1)}, 1, bounds=(-0.1, 0.1)).leaves[0].step
    tree = read({"w": np.array([0.1 + 0.49 * step])}, 1, bounds=(-0.1, 0.1))
    assert (values_of(tree), tree.encode()[1]) == ([4.0], 0)
    with pytest.raises(PrivacyError, match=r"\['w'\]\[0\] is outside \[-0.1, 0.1\]"):
        read({"w": np.array([0.1 + 0.51 * step])}, 1, bounds=(-0.1, 0.1)).encode()


def test_values_are_clipped_to_the_bounds_of_their_leaf_if_asked() -> None:
    tree = read({"w": np.array([1.0, -7.0, 9.0])}, 3, clip=True, bounds=(-2.0, 2.0))
    assert (values_of(tree), tree.encode()[1]) == ([2.0, -4.0, 4.0], 2)


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (np.array([[0.0, np.nan]]), {}, r"alice: \['w'\]\[0, 1\] must be finite"),
        (np.array([[0.0, np.inf]]), {"clip": True}, r"alice: \['w'\]\[0, 1\] must be finite"),
        (np.array([[5.0, -5.0]]), {}, r"\['w'\]\[0, 0\] is outside \[-4.0, 4.0\] \(2 values are\)"),
        (np.array([0.0, 3.0]), {"bounds": (0.0, 2.0)}, r"\['w'\]\[1\] is outside \[0.0, 2.0\]"),
        ([0.5, float("nan")], {}, r"alice: \['w'\]\[1\] must be finite"),
    ],
)
def test_a_value_that_is_out_of_bounds_is_named_by_its_path(
    value: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PrivacyError, match=message):
        read({"w": value}, 2, **options).encode()


def test_a_leaf_outside_the_bounds_of_its_coordinates_is_refused_or_clipped() -> None:
    tree = {"a": np.array([0.5, 3.0]), "b": np.array([-1.5])}
    session = encoding(3, lower=[0.0, 1.0, -1.0], upper=[1.0, 2.0, 0.0])
    with pytest.raises(PrivacyError, match=r"alice: vector\[1\] is outside \[1\.0, 2\.0\] \(2 values are\)$"):
        flatten(tree, session, party="alice").encode()
    clipped = flatten(tree, session, party="alice", clip=True)
    assert (values_of(clipped), clipped.encode()[1]) == ([0.5, 2.0, -1.0], 2)
    alike = read({"a": np.array([5.0, 6.0]), "b": np.array([-5.0])}, 3, clip=True)
    assert (values_of(alike), alike.encode()[1]) == ([4.0, 4.0, -4.0], 3)


def test_leaves_that_are_no_floats_are_named_all_at_once() -> None:
    deep: Any = 1.0
    for _ in range(trees.MAX_DEPTH + 1):
        deep = [deep]
    wrong = {"a": 1, "b": [np.arange(3), "text"], "c": {2: 1.0}, "d": np.ones(2, np.complex64), "e": None}
    with pytest.raises(ConfigError) as error:
        read({**wrong, "f": deep, "g": True})
    *others, (too_deep, check), last = issues_of(error)
    assert others == [
        ("tree['a']", ConfigCheck.TYPE),
        ("tree['b'][0]", ConfigCheck.TYPE),
        ("tree['b'][1]", ConfigCheck.TYPE),
        ("tree['c']", ConfigCheck.TYPE),
        ("tree['d']", ConfigCheck.TYPE),
        ("tree['e']", ConfigCheck.TYPE),
    ]
    assert (too_deep.startswith("tree['f'][0][0]"), check) == (True, ConfigCheck.TOO_LARGE)
    assert last == ("tree['g']", ConfigCheck.TYPE)


@pytest.mark.parametrize("tree", [{}, {"w": []}, {"w": np.zeros(3)}])
def test_a_tree_of_another_length_than_the_session_is_refused(tree: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="vectors have 2") as error:
        read(tree, 2)
    assert issues_of(error) == [("tree", ConfigCheck.SHAPE)]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"['w']": (0.0, 1.0)}, [("bounds['v']", ConfigCheck.MISSING)]),
        ({"['v']": (0, 1), "['w']": (0, 1), "x": (0, 1)}, [("boundsx", ConfigCheck.UNKNOWN_NAME)]),
        ((1.0, 1.0), [("bounds['v']", ConfigCheck.RANGE), ("bounds['w']", ConfigCheck.RANGE)]),
        ((float("nan"), 1.0), [("bounds['v']", ConfigCheck.RANGE), ("bounds['w']", ConfigCheck.RANGE)]),
    ],
)
def test_bounds_that_are_wrong_are_refused(bounds: Any, expected: list[tuple[str, ConfigCheck]]) -> None:
    with pytest.raises(ConfigError) as error:
        read({"v": 0.5, "w": 0.5}, 2, bounds=bounds)
    assert issues_of(error) == expected


def test_a_vector_has_no_values_beyond_the_bounds_of_their_leaves() -> None:
    """The model that learning begins with is read without being encoded."""
    session = encoding(2, lower=-1.0, upper=1.0)
    with pytest.raises(PrivacyError, match=r"alice: \['w'\]\[1\] is outside \[-1.0, 1.0\]$"):
        _ = flatten({"w": np.array([0.5, 3.0])}, session, party="alice").vector
    # A value is as far from a bound as rounding may put it.
    beyond = 1.0 + session.step / 4
    assert flatten({"w": np.array([0.5, beyond])}, session, party="alice").vector.tolist() == [0.5, 1.0]
    clipped = flatten({"w": np.array([0.5, 3.0])}, session, party="alice", clip=True)
    assert clipped.vector.tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    "options",
    [
        {"lower": None, "upper": None, "l2_bound": 4.0},
        {"lower": [-4.0, -1.0], "upper": 4.0},
    ],
)
def test_bounds_of_leaves_are_for_sessions_with_one_pair_of_bounds(options: dict[str, Any]) -> None:
    session = encoding(2, **options)
    assert flatten({"w": [3.0, -2.0]}, session, party="alice").vector.tolist() == [3.0, -2.0]
    with pytest.raises(ConfigError) as error:
        flatten({"w": [3.0, -2.0]}, session, party="alice", bounds=(-4.0, 4.0))
    assert issues_of(error) == [("bounds", ConfigCheck.CONFLICT)]


def test_sessions_of_integers_have_no_trees() -> None:
    with pytest.raises(ConfigError) as error:
        flatten({"w": 1.0}, encoding(1, lower=0, upper=4, precision=None), party="alice")
    assert issues_of(error) == [("tree", ConfigCheck.UNSUPPORTED)]


def test_the_structure_is_of_paths_shapes_types_and_bounds_and_of_nothing_else() -> None:
    def structure(tree: dict[str, Any], length: int = 2, **options: Any) -> str:
        return read(tree, length, **options).structure

    base = structure({"w": np.array([1.0, 2.0])})
    assert base == "tree:['w'] float64[2] in [-4.0, 4.0]"
    assert structure({"w": np.array([-1.0, 0.0])}) == base
    others = [
        structure({"v": np.array([1.0, 2.0])}),
        structure({"w": np.array([1.0, 2.0], np.float32)}),
        structure({"w": np.array([[1.0, 2.0]])}),
        structure({"w": [1.0, 2.0]}),
        structure({"w": (1.0, 2.0)}),
        structure({"w": np.array([1.0, 2.0])}, bounds=(-4.0, 4.5)),
    ]
    assert len({base, *others}) == 7


def large(**changed: Any) -> Tree:
    tree: dict[str, Any] = {f"layer{index}": np.zeros(index + 1) for index in range(20)}
    tree = {name: value for name, value in (tree | changed).items() if value is not None}
    size = sum(np.size(value) for value in tree.values())
    return flatten(tree, encoding(int(size)), party="alice")


def test_a_large_structure_is_a_sketch_that_names_one_leaf_that_differs() -> None:
    base = large()
    assert base.structure.startswith("tree:#20 ")
    assert len(base.structure) <= len("tree:") + trees.READABLE
    assert differing(base, large().structure) == "they are the same"
    for index in range(20):
        other = large(**{f"layer{index}": np.zeros((1, index + 1))})
        size = index + 1
        assert differing(base, other.structure) == (
            f"theirs is another than ours in ['layer{index}'] float64[{size}] in [-4.0, 4.0]"
        )
        assert f"['layer{index}'] float64[1x{size}]" in differing(other, base.structure)
    fewer = large(layer7=None)
    assert differing(base, fewer.structure) == "only ours has ['layer7'] float64[8] in [-4.0, 4.0]"
    assert differing(fewer, base.structure) == "only theirs has one more leaf"
    for one, two in itertools.pairwise(
        [base, large(layer1=1.0, layer2=1.0), large(layer1=None, layer2=None)]
    ):
        assert differing(one, two.structure) == "several leaves differ"


def test_a_short_structure_names_the_path_itself() -> None:
    one, two = read({"w": [1.0]}, 1), read({"w": [1.0, 1.0]}, 2)
    assert differing(one, read({"v": 1.0}, 1).structure) == (
        "ours has ['w'][0] float[] in [-4.0, 4.0], theirs ['v'] float[] in [-4.0, 4.0]"
    )
    assert differing(two, one.structure) == "only ours has ['w'][1] float[] in [-4.0, 4.0]"
    assert differing(one, two.structure) == "only theirs has ['w'][1] float[] in [-4.0, 4.0]"


def test_masked_leaves_and_leaves_without_a_value_are_refused() -> None:
    encoding = Encoding.plan(length=2, lower=0, upper=100, precision=1e-6, parties=3)
    hidden = np.ma.masked_equal(np.array([3.0, 99.0]), 99.0)
    with pytest.raises(ConfigError, match=r"tree\['a'\]: alice: has masked values: none may be missing"):
        flatten({"a": hidden}, encoding, party="alice")
    assert values_of(flatten({"a": np.ma.array([3.0, 4.0])}, encoding, party="alice")) == [3.0, 4.0]
    pandas = pytest.importorskip("pandas")
    with pytest.raises(PrivacyError, match=r"alice: \['a'\]\[1\] must be finite"):
        flatten({"a": pandas.Series([3.0, None], dtype="Float64")}, encoding, party="alice").encode()


def test_bounds_that_the_session_has_no_steps_for_are_refused() -> None:
    narrow = Encoding.plan(length=1, lower=0, upper=1e-100, precision=1e-110, parties=3)
    with pytest.raises(ConfigError, match=r"bounds\['a'\]: alice: .* is too wide or too narrow"):
        flatten({"a": 0.5}, narrow, party="alice", bounds=(-1e299, 1e299))
    with pytest.raises(ConfigError, match="too wide or too narrow"):
        flatten({"a": 0.0}, narrow, party="alice", bounds=(0.0, 1e-320))
