"""Tokens of walks as messages: cover, what is forged or lost; learners party by party as in a simulation."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import Boxes, Parties, PlainExchange
from smpc_dp.capabilities.learn.exchange_tokens import (
    CoveredTokens,
    pack_token,
    token_messages,
    unpack_token,
    width,
)
from smpc_dp.capabilities.learn.exchanges import PlannedMessages, plan_messages
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requests.exchanging import PartyExchange
from smpc_dp.capabilities.learn.requirements import LearnerContext
from smpc_dp.capabilities.learn.token_learners import WalkLearner, WalkSumLearner, planned_walk
from smpc_dp.capabilities.learn.tokens import Token, TokenPassing, Values
from smpc_dp.capabilities.learn.walk import Visit, _Adder
from smpc_dp.errors import ConfigError, LocalError, PeerFault, SmpcError, TimeoutFault, VerificationError
from smpc_dp.privacy.network.grid import Grid
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.exchange.messages import SEND, Send
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.requests import AggregatorLostError
from smpc_dp.session.requests import Counter as Requests
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, decode
from tests.examples import examples
from tests.exchanges import drive_exchange
from tests.learners import learn_apart
from tests.tokens import TokensApart, tokens_apart

SUM: dict[str, Any] = {
    "learner": "walk-sum",
    "steps": 12,
    "lower": -1.0,
    "upper": 1.0,
    "epsilon": 20.0,
    "delta": 1e-4,
}
KNOWN = SUM | {"paths": "known", "contributions": 3, "max_contributions": 3, "edge_cap": 1, "steps": 20}
KNOWN_SGD: dict[str, Any] = {
    "learner": "walk-sgd",
    "steps": 20,
    "features": 2,
    "epsilon": 20.0,
    "delta": 1e-4,
    "paths": "known",
    "record_bound": 4.0,
    "clip": 4.2,
    "radius": 5.0,
    "max_contributions": 4,
    "edge_cap": 2,
}
HISTOGRAM: dict[str, Any] = {
    "learner": "walk-histogram",
    "steps": 12,
    "categories": 3,
    "epsilon": 20.0,
    "delta": 1e-4,
}
SGD: dict[str, Any] = {"learner": "walk-sgd", "steps": 12, "features": 2, "epsilon": 20.0, "delta": 1e-4}
TABLES: dict[str, list[np.ndarray]] = {
    "walk-sum": [np.array([[party / 4 - 0.5]]) for party in range(4)],
    "known": [np.array([[party / 4 - 0.5], [0.25], [-0.125]]) for party in range(4)],
    "walk-histogram": [np.array([[party % 3]]) for party in range(4)],
    "walk-sgd": [np.array([[1.0, party, 0.0], [party, 2.0, 1.0]]) for party in range(4)],
}


def source(*parts: int) -> NoiseSource:
    return NoiseSource.keyed(bytes(32), *(str(part).encode() for part in parts))


def planned(settings: dict[str, Any], parties: int = 4) -> tuple[WalkLearner, PlannedMessages]:
    checked, faults = check_learn(settings, parties)
    assert checked is not None, faults
    assert isinstance(checked.learner, WalkLearner)
    assert checked.exchange is not None
    return checked.learner, checked.exchange


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.integers(0, 100_000))
def test_tokens_of_integers_travel_exactly(values: list[int], step: int) -> None:
    token = Token(step, np.array(values, np.int64))
    result = unpack_token(pack_token(token), token.values, "party 1")
    assert result is not None
    assert result.step == step
    np.testing.assert_array_equal(result.values, token.values)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=5))
def test_tokens_of_reals_travel_exactly(values: list[float]) -> None:
    token = Token(3, np.array(values))
    result = unpack_token(pack_token(token), token.values, "party 1")
    assert result is not None
    np.testing.assert_array_equal(result.values.view(np.int64), token.values.view(np.int64))


@pytest.mark.parametrize("values", [1, 7, 30_000])
def test_the_largest_token_is_on_the_grid_of_messages(values: int) -> None:
    required = token_messages(values, 3, 2)
    encoding = plan_messages(required, 3).parameters.encoding
    assert encoding.length == width(values)
    token = pack_token(Token(100_000, np.full(values, -1, np.int64)))
    ring_vector, clipped = encoding.encode(token, party="ann")
    assert not clipped
    np.testing.assert_array_equal(
        encoding.real(ring_vector.view(np.int64) + np.int64(encoding.lowest)).astype(np.float64), token
    )


@pytest.mark.parametrize("bad", [[2, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0.5, 0], [1, 0, -1, 0], [1, 0, 2**32, 0]])
def test_what_is_neither_token_nor_cover_has_a_culprit(bad: list[float]) -> None:
    with pytest.raises(PeerFault, match="neither a token nor none") as raised:
        unpack_token(np.array(bad, np.float64), np.zeros(1, np.int64), "party 2")
    assert raised.value.culprit == "party 2"


def apart(
    learner: WalkLearner,
    tables: list[np.ndarray],
    indices: list[TokensApart],
    seed: int,
) -> list[np.ndarray]:
    """Run the learner's protocol with one task for each party over tokens in memory, without messages."""

    async def run() -> list[np.ndarray]:
        protocol = planned_walk(learner, len(tables))
        result = await asyncio.gather(
            *(
                learner.run_protocol(protocol, indices[u], tables[u : u + 1], source(seed, u))
                for u in range(len(tables))
            )
        )
        return [np.asarray(values) for values, _ in result]

    return asyncio.run(run())


def by_messages(
    settings: dict[str, Any], tables: list[np.ndarray], seed: int, kill: dict[int, int] | None = None
) -> list[Any]:
    """Return each party's values, or its error: by its session, with the noise of `apart`."""

    def drawn(_self: OneProcess, name: str) -> NoiseSource:
        return source(seed, int(name.removeprefix("party-")) - 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneProcess, "noise_source", drawn)
        result = learn_apart(settings, tables, seed, kill)
    return [one if isinstance(one, SmpcError) else one.values[0] for one in result]


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("settings", "tables"),
    [
        (SUM, "walk-sum"),
        (KNOWN, "known"),
        (HISTOGRAM, "walk-histogram"),
        (SGD, "walk-sgd"),
        (KNOWN_SGD, "walk-sgd"),
    ],
    ids=["sum", "known", "histogram", "sgd", "known-sgd"],
)
def test_messages_carry_the_walk_of_the_simulation_to_the_last_bit(
    settings: dict[str, Any], tables: str
) -> None:
    learner, _ = planned(settings)
    wanted = apart(learner, TABLES[tables], tokens_apart(4), 1)
    result = by_messages(settings, TABLES[tables], 1)
    np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(wanted, [wanted[0]] * 4)


@settings(max_examples=examples(10))
@given(
    values=st.lists(st.integers(-16, 16), min_size=4, max_size=4),
    seed=st.integers(0, 2**30),
)
def test_without_noise_a_token_has_the_sum_of_those_who_held_it(values: list[int], seed: int) -> None:
    steps, passed = SUM["steps"], []

    class Watched(CoveredTokens):
        async def pass_on(self, sender: int, receiver: int, token: Token) -> None:
            passed.append((sender, token.step, int(token.values[0])))
            await super().pass_on(sender, receiver, token)

    learner, _ = planned(SUM)
    assert isinstance(learner, WalkSumLearner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Grid, "noise", lambda _self, _source, count, **_share: np.zeros(count, np.int64))
        patch.setattr("smpc_dp.capabilities.learn.token_learners.CoveredTokens", Watched)
        result = by_messages(SUM, [np.array([[value / 16]]) for value in values], seed)
    bits = planned_walk(learner, 4).grid.bits
    assert [step for _, step, _ in passed] == list(range(steps))
    for (_, _, before), (holder, step, now) in itertools.pairwise(passed):
        assert (now - before) * 2.0**-bits == (values[holder] / 16 if step > 1 else 0)
    total = passed[-1][2] * 2.0**-bits
    assert any(result[0] == total + value / 16 for value in values)
    np.testing.assert_array_equal(result, [result[0]] * 4)


def test_who_waits_is_as_busy_as_who_has_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """One draw of noise before each message of each party, but party 0's first, who starts the walk."""
    busy: Counter[int] = Counter()
    hold = _Adder.hold

    def counted(self: _Adder, values: Values, visit: Visit) -> Values:
        busy[int(self.here[0])] += 1
        return hold(self, values, visit)

    monkeypatch.setattr(_Adder, "hold", counted)
    by_messages(SUM, TABLES["walk-sum"], 7)
    assert busy == {0: SUM["steps"], 1: SUM["steps"] + 1, 2: SUM["steps"] + 1, 3: SUM["steps"] + 1}


@pytest.mark.parametrize("when", [1, 6, 13])
def test_a_user_who_is_killed_stops_the_walk_and_is_named(when: int) -> None:
    """At the first message, with the token on its way, and as it is published."""
    result = by_messages(SUM, TABLES["walk-sum"], 5, kill={2: when})
    assert isinstance(result[2], AggregatorLostError)
    for party in (0, 1, 3):
        error = result[party]
        assert isinstance(error, TimeoutFault), error
        assert error.missing == {"party-00003"}


class Forger(PlainExchange):
    """Party 1 of four alone; what it is sent is what `changed` makes of nothing."""

    def __init__(self, changed: Callable[[int, Boxes], None]) -> None:
        super().__init__(4)
        self._changed, self.calls, self.sent = changed, 0, 0

    @property
    def parties(self) -> int:
        return 4

    @property
    def here(self) -> Parties:
        return np.array([1])

    async def all_to_all(self, vectors: Boxes) -> Boxes:
        result = np.zeros_like(vectors)
        result[0, 1] = vectors[0, 1]
        self.sent += int(vectors.any())
        self._changed(self.calls, result)
        self.calls += 1
        return result


def hold(changed: Callable[[int, Boxes], None] | Forger, steps: int = 12) -> None:
    """Let party 1 take part in a walk of these messages."""
    exchange = changed if isinstance(changed, Forger) else Forger(changed)
    learner, _ = planned(SUM | {"steps": steps}, 4)
    protocol = planned_walk(learner, 4)
    tokens: TokenPassing = CoveredTokens(exchange, steps, np.zeros(1, np.int64))
    asyncio.run(learner.run_protocol(protocol, tokens, [np.array([[0.5]])], source(8)))


def sent(hop: int, sender: int, token: Token) -> Callable[[int, Boxes], None]:
    def change(call: int, boxes: Boxes) -> None:
        if call == hop:
            boxes[0, sender] = pack_token(token)

    return change


def test_a_token_of_another_step_has_a_culprit() -> None:
    with pytest.raises(PeerFault, match="token of step 3 at hop 1") as raised:
        hold(sent(1, 2, Token(3, np.zeros(1, np.int64))))
    assert raised.value.culprit == "party 2"


@pytest.mark.parametrize(
    ("settings", "tables", "bad"),
    [
        (SUM, "walk-sum", Token(0, np.array([1]))),
        (SUM, "walk-sum", Token(1, np.array([1 << 62]))),
        (HISTOGRAM, "walk-histogram", Token(2, np.array([1, 0, 2]))),
        (HISTOGRAM, "walk-histogram", Token(2, np.array([5, -4, 1]))),
        (SGD, "walk-sgd", Token(1, np.array([1e200, 0.0, 0.0]))),
        (SGD, "walk-sgd", Token(12, np.array([100.001, 0.0, 0.0]))),
        (SGD, "walk-sgd", Token(0, np.array([1.0, 0.0, 0.0]))),
        (KNOWN_SGD, "walk-sgd", Token(1, np.array([-(1 << 63), 0, 0]))),
        (KNOWN_SGD, "walk-sgd", Token(1, np.array([1 << 60, 1 << 60, 0]))),
    ],
)
def test_a_token_that_nobody_honest_makes_names_its_sender(
    settings: dict[str, Any], tables: str, bad: Token
) -> None:
    """Not the step size of who holds it next; and nothing is added to it."""
    learner, _ = planned(settings, 4)
    forger = Forger(sent(bad.step, 2, bad))
    tokens = CoveredTokens(forger, learner.steps, learner.start)
    with pytest.raises(PeerFault, match=f"no {bad.step} steps make the token that it sent") as raised:
        asyncio.run(learner.run_protocol(planned_walk(learner, 4), tokens, TABLES[tables][1:2], source(8)))
    assert raised.value.culprit == "party 2"
    assert forger.sent == 0


def test_between_processes_a_culprit_has_its_name_in_the_roster(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, ("ann", "ben", "cat"), SUM, protocol="learn")
    membership = Membership.load(path, "ben")
    assert isinstance(membership, Membership)
    exchange = PartyExchange(
        membership, planned(SUM, 3)[1], Requests(), cast("AggregatorConnection", None), None
    )
    tokens = CoveredTokens(exchange, SUM["steps"], np.zeros(1, np.int64))
    assert [tokens.name_of(party) for party in range(3)] == ["ann", "ben", "cat"]
    assert str(tokens._second(2)).startswith("a token came from cat while another")


def test_two_tokens_are_not_one_walk() -> None:
    """At one hop, and a second one while the first is held."""
    token = Token(1, np.zeros(1, np.int64))

    def both(call: int, boxes: Boxes) -> None:
        if call == 1:
            boxes[0, [0, 2]] = pack_token(token)

    forger = Forger(both)
    with pytest.raises(VerificationError, match="one of the two is forged"):
        hold(forger)
    assert forger.sent == 0, "nothing is added to either"

    def later(call: int, boxes: Boxes) -> None:
        if call in (1, 2):
            boxes[0, 0] = pack_token(Token(call, np.zeros(1, np.int64)))

    for steps in (2, 5):
        with pytest.raises(VerificationError, match="one of the two is forged"):
            hold(later, steps=steps)


def test_a_token_that_nobody_publishes_is_lost() -> None:
    with pytest.raises(VerificationError, match="nobody has published the token"):
        hold(lambda _call, _boxes: None)


def test_a_covered_token_leaves_at_its_step_and_from_here() -> None:
    tokens = CoveredTokens(Forger(lambda _call, _boxes: None), 3, np.zeros(1, np.int64))
    token = Token(0, np.zeros(1, np.int64))
    with pytest.raises(LocalError, match="does not leave here"):
        asyncio.run(tokens.pass_on(0, 2, token))
    asyncio.run(tokens.pass_on(1, 2, token))
    for step in (0, 2):
        with pytest.raises(LocalError, match=f"step {step} is passed on at hop 1 of 3"):
            asyncio.run(tokens.pass_on(1, 2, Token(step, token.values)))
    with pytest.raises(ConfigError, match="one party here"):
        CoveredTokens(PlainExchange(3), 3, np.zeros(1, np.int64))


def test_the_hub_makes_the_calls_of_all_steps() -> None:
    class Aggregator(Forger):
        def __init__(self) -> None:
            super().__init__(lambda _call, _boxes: None)

        @property
        def here(self) -> Parties:
            return np.zeros(0, dtype=np.intp)

        async def all_to_all(self, vectors: Boxes) -> Boxes:
            assert vectors.shape == (0, 4, width(1))
            self.calls += 1
            return vectors

    aggregator = Aggregator()
    learner, _ = planned(SUM, 4)
    result = asyncio.run(learner.run(LearnerContext(exchange=aggregator), []))
    assert aggregator.calls == SUM["steps"] + 1
    assert result.values.shape == (0, 1)


def test_every_message_of_a_step_has_the_same_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder's as well: the aggregator cannot tell it from cover."""
    sent: list[Envelope] = []
    write = Context.write

    def record(context: Context, *given: Any) -> list[Envelope]:
        envelopes = write(context, *given)
        sent.extend(envelopes)
        return envelopes

    monkeypatch.setattr(Context, "write", record)
    _, exchanging = planned(SUM)
    parameters = exchanging.parameters.to_each()
    vectors = np.zeros((4, 4, width(1)))
    vectors[2, 3] = pack_token(Token(5, np.array([-77])))
    ring_vector = [
        np.stack([parameters.encoding.encode(row, party="p")[0] for row in vectors[sender]])
        for sender in range(4)
    ]
    parties, errors = drive_exchange(parameters, ring_vector, seed=1)
    assert not errors
    assert [sorted(party.state.received) for party in parties] == [
        [f"party-{other + 1:05d}" for other in range(4) if other != sender] for sender in range(4)
    ]
    read = parameters.real(parties[3].state.received["party-00003"])
    result = unpack_token(read, np.zeros(1, np.int64), "")
    assert result is not None
    assert (result.step, int(result.values[0])) == (5, -77)
    assert not parameters.real(parties[0].state.received["party-00003"]).any()
    boxes = [
        box
        for envelope in sent
        if envelope.step == SEND
        for _, box in decode(envelope.body, Send, envelope.sender).boxes
    ]
    assert len(boxes) == 12
    assert len({len(box) for box in boxes}) == 1


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("settings", "tables"),
    [
        (SUM, "walk-sum"),
        (HISTOGRAM, "walk-histogram"),
        (SGD, "walk-sgd"),
        (KNOWN, "known"),
        (KNOWN_SGD, "walk-sgd"),
    ],
)
@pytest.mark.parametrize("fidelity", ["ideal", "machines"])
def test_a_learner_runs_in_both_fidelities_and_again(
    settings: dict[str, Any], tables: str, fidelity: Any
) -> None:
    result = [
        simulate.learn(settings, TABLES[tables], fidelity=fidelity, seed_for_simulation=seed)
        for seed in (1, 1, 2)
    ]
    assert result[0].guarantee is not None
    assert result[0].guarantee.epsilon == pytest.approx(20.0)
    assert "follow the protocol" in result[0].claim
    np.testing.assert_array_equal(result[0].values, result[1].values)
    assert (result[0].values != result[2].values).any()
    assert np.ptp(result[0].values, axis=0).max() == 0


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("settings", "change", "named"),
    [
        (SUM, {"steps": 1}, "steps"),
        (SUM, {"upper": -1.0}, "upper"),
        (SUM, {"epsilon": 0.0}, "epsilon"),
        (SUM, {"colluding": 3}, "colluding"),
        (SUM, {"paths": "hidden"}, "paths"),
        (SUM, {"edge_cap": 2}, "edge_cap"),
        (SUM, {"contributions": 2}, "contributions"),
        (KNOWN, {"max_contributions": 4}, "contributions"),
        (HISTOGRAM, {"categories": 1}, "categories"),
        (HISTOGRAM, {"epsilon": 1e-9}, "epsilon"),
        (SGD, {"clip": 0.0}, "clip"),
        (SGD, {"features": 10_000, "model": "softmax", "classes": 10}, "token: has 100010 values"),
        (SGD, {"paths": "hidden"}, "paths"),
        (SGD, {"record_bound": 4.0}, "record_bound"),
        (SGD, {"max_contributions": 4}, "max_contributions"),
        (KNOWN_SGD, {"record_bound": 4.2}, "clip"),
        (KNOWN_SGD, {"rate": 0.5}, "rate"),
        (KNOWN_SGD, {"model": "linear"}, "model"),
        (KNOWN_SGD, {"epsilon": 400.0}, "epsilon"),
        (KNOWN_SGD, {"radius": 1e6, "rate": 1e-6}, "steps"),
        ({key: value for key, value in KNOWN_SGD.items() if key != "record_bound"}, {}, "record_bound"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    settings: dict[str, Any], change: dict[str, Any], named: str
) -> None:
    checked, faults = check_learn(settings | change, 4)
    assert checked is None
    assert any(str(fault).startswith(named) for fault in faults), faults


@pytest.mark.parametrize(
    ("settings", "tables", "bad", "named"),
    [
        (SUM, "walk-sum", [[2.0]], r"party 1: a contribution is outside \[-1, 1\]: number 1"),
        (SUM, "walk-sum", [[0.0], [0.0]], "party 1: must be 1 lines of one number"),
        (SUM, "walk-sum", [[np.nan]], "party 1: a contribution is outside"),
        (HISTOGRAM, "walk-histogram", [[0.5]], "party 1: a value is no category"),
        (HISTOGRAM, "walk-histogram", [[3]], "party 1: a value is no category"),
        (SGD, "walk-sgd", [[1.0, 1.0]], "party 1: has 2 columns"),
        (KNOWN_SGD, "walk-sgd", [[3.0, 3.0, 0.0]], "party 1: point 0 has norm 4.24264, record_bound is 4"),
    ],
)
def test_data_that_do_not_fit_are_refused(
    settings: dict[str, Any], tables: str, bad: list[list[float]], named: str
) -> None:
    data = list(TABLES[tables])
    data[1] = np.array(bad)
    with pytest.raises(ConfigError, match=named):
        simulate.learn(settings, data)
