"""The protocols of sessions by their names, those of other packages too, and the roles of one request.

Another package registers a `SessionProtocol` in the entry-point group `smpc_dp.protocols`, by its name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases.key_graph import Watch
from smpc_dp.engine.phases.last_results import HeldResult, SentResults
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.run import Run
from smpc_dp.engine.session_protocol import MakeAggregator, ParameterChecker, SessionProtocol, task_of_vectors
from smpc_dp.errors import ConfigIssue
from smpc_dp.extensions import CAPABILITIES, Extension, Group, find, imported
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.wire.signing import Context, Signer

if TYPE_CHECKING:
    from smpc_dp.logs.keeping import Board

# By its name, where each protocol of this package is, in the attribute PROTOCOLS of the module; looked up
# first. No other package can take a name of this list, or a reserved one: it would stand for this package's
# in signed and hashed data. That also holds for a capability whose folder is absent.
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "secagg": "smpc_dp.secagg.protocol",
        "exchange": "smpc_dp.session.exchange.protocol",
        "gopa": f"{CAPABILITIES}.gopa.capability",
        "pairwise": f"{CAPABILITIES}.pairs.capability",
        "mpyc": f"{CAPABILITIES}.servers.capability",
        "learn": f"{CAPABILITIES}.learn.capability",
        "reports": f"{CAPABILITIES}.reports.capability",
    }
)
RESERVED = frozenset({*BUILT_IN, "pairwise-statistic"})


@functools.cache
def _built_in(name: str) -> SessionProtocol | None:
    """Return the protocol of this package that has this name, or None if its capability is not installed."""
    module = imported(BUILT_IN[name])
    protocols: tuple[SessionProtocol, ...] = () if module is None else module.PROTOCOLS
    return next((one for one in protocols if one.name == name), None)


def _registered(name: str) -> tuple[SessionProtocol, Extension] | None:
    """Return a protocol of another package, and the package; None if absent; LocalError if unfit."""
    result = None if name in RESERVED else find(Group.PROTOCOLS, name)
    if result is None:
        return None
    added = result.value
    if not isinstance(added, SessionProtocol):
        raise result.unfit("is no SessionProtocol")
    # Its sessions are sums through an aggregator; the rest would be trusted by sessions of other protocols.
    if added != _of_sums(added.name, added.versions, added):
        raise result.unfit("sets more than name, versions, party and aggregator")
    are_numbers = isinstance(added.versions, Mapping) and all(
        type(number) is int and number > 0 and callable(check) for number, check in added.versions.items()
    )
    if not (are_numbers and added.versions and callable(added.party) and callable(added.aggregator)):
        raise result.unfit("needs versions with their checkers, a party and an aggregator")
    return added, result


def _of_sums(name: str, versions: Mapping[int, ParameterChecker], added: SessionProtocol) -> SessionProtocol:
    """Return a protocol of sums with these versions' parameter checks, and the roles of `added`."""
    return SessionProtocol(name=name, versions=versions, party=added.party, aggregator=added.aggregator)


def find_protocol(name: str) -> SessionProtocol | None:
    """Return a protocol by name; None if unknown or not installed; LocalError if its package is broken."""
    if name in BUILT_IN:
        return _built_in(name)
    registered = _registered(name)
    if registered is None:
        return None
    added, extension = registered

    def check_with(checker: ParameterChecker) -> ParameterChecker:
        def check(parameters: Mapping[str, object], parties: int) -> tuple[object | None, list[ConfigIssue]]:
            checked, issues = checker(parameters, parties)
            fits = isinstance(checked, SumParameters) and checked.protocol == name
            if not fits and (checked is not None or not issues):
                raise extension.unfit(f"makes no SumParameters with the protocol '{name}'")
            return checked, issues

        return check

    checked = {version: check_with(checker) for version, checker in added.versions.items()}
    return replace(_of_sums(name, checked, added), task=task_of_vectors)


def is_absent(name: str) -> bool:
    """Tell whether a protocol belongs to this package but its capability is not installed."""
    return name in BUILT_IN and _built_in(name) is None


def protocol_in(name: str, version: int) -> SessionProtocol | None:
    """Return the protocol if it has this name and version, also of an earlier release; else None."""
    result = find_protocol(name)
    return result if result is not None and result.checker(version) is not None else None


def session_protocol(name: str) -> SessionProtocol:
    """Return the protocol of this name, from a checked session file; LookupError if unknown."""
    result = find_protocol(name)
    if result is None:
        raise LookupError(f"the protocol {name!r} is unknown")
    return result


def built_in_protocols() -> tuple[SessionProtocol, ...]:
    """Return the protocols of this package whose capabilities are installed."""
    every = map(_built_in, BUILT_IN)
    return tuple(one for one in every if one is not None)


def checker_of(name: str, version: int) -> ParameterChecker:
    """Return the function that checks `[parameters]` of a protocol's version; LookupError if unknown."""
    check: ParameterChecker | None = session_protocol(name).checker(version)
    if check is None:
        raise LookupError(f"version {version} of '{name}' is unknown")
    return check


def origin_of(name: str) -> str:
    """Return the package, with version, that registers a protocol; "" for a built-in protocol."""
    registered = _registered(name)
    return "" if registered is None else registered[1].origin


def make_party(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    ring_vector: RingVector,
    randomness: Randomness | None = None,
    fixed: FixedSurvivors | None = None,
    seen: Seen = NOTHING_SEEN,
    *,
    last: HeldResult | None = None,
    **verifiable: bool,
) -> Run[Any]:
    """Return the state machine of a party for one request, in the protocol of its parameters."""
    make: Callable[..., Run[Any]] = session_protocol(parameters.protocol).party  # type: ignore[assignment]
    return make(context, parameters, identity, ring_vector, randomness, fixed, seen, last=last, **verifiable)


def make_aggregator(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    *,
    threads: int = 1,
    watch: Watch | None = None,
    board: Board | None = None,
    fixed: FixedSurvivors | None = None,
    last: SentResults | None = None,
) -> Run[Any]:
    """Return the state machine of the aggregator for one request, in the protocol of its parameters."""
    make: MakeAggregator = session_protocol(parameters.protocol).aggregator  # type: ignore[assignment]
    return make(
        context, parameters, identity, threads=threads, watch=watch, board=board, fixed=fixed, last=last
    )
