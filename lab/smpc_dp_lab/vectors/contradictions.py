"""Evidence that an aggregator has signed two results of a run, and evidence that shows nothing."""

from __future__ import annotations

import hashlib

from smpc_dp.engine.events import Message, Start
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import LocalError, PeerFault
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode, encode_envelope
from smpc_dp_lab.vectors import runs
from smpc_dp_lab.vectors.fault import VICTIM, Base, flip
from smpc_dp_lab.vectors.negative import last_results
from smpc_dp_lab.vectors.runs import AGGREGATOR, header

JsonObject = dict[str, object]


def all_to_json() -> dict[str, JsonObject]:
    """Return the test vector of evidence that an aggregator signed two results, by file name."""
    first, second = Base("complete"), Base("second")
    evidence = _evidence(second)
    other = first.find(m.MERKLE_COMMITMENT)[1]
    start = decode(evidence["message"], Envelope, "")
    run, step = second.run, m.MERKLE_COMMITMENT
    following = decode(start.body, m.FollowingStart, AGGREGATOR)
    [misplaced] = run.context.write(run.signers[AGGREGATOR], start.run_id, step, (start.receiver,), following)
    cases = {
        "good": evidence,
        "result-flipped": evidence | {"result signature": flip(evidence["result signature"])},
        "start-flipped": evidence | {"message": flip(evidence["message"], -1)},
        "start-of-the-same-result": evidence | {"message": encode_envelope(second.find(m.START)[1])},
        "start-for-another": evidence
        | {"message": encode_envelope(second.find(m.START, AGGREGATOR, "bob")[1])},
        "roll-in-place-of-the-result": evidence
        | {
            "result step": m.MERKLE_COMMITMENT.encode(),
            "result": hashlib.sha256(other.body).digest(),
            "result signature": other.signature,
        },
        "roll-in-place-of-the-start": evidence | {"message": encode_envelope(misplaced)},
        "another-protocol": evidence | {"result protocol": b"gopa"},
    }
    about = "What convicts an aggregator that names another result than it has sent, and what does not."
    return {
        "contradictions": {
            **header("contradictions", "contradictions", about),
            "public_key": second.run.context.keys[AGGREGATOR].hex(),
            "cases": [
                {
                    "name": name,
                    "good": name == "good",
                    "evidence": {field: value.hex() for field, value in shown.items()},
                }
                for name, shown in cases.items()
            ],
        }
    }


def _evidence(second: Base) -> dict[str, bytes]:
    """Return the evidence of a party to which the aggregator names another result than it holds."""
    [other] = [fault for fault in last_results(second) if fault.name == "start-last-results-other"]
    [scenario] = [scenario for scenario in runs.SCENARIOS if scenario.name == second.name]
    party = runs.new_run(scenario).parties[VICTIM]
    party.handle(Start())
    try:
        party.handle(Message(other.envelope))
    except PeerFault as fault:
        return fault.evidence
    raise LocalError("another result is not refused")
