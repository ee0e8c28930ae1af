"""A pairwise statistic with parties, or an aggregator, that do not keep to it: machines in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as replace_plan

import numpy as np
import pytest
from msgspec.structs import replace
from nacl.signing import SigningKey

from smpc_dp.capabilities.pairs.covert.copies import GarblerCopy
from smpc_dp.capabilities.pairs.covert.garbler import CovertGarblerRole
from smpc_dp.capabilities.pairs.covert.terms import TABLES, Terms
from smpc_dp.capabilities.pairs.garbled.aggregator import AggregatorEvaluation
from smpc_dp.capabilities.pairs.garbled.params import MAX_COPIES
from smpc_dp.capabilities.pairs.kernels import Field, Kernel, kendall_tau
from smpc_dp.capabilities.pairs.kernels.named import find_kernel
from smpc_dp.capabilities.pairs.requests.statistic import plan_maker
from smpc_dp.capabilities.pairs.roles import aggregator_role, party_role
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.capabilities.pairs.statistics.compiled import operation_of, plan_statistic
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic import states as states
from smpc_dp.capabilities.pairs.ustatistic.pairs import EndedPair
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.capabilities.pairs.ustatistic.terms import pair_context, statistic_context
from smpc_dp.capabilities.pairs.ustatistic.wire import PairWire
from smpc_dp.engine.events import Cancellation, Deadline, Message, PeersLost, Report, Start
from smpc_dp.engine.run import Run
from smpc_dp.errors import Check, Code, ConfigError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import Signer
from smpc_dp.wire.abort import TEXTS
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import Context, decode

AGGREGATOR = "hub"
NAMES = ("ada", "ben", "cem", "dot", "eve")
KERNEL = kendall_tau(Field(0, 9), Field(0, 9))
Tamper = Callable[[Envelope], Iterable[Envelope]]


class Table:
    """Machines around an aggregator, with an attacker's hand on every message."""

    def __init__(
        self,
        partners: int = 2,
        tamper: Tamper = lambda envelope: [envelope],
        plans: dict[str, StatisticPlan] | None = None,
        kernel: Kernel = KERNEL,
        public_labels: dict[str, int] | None = None,
        names: tuple[str, ...] = NAMES,
    ) -> None:
        self.signers = {
            name: Signer(name, SigningKey(name.encode().ljust(32))) for name in (*names, AGGREGATOR)
        }
        keys = {name: bytes(signer.key.verify_key) for name, signer in self.signers.items()}
        self.context = Context("secagg", 2, b"s" * 32, 1, names, AGGREGATOR, keys)
        self.plan = plan_statistic(kernel, len(names), 1.0, partners=partners)
        self.aggregator = states.aggregator(self.context, self.signers[AGGREGATOR], plan_maker([]))
        self.parties = {}
        for number, name in enumerate(names):
            plan = (plans or {}).get(name, self.plan)
            public_label = (public_labels or {}).get(name, -1)
            source = SeededRandomnessForSimulation(number, "party")
            operation = operation_of(kernel, plan, "laplace")
            self.parties[name] = states.party(
                self.context, self.signers[name], plan, operation, public_label, source
            )
        self.tamper = tamper
        self.errors: dict[str, SmpcError] = {}
        # Who was ever drawn: a party that has stopped has no draw in its state.
        self.drawn: set[str] = set()

    def sign(self, envelope: Envelope, message: object) -> Envelope:
        """Return what its sender would have signed with another body."""
        (signed,) = statistic_context(self.context).write(
            self.signers[envelope.sender],
            envelope.run_id,
            envelope.step,
            [envelope.receiver],
            message,  # type: ignore[arg-type]
        )
        return signed

    def execute(self) -> None:
        """Deliver until nothing moves."""
        self.deliver([envelope for party in self.parties.values() for envelope in party.handle(Start())])

    def deliver(self, envelopes: Sequence[Envelope]) -> None:
        """Deliver these, and what follows from them."""
        waiting = list(envelopes)
        while waiting:
            for envelope in self.tamper(waiting.pop(0)):
                machine = self.parties.get(envelope.receiver) or self.aggregator
                if machine is not self.aggregator and envelope.step == m.RELAY_END:
                    # Its driver takes these beside the run.
                    PairWire(machine.member).open_relay(machine.run_id, envelope)
                    continue
                try:
                    waiting += machine.handle(Message(envelope))
                    if machine is not self.aggregator and drawn_for(machine) is not None:
                        self.drawn.add(machine.name)
                except SmpcError as error:
                    self.errors[envelope.receiver] = error
                    waiting += machine.handle(Cancellation(error))


def drawn_for(party: Run[StatisticResult]) -> tuple[tuple[int, str, str], ...] | None:
    """Return the evaluations of a party; None before they are drawn."""
    evaluations: tuple[tuple[int, str, str], ...] | None = getattr(party.state, "evaluations", None)
    return evaluations


def altered(table: Table, step: str, to: str, change: Callable[[object], object], kind: type) -> Tamper:
    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.step, envelope.receiver) == (step, to):
            yield table.sign(envelope, change(decode(envelope.body, kind, envelope.sender)))
        else:
            yield envelope

    return tamper


def test_everybody_draws_the_same_matchings() -> None:
    table = Table(partners=3)
    table.execute()
    assert not table.errors
    seen: dict[tuple[int, str, str], set[str]] = {}
    for name, party in table.parties.items():
        evaluations = drawn_for(party)
        assert evaluations is not None
        # Never more than P, once in each matching, with somebody else.
        assert len(evaluations) <= 3
        assert len({matching for matching, _, _ in evaluations}) == len(evaluations)
        for matching, garbler, evaluator in evaluations:
            assert name in (garbler, evaluator)
            assert garbler != evaluator
            seen.setdefault((matching, garbler, evaluator), set()).add(name)
    assert all(len(both) == 2 for both in seen.values())
    assert len(seen) == 3 * 2


@pytest.mark.parametrize("coin", range(5))
def test_an_aggregator_cannot_exchange_a_coin(coin: int) -> None:
    table = Table()

    def change(matched: object) -> object:
        assert isinstance(matched, m.Matched)
        coins = bytearray(matched.coins)
        coins[32 * coin] ^= 1
        return m.Matched(bytes(coins))

    table.tamper = altered(table, m.MATCHED, "ben", change, m.Matched)
    table.execute()
    assert isinstance(table.errors["ben"], PeerFault)
    assert f"has a coin of {NAMES[coin]} that it had not committed to" in str(table.errors["ben"])
    assert "ben" not in table.drawn


def test_an_aggregator_cannot_exchange_a_commitment_for_one_party() -> None:
    """Whoever is shown another list is in another run: nobody's messages fit there."""
    table = Table()

    def change(start: object) -> object:
        assert isinstance(start, m.Start)
        return m.Start(start.present, start.commitments[:-96] + b"x" * 96, start.public_labels)

    table.tamper = altered(table, m.START, "ben", change, m.Start)
    table.execute()
    assert "is not for the run" in str(table.errors["ben"])


@pytest.mark.parametrize(
    ("change", "claimed"),
    [
        (lambda s: m.Start(s.present, s.commitments[96:], s.public_labels), "does not have commitments"),
        (lambda s: m.Start(s.present, s.commitments[96:] + b"x" * 96, s.public_labels), "commitments of ben"),
        (lambda _: m.Start(pack_set((), 5), b"", b""), "left ben out"),
        (lambda s: m.Start(s.present, s.commitments, b"\x01" * 5), "another label"),
        (
            lambda s: m.Start(pack_set((1, 2), 5), s.commitments[:192], s.public_labels[:2]),
            "2 of 5 parties are there, 3 are needed",
        ),
    ],
)
def test_a_party_checks_the_start(change: Callable[[object], object], claimed: str) -> None:
    table = Table()
    table.tamper = altered(table, m.START, "ben", change, m.Start)
    table.execute()
    assert claimed in str(table.errors["ben"])


def test_fewer_than_a_quorum_have_no_run() -> None:
    """Or an aggregator could leave a party no partner but one of its choice."""
    table = Table()
    hellos = [envelope for name in ("ada", "ben") for envelope in table.parties[name].handle(Start())]
    for envelope in hellos:
        table.aggregator.handle(Message(envelope))
    with pytest.raises(TimeoutFault, match="3 are needed"):
        table.aggregator.handle(Deadline())


def wrong_coins(table: Table, *guilty: str) -> Tamper:
    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step in m.COINS and f"{envelope.sender} {envelope.step}" in guilty:
            envelope = table.sign(envelope, m.Coin(b"c" * 32))
        yield envelope

    return tamper


def without_coin(name: str, withheld: list[Envelope] | None = None) -> Tamper:
    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.sender, envelope.step) != (name, "coin"):
            yield envelope
        elif withheld is not None:
            withheld.append(envelope)

    return tamper


def test_who_opens_another_coin_is_named_and_the_rest_draws_anew() -> None:
    table = Table()
    table.tamper = wrong_coins(table, "cem coin")
    table.execute()
    assert table.errors.pop("cem").code == Code.FAULT
    assert any(
        fault.startswith("cem: opened a coin that it had not")
        for fault in table.aggregator.state.inbox.faults
    )
    assert not table.errors
    others = [party for name, party in table.parties.items() if name != "cem"]
    assert "cem" not in table.drawn
    for party in others:
        assert party.run_id == table.aggregator.run_id
        drawn = drawn_for(party)
        assert drawn
        assert not any("cem" in pair for _, *pair in drawn)


def test_who_is_late_with_its_coin_is_named_and_the_rest_draws_anew() -> None:
    table = Table()
    table.tamper = without_coin("ada")
    table.execute()
    assert table.aggregator.step == "coin"
    assert table.aggregator.waiting_for == {"ada"}
    table.deliver(table.aggregator.handle(Deadline()))
    assert isinstance(table.errors["ada"], TimeoutFault)
    assert drawn_for(table.parties["ben"])


def test_a_coin_that_is_in_counts_though_its_party_is_lost() -> None:
    """Or a draw could be given up by cutting a connection, with nobody whose coin is missing."""
    table = Table()
    withheld: list[Envelope] = []
    table.tamper = without_coin("eve", withheld)
    table.execute()
    table.deliver(table.aggregator.handle(PeersLost(("ada",))))
    table.tamper = lambda envelope: [envelope]
    table.deliver(withheld)
    drawn = drawn_for(table.parties["ben"])
    assert drawn is not None
    assert table.aggregator.step == m.DONE
    assert {"ada"} <= {
        name for party in table.parties.values() for _, *pair in drawn_for(party) or () for name in pair
    }


def test_three_draws_without_a_coin_end_the_run() -> None:
    """Who can give up draws could wait for the one that it wants."""
    table = Table(names=tuple("abcdefgh"))
    table.tamper = wrong_coins(table, "a coin", "b coin-2", "c coin-3")
    table.execute()
    error = table.errors[AGGREGATOR]
    assert isinstance(error, TimeoutFault)
    assert error.missing == {"c"}
    assert "3 draws of matchings lacked a coin" in str(error)
    assert not table.drawn


def test_fewer_than_a_quorum_draw_nothing() -> None:
    table = Table()
    table.tamper = wrong_coins(table, "ada coin", "ben coin", "cem coin")
    table.execute()
    assert "3 are needed" in str(table.errors[AGGREGATOR])


@pytest.mark.parametrize(
    ("present", "claimed"),
    [((1, 2, 3, 4, 5), "nobody is missing"), ((1, 3, 4), "left ben out"), ((1, 2), "3 are needed")],
)
def test_a_party_checks_a_further_draw(present: tuple[int, ...], claimed: str) -> None:
    table = Table()
    wrong = wrong_coins(table, "eve coin")
    change = altered(table, "again-2", "ben", lambda _: m.Again(pack_set(present, 5)), m.Again)

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        for each in wrong(envelope):
            yield from change(each)

    table.tamper = tamper
    table.execute()
    assert claimed in str(table.errors["ben"])


def test_a_draw_is_not_given_up_while_nobody_is_missing() -> None:
    table = Table()
    table.tamper = lambda envelope: [] if envelope.step == m.MATCHED else [envelope]
    table.execute()
    ben = table.parties["ben"]
    (again,) = statistic_context(table.context).write(
        table.signers[AGGREGATOR], ben.run_id, "again-2", ["ben"], m.Again(pack_set(range(1, 6), 5))
    )
    with pytest.raises(PeerFault, match="nobody is missing"):
        ben.handle(Message(again))


def test_nobody_is_drawn_twice_whatever_the_aggregator_sends() -> None:
    """A party has one draw in a request, and so at most P evaluations."""
    table = Table(partners=2)
    matched: list[Envelope] = []

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        matched.extend([envelope] * ((envelope.step, envelope.receiver) == (m.MATCHED, "ben")))
        yield envelope

    table.tamper = tamper
    table.execute()
    ben = table.parties["ben"]
    drawn = drawn_for(ben)
    assert drawn is not None
    assert len(drawn) <= 2
    assert not ben.handle(Message(matched[0]))
    assert drawn_for(ben) == drawn
    (again,) = statistic_context(table.context).write(
        table.signers[AGGREGATOR], ben.run_id, "again-2", ["ben"], m.Again(pack_set((1, 2, 3), 5))
    )
    with pytest.raises(PeerFault, match="'again-2' where 'estimate' is due"):
        ben.handle(Message(again))
    # The party has stopped, and its draw is gone with its state.
    assert ben.finished
    assert drawn_for(ben) is None


def test_one_wrong_hello_excludes_its_party_alone_though_it_is_the_first() -> None:
    table = Table(plans={"ada": plan_statistic(KERNEL, 5, 2.0, partners=2)})
    table.execute()
    assert table.errors.pop("ada").code == Code.OPERATION
    assert table.aggregator.state.inbox.faults == ["ada: asks for another statistic than 4 others: epsilon"]
    assert not table.errors
    assert drawn_for(table.parties["ben"])


def test_no_statistic_that_half_ask_for() -> None:
    other = plan_statistic(KERNEL, 4, 2.0, partners=2)
    table = Table(names=("a", "b", "c", "d"), plans={"a": other, "b": other})
    table.execute()
    assert "2 ask for the same, 3 are needed; they differ in epsilon" in str(table.errors[AGGREGATOR])


@pytest.mark.parametrize(
    ("other", "differ"),
    [
        (plan_statistic(KERNEL, 5, 2.0, partners=2), "epsilon"),
        (plan_statistic(KERNEL, 5, 1.0, partners=2, covert=2), "covert"),
        (plan_statistic(KERNEL, 5, 1.0, partners=3, covert=4), "covert, partners"),
    ],
)
def test_a_party_that_asks_for_something_else_is_left_out(other: StatisticPlan, differ: str) -> None:
    table = Table(plans={"dot": other})
    table.execute()
    assert table.errors["dot"].code == Code.OPERATION
    assert table.aggregator.state.inbox.faults == [f"dot: asks for another statistic than 4 others: {differ}"]
    evaluations = drawn_for(table.parties["ada"])
    assert evaluations is not None
    assert not any("dot" in pair for _, *pair in evaluations)


def test_labels_are_public_and_needed_on_both_sides() -> None:
    kernel = find_kernel("auc", Field(0, 9))
    table = Table(1, kernel=kernel, public_labels=dict.fromkeys(NAMES, 1))
    table.execute()
    assert isinstance(table.errors[AGGREGATOR], ConfigError)
    assert str(table.errors["ada"]) == f"{AGGREGATOR}: stopped the run: {TEXTS[Code.IMPOSSIBLE]}"
    table = Table(1, kernel=kernel, public_labels={name: int(name < "c") for name in NAMES})
    table.execute()
    assert not table.errors
    pairs = drawn_for(table.parties["ada"])
    assert pairs is not None
    assert all(garbler < "c" <= evaluator for _, garbler, evaluator in pairs)


def pair_message(table: Table, sender: str, message: m.Pair) -> Envelope:
    (envelope,) = statistic_context(table.context).write(
        table.signers[sender], table.aggregator.run_id, m.PAIR, [AGGREGATOR], message
    )
    return envelope


def test_messages_of_pairs_are_taken_once_and_in_order() -> None:
    for message in (m.Pair(7, 0, b""), m.Pair(0, 1, b""), m.Pair(0, 0, b"")):
        table = Table(partners=1)
        table.execute()
        pair = drawn_for(table.parties["ada"]) or drawn_for(table.parties["ben"])
        assert pair is not None
        _, garbler, evaluator = pair[0]
        envelope = pair_message(table, evaluator, message)
        if message == m.Pair(0, 0, b""):
            # Due, but nonsense: it costs the pair.
            answer = table.aggregator.handle(Message(envelope))
            more = pair_message(table, garbler, m.Pair(0, 0, b"nonsense"))
            answer = [*answer, *table.aggregator.handle(Message(more))]
            assert {sent.receiver for sent in answer} == {garbler, evaluator}
        else:
            answer = table.aggregator.handle(Message(envelope))
            assert [sent.step for sent in answer] == ["abort", m.RELAY_END]
        with pytest.raises(TimeoutFault, match="no pair was evaluated"):
            table.aggregator.handle(Deadline())


def test_nobody_holds_a_run_up_with_endless_messages_of_a_pair() -> None:
    table = Table(partners=1)
    table.execute()
    pair = drawn_for(table.parties["ada"]) or drawn_for(table.parties["ben"])
    assert pair is not None
    sender = pair[0][2]
    for number in range(m.MAX_PAIR_MESSAGES):
        answer = table.aggregator.handle(Message(pair_message(table, sender, m.Pair(0, number, b""))))
        assert {envelope.step for envelope in answer} <= {m.PAIR}
    abort, _ = table.aggregator.handle(
        Message(pair_message(table, sender, m.Pair(0, m.MAX_PAIR_MESSAGES, b"")))
    )
    assert (abort.step, abort.receiver) == ("abort", sender)


def test_a_party_takes_only_so_many_messages_of_a_pair() -> None:
    table = Table(partners=1)
    table.execute()
    ada, context = table.parties["ada"], statistic_context(table.context)
    wire = PairWire(ada.member)

    def from_aggregator(number: int) -> Envelope:
        message = m.Pair(0, number, b"x")
        (envelope,) = context.write(table.signers[AGGREGATOR], ada.run_id, m.PAIR, ["ada"], message)
        return envelope

    with pytest.raises(PeerFault, match="where 0 is due"):
        wire.open_pair(ada.run_id, from_aggregator(1))
    for number in range(m.MAX_PAIR_MESSAGES):
        assert wire.open_pair(ada.run_id, from_aggregator(number)) == (0, b"x")
    with pytest.raises(PeerFault, match="more messages"):
        wire.open_pair(ada.run_id, from_aggregator(m.MAX_PAIR_MESSAGES))


def test_without_any_pair_there_is_no_estimate() -> None:
    table = Table(partners=1)
    table.execute()
    with pytest.raises(TimeoutFault, match="no pair was evaluated"):
        table.aggregator.handle(Deadline())


def test_a_question_is_checked() -> None:
    make = plan_maker([])
    good = operation_of(KERNEL, plan_statistic(KERNEL, 2, 1.0), "laplace")
    assert make(good).digest == plan_statistic(KERNEL, 2, 1.0).digest
    assert make(good.replace('"9.0"', "9", 1)).digest == make(good).digest
    # No float holds it: whoever asks so must not end the aggregator.
    huge = good.replace('"9.0"', "9" * 400, 1)
    wrong = good.replace("kendall_tau", "x"), good.replace("1.0", '"1"', 1)
    for bad in ("", "[]", "{}", "[" * 5000, huge, *wrong):
        with pytest.raises(ConfigError):
            make(bad)


def test_one_record_of_the_kernels_domain() -> None:
    from smpc_dp.capabilities.pairs.requests.statistic import StatisticRequest

    def make(data: object, public_label: object = None, kernel: Kernel = KERNEL) -> StatisticRequest:
        return StatisticRequest.check(
            kernel,
            data,
            parties=5,
            epsilon=1.0,
            delta=0.0,
            partners=1,
            noise="laplace",
            zetas=None,
            covert=0,
            public_label=public_label,  # type: ignore[arg-type]
        )

    assert make((3, 4)).codes.tolist() == [[3, 4]]
    for outside in ((3, 10), (3, float("nan"))):
        with pytest.raises(SmpcError, match="value"):
            make(outside)
    for shapeless in (3, np.zeros((2, 2)), ([1, 2], [3, 4]), ([[1], [2, 3]], 4)):
        with pytest.raises(ConfigError):
            make(shapeless)
    with pytest.raises(ConfigError, match="public_label"):
        make((3, 4), public_label=1)
    labelled = find_kernel("auc")
    assert type(make(3, np.int64(1), labelled).public_label) is int
    for wrong in (None, 2, 1.0, "1"):
        with pytest.raises(ConfigError, match="public_label"):
            make(3, wrong, labelled)


def test_who_waits_for_a_silent_partner_gets_the_estimate() -> None:
    """It has paid, and is not late by its own fault: nobody is expelled in the last step."""
    table = Table(partners=1)
    table.execute()
    drawn = drawn_for(table.parties["ada"]) or drawn_for(table.parties["ben"])
    assert drawn
    ((matching, *pair),) = drawn
    table.aggregator.state.ended.append(EndedPair(matching, (pair[0], pair[1]), 1))
    for name in sorted(set(NAMES) - {"eve"}):
        table.deliver(table.parties[name].handle(Report([])))
    assert table.aggregator.step == m.DONE
    table.deliver(table.aggregator.handle(Deadline()))
    assert not table.errors
    assert table.aggregator.finished
    assert (
        table.parties["eve"].result.value
        == table.parties["ada"].result.value
        == table.aggregator.result.value
    )
    assert any("eve" in fault and "deadline passed" in fault for fault in table.aggregator.result.faults)


class OtherTables(GarblerCopy):
    """A copy whose signed tables do not follow from its seed."""

    def digests(self, *, store: bool = False) -> dict[int, bytes]:
        return super().digests(store=store) | {TABLES: bytes(32)}


class Cheat(CovertGarblerRole):
    def _copy(self, terms: Terms, copy: int, seed: bytes) -> GarblerCopy:
        return OtherTables(terms, copy, seed)


def cheated(table: Table, copies: int, run_id: bytes = b"", garbler: str = "") -> tuple[str, str, Envelope]:
    """Play a pair of which the garbler cheats in all copies; return both names, and the accusation.

    `run_id`: of the pair, by default the table's; `garbler`: the first pair that it garbles.
    """
    run_id, parameters = run_id or table.aggregator.run_id, replace_plan(table.plan, covert=copies)
    drawn = {each for party in table.parties.values() for each in drawn_for(party) or ()}
    matching, garbler, evaluator = min(each for each in drawn if garbler in ("", each[1]))
    context = pair_context(table.aggregator.member.context, run_id, matching, (garbler, evaluator))
    plan, random = parameters.evaluation(garbler, evaluator), SeededRandomnessForSimulation(1, "pair")
    records = parameters.inputs(np.zeros((1, 2), np.int64), random)
    ends = evaluate_in_memory(
        {
            garbler: Cheat(context, table.signers[garbler], plan, records, random),
            evaluator: party_role(context, table.signers[evaluator], plan, records, random),
            AGGREGATOR: aggregator_role(context, table.signers[AGGREGATOR], plan, random),
        }
    )
    end = ends[evaluator]
    assert isinstance(end, PeerFault)
    assert end.check == Check.CONVICTED
    wire = PairWire(table.parties[evaluator].member)
    certificate = end.evidence["certificate"]
    return garbler, evaluator, wire.write_conviction(table.aggregator.run_id, matching, certificate)


@pytest.mark.parametrize(
    ("before", "copies"), [("nothing", MAX_COPIES), ("garbler leaves", 2), ("aggregator is started anew", 2)]
)
def test_a_garbler_that_cheats_is_convicted_whatever_happens_before_it_is_accused(
    before: str, copies: int
) -> None:
    """The certificate of the most copies fits into its message."""
    table = Table(names=NAMES[:4])
    table.execute()
    garbler, evaluator, accusation = cheated(table, copies)
    if before == "garbler leaves":
        table.deliver(table.aggregator.handle(PeersLost((garbler,))))
    elif before == "aggregator is started anew":
        table.aggregator._state = table.aggregator.state.restorable
    inbox, number = table.aggregator.state.inbox, NAMES.index(garbler) + 1
    for _ in range(2):
        table.aggregator.handle(Message(accusation))
        fault = inbox.excluded[number]
        assert isinstance(fault, PeerFault)
        assert (fault.check, [*fault.evidence]) == (Check.CONVICTED, ["certificate"])
    assert sum(f"{garbler}: is convicted of cheating" in fault for fault in inbox.faults) == 1
    assert NAMES.index(evaluator) + 1 in inbox.alive
    # However many faults came before.
    inbox.faults[:0] = [f"fault {number}" for number in range(6)]
    with pytest.raises(TimeoutFault, match=f"no pair was evaluated: {garbler}: is convicted") as caught:
        table.aggregator.handle(Deadline())
    assert caught.value.__cause__ is inbox.excluded[number]


@pytest.mark.parametrize("restored", [False, True])
def test_all_pairs_that_a_convicted_party_garbled_count_as_failed(restored: bool) -> None:
    """Those that have an output too, and those whose halves are on their way; no others."""
    table = Table(partners=3, names=NAMES[:4])
    table.execute()
    state, evaluations = table.aggregator.state, table.aggregator.state.pairs.evaluations
    pairs = [(matching, pair) for matching, drawn in enumerate(state.drawn.pairs) for pair in drawn]
    # Six pairs of four parties: one garbles two.
    garbler = max(NAMES, key=[pair[0] for _, pair in pairs].count)
    accused, *own = [each for each in pairs if each[1][0] == garbler]
    *_, accusation = cheated(table, 2, garbler=garbler)
    for matching, pair in pairs:
        if (matching, pair) != accused:
            state.ended.append(EndedPair(matching, pair, 1))
    assert set(own) < set(state.outputs)
    role = aggregator_role(
        pair_context(table.aggregator.member.context, table.aggregator.run_id, *accused),
        table.signers[AGGREGATOR],
        table.plan.evaluation(*accused[1]),
        SeededRandomnessForSimulation(1, "pair"),
    )
    evaluations[accused] = AggregatorEvaluation(role, role.run())
    if restored:
        table.aggregator._state = state.restorable
    table.aggregator.handle(Message(accusation))
    others = {each for each in pairs if each[1][0] != garbler}
    assert set(table.aggregator.state.outputs) == others
    assert evaluations[accused].over != restored


def test_a_certificate_of_another_run_excludes_who_shows_it() -> None:
    table = Table(names=NAMES[:4])
    table.execute()
    garbler, evaluator, accusation = cheated(table, 2, b"o" * 32)
    table.aggregator.handle(Message(accusation))
    inbox = table.aggregator.state.inbox
    assert NAMES.index(garbler) + 1 in inbox.alive
    ((number, fault),) = inbox.excluded.items()
    assert (number, isinstance(fault, PeerFault) and fault.check) == (
        NAMES.index(evaluator) + 1,
        Check.OTHER_RUN,
    )


def test_the_partner_of_who_was_lost_with_its_coin_in_is_told_at_once() -> None:
    table = Table(partners=1, names=NAMES[:4])
    withheld: list[Envelope] = []
    table.tamper = without_coin("dot", withheld)
    table.execute()
    table.deliver(table.aggregator.handle(PeersLost(("ada",))))
    ended: list[str] = []

    def watch(envelope: Envelope) -> Iterable[Envelope]:
        if envelope.step == m.RELAY_END:
            assert PairWire(table.parties[envelope.receiver].member).open_relay(
                table.aggregator.run_id, envelope
            ) == m.RelayEnd(0)
            ended.append(envelope.receiver)
        else:
            yield envelope

    table.tamper = watch
    table.deliver(withheld)
    ((_, *pair),) = drawn_for(table.parties[ended[0]]) or [(0, "", "")]
    assert set(pair) == {"ada", *ended}


def test_nobody_pays_for_a_further_draw_that_has_no_pair() -> None:
    kernel = find_kernel("auc", Field(0, 9))
    public_labels = dict.fromkeys(NAMES, 0) | {"ada": 1}
    table = Table(kernel=kernel, public_labels=public_labels)
    table.tamper = wrong_coins(table, "ada coin")
    table.execute()
    assert "all who take part have the same one" in str(table.errors[AGGREGATOR])
    assert not table.drawn


@pytest.mark.parametrize(
    ("changes", "claimed"),
    [
        ({"value": float("nan")}, "no number"),
        ({"pairs": 2}, "2 were drawn"),
        ({"failed": -1}, "2 were drawn"),
    ],
)
def test_a_party_checks_the_estimate(changes: dict[str, object], claimed: str) -> None:
    table = Table(partners=1)
    table.execute()
    right = m.Result(0.0, None, None, None, 0.95, 1.0, 1, 1, b"h" * 32)
    (envelope,) = statistic_context(table.context).write(
        table.signers[AGGREGATOR], table.aggregator.run_id, m.RESULT, ["ada"], replace(right, **changes)
    )
    table.deliver([envelope])
    assert claimed in str(table.errors["ada"])
