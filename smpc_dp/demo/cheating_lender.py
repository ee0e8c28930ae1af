"""Two lenders that cheat in a verifiable run, by `smpc_dp.connect(role=...)`.

A party can run another program than the agreed one. Nobody can prevent that. The others notice it and exclude
the party.

python -m smpc_dp.demo.cheating_lender KIND SESSION NAME SHARD.csv RESULT.json
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

import smpc_dp
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.committing import Secrets
from smpc_dp.capabilities.gopa.verifiable.follow import VerifiableMember
from smpc_dp.capabilities.gopa.verifiable.joining import AwaitNeighbours, on_neighbours
from smpc_dp.capabilities.gopa.verifiable.states import PARTY
from smpc_dp.crypto import commit, proofs
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.demo.member import run_member
from smpc_dp.engine.registry import make_party
from smpc_dp.engine.run import Run
from smpc_dp.engine.session_protocol import MakeParty
from smpc_dp.engine.state import Transition
from smpc_dp.session.launcher import print_event
from smpc_dp.wire.signing import decode


def commit_to_negative_loans(member: VerifiableMember, state: AwaitNeighbours, body: bytes) -> Transition:
    """Cheat in a run: commit to a negative number of loans, with a proof of the true number."""
    after, [sent] = on_neighbours(member, state, body)
    secrets: Secrets = after.secrets
    loans, *others = (int(value) for value in secrets.vector)
    values = (-max(loans, 1), *others)
    vector = (np.array(values, dtype=np.int64) + member.parameters.centre).view(np.uint64)
    message = decode(sent.body, v.Commit, member.name)
    false = replace(message, value=commit.commit(values, secrets.value_blinding))
    entry = member.write(sent.run_id, sent.step, false)
    return Transition(replace(after, secrets=replace(secrets, vector=vector), entry=entry), (entry,))


class _ChosenNoise(proofs.NoiseSecret):
    """Cheat's noise secret, whose noise is chosen and not drawn: 0 for the count, the most for the rate."""

    def __init__(self, drawn: proofs.NoiseSecret) -> None:
        self.length, self.bits, self.commitment = drawn.length, drawn.bits, drawn.commitment
        self._drawn = drawn

    def noise(self, coins: bytes) -> list[int]:  # noqa: ARG002 - the coins do not matter
        """Return the noise that the cheat prefers, whatever the public coins are."""
        return [0, self.bits // 2]

    def prove(
        self, context: bytes, coins: bytes, blinding: bytes, randomness: Randomness
    ) -> tuple[bytes, bytes]:
        """Return a commitment to the preferred noise, with a proof that is for the drawn noise."""
        _, proof = self._drawn.prove(context, coins, blinding, randomness)
        return commit.commit(self.noise(coins), blinding), proof


class _ChoosingMember(VerifiableMember):
    """Role of a cheating lender that adds noise of its choice, with a proof for other noise."""

    def noise_secret(self, drawn: proofs.SecretBytes) -> proofs.NoiseSecret:
        """Return the secret whose noise the cheat has chosen, in place of the drawn one."""
        return _ChosenNoise(VerifiableMember.noise_secret(self, drawn))


def _committing(honest: Run[Any]) -> Run[Any]:
    """Return the honest lender's run, changed so that it sends a false commitment."""
    return Run(PARTY.with_row(AwaitNeighbours, commit_to_negative_loans), honest.member, honest.state)


def _choosing(honest: Run[Any]) -> Run[Any]:
    """Return the honest lender's run, changed so that it adds noise of its choice."""
    given = {field.name: getattr(honest.member, field.name) for field in dataclasses.fields(honest.member)}
    return Run(PARTY, _ChoosingMember(**given), honest.state)


def _role(cheat: Callable[[Run[Any]], Run[Any]]) -> MakeParty:
    """Return a function that makes a lender's honest run, and then lets `cheat` change it."""

    def make(*arguments: Any, **named: Any) -> Run[Any]:
        return cheat(make_party(*arguments, **named))

    return make


ROLES: Mapping[str, MakeParty] = {"range": _role(_committing), "noise": _role(_choosing)}


def main() -> int:
    """Run the process of a cheating lender: print its events, and write its result if it gets one."""
    kind, session_file, name, shard, out = sys.argv[1:]

    async def act() -> object:
        async with smpc_dp.connect(
            session_file, party=name, table=shard, on_event=print_event, role=ROLES[kind]
        ) as session:
            return (await session.statistics()).to_json()

    return run_member(name, Path(out), act)


if __name__ == "__main__":
    sys.exit(main())
