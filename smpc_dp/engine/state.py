"""The base of all states, and the transition from one state to the next.

A state is a frozen struct with exactly the fields that its step needs. A value that must be forgotten is a
field that the next state does not have. Python cannot erase memory: such a secret is unreachable, and its
bytes stay until the memory is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from smpc_dp.errors import SmpcError
from smpc_dp.wire.envelope import Envelope


class Secret(msgspec.Struct, frozen=True):
    """Secret values of a state, which `repr` does not show."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"


class Work:
    """Work with secrets of its own, as two-party evaluations are: never saved, nor done a second time."""


class State(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """State of a role in one run.

    Attributes:
        run_id: of the run; empty until the parties that are present are agreed on.
        expects: the step whose messages the state takes.
        over: whether the role takes and sends nothing more.
        releases: whether the answer to the expected message is the first that depends on the party's vector.
        entrusts: whether the role's holder now uses the party's input, as in two-party evaluations.
        place: of a role among peers, the number of phases before it.
        patient: whether the role waits for the coordinator, which itself waits for others first.
        matchings: the most pairs that a party may have to evaluate, one after the other, within the step.
    """

    run_id: bytes = b""
    expects: ClassVar[str] = "done"
    over: ClassVar[bool] = False
    releases: ClassVar[bool] = False
    entrusts: ClassVar[bool] = False
    phase: ClassVar[int] = 0
    patient: ClassVar[bool] = False
    matchings: ClassVar[int] = 0

    @property
    def outcome(self) -> Any:
        """Result of the run; None in a state without such a field."""
        return None

    @property
    def warning(self) -> str:
        """Text for the watcher of the role; empty in a state without such a field."""
        return ""

    @property
    def error(self) -> SmpcError | None:
        """Error with which the run is over for the role; None in a state without such a field."""
        return None

    def __repr__(self) -> str:
        # Fields hold secrets.
        return f"{type(self).__name__}(expects {self.step!r})"

    @property
    def step(self) -> str:
        """Step whose messages the state takes; "done" when it takes none."""
        return self.expects

    @property
    def reports(self) -> Sequence[Any]:
        """Results of the work that the state leaves to its holder; they are only added."""
        return ()

    @property
    def unwritten(self) -> Sequence[Any]:
        """The lines that are to be written to a log before the messages of the last step are sent."""
        return ()

    @property
    def restorable(self) -> Self:
        """State as it is saved: without work that is never repeated."""
        return self

    def without(self, _messages: Sequence[Envelope]) -> Self:
        """Return the state if the messages of the transition into it are never sent."""
        return self


class Transition(NamedTuple):
    """Next state of a role, and the messages of the transition."""

    state: Any
    messages: Sequence[Envelope] = ()
