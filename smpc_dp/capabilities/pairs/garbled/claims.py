"""Privacy claim of a two-party evaluation, and its limits."""

from __future__ import annotations

from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.engine.result import Claim, Privacy
from smpc_dp.privacy.named_sentences import NamedSentences


def privacy_of(parameters: PairwiseParameters, tile: int, transfers: int) -> Privacy:
    """Return the privacy claim of a garbled evaluation with these parameters: assumptions and limits.

    `tile`: how many instances are garbled together; in mode "tile" they share keys.
    """
    garbler, evaluator = parameters.garbler, parameters.evaluator
    bits = (transfers - 1).bit_length()
    return Claim(
        clauses=NamedSentences.of(
            secure=f"secure against a malicious '{evaluator}' (evaluator) and a {_garbler(parameters)} "
            "(garbler)"
        ),
        premises=NamedSentences.of(
            computational="AES-128 is an ideal cipher, TupleHash256 and SHA-256 are random oracles, keyed "
            f"BLAKE3 is {'a random oracle' if parameters.covert else 'collision resistant'}, and "
            "computational Diffie-Hellman is hard in ristretto255",
            garbling_keys=f"{_keys(parameters, tile)}; of Q keys in all runs, no two meet but with "
            "probability Q^2 / 2^129",
            transfers=f"the proved level of up to 2^{bits} oblivious transfers is {128 - bits} bits of work, "
            f"and 2^-{128 - 2 * bits} without any"
            if transfers
            else None,
            aggregator=f"the aggregator does not collude with '{garbler}' or '{evaluator}'"
            if parameters.output == "aggregator"
            else None,
        ),
        limits=NamedSentences.of(
            garbler=_malicious_garbler(parameters),
            outputs=outputs_limit(parameters),
            stopping="either side can stop the run; with output to both the garbler learns the output first",
        ),
    ).privacy()


def outputs_limit(parameters: PairwiseParameters) -> str:
    """Return the limit of a privacy claim on outputs: exact, or of coins whose use nobody has checked."""
    subject = "what the outputs themselves tell about the inputs"
    if not parameters.random_inputs:
        return f"{subject}: they are exact, without differential privacy"
    return (
        f"{subject}: they depend on coins that the protocol draws, but whether the circuit makes noise of "
        "these, and how much privacy that gives, is not checked"
    )


def _garbler(parameters: PairwiseParameters) -> str:
    """Return how a privacy claim words the garbler it assumes: semi-honest, or covert with its chance."""
    if not (copies := parameters.covert):
        return f"semi-honest '{parameters.garbler}'"
    caught = f"caught with probability {copies - 1}/{copies}, and convicted unless it stops before it signs"
    return f"covert '{parameters.garbler}', {caught}"


def _malicious_garbler(parameters: PairwiseParameters) -> str:
    """Return the sentence of a privacy claim that says what a cheating garbler could still learn or do."""
    garbler, evaluator, copies = parameters.garbler, parameters.evaluator, parameters.covert
    if not copies:
        return (
            f"against a malicious garbler: '{garbler}' can garble another circuit, or learn a bit about the "
            f"inputs of '{evaluator}' from whether the run fails; authenticated garbling would prevent both"
        )
    return (
        f"an undetected cheat of the garbler '{garbler}', with probability 1/{copies} at most: it can learn "
        f"the inputs of '{evaluator}' and choose the outputs; a garbler that does not fear a conviction"
    )


def _keys(parameters: PairwiseParameters, tile: int) -> str:
    """Return the part of a privacy claim on whether instances share garbling keys, and what that costs."""
    shared = min(tile, parameters.instances)
    if parameters.mode == "unique" or shared == 1:
        return "keys are unique to each gate and instance"
    bits = (shared - 1).bit_length()
    return f"tiles of {shared} instances share the keys of each gate, which costs about {bits} bits"
