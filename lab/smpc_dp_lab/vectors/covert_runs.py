"""Scenarios of covert evaluations; `pairwise_runs` plays them."""

from __future__ import annotations

from smpc_dp_lab.vectors.pairwise_runs import FREE, Scenario

# Coins of the garbler, a record and coins of the evaluator: the record changes where both noise bits are one.
COINS = """10 17
3 2 3 2
1 3

2 1 0 5 7 XOR
2 1 1 6 8 XOR
2 1 7 8 9 AND
2 1 4 9 10 AND
1 1 3 11 INV
2 1 11 10 12 AND
1 1 12 13 EQW
2 1 2 9 14 XOR
2 1 3 10 15 XOR
2 1 4 12 16 XOR
"""

SCENARIOS = (
    Scenario("both", "Two copies of one instance; garbler and evaluator learn the output.", "both", covert=2),
    Scenario(
        "garbler",
        "Three copies of three instances, keys unique to each; the garbler learns the output.",
        "garbler",
        3,
        "unique",
        covert=3,
    ),
    Scenario("evaluator", "Two copies; the evaluator learns the output.", "evaluator", covert=2),
    Scenario("aggregator", "Two copies; a third party alone learns the output.", "aggregator", 2, covert=2),
    Scenario(
        "random-inputs",
        "The coins of both are drawn from seeds; a third party alone learns the output of 20 instances.",
        "aggregator",
        20,
        evaluator_inputs=(1, 2),
        circuit=COINS,
        covert=2,
        random_inputs=(0, 2),
    ),
    Scenario(
        "evaluator-has-no-input",
        "No transfer takes place, and a circuit without AND gates has no tables.",
        "both",
        2,
        evaluator_inputs=(),
        circuit=FREE,
        covert=3,
    ),
    Scenario(
        "garbler-has-no-input",
        "Every input is chosen by transfer; three input values of the evaluator, of unequal widths.",
        "evaluator",
        2,
        evaluator_inputs=(0, 1, 2),
        circuit=FREE,
        covert=2,
    ),
)
