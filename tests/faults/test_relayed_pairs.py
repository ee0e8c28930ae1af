"""Relayed pairs: an aggregator that drops, repeats, reorders or changes frames; parties with too many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from nacl.signing import SigningKey

import smpc_dp
from smpc_dp.capabilities.pairs.garbled.relay import CHUNK_BYTES, SealedConnection
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau
from smpc_dp.capabilities.pairs.requests.relay import RelayedChannel
from smpc_dp.capabilities.pairs.statistics.compiled import plan_statistic
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic import states as states
from smpc_dp.capabilities.pairs.ustatistic.pairs import CollectDone, on_relay
from smpc_dp.capabilities.pairs.ustatistic.relay import PairRelays, most_frames
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.capabilities.pairs.ustatistic.serving import Aggregator
from smpc_dp.capabilities.pairs.ustatistic.terms import Draw
from smpc_dp.capabilities.pairs.ustatistic.wire import PairWire
from smpc_dp.errors import PeerFault, TimeoutFault, VerificationError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import Signer
from smpc_dp.session.session_file import Timeouts
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, decode, decode_envelope, encode_envelope
from tests.faults.test_pairs_statistic import Table

PARTIES = ("ada", "ben", "cem", "dot")
PARAMETERS: dict[str, object] = {
    "length": 1,
    "lower": 0.0,
    "upper": 1.0,
    "precision": 0.01,
    "dropout": 0.4,
    "corrupt": 0.0,
}
SHORT = Timeouts(connect=5.0, step=1.5, gather=1.5)


# Frames


def ends(digest: bytes = b"d" * 32) -> tuple[SealedConnection, SealedConnection]:
    signers = {name: Signer(name, SigningKey(name.encode() * 8)) for name in ("anna", "bert")}
    keys = {name: bytes(signer.key.verify_key) for name, signer in signers.items()}
    context = Context("pairwise", 1, digest, 1, ("anna", "bert"), "hub", keys)
    one, other = (
        SealedConnection(context, signers[name], SeededRandomnessForSimulation(index, "line"))
        for index, name in enumerate(signers)
    )
    return one, other


def met(digest: bytes = b"d" * 32) -> tuple[SealedConnection, SealedConnection]:
    one, other = ends(digest)
    first, second = one.first(), other.first()
    other.meet(first)
    one.meet(second)
    return one, other


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 5])
def test_messages_come_as_they_went(size: int) -> None:
    one, other = met()
    for message in (b"x" * size, b"second"):
        frames = list(one.seal(message))
        assert len(frames) == max(1, -(-len(message) // CHUNK_BYTES))
        assert all(len(frame) <= m.MAX_FRAME_BYTES for frame in frames)
        opened = [other.open(frame) for frame in frames]
        assert b"".join(chunk for chunk, _ in opened) == message
        assert [last for _, last in opened] == [False] * (len(frames) - 1) + [True]


def three(line: SealedConnection) -> list[bytes]:
    return [frame for message in (b"one", b"two", b"three") for frame in line.seal(message)]


@pytest.mark.parametrize(
    "attack",
    [
        lambda f, _: [f[1]],
        lambda f, _: [f[0], f[0]],
        lambda f, _: [f[0], f[2]],
        lambda f, _: [f[0][:-1] + bytes([f[0][-1] ^ 1])],
        lambda f, _: [bytes([f[0][0] ^ 128]) + f[0][1:]],
        lambda f, _: [f[0][:30] + bytes([f[0][30] ^ 1]) + f[0][31:]],
        lambda f, _: [f[0][:-1]],
        lambda _f, back: [back],
        lambda _f, _back: [b""],
    ],
    ids=["lost", "repeated", "skipped", "tag", "nonce", "bit", "cut", "reflected", "empty"],
)
def test_any_other_frame_than_the_next_is_refused(
    attack: Callable[[list[bytes], bytes], Sequence[bytes]],
) -> None:
    one, other = met()
    frames = three(one)
    *good, bad = attack(frames, next(other.seal(b"mine")))
    for frame in good:
        other.open(frame)
    with pytest.raises(VerificationError, match=r"'anna' through 'hub'.*one of the two sent another"):
        other.open(bad)


def test_frames_of_another_pair_or_run_do_not_open() -> None:
    one, _ = met()
    _, stranger = met(b"e" * 32)
    with pytest.raises(VerificationError):
        stranger.open(next(one.seal(b"x")))


def test_a_key_is_for_one_pair_and_signed() -> None:
    one, other = ends()
    elsewhere, _ = ends(b"e" * 32)
    envelope = decode_envelope(one.first(), "anna")
    reflected = other.first()
    signature = bytes([envelope.signature[0] ^ 1]) + envelope.signature[1:]
    forged = encode_envelope(
        Envelope(envelope.run_id, envelope.step, envelope.sender, envelope.receiver, envelope.body, signature)
    )
    for wrong in (elsewhere.first(), forged, reflected, b"", encode_envelope(envelope)[:-1]):
        with pytest.raises(VerificationError, match="frame 0"):
            other.meet(wrong)
    other.meet(one.first())


def test_every_end_has_keys_of_its_own() -> None:
    """Forward secrecy: nothing of the frames follows from the identities' keys."""
    first, _ = ends()
    again = SealedConnection(first._context, first._identity, SeededRandomnessForSimulation(7, "line"))
    assert first.first() != again.first()
    one, other = met()
    assert one._keys == other._keys
    assert len(set(one._keys.values())) == 2


# The relay's desk


def desk() -> PairRelays:
    plan = plan_statistic(kendall_tau(Field(0, 9), Field(0, 9)), 4, 1.0, partners=2)
    pairs = ((("ada", "ben"), ("cem", "dot")), (("ada", "cem"), ("ben", "dot")))
    return PairRelays(plan, Draw.of(b"b" * 32, pairs))


def test_a_desk_passes_on_what_is_due() -> None:
    opened = desk()
    assert opened.forward("ada", m.Relay(0, 0, 0, b"key")) == "ben"
    assert opened.forward("ben", m.Relay(0, 0, 1, b"key")) == "ada"
    for number in range(1, m.WINDOW + 1):
        assert opened.forward("ada", m.Relay(0, number, 0, b"x")) == "ben"
    assert opened.forward("ben", m.Relay(0, 1, 5, b"")) == "ada"
    assert opened.forward("ada", m.Relay(0, m.WINDOW + 1, 1, b"x")) == "ben"
    assert opened.end("ben", m.RelayEnd(0)) == "ada"
    assert opened.forward("ada", m.Relay(0, m.WINDOW + 2, 1, b"x")) is None
    assert opened.end("ada", m.RelayEnd(0)) is None
    # Ben's pair with ada is over, that with dot is not.
    assert list(opened.lost("ben")) == [("dot", 1)]


@pytest.mark.parametrize(
    ("frames", "claimed"),
    [
        ([m.Relay(0, 1, 0, b"x")], "frame 1 of a relayed pair where 0 is due"),
        ([m.Relay(0, 0, 0, b"x"), m.Relay(0, 0, 0, b"x")], "frame 0 of a relayed pair where 1 is due"),
        ([m.Relay(0, 0, 0, b"x"), m.Relay(0, 1, 0, b"x")], "before there was room"),
        ([m.Relay(0, 0, 1, b"x")], "taken frames of a relayed pair that it has not"),
        ([m.Relay(0, 0, 0, b"")], "that is empty"),
        ([m.Relay(2, 0, 0, b"x")], "matching 2, where it has none"),
    ],
)
def test_a_desk_refuses_what_is_not_due(frames: list[m.Relay], claimed: str) -> None:
    opened = desk()
    for frame in frames[:-1]:
        opened.forward("ada", frame)
    with pytest.raises(PeerFault, match=claimed) as caught:
        opened.forward("ada", frames[-1])
    assert caught.value.culprit == "ada"


def test_a_desk_holds_a_bounded_number_of_frames() -> None:
    opened = desk()
    opened.forward("ada", m.Relay(0, 0, 0, b"x"))
    opened.forward("ben", m.Relay(0, 0, 0, b"x"))
    for number in range(1, m.WINDOW):
        opened.forward("ada", m.Relay(0, number, 0, b"x"))
    with pytest.raises(PeerFault, match="before there was room"):
        opened.forward("ada", m.Relay(0, m.WINDOW, 0, b"x"))


def test_a_pair_takes_finitely_many_frames() -> None:
    plan = plan_statistic(kendall_tau(Field(0, 9), Field(0, 9)), 4, 1.0, partners=2)
    opened, most = desk(), most_frames(plan)
    opened.forward("ada", m.Relay(0, 0, 0, b"x"))
    opened.forward("ben", m.Relay(0, 0, 1, b"x"))
    for number in range(1, most):
        opened.forward("ada", m.Relay(0, number, 0, b"x"))
        opened.forward("ben", m.Relay(0, 1, number + 1, b""))
    with pytest.raises(PeerFault, match="more frames of a relayed pair than are due"):
        opened.forward("ada", m.Relay(0, most, 0, b"x"))


def test_each_message_of_a_covert_pair_has_a_frame() -> None:
    """Of each copy the evaluator sends four messages, and every one of them is a frame at least."""
    plans = [
        plan_statistic(kendall_tau(Field(0, 9), Field(0, 9)), 4, 1.0, partners=2, covert=copies)
        for copies in (0, 64)
    ]
    fewer, more = (most_frames(plan) for plan in plans)
    assert more - fewer >= 4 * 64


# Messages that were lost with a connection


async def test_a_frame_that_a_connection_has_lost_is_nobodys_fault() -> None:
    """Of a run that goes on after one; of another run the aggregator must have lost it."""
    for is_lossy in (True, False):
        _, other = ends()

        async def give(_message: m.Relay | m.RelayEnd) -> None:
            return

        channel = RelayedChannel("anna", "hub", 0, other, give, is_lossy=is_lossy)
        channel.open(1.0, 1.0)
        channel.deliver(m.Relay(0, 1, 0, b"x"))
        with pytest.raises((TimeoutFault, PeerFault), match="lost") as caught:
            channel.receive(100)
        assert isinstance(caught.value, TimeoutFault) == is_lossy
        assert getattr(caught.value, "culprit", "") == ("" if is_lossy else "hub")
        await channel.finish(failed=True)


def test_a_message_of_the_aggregator_that_a_connection_has_lost_is_nobodys_fault() -> None:
    """A repeated one is the aggregator's fault all the same."""
    table = Table()
    party, aggregator = table.parties["ada"], table.aggregator.member

    def sent(number: int) -> Envelope:
        message = m.Pair(0, number, b"x")
        envelopes: list[Envelope] = aggregator.write(b"r" * 32, m.PAIR, (party.member.index,), message)
        return envelopes[0]

    for is_lossy in (True, False):
        wire = PairWire(party.member)
        wire.is_lossy = is_lossy
        assert wire.open_pair(b"r" * 32, sent(0)) == (0, b"x")
        gaps = [wire.gap_before(b"r" * 32, sent(number)) for number in (0, 1, 2)]
        assert gaps == [None, None, 0 if is_lossy else None]
        for wrong in (0, 2):
            with pytest.raises(PeerFault, match=f"sent message {wrong} of a pair where 1 is due"):
                wire.open_pair(b"r" * 32, sent(wrong))


# A hostile aggregator, over real sockets


class Hostile:
    """Does one thing to the third sealed frame of the first direction that gets so far."""

    def __init__(self, attack: str) -> None:
        self.attack = attack
        self.victim: tuple[str, str] | None = None
        self._held: list[Envelope] = []

    def relay(
        self, aggregator: Aggregator, state: CollectDone, party: int, envelope: Envelope
    ) -> list[Envelope]:
        sent = on_relay(aggregator, state, party, envelope)
        if not sent or envelope.step != m.RELAY:
            return sent
        frame = decode(envelope.body, m.Relay, envelope.sender)
        way = (envelope.sender, sent[0].receiver)
        if not frame.content or frame.number < 3 or self.victim not in (None, way):
            return sent

        def again(**changes: object) -> list[Envelope]:
            fields = {name: getattr(frame, name) for name in frame.__struct_fields__}
            receiver = aggregator.context.number(way[1])
            return aggregator.write(state.run_id, m.RELAY, (receiver,), m.Relay(**{**fields, **changes}))

        return self._strike(again, frame, sent, way)

    def _strike(
        self,
        again: Callable[..., list[Envelope]],
        frame: m.Relay,
        sent: list[Envelope],
        way: tuple[str, str],
    ) -> list[Envelope]:
        first, self.victim = self.victim is None, way
        if self.attack == "drop":
            return [] if first else again(number=frame.number - 1)
        if self.attack == "replay":
            return [*sent, *again(number=frame.number + 1)] if first else again(number=frame.number + 1)
        if self.attack == "reorder":
            if first:
                self._held = again(number=frame.number + 1)
                return []
            held, self._held = self._held, []
            return [*again(number=frame.number - 1), *held] if held else sent
        flipped = bytes([frame.content[0] ^ 1]) + frame.content[1:]
        return again(content=flipped) if first else sent


@pytest.mark.thin(2)
@pytest.mark.parametrize("attack", ["drop", "replay", "reorder", "flip"])
async def test_a_relay_that_touches_a_frame_costs_one_pair(
    attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = Hostile(attack)
    [honest] = [simulated for simulated in states.AGGREGATOR.rows if simulated.state is CollectDone]
    beside = {**honest.beside, m.RELAY: hostile.relay}
    monkeypatch.setattr(states, "AGGREGATOR", states.AGGREGATOR.with_row(CollectDone, beside=beside))
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=SHORT)
    for name in PARTIES:
        Ledger.create(
            tmp_path / name, party=name, dataset="d", relation="substitution", epsilon=12.0, delta=1e-6
        )

    async def party(name: str) -> StatisticResult:
        async with smpc_dp.connect(path, party=name, ledger=tmp_path / name) as session:
            return await session.pairwise("collision", 7, 12.0, 1)

    serving = asyncio.create_task(smpc_dp.serve(path))
    answers = dict(zip(PARTIES, await asyncio.gather(*map(party, PARTIES)), strict=True))
    (served,) = await serving
    assert isinstance(served, StatisticResult)
    assert (served.pairs, served.failed) == (1, 1)
    assert hostile.victim is not None
    for name, answer in answers.items():
        assert bool(answer.faults) == (name in hostile.victim)
        # Spent all the same.
        assert len(Ledger.open(tmp_path / name).entries()) == 1


async def test_a_pair_that_ends_cuts_off_no_message_of_its_own() -> None:
    """Half a message on the channel to the aggregator would cost the party its session, not one pair."""
    line, _ = ends()
    begun, go_on = asyncio.Event(), asyncio.Event()
    whole: list[m.Relay | m.RelayEnd] = []

    async def give(message: m.Relay | m.RelayEnd) -> None:
        if isinstance(message, m.Relay):
            begun.set()
            await go_on.wait()
        whole.append(message)

    channel = RelayedChannel("bert", "hub", 0, line, give)
    channel.open(1.0, 1.0)
    await begun.wait()
    await channel.finish(failed=True)
    assert whole == [m.RelayEnd(0)]
    go_on.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [type(message) for message in whole] == [m.RelayEnd, m.Relay]
