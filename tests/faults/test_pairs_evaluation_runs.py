"""Several evaluations of one pair: one setup of transfers, fresh keys; and what an evaluator cannot steer."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path

import pytest

from smpc_dp.capabilities.pairs.circuits.circuit import pack, unpack
from smpc_dp.capabilities.pairs.garbled.evaluator import EvaluatorRole
from smpc_dp.capabilities.pairs.garbled.garbler import GarblerRole
from smpc_dp.capabilities.pairs.garbled.messages import BULK, CONTROL, HELLO, START, Hello, Start
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.garbled.transfers import Transfers
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.requests.pairwise import PairwiseMember, create_pairwise_session, drive
from smpc_dp.capabilities.pairs.simulation.pairwise import Tamper, evaluate_in_memory
from smpc_dp.crypto.ot import MAX_INDEX, rows_of_chunk
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import SmpcError
from smpc_dp.wire.signing import Context, decode, decode_envelope
from tests.faults.test_pairs_evaluation import IDENTITIES

INSTANCES = 5
X, Y = [1, 2, 3, 4, 5], [10, 20, 30, 40, 50]
CHUNK = rows_of_chunk(32 * INSTANCES)
SETUP_PIECES = 3


class Behind(Transfers):
    """Says that it is at the first index, of a setup that is further on."""

    def __init__(self, held: Transfers) -> None:
        super().__init__()
        end = held.receiver()
        assert end is not None
        self.keep(held.context, end)
        self._says = held.context

    @property
    def next_index(self) -> int:
        return 0 if self.context == self._says else super().next_index


class Pair:
    """A garbler and an evaluator that keep their transfers from one evaluation to the next."""

    def __init__(self) -> None:
        self.transfers = {"alice": Transfers(), "bob": Transfers()}
        self.seen: list[tuple[str, bytes]] = []
        self.request = 0

    def evaluate(self, tamper: Tamper | None = None) -> Mapping[str, Evaluated | SmpcError]:
        fields = {"circuit": "add32", "garbler": "alice", "evaluator": "bob", "instances": INSTANCES}
        plan = Plan(find("add32").build(), PairwiseParameters(**fields))  # type: ignore[arg-type]
        keys = {name: identity.public_key for name, identity in IDENTITIES.items()}
        self.request += 1
        context = Context("pairwise", 1, bytes(32), self.request, ("alice", "bob"), "", keys)
        random = SystemRandomness()
        alice = GarblerRole(
            context, IDENTITIES["alice"], plan, [pack(X, 32)], random, self.transfers["alice"]
        )
        bob = EvaluatorRole(context, IDENTITIES["bob"], plan, [pack(Y, 32)], random, self.transfers["bob"])
        self.seen = []

        def listen(sender: str, to: str, data: bytes) -> list[bytes]:
            self.seen.append((sender, data))
            return [data] if tamper is None else tamper(sender, to, data)

        return evaluate_in_memory({"alice": alice, "bob": bob}, listen)

    def right(self) -> Evaluated:
        """Evaluate, and check the result."""
        ends = self.evaluate()
        for end in ends.values():
            assert isinstance(end, Evaluated), end
            assert end.outputs is not None
            assert unpack(end.outputs[0], INSTANCES) == [x + y for x, y in zip(X, Y, strict=True)]
        bob = ends["bob"]
        assert isinstance(bob, Evaluated)
        return bob

    @property
    def pieces(self) -> int:
        return sum(data[0] == BULK for _, data in self.seen)

    @property
    def indices(self) -> list[int]:
        return [transfers.next_index for transfers in self.transfers.values()]


def test_evaluations_of_a_run_share_one_setup_and_their_indices_go_on() -> None:
    pair = Pair()
    first = pair.right()
    pieces = pair.pieces
    assert pair.indices == [CHUNK] * 2
    later = [pair.right() for _ in range(2)]
    assert pair.pieces == pieces - SETUP_PIECES
    assert pair.indices == [3 * CHUNK] * 2
    assert len({end.run_id for end in (first, *later)}) == 3
    # The level that is claimed counts the transfers of all of them.
    bits = (3 * CHUNK - 1).bit_length()
    assert any(f"up to 2^{bits} oblivious" in line for line in later[-1].privacy.assumptions)


@pytest.mark.parametrize("forgetful", ["alice", "bob"])
def test_who_has_lost_its_side_makes_the_other_set_up_anew(forgetful: str) -> None:
    pair = Pair()
    pair.right()
    pieces, context = pair.pieces, pair.transfers["alice"].context
    pair.right()
    pair.transfers[forgetful] = Transfers()
    end = pair.right()
    assert pair.pieces == pieces
    assert pair.indices == [CHUNK] * 2
    contexts = {transfers.context for transfers in pair.transfers.values()}
    assert len(contexts) == 1
    assert context not in contexts
    # What went before is another setup's, and is not counted.
    bits = (CHUNK - 1).bit_length()
    assert any(f"up to 2^{bits} oblivious" in line for line in end.privacy.assumptions)


def test_sides_at_different_indices_of_one_setup_set_up_anew() -> None:
    pair = Pair()
    pair.right()
    old = {name: copy(transfers) for name, transfers in pair.transfers.items()}
    pair.transfers["bob"] = Behind(old["bob"])
    pair.right()
    assert pair.indices == [CHUNK] * 2
    assert pair.transfers["alice"].context != old["alice"].context


@pytest.mark.parametrize("sender", ["alice", "bob"])
def test_an_evaluation_that_fails_destroys_the_setup(sender: str) -> None:
    pair = Pair()
    pair.right()
    count = 0

    def flip(name: str, to: str, data: bytes) -> list[bytes]:
        nonlocal count
        if name == sender and data[0] == BULK:
            count += 1
            if count == 2:
                return [data[:-1] + bytes([data[-1] ^ 1])]
        return [data]

    assert all(isinstance(end, SmpcError) for end in pair.evaluate(flip).values())
    assert pair.indices == [0, 0]
    pair.right()


def test_a_setup_without_room_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    pair.right()
    monkeypatch.setattr("smpc_dp.capabilities.pairs.garbled.transfers.MAX_INDEX", 2 * CHUNK)
    pair.right()
    pair.right()
    assert pair.indices == [CHUNK] * 2
    assert 2 * CHUNK < MAX_INDEX


def envelopes(pair: Pair, step: str) -> list[tuple[int, str, bytes]]:
    result = []
    for index, (sender, data) in enumerate(pair.seen):
        if data[0] == CONTROL:
            envelope = decode_envelope(data[1:], sender)
            if envelope.step == step:
                result.append((index, sender, envelope.body))
    return result


def test_the_start_of_the_keys_is_drawn_after_every_hello_and_is_fresh() -> None:
    pair = Pair()
    starts = []
    for _ in range(2):
        pair.right()
        ((index, sender, body),) = envelopes(pair, START)
        assert sender == "alice"
        assert index > max(index for index, _, _ in envelopes(pair, HELLO))
        starts.append(decode(body, Start, "alice").start)
        nonces = [decode(body, Hello, name).nonce for _, name, body in envelopes(pair, HELLO)]
        assert starts[-1] not in nonces
    assert starts[0] != starts[1]


def test_the_garbler_draws_nothing_before_it_has_every_hello() -> None:
    """It cannot have told what it does not know yet, nor be made to."""
    pair = Pair()

    def hold(sender: str, to: str, data: bytes) -> list[bytes]:
        return [data] if sender == "alice" else []

    with pytest.raises(RuntimeError, match="everybody waits"):
        pair.evaluate(hold)
    assert envelopes(pair, START) == []


def test_evaluations_over_one_pair_of_channels_share_the_setup(tmp_path: Path) -> None:
    """Over real sockets."""
    path = create_pairwise_session(tmp_path, {"circuit": "add32", "instances": INSTANCES})
    values = {"garbler": X, "evaluator": Y}

    def twice(name: str) -> tuple[list[list[int]], int]:
        member = PairwiseMember.load(path, name)
        channels, transfers, learned = member.connect(), Transfers(), []
        try:
            for request in (1, 2):
                role = member.role([pack(values[name], 32)], request, transfers)
                outputs = drive(role, channels).evaluated.outputs
                assert outputs is not None
                learned.append(unpack(outputs[0], INSTANCES))
        finally:
            for channel in channels.values():
                channel.close()
        return learned, transfers.next_index

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(twice, values))
    expected = [x + y for x, y in zip(X, Y, strict=True)]
    assert ends == [([expected, expected], 2 * CHUNK)] * 2
