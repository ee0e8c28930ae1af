"""Trees of arrays as vectors: dicts, lists and tuples of floats, arrays, tensors and pandas columns.

The structure of a tree (the paths, shapes and types of its leaves, and their bounds) is a text in the
operation of a request. Parties whose structures differ are not added up with each other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.encoding import Encoding, is_outside
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues, PrivacyError
from smpc_dp.values import is_masked_array

# A structure of at most so many characters stands in the operation as it is; a longer one as a sketch.
READABLE = 80
# Sketches are sums of hashes modulo this prime.
PRIME = (1 << 61) - 1
# Digits of the binary fractions of float32, float16 and bfloat16.
_NARROW_BITS = (23, 10, 7)
MAX_DEPTH = 64
_SKETCH = "tree:#"
_READABLE = "tree:"

# For each leaf by its path, or for all leaves by one pair: least and greatest value.
Bounds = Mapping[str, tuple[float, float]] | tuple[float, float]
_Rebuild = Callable[[NDArray[np.float64]], Any]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of a tree.

    Attributes:
        path: where it is, such as `['layers'][0]['weight']`.
        shape, type: of the array; `type` is the name of its dtype, of a tensor with "torch." before it.
        lower, upper: bounds of its values; step: distance of the values that they are rounded to.
        scale: the leaf's unit divided by that of the result's `value` and `standard_error`.
        sent_bytes: of its masked values in one message.
    """

    path: str
    shape: tuple[int, ...]
    type: str
    lower: float
    upper: float
    step: float
    scale: float
    sent_bytes: int

    @property
    def size(self) -> int:
        """The number of its values."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def described(self) -> str:
        """The leaf in the structure: all that parties must have in common."""
        size = "x".join(map(str, self.shape))
        return f"{self.path} {self.type}[{size}] in [{self.lower!r}, {self.upper!r}]"


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree as one vector in a session's unit, float64, and how to build trees like it.

    `clipped`: how many values were put on their bounds; `centre`: the middle of the session's bounds.
    """

    vector: NDArray[Any]
    leaves: tuple[Leaf, ...]
    clipped: int
    centre: float
    _rebuild: tuple[_Rebuild, ...]
    _template: Any

    @property
    def structure(self) -> str:
        """The structure as a text for an operation: readable where it is short, else a sketch."""
        lines = [leaf.described for leaf in self.leaves]
        text = "; ".join(lines)
        if len(text) <= READABLE:
            return _READABLE + text
        first, second = _sums(_hashes(lines))
        hashed = digest(Label.TREE, *(line.encode() for line in lines)).hex()[:32]
        return f"{_SKETCH}{len(lines)} {hashed} {first:016x} {second:016x}"

    def restore(self, value: NDArray[Any], *, exact: bool = False) -> Any:
        """Return a tree like this one with the values of an average in the session's unit.

        `exact`: without noise; then each value is within its leaf's bounds, in the leaf's type too.
        """
        built, offset = [], 0
        for leaf, rebuild in zip(self.leaves, self._rebuild, strict=True):
            part = value[offset : offset + leaf.size].astype(np.float64)
            offset += leaf.size
            middle = (leaf.lower + leaf.upper) / 2
            values = part if leaf.scale == 1.0 else (part - self.centre) * leaf.scale + middle
            build = _within(rebuild, leaf.lower, leaf.upper) if exact else rebuild
            built.append(build(values.reshape(leaf.shape)))
        return _built(self._template, iter(built))

    def values_of(self, tree: Any, party: str) -> NDArray[np.float64]:
        """Return the values of another tree with the paths and shapes of this one; their types may differ.

        Raises:
            ConfigError: a path or a shape is another one; names it.
            PrivacyError: a value is not finite; names its path.
        """
        issues = Issues()
        read = {path: array for path, array, *_ in _leaves(tree, "", issues, 0)}
        own = {leaf.path: leaf.shape for leaf in self.leaves}
        for path in own.keys() ^ read.keys():
            reason = "is missing" if path in own else "is no path of the model"
            issues.add_issue(f"tree{path}", reason, ConfigCheck.UNKNOWN_NAME)
        for path in own.keys() & read.keys():
            if read[path].shape != own[path]:
                reason = f"has shape {read[path].shape}, the model has {own[path]}"
                issues.add_issue(f"tree{path}", reason, ConfigCheck.SHAPE)
        if issues:
            raise ConfigError(_of(party, issues))
        return np.concatenate(
            [_inside(read[path], path, None, 0.0, party, clip=False)[0].reshape(-1) for path in own]
        )


def flatten(
    tree: Mapping[Any, Any],
    encoding: Encoding,
    *,
    party: str,
    bounds: Bounds | None = None,
    clip: bool = False,
) -> Tree:
    """Return a tree as the vector of a session with this encoding.

    With `bounds` every leaf is mapped from its own onto those of the session, so that its step is as fine as
    its range is narrow.

    Raises:
        ConfigError: the tree has a leaf or a node of another kind, more or fewer values than the session's
            vectors, or bounds that are wrong; names each path.
        PrivacyError: a value is not finite, or out of its bounds without `clip`; names its path.
    """
    issues = Issues()
    if encoding.integer:
        issues.add_issue("tree", "is for sessions of real values", ConfigCheck.UNSUPPORTED)
    read = list(_leaves(tree, "", issues, 0))
    if issues:
        raise ConfigError(_of(party, issues))
    size = sum(array.size for _, array, _, _ in read)
    if not read or size != encoding.length:
        reason = f"{party}: has {size} values in {len(read)} leaves, vectors have {encoding.length}"
        raise ConfigError.at("tree", reason, ConfigCheck.SHAPE)
    given = _bounds_of([path for path, *_ in read], bounds, encoding, party)
    low, high = (float(bound) for bound in (encoding.lower, encoding.upper))
    by_encoding = encoding.box is not None or encoding.l2_bound is not None
    leaves, parts, clipped = [], [], 0
    for (path, array, name, _), bound in zip(read, given, strict=True):
        lower, upper = bound or (low, high)
        scale = (upper - lower) / (high - low)
        within = None if by_encoding else (lower, upper)
        values, outside = _inside(array, path, within, scale * encoding.step, party, clip=clip)
        if not sys.float_info.min < scale * encoding.step < math.inf:
            reason = f"{party}: [{lower}, {upper}] is too wide or too narrow for [{low}, {high}]"
            raise ConfigError.at(f"bounds{path}", reason, ConfigCheck.RANGE)
        if bound:
            # The middles are mapped on each other, and what rounding puts outside is put on the bound.
            values = np.clip((values - (lower + upper) / 2) / scale + (low + high) / 2, low, high)
        clipped += outside
        step, sent = scale * encoding.step, array.size * encoding.element_bytes
        leaves.append(Leaf(path, array.shape, name, lower, upper, step, scale, sent))
        parts.append(values.reshape(-1))
    rebuild = tuple(each[3] for each in read)
    return Tree(np.concatenate(parts), tuple(leaves), clipped, (low + high) / 2, rebuild, tree)


def differing(tree: Tree, structure: str) -> str:
    """Say in which path a tree differs from another one, given its structure as the operation has it.

    From a sketch one leaf that differs, or is in one of the two alone, is found; more are said to be several.
    """
    lines = [leaf.described for leaf in tree.leaves]
    if structure == tree.structure:
        return "they are the same"
    if not structure.startswith(_SKETCH):
        return _differing_lines(lines, structure.removeprefix(_READABLE).split("; "))
    count, _, first, second = structure.removeprefix(_SKETCH).split(" ")
    hashes = _hashes(lines)
    ours = _sums(hashes)
    one, two = ((own - int(other, 16)) % PRIME for own, other in zip(ours, (first, second), strict=True))
    missing, path_of = len(lines) - int(count), dict(zip(hashes, lines, strict=True))
    if one == 0:
        return "several leaves differ"
    # With h of ours in the place of h' of theirs, the sums differ by h - h' and h^2 - h'^2.
    quotient = two * pow(one, -1, PRIME) % PRIME
    if missing == 0 and (own := _half(quotient + one)) in path_of:
        return f"theirs is another than ours in {path_of[own]}"
    if missing == 1 and one in path_of and quotient == one:
        return f"only ours has {path_of[one]}"
    if missing == -1 and quotient == (-one) % PRIME:
        return "only theirs has one more leaf"
    return "several leaves differ"


def _half(value: int) -> int:
    """Return half of a number modulo PRIME."""
    return value * pow(2, -1, PRIME) % PRIME


def _differing_lines(ours: list[str], theirs: list[str]) -> str:
    for own, other in zip(ours, theirs, strict=False):
        if own != other:
            return f"ours has {own}, theirs {other}"
    longer = ours if len(ours) > len(theirs) else theirs
    whose = "ours" if longer is ours else "theirs"
    return f"only {whose} has {longer[min(len(ours), len(theirs))]}"


def _hashes(lines: Sequence[str]) -> list[int]:
    return [int.from_bytes(digest(Label.TREE_LEAF, line.encode())[:8]) % PRIME for line in lines]


def _sums(hashes: Sequence[int]) -> tuple[int, int]:
    return sum(hashes) % PRIME, sum(value * value for value in hashes) % PRIME


def _of(party: str, issues: Sequence[ConfigIssue]) -> list[ConfigIssue]:
    return [ConfigIssue(where, f"{party}: {reason}", check) for where, reason, check in issues]


def _bounds_of(
    paths: Sequence[str], bounds: Bounds | None, encoding: Encoding, party: str
) -> list[tuple[float, float] | None]:
    """Return the bounds of each leaf, None where they are the session's."""
    if bounds is None:
        return [None] * len(paths)
    issues = Issues()
    if encoding.integer or encoding.box is not None or encoding.l2_bound is not None:
        reason = "go with sessions that have one lower and one upper bound of real values alone"
        issues.add_issue("bounds", reason, ConfigCheck.CONFLICT)
    given = bounds if isinstance(bounds, Mapping) else dict.fromkeys(paths, bounds)
    for path in given.keys() - set(paths):
        issues.add_issue(f"bounds{path}", "the tree has no such leaf", ConfigCheck.UNKNOWN_NAME)
    for path in paths:
        if path not in given:
            issues.add_issue(f"bounds{path}", "missing", ConfigCheck.MISSING)
            continue
        lower, upper = given[path]
        if not -1e300 < lower < upper < 1e300:
            issues.add_issue(
                f"bounds{path}",
                f"must be finite, the lower one first, are {lower}, {upper}",
                ConfigCheck.RANGE,
            )
    if issues:
        raise ConfigError(_of(party, issues))
    return [(float(given[path][0]), float(given[path][1])) for path in paths]


def _inside(
    array: NDArray[Any],
    path: str,
    bounds: tuple[float, float] | None,
    step: float,
    party: str,
    *,
    clip: bool,
) -> tuple[NDArray[Any], int]:
    """Return the values within the bounds, and how many were clipped; raise PrivacyError naming the path.

    Values up to half a step beyond are put on the bound and not counted. Bounds of each coordinate (None) are
    for the encoding.
    """
    if not np.isfinite(array).all():
        raise PrivacyError(f"{party}: {_first(array, path, ~np.isfinite(array))} must be finite")
    if bounds is None:
        return array, 0
    outside = is_outside(array, *bounds, step)
    clipped = int(np.count_nonzero(outside))
    if clipped and not clip:
        more = f" ({clipped} values are)" if clipped > 1 else ""
        where = _first(array, path, outside)
        raise PrivacyError(f"{party}: {where} is outside [{bounds[0]}, {bounds[1]}]{more}")
    return np.clip(array, *bounds), clipped


def _within(rebuild: _Rebuild, lower: float, upper: float) -> _Rebuild:
    """Return the function that makes a leaf whose values are within the bounds when it is read again."""

    def build(values: NDArray[np.float64]) -> Any:
        within = np.clip(values, lower, upper)
        leaf = rebuild(within)
        for bits in _NARROW_BITS:
            read = _leaf(leaf)[1]
            if read is None or not (outside := (read < lower) | (read > upper)).any():
                break
            # Rounded to a narrower type, a value on a bound is beyond it.
            inner = np.where(read > upper, upper - abs(upper) * 2.0**-bits, lower + abs(lower) * 2.0**-bits)
            within = np.where(outside, inner, within)
            leaf = rebuild(within)
        return leaf

    return build


def _first(array: NDArray[Any], path: str, wrong: NDArray[np.bool_]) -> str:
    """Return the name of the first value that is wrong."""
    index = np.argwhere(wrong)[0].tolist() if array.shape else []
    return f"{path}{index if index else ''}"


def _leaves(
    node: Any, path: str, issues: list[ConfigIssue], depth: int
) -> Iterator[tuple[str, NDArray[Any], str, _Rebuild]]:
    """Yield (path, array, name of the type, function that makes such a leaf) of each leaf, by path."""
    if depth > MAX_DEPTH:
        issues.append(ConfigIssue(f"tree{path[:80]}", f"deeper than {MAX_DEPTH}", ConfigCheck.TOO_LARGE))
        return
    children = _children(node, path, issues)
    if children is not None:
        for key, child in children:
            yield from _leaves(child, path + key, issues, depth + 1)
        return
    name, array, rebuild = _leaf(node)
    if is_masked_array(node) and np.ma.is_masked(node):
        issues.append(ConfigIssue(f"tree{path}", "has masked values: none may be missing", ConfigCheck.TYPE))
    elif array is None:
        reason = f"{name} is no leaf: floating-point numbers, arrays and tensors are"
        issues.append(ConfigIssue(f"tree{path}", reason, ConfigCheck.TYPE))
    else:
        yield path, array, name, rebuild


def _children(node: Any, path: str, issues: list[ConfigIssue]) -> list[tuple[str, Any]] | None:
    """Return what a node holds, in the order of the vector; None for a leaf."""
    if isinstance(node, Mapping):
        if wrong := [key for key in node if not isinstance(key, str)]:
            issues.append(ConfigIssue(f"tree{path}", f"the key {wrong[0]!r} is no text", ConfigCheck.TYPE))
        return [(f"[{key!r}]", node[key]) for key in sorted(node.keys() - set(wrong))]
    if isinstance(node, list | tuple):
        opening, closing = "[]" if isinstance(node, list) else "()"
        return [(f"{opening}{index}{closing}", child) for index, child in enumerate(node)]
    if _module(node) == "pandas" and hasattr(node, "columns"):
        columns = {str(column): node[column] for column in node.columns}
        if len(columns) < len(node.columns):
            issues.append(ConfigIssue(f"tree{path}", "two columns of one name", ConfigCheck.DUPLICATE))
        return [(f"[{name!r}]", columns[name]) for name in sorted(columns)]
    return None


def _leaf(node: Any) -> tuple[str, NDArray[Any] | None, _Rebuild]:
    """Return the name of a leaf's type, its values as float64, and what makes a leaf of its kind."""
    if isinstance(node, float) and not isinstance(node, np.floating):
        return "float", np.asarray(node), lambda values: float(values)
    if isinstance(node, np.ndarray | np.floating):
        kind = np.asarray(node).dtype
        array = np.asarray(node, np.float64) if kind.kind == "f" and kind.itemsize <= 8 else None
        return kind.name, array, lambda values: values.astype(kind)
    module = _module(node)
    if module == "torch" and hasattr(node, "is_floating_point"):
        torch = sys.modules["torch"]
        name = str(node.dtype)
        if not node.is_floating_point():
            return name, None, float
        array = node.detach().to("cpu", torch.float64).numpy()
        return name, array, lambda values: torch.as_tensor(values).to(dtype=node.dtype, device=node.device)
    if module == "pandas" and hasattr(node, "index") and getattr(node.dtype, "kind", "") == "f":
        # pandas' own missing values are NaN
        values = node.to_numpy(np.float64, na_value=np.nan)
        return (
            f"pandas.{node.dtype}",
            values,
            lambda values: type(node)(values, node.index, node.dtype, node.name),
        )
    return type(node).__name__, None, float


def _module(node: Any) -> str:
    return type(node).__module__.partition(".")[0]


def _built(node: Any, leaves: Iterator[Any]) -> Any:
    """Return a tree like `node` with these leaves, in the order of `_leaves`, and the keys in their own."""
    if isinstance(node, Mapping):
        values = {key: _built(node[key], leaves) for key in sorted(node)}
        return {key: values[key] for key in node}
    if isinstance(node, list):
        return [_built(child, leaves) for child in node]
    if isinstance(node, tuple):
        children = [_built(child, leaves) for child in node]
        return type(node)(*children) if hasattr(node, "_fields") else tuple(children)
    if _module(node) == "pandas" and hasattr(node, "columns"):
        columns = {str(column): column for column in node.columns}
        values = {columns[name]: next(leaves) for name in sorted(columns)}
        return type(node)({column: values[column] for column in node.columns}, index=node.index)
    return next(leaves)
