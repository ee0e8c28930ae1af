"""Encoding of a collecting role's inbox as plain data. Specification: protocols/saved-states/README.md."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from smpc_dp.decoding import convert
from smpc_dp.engine.collector import Inbox
from smpc_dp.errors import Check, Code, PeerFault, SmpcError, TimeoutFault, VerificationError


class SavedError(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An error in a form that can be saved to disk: its kind, text and data.

    Attributes:
        kind: its class; "other" for errors that blame no party.
        text: its text; of a PeerFault the reason.
        check: the check that refused, of a PeerFault or a VerificationError.
        names: the culprit, or the missing members, each with its code.
    """

    kind: Literal["peer", "timeout", "verification", "other"]
    text: str
    code: Code
    check: Check | None = None
    names: tuple[tuple[str, Code], ...] = ()
    step: str = ""
    number: int = 0
    accuser: str = ""
    evidence: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, error: SmpcError) -> SavedError:
        """Return an error as plain data that can be stored."""
        match error:
            case PeerFault():
                names = ((error.culprit, error.code),)
                evidence = tuple(error.evidence.items())
                accuser = error.accuser
                return cls(
                    "peer", error.reason, error.code, error.check, names, accuser=accuser, evidence=evidence
                )
            case TimeoutFault():
                why = tuple(sorted(error.why.items()))
                return cls("timeout", str(error), error.code, None, why, error.step, error.number)
            case VerificationError():
                return cls("verification", str(error), error.code, error.check)
            case _:
                return cls("other", str(error), error.code)

    def error(self) -> SmpcError:
        """Return the error that the saved data describe, as an exception; ValueError if malformed."""
        error: SmpcError
        match self.kind, self.check, self.names:
            case "peer", Check() as check, ((culprit, _),):
                evidence = dict(self.evidence)
                return PeerFault(culprit, self.text, check, evidence, accuser=self.accuser, code=self.code)
            case "verification", Check() as check, ():
                return VerificationError(self.text, check)
            case "timeout", None, names:
                why = dict(names)
                error = TimeoutFault(why, self.step, code=self.code, why=why, number=self.number)
                error.args = (self.text,)
                return error
            case "other", None, ():
                error = SmpcError(self.text)
                error.code = self.code
                return error
        raise ValueError("an error")


class SavedInbox(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An aggregator's inbox at a step's end in a form that can be saved, without the step's messages."""

    alive: tuple[int, ...]
    seen: tuple[tuple[int, str, bytes, bytes], ...]
    excluded: tuple[tuple[int, SavedError], ...]
    faults: tuple[str, ...]
    answered: tuple[int, ...]
    past: tuple[bytes, ...]
    events: int

    @classmethod
    def of(cls, inbox: Inbox) -> SavedInbox:
        """Return an inbox in the form that can be saved."""
        return cls(
            tuple(sorted(inbox.alive)),
            tuple((*key, *value) for key, value in inbox.seen.items()),
            tuple((party, SavedError.of(error)) for party, error in inbox.excluded.items()),
            tuple(inbox.faults),
            tuple(sorted(inbox.answered)),
            tuple(sorted(inbox.past)),
            inbox.events,
        )

    @classmethod
    def read(cls, value: Any) -> Inbox:
        """Return the inbox that saved data describe; raise ValueError for other values."""
        saved: SavedInbox = convert(value, cls)
        inbox = Inbox(set(saved.alive))
        inbox.seen = {(party, step): (digest, signature) for party, step, digest, signature in saved.seen}
        inbox.excluded = {party: error.error() for party, error in saved.excluded}
        inbox.faults = list(saved.faults)
        inbox.answered, inbox.past = set(saved.answered), set(saved.past)
        inbox.events = saved.events
        return inbox
