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
    """Base of values in a state that are secret: `repr` shows only the type's name."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"


class Work:
    """Base of work in a state that has its own secrets: never saved to disk, never repeated."""


class State(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Base of the immutable states of a protocol role in one run.

    Attributes:
        run_id: of the run; empty until the parties that are present are agreed on.
        expects: the step whose messages the state takes.
        over: whether the role takes and sends nothing more.
        releases: whether the answer to the expected message is the first that depends on the party's vector.
        entrusts: whether the role's holder now uses the party's input, as in two-party evaluations.
        phase: of a role among peers, the number of phases before it.
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
        """The result of the run; None, as by default, in a state that has no result."""
        return None

    @property
    def warning(self) -> str:
        """Warning text for the program that watches the role; by default ""."""
        return ""

    @property
    def error(self) -> SmpcError | None:
        """The error with which the run has ended for the role; None, as by default, in other states."""
        return None

    def __repr__(self) -> str:
        # Fields hold secrets.
        return f"{type(self).__name__}(expects {self.step!r})"

    @property
    def step(self) -> str:
        """Name of the step whose messages the state takes; "done" if none, also before the hello."""
        return self.expects

    @property
    def reports(self) -> Sequence[Any]:
        """Results of work beside the step that the state has taken, to be saved one by one; here none."""
        return ()

    @property
    def unwritten(self) -> Sequence[Any]:
        """The lines to be written to a public log before the last step's messages are sent; here none."""
        return ()

    @property
    def restorable(self) -> Self:
        """The state in the form in which it is saved to disk: by default unchanged."""
        return self

    def restored(self, _member: Any) -> Self:
        """Return the full state, rebuilt from the form saved to disk: by default unchanged."""
        return self

    def without(self, _messages: Sequence[Envelope]) -> Self:
        """Return the state to use if these messages are never sent: by default unchanged."""
        return self


class Transition(NamedTuple):
    """Result of a protocol role's step: the next state, and the messages to send."""

    state: Any
    messages: Sequence[Envelope] = ()
