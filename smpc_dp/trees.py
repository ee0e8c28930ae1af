"""Trees of arrays as vectors: dicts, lists and tuples of floats, arrays, tensors and pandas columns.

The structure of a tree (the paths, shapes and types of its leaves, and their bounds) is a text in the
operation of a request. Parties whose structures differ are not added up with each other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.encoding import Encoding, RingVector
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues, PrivacyError
from smpc_dp.fixed_point import Averages, Faults, Map, sides_in, slices_of
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
# Types of tensors that are made of arrays without a conversion.
_OF_TORCH: dict[str, np.dtype[Any]] = {
    "torch.float64": np.dtype(np.float64),
    "torch.float32": np.dtype(np.float32),
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """Description of one array in a tree of arrays (a model): path, shape, type and bounds.

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
        """Number of values in the array."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def described(self) -> str:
        """Text with all that parties must agree on about this array."""
        size = "x".join(map(str, self.shape))
        return f"{self.path} {self.type}[{size}] in [{self.lower!r}, {self.upper!r}]"

    def name_of(self, index: int) -> str:
        """Return the path of the value number `index` (C order) of this array, for errors."""
        axes = [int(axis) for axis in np.unravel_index(index, self.shape)] if self.shape else ""
        return f"{self.path}{axes}"


class _Kind(NamedTuple):
    """Kind of an array in a tree (NumPy, tensor, number...): type name, and how to rebuild it.

    `dtype` is that of the array; None for types that are none of NumPy's, whose leaves are made of float64.
    """

    name: str
    dtype: np.dtype[Any] | None
    rebuild: Callable[[NDArray[Any]], Any]


@dataclass(frozen=True, slots=True)
class Tree:
    """Tree of arrays (such as a model) as one vector for secure sums, and how to rebuild such trees.

    `centre`: the middle of the session's bounds. `clip`: whether values beyond their bounds are put on them.
    """

    leaves: tuple[Leaf, ...]
    encoding: Encoding
    party: str
    clip: bool
    centre: float
    _maps: tuple[Map | None, ...]
    _kinds: tuple[_Kind, ...]
    _template: Any

    def encode(self, *, weight: float | None = None) -> tuple[RingVector, int]:
        """Encode all values for a secure sum; return ring elements and the number of clipped values.

        Leaves are read one after the other: no array of all values is made but that of ring elements.

        Raises:
            PrivacyError: a value is not finite, or out of its bounds without `clip`, named by its path; or
                the weight is out of bounds.
            ConfigError: the weight is missing or no integer.
        """
        if self.encoding.l2_bound is not None:
            return self.encoding.encode(self.vector, party=self.party, weight=weight, clip=self.clip)
        ring_vector, clipped = self._elements()
        return self.encoding.weigh(ring_vector, weight, self.party), clipped

    def _elements(self) -> tuple[RingVector, int]:
        """Encode all values unweighted; return ring elements and how many were clipped; or PrivacyError."""
        given = self.encoding.coordinates
        ring_vector = np.empty(given.ring_length, given.dtype)
        sides, faults, clipped, start = given.bounds_of_each, Faults(), 0, 0
        for leaf, own, array in zip(self.leaves, self._maps, self._arrays(), strict=True):
            part = slice(start, start + leaf.size)
            wrong = given.write(array, ring_vector[part], sides_in(sides, part), own)
            if wrong.infinite is not None:
                raise PrivacyError(f"{self.party}: {leaf.name_of(wrong.infinite)} must be finite")
            count, first = wrong.outside_own, wrong.first_own
            if own is None and given.box is None:
                # The bounds of the session are those of the leaf.
                count, first, wrong = wrong.outside, wrong.first, Faults()
            if first is not None and not self.clip:
                where, more = leaf.name_of(first), f" ({count} values are)" if count > 1 else ""
                reason = f"{where} is outside [{leaf.lower}, {leaf.upper}]{more}"
                raise PrivacyError(f"{self.party}: {reason}")
            clipped += count
            faults, start = faults.followed_by(wrong, start), part.stop
        return ring_vector, clipped + given.clipped_of(faults, self.party, clip=self.clip)

    @property
    def vector(self) -> NDArray[np.float64]:
        """All values as one vector; unless the session bounds coordinates or norms, clipped or PrivacyError.

        Where the session bounds coordinates or the norm, only values that are not finite are refused.
        """
        bounded = self.encoding.box is None and self.encoding.l2_bound is None
        if bounded:
            self._elements()
        parts = []
        for leaf, array in zip(self.leaves, self._arrays(), strict=True):
            values = _finite(array, leaf, self.party)
            parts.append(np.clip(values, leaf.lower, leaf.upper) if bounded else values)
        return np.concatenate(parts)

    def _arrays(self) -> Iterator[NDArray[Any]]:
        """Yield the array of each leaf, in the vector's order."""
        return (array for _, array, _ in _leaves(self._template, "", [], 0))

    @property
    def structure(self) -> str:
        """Text of the paths, shapes, types and bounds, which parties compare: readable, or a hash if long."""
        lines = [leaf.described for leaf in self.leaves]
        text = "; ".join(lines)
        if len(text) <= READABLE:
            return _READABLE + text
        first, second = _sums(_hashes(lines))
        hashed = digest(Label.TREE, *(line.encode() for line in lines)).hex()[:32]
        return f"{_SKETCH}{len(lines)} {hashed} {first:016x} {second:016x}"

    def restore(self, value: Averages | NDArray[Any], *, exact: bool = False) -> Any:
        """Rebuild a tree of this structure from the vector of an average, within its bounds if `exact`.

        `exact`: without noise; then each value is within its leaf's bounds, in the leaf's type too.
        """
        built, start = [], 0
        for leaf, kind in zip(self.leaves, self._kinds, strict=True):
            middle = (leaf.lower + leaf.upper) / 2
            rounded = exact and kind.dtype is not None
            made = np.empty(leaf.size, np.float64 if kind.dtype is None else kind.dtype)
            for part in slices_of(leaf.size):
                values = np.asarray(value[start + part.start : start + part.stop], np.float64)
                if leaf.scale != 1.0 or middle != self.centre:
                    values = (values - self.centre) * leaf.scale + middle
                made[part] = _within(values, leaf, made.dtype.type) if rounded else values
            start += leaf.size
            made = made.reshape(leaf.shape)
            if rounded:
                # A number, where an array has no axes.
                made = made[()]
            built.append(_within(made, leaf, kind.rebuild) if exact and not rounded else kind.rebuild(made))
        return _built(self._template, iter(built))

    def values_of(self, tree: Any, party: str) -> NDArray[np.float64]:
        """Return another tree's values as a vector; ConfigError unless its paths and shapes are this tree's.

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
        return np.concatenate([_finite(read[leaf.path], leaf, party) for leaf in self.leaves])


def flatten(
    tree: Mapping[Any, Any],
    encoding: Encoding,
    *,
    party: str,
    bounds: Bounds | None = None,
    clip: bool = False,
) -> Tree:
    """Return a `Tree` of these arrays, whose values are read when it is encoded; ConfigError if unfit.

    With `bounds` every leaf is mapped from its own onto those of the session, so that its step is as fine as
    its range is narrow.

    The values are read where the result is encoded.

    Raises:
        ConfigError: the tree has a leaf or a node of another kind, more or fewer values than the session's
            vectors, or bounds that are wrong; names each path.
    """
    issues = Issues()
    if encoding.integer:
        issues.add_issue("tree", "is for sessions of real values", ConfigCheck.UNSUPPORTED)
    read = [(path, array.shape, kind) for path, array, kind in _leaves(tree, "", issues, 0)]
    if issues:
        raise ConfigError(_of(party, issues))
    size = sum(math.prod(shape) for _, shape, _ in read)
    if not read or size != encoding.length:
        reason = f"{party}: has {size} values in {len(read)} leaves, vectors have {encoding.length}"
        raise ConfigError.at("tree", reason, ConfigCheck.SHAPE)
    given = _bounds_of([path for path, *_ in read], bounds, encoding, party)
    low, high = (float(bound) for bound in (encoding.lower, encoding.upper))
    leaves, maps = [], []
    for (path, shape, kind), bound in zip(read, given, strict=True):
        lower, upper = bound or (low, high)
        scale = (upper - lower) / (high - low)
        step, sent = scale * encoding.step, math.prod(shape) * encoding.element_bytes
        if not sys.float_info.min < step < math.inf:
            reason = f"{party}: [{lower}, {upper}] is too wide or too narrow for [{low}, {high}]"
            raise ConfigError.at(f"bounds{path}", reason, ConfigCheck.RANGE)
        leaves.append(Leaf(path, shape, kind.name, lower, upper, step, scale, sent))
        maps.append(_map_of(leaves[-1], encoding, mapped=bound is not None))
    kinds = tuple(kind for *_, kind in read)
    return Tree(tuple(leaves), encoding, party, clip, (low + high) / 2, tuple(maps), kinds, tree)


def _map_of(leaf: Leaf, encoding: Encoding, *, mapped: bool) -> Map | None:
    """Return the map of an array's values to the session's bounds; None if they stay as they are."""
    if encoding.box is not None or encoding.l2_bound is not None:
        return None
    low, high = float(encoding.lower), float(encoding.upper)
    middle, centre = ((leaf.lower + leaf.upper) / 2, (low + high) / 2) if mapped else (0.0, 0.0)
    if (
        leaf.scale == 1.0
        and middle == centre == 0.0
        and tuple(map(float, encoding.real_bounds)) == (low, high)
    ):
        return None
    # The middles are mapped on each other, and what rounding puts outside is put on the bound.
    return Map(leaf.lower, leaf.upper, leaf.step / 2, middle, leaf.scale, centre, low, high)


def differing(tree: Tree, structure: str) -> str:
    """Return words on where a tree differs from another, of which only the structure text is known.

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
    """Return half of a number modulo the prime PRIME."""
    return value * pow(2, -1, PRIME) % PRIME


def _differing_lines(ours: list[str], theirs: list[str]) -> str:
    """Return words on the first line in which two trees' descriptions differ."""
    for own, other in zip(ours, theirs, strict=False):
        if own != other:
            return f"ours has {own}, theirs {other}"
    longer = ours if len(ours) > len(theirs) else theirs
    whose = "ours" if longer is ours else "theirs"
    return f"only {whose} has {longer[min(len(ours), len(theirs))]}"


def _hashes(lines: Sequence[str]) -> list[int]:
    """Return a hash modulo PRIME of each line of a tree's description."""
    return [int.from_bytes(digest(Label.TREE_LEAF, line.encode())[:8]) % PRIME for line in lines]


def _sums(hashes: Sequence[int]) -> tuple[int, int]:
    """Return the sum of hashes and the sum of their squares, modulo PRIME, to find one that differs."""
    return sum(hashes) % PRIME, sum(value * value for value in hashes) % PRIME


def _of(party: str, issues: Sequence[ConfigIssue]) -> list[ConfigIssue]:
    """Return faults with a party's name put before each reason."""
    return [ConfigIssue(where, f"{party}: {reason}", check) for where, reason, check in issues]


def _bounds_of(
    paths: Sequence[str], bounds: Bounds | None, encoding: Encoding, party: str
) -> list[tuple[float, float] | None]:
    """Return a tree's bounds for each leaf, None where the session's apply; ConfigError if wrong."""
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


def _finite(array: NDArray[Any], leaf: Leaf, party: str) -> NDArray[np.float64]:
    """Return an array's values as a float vector; PrivacyError names the first that is not finite."""
    values = array.astype(np.float64).reshape(-1)
    if not (finite := np.isfinite(values)).all():
        raise PrivacyError(f"{party}: {leaf.name_of(int(finite.argmin()))} must be finite")
    return values


def _within(values: NDArray[np.float64], leaf: Leaf, rebuild: Callable[[NDArray[np.float64]], Any]) -> Any:
    """Rebuild an array from clipped values, so that rounding to its type does not exceed the bounds."""
    lower, upper = leaf.lower, leaf.upper
    within = np.clip(values, lower, upper)
    made = rebuild(within)
    for bits in _NARROW_BITS:
        read = np.asarray(_leaf(made)[0], np.float64)
        if not (outside := (read < lower) | (read > upper)).any():
            break
        # Rounded to a narrower type, a value on a bound is beyond it.
        inner = np.where(read > upper, upper - abs(upper) * 2.0**-bits, lower + abs(lower) * 2.0**-bits)
        within = np.where(outside, inner, within)
        made = rebuild(within)
    return made


def _leaves(
    node: Any, path: str, issues: list[ConfigIssue], depth: int
) -> Iterator[tuple[str, NDArray[Any], _Kind]]:
    """Yield path, array and kind of each leaf in a tree, in the vector's order; append faults to `issues`."""
    if depth > MAX_DEPTH:
        issues.append(ConfigIssue(f"tree{path[:80]}", f"deeper than {MAX_DEPTH}", ConfigCheck.TOO_LARGE))
        return
    children = _children(node, path, issues)
    if children is not None:
        for key, child in children:
            yield from _leaves(child, path + key, issues, depth + 1)
        return
    array, kind = _leaf(node)
    if is_masked_array(node) and np.ma.is_masked(node):
        issues.append(ConfigIssue(f"tree{path}", "has masked values: none may be missing", ConfigCheck.TYPE))
    elif array is None:
        reason = f"{kind.name} is no leaf: floating-point numbers, arrays and tensors are"
        issues.append(ConfigIssue(f"tree{path}", reason, ConfigCheck.TYPE))
    else:
        yield path, array, kind


def _children(node: Any, path: str, issues: list[ConfigIssue]) -> list[tuple[str, Any]] | None:
    """Return paths and nodes below a node, in the vector's order, None for a leaf; add faults to `issues`."""
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


def _leaf(node: Any) -> tuple[NDArray[Any] | None, _Kind]:
    """Return a leaf's array (None if it has no floating-point values), and its kind."""
    if isinstance(node, float) and not isinstance(node, np.floating):
        return np.asarray(node), _Kind("float", np.dtype(np.float64), float)
    if isinstance(node, np.ndarray | np.floating):
        array = np.asarray(node)
        kind = _Kind(array.dtype.name, array.dtype, lambda values: values)
        return array if array.dtype.kind == "f" and array.dtype.itemsize <= 8 else None, kind
    module = _module(node)
    if module == "torch" and hasattr(node, "is_floating_point"):
        torch = sys.modules["torch"]
        name = str(node.dtype)
        if not node.is_floating_point():
            return None, _Kind(name, None, float)
        own = _OF_TORCH.get(name)
        values = node.detach().to("cpu", torch.float64 if own is None else node.dtype).resolve_neg().numpy()
        return values, _Kind(
            name, own, lambda values: torch.as_tensor(values).to(dtype=node.dtype, device=node.device)
        )
    if module == "pandas" and hasattr(node, "index") and getattr(node.dtype, "kind", "") == "f":
        # pandas' own missing values are NaN
        values = node.to_numpy(np.float64, na_value=np.nan)
        kind = _Kind(
            f"pandas.{node.dtype}", None, lambda values: type(node)(values, node.index, node.dtype, node.name)
        )
        return values, kind
    return None, _Kind(type(node).__name__, None, float)


def _module(node: Any) -> str:
    """Return the name of the package that defines a node's type, such as "torch"."""
    return type(node).__module__.partition(".")[0]


def _built(node: Any, leaves: Iterator[Any]) -> Any:
    """Rebuild a tree like `node` with new leaves, keeping the order of keys."""
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
