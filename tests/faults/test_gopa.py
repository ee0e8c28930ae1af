"""GOPA under attack: a relay that wants one party's value, parties that cheat, and what a loss costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.params import GopaParameters, OnDropout, check_parameters
from smpc_dp.crypto import agree
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Code
from smpc_dp.wire.abort import ABORT, LEAVE, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import decode
from tests.faults.simulated import AGGREGATOR, KINDS, LENGTH, SimulatedRun, by, masking_with, only

VICTIM, OTHER = "p1", "p2"


def row_of(on_dropout: OnDropout, parties: int = 8, **more: object) -> SimulatedRun:
    given: dict[str, object] = {"length": LENGTH, "lower": -9.0, "upper": 9.0, "epsilon": 1.0, "delta": 1e-6}
    given |= {"dropout": 0.25, "corrupt": 0.0, "on_dropout": on_dropout} | more
    parameters, faults = check_parameters(given, parties)
    assert parameters is not None, faults
    return SimulatedRun(parties, parameters=parameters)


def parameters_of(simulated: SimulatedRun) -> GopaParameters:
    assert isinstance(simulated.parameters, GopaParameters)
    return simulated.parameters


class PairTerms:
    """Overhears the pairwise terms that machines compute, each call with its seeds and signs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Sequence[bytes], Sequence[int]]] = []
        original = GopaParameters.add_pair_terms

        def overhear(
            parameters: GopaParameters,
            ring_vector: RingVector,
            seeds: Sequence[bytes],
            signs: Sequence[int],
            threads: int = 1,
        ) -> None:
            self.calls.append((list(seeds), list(signs)))
            original(parameters, ring_vector, seeds, signs, threads)

        monkeypatch.setattr(GopaParameters, "add_pair_terms", overhear)


def without_terms(
    simulated: SimulatedRun, vector: bytes, seeds: Sequence[bytes], signs: Sequence[int]
) -> RingVector:
    """Return what is left of a vector when these pairwise terms are taken out, as offsets from zero."""
    ring_vector = simulated.encoding.unpack(vector).copy()
    parameters_of(simulated).add_pair_terms(ring_vector, seeds, [-sign for sign in signs])
    left: RingVector = ring_vector + np.int64(simulated.encoding.lowest).view(np.uint64)
    return left


def distance(simulated: SimulatedRun, left: RingVector) -> NDArray[np.float64]:
    """Return how far the remains of the victim's vector are from its secret, in own standard deviations."""
    off = (left - simulated.grid(VICTIM).view(np.uint64)).view(np.int64)
    deviation = parameters_of(simulated).session.own_variance ** 0.5
    return np.asarray(np.abs(off.astype(np.float64)) / deviation)


def test_relay_keeps_a_value_and_declares_its_user_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the vector, and gets the pairwise terms for it: the self-mask is what then saves the party.

    As printed [Bellet 2021, 4.1.2] there is none: the very same messages would leave the relay with x + eta.
    """
    simulated, terms, retained = row_of("roll-back"), PairTerms(monkeypatch), []

    def keep(envelope: Envelope) -> Iterable[Envelope]:
        retained.append(decode(envelope.body, parameters_of(simulated).kinds.masked, VICTIM).vector)
        return ()

    simulated.execute(by(m.MASKED, VICTIM, keep))
    assert VICTIM in simulated.aggregator.result.absent
    seeds, signs = terms.calls[-1]
    assert len(seeds) == 7, "the aggregator took all terms of the victim's pairs out of the sum"
    left = without_terms(simulated, retained[0], seeds, [-sign for sign in signs])
    assert (distance(simulated, left) > 1e6).all()
    # Without the self-mask the relay would be where the printed protocol leaves it.
    bare = row_of("keep")
    terms.calls.clear()
    bare.execute()
    own = next(call for call in terms.calls if len(call[0]) == 7)
    exposed = without_terms(bare, bare.body_of(g.PUBLISH, VICTIM).x_hat, *own)
    assert (distance(bare, exposed) < 6).all(), "six standard deviations: 6e-9 for three coordinates"


def test_relay_withholds_a_publication_after_the_certificate() -> None:
    """The late variant: nobody reveals anything for a party that vanishes, so nothing is to be gained."""
    simulated = row_of("keep")
    simulated.execute(by(g.PUBLISH, VICTIM, lambda _: ()))
    outcome = simulated.aggregator.result
    assert outcome.absent == (VICTIM,)
    assert outcome.noise is not None
    assert outcome.noise.residual_pairs == 7
    after = {step for name in simulated.names for step in simulated.steps_of(name)[len(g.PARTY_STEPS) :]}
    assert after <= {LEAVE}


def test_relay_shows_the_victim_another_set() -> None:
    """A victim that believes two neighbours gone leaves their terms out: it attests that, and is refused."""
    simulated = row_of("keep")

    def shrink(envelope: Envelope) -> Iterable[Envelope]:
        return (simulated.without(envelope, {2, 3}, revealed=pack_set({1, 4, 5, 6, 7, 8}, 8)),)

    simulated.execute(only(m.NEIGHBOURS, VICTIM, shrink))
    assert g.PUBLISH not in simulated.steps_of(VICTIM)
    assert simulated.fault_of(VICTIM) == f"{VICTIM}: attests another set than the one that was sent"
    assert simulated.reported(VICTIM) == Abort(Code.FAULT, VICTIM)
    assert simulated.aggregator.result.absent == (VICTIM,)


def test_forged_certificate_is_refused() -> None:
    simulated = row_of("keep")

    def forge(envelope: Envelope) -> Iterable[Envelope]:
        signatures = bytearray(decode(envelope.body, m.Certificate, AGGREGATOR).signatures)
        signatures[0] ^= 1
        return (simulated.change(envelope, signatures=bytes(signatures)),)

    simulated.execute(only(m.PARTICIPANTS, VICTIM, forge))
    simulated.assert_blames(VICTIM, AGGREGATOR, "certificate")
    assert g.PUBLISH not in simulated.steps_of(VICTIM)


def test_user_publishes_two_different_values() -> None:
    simulated = row_of("keep")

    def twice(envelope: Envelope) -> Iterable[Envelope]:
        x_hat = bytearray(decode(envelope.body, g.Published, OTHER).x_hat)
        x_hat[0] ^= 1
        return envelope, simulated.change(envelope, x_hat=bytes(x_hat))

    simulated.execute(by(g.PUBLISH, OTHER, twice))
    assert any(
        fault.startswith(f"{OTHER}: ") and "two different messages" in fault
        for fault in simulated.aggregator.result.faults
    )


def test_malformed_value_excludes_its_user() -> None:
    simulated = row_of("keep")
    simulated.execute(by(g.PUBLISH, OTHER, lambda envelope: (simulated.change(envelope, x_hat=b"short"),)))
    assert simulated.aggregator.result.absent == (OTHER,)
    simulated.assert_out(OTHER, "malformed Published")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"published": pack_set({2, 3, 4, 5, 6, 7, 8}, 8)}, f"left {VICTIM} out of the average"),
        ({"published": pack_set({1, 2}, 8)}, "over too few"),
        ({"total": b""}, "malformed Average"),
        ({"total": b"\x7f" * 8 * LENGTH}, "somebody lies"),
        ({"residual_pairs": -1}, "counts -1 residual pairs with 0 parties lost"),
        ({"residual_pairs": 1}, "counts 1 residual pairs with 0 parties lost"),
        ({"published": pack_set({1, 2, 3, 4, 5, 6, 7}, 8)}, "counts 0 residual pairs with 1 parties lost"),
        ({"published": pack_set({1, 2, 3, 4, 5, 6, 7}, 8), "residual_pairs": 8}, "counts 8 residual"),
    ],
)
def test_relay_reports_nonsense(fields: dict[str, object], reason: str) -> None:
    simulated = row_of("keep")
    simulated.execute(only(g.AVERAGE, VICTIM, lambda envelope: (simulated.change(envelope, **fields),)))
    assert reason in str(simulated.errors[VICTIM])


@pytest.mark.parametrize("on_dropout", ["keep", "roll-back"])
def test_too_few_users_stop_the_run(on_dropout: OnDropout) -> None:
    simulated = row_of(on_dropout)
    gone = {"p1", "p2", "p3"}
    simulated.execute(lambda e: () if e.sender in gone and e.step == m.ATTEST_PARTICIPANTS else (e,))
    simulated.assert_too_few()
    assert not {g.PUBLISH, m.MASKED} & {envelope.step for envelope in simulated.sent}


def test_differing_plans_are_told_before_anything_is_sent() -> None:
    """Variances are derived with floating point: who has others is not added up with the rest."""
    simulated = row_of("keep")

    def differ(envelope: Envelope) -> Iterable[Envelope]:
        hello = decode(envelope.body, m.Hello, OTHER)
        return (simulated.write(envelope, msgspec.structs.replace(hello, operation="1f/2e")),)

    simulated.execute(by(m.HELLO, OTHER, differ))
    assert simulated.aggregator.result.absent == (OTHER,)
    assert "asks '1f/2e'" in simulated.fault_of(OTHER)
    assert simulated.reported(OTHER) == Abort(Code.OPERATION, OTHER)


def test_user_publishes_the_same_value_twice() -> None:
    """A repetition is no second value: it counts once."""
    simulated = row_of("keep")
    simulated.execute(by(g.PUBLISH, OTHER, lambda envelope: (envelope, envelope)))
    assert simulated.aggregator.result.faults == ()
    off = simulated.aggregator.result.total - sum(simulated.grid(name) for name in simulated.names)
    # Ten standard deviations; a second copy of the value with its pairwise noise would be far outside.
    assert np.abs(off).max() < 10 * (8 * parameters_of(simulated).session.own_variance) ** 0.5


@pytest.mark.parametrize("lost", [False, True])
def test_neighbour_that_reveals_a_wrong_seed_is_named(lost: bool) -> None:
    """Its share is of the self-mask of a party that is there, or of the masking key of one that is lost.

    Each share is signed by its dealer: a wrong one shows its holder, and the average does without it.
    """
    simulated, liar = row_of("roll-back"), "p5"

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if lost and (envelope.sender, envelope.step) == (VICTIM, m.MASKED):
            return ()
        if (envelope.sender, envelope.step) != (liar, m.UNMASK):
            return (envelope,)
        unmask = decode(envelope.body, m.Unmask, liar)
        return (simulated.change(envelope, shares=bytes([unmask.shares[0] ^ 1]) + unmask.shares[1:]),)

    simulated.execute(tamper)
    outcome = simulated.aggregator.result
    assert f"{liar}: revealed a share that {VICTIM} did not sign" in outcome.faults
    assert outcome.absent == ((VICTIM,) if lost else ())
    there = [name for name in simulated.names if name not in outcome.absent]
    off = outcome.total - sum(simulated.grid(name) for name in there)
    assert np.abs(off).max() < 10 * (8 * parameters_of(simulated).session.own_variance) ** 0.5


def test_user_whose_shares_are_not_of_the_key_that_it_revealed_is_named() -> None:
    """What both ends of an edge signed is the masking key: shares of another one are their dealer's doing."""
    simulated = row_of("roll-back", total="unchecked")
    other = masking_with(simulated, OTHER, agree.public_key(bytes(range(32))))

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        return () if (envelope.step, envelope.sender) == (m.MASKED, OTHER) else other(envelope)

    simulated.execute(tamper)
    simulated.assert_blames(AGGREGATOR, OTHER, "signed shares that do not give the secret it committed to")
    reported = {name: simulated.reported(name) for name in simulated.names if name != OTHER}
    assert {(abort.code, abort.culprit) for abort in reported.values()} == {(Code.FAULT, OTHER)}


def test_nobody_is_asked_for_a_seed_when_noise_stays_in() -> None:
    """With "keep" no step reveals one: there is nothing that a neighbour could reveal wrongly."""
    assert not {m.DEAL, m.UNMASK} & set(g.PARTY_STEPS)
    simulated = row_of("keep").execute(by(g.PUBLISH, VICTIM, lambda _: ()))
    answers = {m.START, m.MERKLE_COMMITMENT, m.NEIGHBOURS, m.PARTICIPANTS, g.AVERAGE}
    assert {envelope.step for envelope in simulated.sent} <= {*g.PARTY_STEPS, *answers, ABORT, LEAVE}


def test_aggregator_tells_different_users_different_sets() -> None:
    """Half of them are told that p8 is gone: no set has a quorum, and nobody publishes."""
    simulated = row_of("keep")

    def split(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step != m.NEIGHBOURS or simulated.number(envelope.receiver) > 4:
            return (envelope,)
        return (simulated.without(envelope, {8}, revealed=pack_set(range(1, 8), 8)),)

    simulated.execute(split)
    simulated.assert_too_few()
    assert g.PUBLISH not in {envelope.step for envelope in simulated.sent}
    # The third of them leaves too few, and ends the run for everybody.
    for name in simulated.names[:2]:
        assert simulated.fault_of(name) == f"{name}: attests another set than the one that was sent"


def test_total_beyond_own_noise_is_refused_where_the_rest_is_rolled_back() -> None:
    """With roll-back no pairwise noise is left in an honest total: it explains nothing there."""
    far = 41 * int((8 * parameters_of(row_of("roll-back")).session.own_variance) ** 0.5 + 1)
    for on_dropout, step in (("roll-back", m.RESULT), ("keep", g.AVERAGE)):
        simulated = row_of(on_dropout, total="unchecked")  # type: ignore[arg-type]

        def shift(envelope: Envelope, simulated: SimulatedRun = simulated) -> Iterable[Envelope]:
            total = simulated.encoding.unpack(decode(envelope.body, KINDS[envelope.step], AGGREGATOR).total)  # type: ignore[attr-defined]
            highest = np.uint64(8 * (simulated.encoding.highest - simulated.encoding.lowest))
            return (
                simulated.change(
                    envelope, total=simulated.encoding.pack(0 * total + highest + np.uint64(far))
                ),
            )

        simulated.execute(only(step, VICTIM, shift))
        assert ("somebody lies" in str(simulated.errors.get(VICTIM))) is (on_dropout == "roll-back")
