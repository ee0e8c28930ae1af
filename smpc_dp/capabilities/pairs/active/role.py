"""Common part of roles of an evaluation secure against both sides: one error for every failure."""

from __future__ import annotations

import hmac

import numpy as np

from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Send
from smpc_dp.capabilities.pairs.garbled.messages import HELLO
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.plan import Bits, unpack_bits
from smpc_dp.errors import Check, Code, PeerFault, SmpcError, VerificationError, without_frames
from smpc_dp.wire.abort import ABORT, Abort


def evaluation_failure() -> VerificationError:
    """Return the error for any failed check: it blames nobody, and its reason depends on no wire."""
    reason = "the evaluation failed: one of the members deviated or was lost, or what they sent was changed"
    return VerificationError(reason, Check.EVALUATION_FAILED, code=Code.EVALUATION)


class ActiveRole(Participant):
    """Base class of all roles of a maliciously secure evaluation: after hellos, all errors look alike."""

    _plan: ActivePlan

    def run(self) -> Effects[Evaluated]:
        """Run all steps of the role; on failure delete both setups, and after hellos blame nobody.

        Neither setup, nor an output that was not returned yet, outlives an evaluation that fails.
        """
        try:
            return (yield from super().run())
        except (PeerFault, VerificationError) as error:
            self._forget()
            if self.step == HELLO:
                raise
            # Frames hold masks and shares.
            raise evaluation_failure() from without_frames(error)
        except BaseException:
            self._forget()
            raise

    def farewell(self, error: SmpcError) -> list[Send]:
        """Return messages that tell the others of the run's end; after hellos all have one code."""
        if self.step == HELLO:
            return super().farewell(error)
        return [self._control(peer, ABORT, Abort(Code.EVALUATION)) for peer in self._others]

    def _forget(self) -> None:
        """Delete secrets kept from earlier evaluations; does nothing unless a subclass overrides it."""

    def _require(self, arrived: bytes | memoryview, expected: bytes) -> None:
        """Raise the uniform error of a failed check unless a received value is the expected one."""
        if not hmac.compare_digest(arrived, expected):
            raise evaluation_failure()

    def _unpacked(self, packed: bytes | memoryview, count: int) -> Bits:
        """Return `count` bits unpacked from bytes; raise the uniform error for another length."""
        if (bits := unpack_bits(packed, (1, count))) is None:
            raise evaluation_failure()
        return np.ascontiguousarray(bits.reshape(-1))
