"""Two lenders that cheat in a verifiable run, for `smpc_dp.connect(role=...)`.

A party can run another program than the agreed one. Nobody can prevent that. The others see it and exclude
the party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace

from smpc_dp.crypto import commit, proofs
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Lanes
from smpc_dp.errors import LocalError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.gopa.verifiable.party import VerifiablePartyMachine
from smpc_dp.protocols.registry import MakeParty
from smpc_dp.protocols.secagg.params import SumParameters
from smpc_dp.protocols.secagg.survivors import FixedSurvivors
from smpc_dp.seen import NOTHING_SEEN, Seen


class NegativeLoans(VerifiablePartyMachine):
    """A lender that commits to a negative number of loans, with a proof for the true number."""

    def _enter(self, step: str, message: msgspec.Struct) -> Sequence[Envelope]:
        if isinstance(message, v.Commit) and self._lanes is not None:
            loans, *others = (int(value) for value in self._lanes)
            values = (-max(loans, 1), *others)
            self._lanes = (np.array(values, dtype=np.int64) + self._verifiable.centre).view(np.uint64)
            message = replace(message, value=commit.commit(values, self._value_blinding))
        return super()._enter(step, message)


class _ChosenNoise(proofs.NoiseSecret):
    """Noise of 0 for the number of loans and as much as there can be for the rate."""

    def noise(self, coins: bytes) -> list[int]:  # noqa: ARG002 - the coins do not matter
        return [0, self.bits // 2]

    def prove(
        self, context: bytes, coins: bytes, blinding: bytes, randomness: Randomness
    ) -> tuple[bytes, bytes]:
        _, proof = super().prove(context, coins, blinding, randomness)
        return commit.commit(self.noise(coins), blinding), proof


class ChosenNoise(VerifiablePartyMachine):
    """A lender that adds noise of its choice, with a proof for the noise that the coins give."""

    def _draw_secret(self) -> proofs.NoiseSecret:
        return _ChosenNoise.draw(self._parameters.encoding.length, self._verifiable.bits, self._random)


def _make(
    role: type[VerifiablePartyMachine],
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    lanes: Lanes,
    randomness: Randomness | None = None,
    fixed: FixedSurvivors | None = None,  # noqa: ARG001 - of other protocols
    seen: Seen = NOTHING_SEEN,
) -> VerifiablePartyMachine:
    if not isinstance(parameters, VerifiableParameters):
        raise LocalError("this role is for verifiable averages")
    return role(context, parameters, identity, lanes, randomness, seen)


ROLES: Mapping[str, MakeParty] = {
    "range": partial(_make, NegativeLoans),
    "noise": partial(_make, ChosenNoise),
}
