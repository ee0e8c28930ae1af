"""Privacy claim of an evaluation that is secure against both sides, and its limits."""

from __future__ import annotations

from smpc_dp.capabilities.pairs.garbled.claims import outputs_limit
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.engine.result import Claim, Privacy
from smpc_dp.privacy.named_sentences import NamedSentences

STATISTICAL_BITS = 40
CHEAT = 2.0**-STATISTICAL_BITS
"""Probability that a cheat in one attempt passes, at most; a computational term comes to it."""


COMPUTATIONAL = (
    "AES-128 is an ideal cipher, TupleHash256 and keyed BLAKE3 are random oracles, and computational "
    "Diffie-Hellman is hard in ristretto255"
)


def active_privacy(parameters: PairwiseParameters) -> Privacy:
    """Return the privacy claim of an evaluation secure against a malicious garbler or evaluator."""
    garbler, evaluator = parameters.garbler, parameters.evaluator
    return Claim(
        clauses=NamedSentences.of(
            secure=f"secure with abort against a malicious '{garbler}' (garbler) or a malicious "
            f"'{evaluator}' (evaluator): a cheat in an attempt passes unnoticed with probability "
            f"2^-{STATISTICAL_BITS} at most"
        ),
        premises=NamedSentences.of(computational=COMPUTATIONAL),
        limits=NamedSentences.of(
            outputs=outputs_limit(parameters),
            attempts=_attempts(parameters),
            stopping="either side can stop the run, and a failure names nobody; with output to both the "
            "evaluator learns the output first",
            aggregator=f"what the aggregator reports, if it colludes with '{garbler}' or '{evaluator}': it "
            "can report a false output; the inputs of the other stay private"
            if parameters.output == "aggregator"
            else None,
        ),
    ).privacy()


def _attempts(parameters: PairwiseParameters) -> str:
    """Return the limit of a privacy claim on repeated attempts; with coins it speaks of noise and delta."""
    if not parameters.random_inputs:
        return (
            "each attempt counts, failed or not: a side that has its output can stop, and a further attempt "
            "gives it an output for other inputs of its choice, and another chance of "
            f"2^-{STATISTICAL_BITS} to cheat"
        )
    return (
        "each attempt counts, failed or not, with the epsilon of the noise that the circuit makes of its "
        f"coins, if it makes any, and a delta of 2^-{STATISTICAL_BITS}: a side that has its output can stop, "
        "and a further attempt gives it one with new coins; no ledger counts the attempts of an evaluation"
    )
