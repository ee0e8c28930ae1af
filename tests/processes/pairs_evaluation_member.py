"""One member of a two-party evaluation as a process: prints its steps, then how it ended and its memory."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import numpy as np

from smpc_dp.capabilities.pairs.circuits.circuit import WORD_BITS
from smpc_dp.capabilities.pairs.requests.pairwise import PairwiseMember, evaluate
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault


def say(**reason: object) -> None:
    sys.stdout.write(json.dumps(reason) + "\n")
    sys.stdout.flush()


def peak() -> int:
    """Bytes, since the program was started: `ru_maxrss` would count whoever started it too."""
    status = Path("/proc/self/status").read_text("ascii")
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])


def main(session: str, name: str) -> None:
    member = PairwiseMember.load(session, name)
    words = -(-member.plan.parameters.instances // WORD_BITS)
    inputs = [
        np.zeros((member.plan.circuit.inputs[index], words), np.uint64) for index in member.input_values
    ]
    try:
        report = evaluate(member, member.role(inputs), lambda step: say(step=step))
    except SmpcError as error:
        named = [error.culprit] if isinstance(error, PeerFault) else []
        named += sorted(error.missing) if isinstance(error, TimeoutFault) else []
        say(error=type(error).__name__, text=str(error), named=named, at=time.time())
    else:
        say(sent=report.bytes_sent, peak=peak())


if __name__ == "__main__":
    main(*sys.argv[1:3])
