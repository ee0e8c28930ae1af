"""Scenarios of evaluations that are secure against both sides; `pairwise_runs` plays them."""

from __future__ import annotations

from smpc_dp.capabilities.pairs.active.messages import COIN, Coin
from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.active.setups import Setups
from smpc_dp.capabilities.pairs.garbled.messages import START, Start
from smpc_dp.capabilities.pairs.garbled.params import Output
from smpc_dp.crypto.active import bucket_order
from smpc_dp.crypto.garble import START_BYTES
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import LocalError
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors import pairwise_runs
from smpc_dp_lab.vectors.pairwise_fault import opened
from smpc_dp_lab.vectors.pairwise_runs import (
    EVALUATOR,
    FREE,
    GARBLER,
    JsonObject,
    Run,
    Scenario,
    described,
    new_run,
)

# A record, noise and a bit of the evaluator, and a coin: the noise is the sum of bits of which it is one.
COINS = """6 10
3 2 1 1
1 2

2 1 0 2 4 AND
2 1 1 3 5 AND
1 1 5 6 INV
2 1 4 6 7 XOR
2 1 7 3 8 AND
2 1 7 3 9 XOR
"""
# An input of each side and a coin are outputs as they are; so is a constant, and the coin once more.
COPIES = """7 10
3 1 1 1
6 1 1 1 1 1 1

2 1 0 1 3 AND
1 1 0 4 EQW
1 1 1 5 EQW
1 1 2 6 EQW
1 1 1 7 EQ
2 1 3 2 8 XOR
1 1 2 9 EQW
"""


def _scenario(name: str, about: str, output: Output, instances: int = 1, **terms: object) -> Scenario:
    """Return a scenario in malicious security, with defaults that all scenarios share."""
    fields = {"k": 4, "mode": "unique", "security": "malicious", **terms}
    return Scenario(name, about, output, instances, **fields)  # type: ignore[arg-type]


BOTH = _scenario("both", "One instance, k = 4; garbler and evaluator learn the output.", "both")
SCENARIOS = (
    BOTH,
    _scenario("both-k2", "Two instances, k = 2; garbler and evaluator learn the output.", "both", 2, k=2),
    _scenario("garbler", "Three instances, k = 4; the garbler learns the output.", "garbler", 3),
    _scenario(
        "outputs-that-are-inputs",
        "An input of each side and a coin are outputs, one twice, and so is a constant; k = 2.",
        "evaluator",
        2,
        k=2,
        circuit=COPIES,
        random_inputs=(2,),
    ),
    _scenario(
        "aggregator", "Two instances, k = 2; the aggregator alone learns the output.", "aggregator", 2, k=2
    ),
    _scenario(
        "coins",
        "A coin in each of 17 instances: 51 triples; the aggregator alone learns the output.",
        "aggregator",
        17,
        circuit=COINS,
        random_inputs=(2,),
    ),
    _scenario(
        "without-and",
        "A circuit without AND gates has no triples and no tables; the evaluator has no input.",
        "both",
        2,
        evaluator_inputs=(),
        circuit=FREE,
    ),
    _scenario(
        "garbler-has-no-input",
        "Both input values are the evaluator's.",
        "evaluator",
        2,
        evaluator_inputs=(0, 1),
    ),
    _scenario(
        "second",
        "After the run 'both' of the same two: both setups and both counters go on.",
        "both",
        2,
        before=BOTH,
    ),
    _scenario(
        "second-forgotten",
        "After the run 'both' of the same two: the evaluator has lost its setups, so both make others.",
        "both",
        before=BOTH,
        forgot=EVALUATOR,
    ),
)


def to_json(scenario: Scenario) -> JsonObject:
    """Run a scenario, and return its test vector, with the secrets that both sides hold together."""
    run = new_run(scenario).execute()
    vector = pairwise_runs.run_json(run)
    vector["intermediate"] = {**_dict(vector["intermediate"]), **_secrets(run)}
    return vector


def _dict(value: object) -> JsonObject:
    """Return the value as a JSON object; raise LocalError if it is none."""
    if not isinstance(value, dict):
        raise LocalError("not an object")
    return value


def _secrets(run: Run) -> JsonObject:
    """Return the secrets of both sides for a test vector: contexts, correlations, keys and groups."""
    deltas, contexts = {}, {}
    for name in (GARBLER, EVALUATOR):
        setups = run.transfers[name]
        if not isinstance(setups, Setups):
            raise LocalError("transfers of one direction")
        sender, _ = setups.made()
        deltas[name], contexts[name] = sender.delta, sender.context
    start = digest(Label.ACTIVE_KEYS, contexts[GARBLER], contexts[EVALUATOR])[:START_BYTES]
    return {
        "contexts": {name: context.hex() for name, context in contexts.items()},
        "deltas": {name: delta.hex() for name, delta in deltas.items()},
        "keys": start.hex(),
        "groups": _groups(run),
    }


def _groups(run: Run) -> list[JsonObject]:
    """Return the size of each group of AND triples, and the shuffle that its coin gives."""
    plan = run.plan
    if not isinstance(plan, ActivePlan):
        raise LocalError("a plan without triples")
    signed = [
        (sender, decode(opened(data, sender).body, Coin, sender))
        for sender, _, data in run.sent
        if described(sender, data) == COIN
    ]
    bound = (run.context.protocol.encode(), encode_uint(run.context.version))
    start = next(
        decode(opened(data, sender).body, Start, sender).start
        for sender, _, data in run.sent
        if described(sender, data) == START
    )
    listed: list[JsonObject] = []
    for group in (group for block in plan.blocks() for group in plan.groups(block)):
        seeds = {sender: coin.seed for sender, coin in signed if coin.group == group.number}
        parts = (run.ends[GARBLER].run_id, start, plan.circuit.digest, encode_uint(group.number))
        key = digest(Label.ACTIVE_BUCKETS, *bound, *parts, seeds[GARBLER], seeds[EVALUATOR])
        order = bucket_order(group.leaky, key).tolist()
        listed.append({"triples": group.triples, "size": group.size, "key": key.hex(), "order": order})
    return listed
