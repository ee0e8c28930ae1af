"""No machine sends two messages for one step, whatever it is fed; no two runs share anything secret."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from smpc_dp.engine.events import Cancellation, Message, Start
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.run import RunningRole
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.wire.abort import ABORT, LEAVE
from smpc_dp.wire.envelope import Envelope
from tests.faults.simulated import AGGREGATOR, SimulatedRun

ME = "p1"
# What a machine may say besides the steps of the protocol, to someone who is out.
OUTCOMES = {ABORT, LEAVE}


def feed(machine: RunningRole, envelopes: Iterable[Envelope], sent: list[Envelope]) -> None:
    """Give a machine every message; note what it sends, its farewell included."""
    for envelope in envelopes:
        try:
            sent += machine.handle(Message(envelope))
        except SmpcError as error:
            sent += machine.handle(Cancellation(error))


def assert_one_message_a_step(sent: list[Envelope], honest: list[Envelope]) -> None:
    counts = Counter((e.step, e.receiver) for e in sent if e.step not in OUTCOMES)
    assert all(count == 1 for count in counts.values()), counts
    assert max(Counter(e.step for e in sent if e.step == LEAVE).values(), default=0) <= 1
    # And none says anything that the honest run did not say: replays bring no new message into being.
    claimed = {e.step: e.body for e in honest if e.sender == ME}
    assert all(claimed.get(e.step) == e.body for e in sent if e.step not in OUTCOMES)


@pytest.mark.parametrize("position", range(9))
@pytest.mark.parametrize("order", ["in order", "out of order", "other run first"])
def test_party_fed_everything_again(position: int, order: str) -> None:
    """At every point of the run: every message of this run and of another one, before and after it ends."""
    this, other = SimulatedRun(4).execute(), SimulatedRun(4, run=2).execute()
    mine, theirs = ([e for e in simulated.sent if e.receiver == ME] for simulated in (this, other))
    chooser = random.Random(position)
    again = {
        "in order": [*mine, *theirs, *mine],
        "out of order": chooser.sample(mine + theirs, len(mine + theirs)),
        "other run first": [*theirs, *mine],
    }[order]
    machine = SimulatedRun(4).parties[ME]
    sent = list(machine.handle(Start()))
    feed(machine, mine[:position], sent)
    # Repetitions alone are not a fault: the machine stays where it is.
    before = len(sent)
    feed(machine, mine[:position], sent)
    assert len(sent) == before
    feed(machine, again, sent)
    assert_one_message_a_step(sent, this.sent)


@pytest.mark.parametrize("position", range(1, 33, 3))
def test_aggregator_fed_everything_again(position: int) -> None:
    this, other = SimulatedRun(4).execute(), SimulatedRun(4, run=2).execute()
    mine, theirs = ([e for e in simulated.sent if e.receiver == AGGREGATOR] for simulated in (this, other))
    aggregator = SimulatedRun(4).aggregator
    sent: list[Envelope] = []
    feed(aggregator, mine[:position], sent)
    before = len(sent)
    feed(aggregator, mine[:position], sent)
    assert len(sent) == before
    feed(aggregator, random.Random(position).sample(mine + theirs, len(mine + theirs)), sent)
    counts = Counter((e.step, e.receiver) for e in sent if e.step not in OUTCOMES)
    assert all(count == 1 for count in counts.values()), counts


def test_a_party_speaks_once_in_a_step() -> None:
    machine = SimulatedRun(4).parties[ME]
    machine.handle(Start())
    with pytest.raises(LocalError, match="'hello' was sent before"):
        machine.handle(Start())


@pytest.mark.parametrize("step", [m.ADVERTISE, m.DEAL, m.ATTEST_PARTICIPANTS, m.MASKED])
def test_a_message_signed_for_another_run_is_refused(step: str) -> None:
    """The same content in the step that is due, signed anew by its sender for another run of the session."""
    simulated = SimulatedRun(5)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.sender, envelope.step) != (ME, step):
            return (envelope,)
        return (simulated.change(msgspec.structs.replace(envelope, run_id=bytes(32))),)

    simulated.execute(tamper)
    simulated.assert_out(ME, f"sent '{step}' of another run")


def test_in_order_again_changes_nothing() -> None:
    """Every message twice, in both directions: the same sum."""
    SimulatedRun(4).execute(lambda envelope: (envelope, envelope)).assert_sum()


def fresh_values(simulated: SimulatedRun) -> set[bytes]:
    """Return everything that a run should not share with another: all that parties drew, sealed or masked."""
    result: set[bytes] = set()
    for name in simulated.names:
        hello, advertise = simulated.body_of(m.HELLO, name), simulated.body_of(m.ADVERTISE, name)
        reveal, deal = simulated.body_of(m.REVEAL, name), simulated.body_of(m.DEAL, name)
        unmask = simulated.body_of(m.UNMASK, name)
        attested = {
            simulated.body_of(step, name).set_digest for step in (m.ATTEST_PARTICIPANTS, m.ATTEST_SURVIVORS)
        }
        result |= {hello.nonce, advertise.seal_key, advertise.draw_commitment, advertise.key_commitment}
        result |= {reveal.blinder, reveal.mask_key}
        result |= {deal.self_commitment, *deal.sealed, simulated.body_of(m.MASKED, name).vector, *attested}
        # Nonce and keystream of sealed boxes, in blocks.
        result |= {box[:24] for box in deal.sealed} | {box[24:56] for box in deal.sealed}
        result |= {unmask.shares[at : at + 32] for at in range(0, len(unmask.shares), 32)}
        result |= {unmask.others[at : at + 32] for at in range(0, len(unmask.others), 32)}
    return result | {envelope.signature for envelope in simulated.sent if envelope.step != m.HELLO}


def test_a_rerun_shares_nothing() -> None:
    """The same session file and the same vectors, run twice with the operating system's randomness."""
    first, second = SimulatedRun(4, run=None).execute(), SimulatedRun(4, run=None).execute()
    assert first.context.session_digest == second.context.session_digest
    assert (first.vectors == second.vectors).all()
    first.assert_sum()
    second.assert_sum()
    ids = {simulated.aggregator.result.evidence.run_id for simulated in (first, second)}
    assert len(ids) == 2
    values = [fresh_values(simulated) for simulated in (first, second)]
    assert len(values[0]) == len(values[1]) > 100
    assert not values[0] & values[1]
    # Within one run nothing occurs twice either: 4 parties with 8 single values, 2 shared digests, and so on.
    assert len(values[0]) == 4 * 8 + 2 + 4 * 3 * 3 + 4 * 3 * 2 + len(first.sent) - 4
