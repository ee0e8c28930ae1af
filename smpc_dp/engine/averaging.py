"""What a protocol registers for learners: how the groups of a session average their vectors by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from smpc_dp.encoding import Encoding
    from smpc_dp.engine.result import Privacy
    from smpc_dp.errors import ConfigIssue
    from smpc_dp.privacy.accountant.events import Event


class GroupParameters(Protocol):
    """Interface of the parameters with which a protocol averages over a group of parties."""

    @property
    def protocol(self) -> str:
        """The name of the protocol by which the group averages."""
        ...

    @property
    def sum_encoding(self) -> Encoding:
        """The fixed-point encoding of the vectors to be averaged."""
        ...

    @property
    def privacy_of_all(self) -> Privacy:
        """The privacy claim of an average if no member of the group is missing."""
        ...

    def planned(self) -> str:
        """Return further planned values, as text, that members compare before a run begins."""
        ...

    def event(self) -> Event:
        """Return the privacy event of one average, to charge to a ledger."""
        ...


class SimulateShares(Protocol):
    """Type of a function that simulates an average by servers in one process.

    Returns the average, shape (length,), and the number of survivors; raises the error that ended the run.
    """

    def __call__(
        self,
        parameters: Any,
        vectors: NDArray[np.float64],
        *,
        request: int,
        seed_for_simulation: int | None,
    ) -> tuple[NDArray[np.float64], int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OnShares:
    """Functions with which computing servers plan, make and simulate an average on secret shares.

    Attributes:
        check_epsilon: raises ConfigError for an epsilon of all averages together that is too large.
        plan: returns the parameters of an average, from the grid of the vectors of all members, how many
            members may be missing, and epsilon and delta of this average, None for an exact one; raises
            ConfigError.
        assumption: returns the assumption of the noise, in words.
        open_server: opens a server; arguments as of
            `capabilities.servers.requests.computing_server.open_computing_server`.
        simulate: runs an average in one process.
    """

    check_epsilon: Callable[[float], None]
    plan: Callable[[Encoding, int, tuple[float, float] | None], GroupParameters]
    assumption: Callable[[], str]
    open_server: Callable[..., AbstractAsyncContextManager[Any]]
    simulate: SimulateShares


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaging:
    """How a protocol averages over a group of a learner's parties: checker of its parameters, servers if any.

    By default an average is a sum through the aggregator, whose members draw the noise.

    Attributes:
        settings: keys of the table of the averager that this protocol alone has.
        is_exact: whether there are averages without noise, which show members and aggregator nothing else.
        check: in the place of the checker of sessions, for `[parameters]` of a group and its size.
        on_shares: where servers average.
    """

    settings: frozenset[str] = frozenset()
    is_exact: bool = False
    check: Callable[[Mapping[str, object], int], tuple[Any, list[ConfigIssue]]] | None = None
    on_shares: OnShares | None = None
