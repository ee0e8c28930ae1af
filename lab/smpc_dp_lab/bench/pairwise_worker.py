"""One party of a two-party measurement, in its own process: `python -m smpc_dp_lab.bench.pairwise_worker`.

It evaluates the circuit of a session on random inputs, and before that measures what the channel carries and
how many oblivious transfers a second go over it, if asked for.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Mapping

import numpy as np

from smpc_dp.capabilities.pairs.circuits.circuit import WORD_BITS
from smpc_dp.capabilities.pairs.garbled.messages import TABLE_PIECE
from smpc_dp.capabilities.pairs.garbled.plan import Rows
from smpc_dp.capabilities.pairs.requests.pairwise import PairwiseMember, drive
from smpc_dp.crypto.ot import FIELD_SIZES
from smpc_dp_lab.bench import transfers

CHANNEL_BYTES = 1 << 29


def main(session: str, name: str, title: str) -> Mapping[str, object]:
    """Run member `name` of a session; `title` lists the measurements to do; return them by name."""
    member = PairwiseMember.load(session, name)
    garbler, role = name == member.plan.parameters.garbler, member.role(random_inputs(member))
    channels = member.connect()
    (channel,) = channels.values()
    measured: dict[str, object] = {}
    try:
        if "channel" in title:
            count, content = CHANNEL_BYTES // TABLE_PIECE, bytes(TABLE_PIECE)
            began, busy = time.perf_counter(), time.process_time()
            if garbler:
                for _ in range(count):
                    channel.send([content])
                channel.receive(1)
            else:
                for left in range(count - 1, -1, -1):
                    channel.receive(TABLE_PIECE, left)
                channel.send([b"x"])
            measured["channel"] = CHANNEL_BYTES / (time.perf_counter() - began)
            measured["processor seconds a byte"] = (time.process_time() - busy) / CHANNEL_BYTES
        if "transfers" in title:
            for k in FIELD_SIZES:
                measured[transfers.over(k)] = _transfers(channel, garbler, k)
        if "evaluate" in title:
            report = drive(role, channels)
            measured["steps"] = dict(report.steps)
            measured["bytes"] = report.bytes_sent + report.bytes_received
    finally:
        channel.close()
    return measured


def random_inputs(member: PairwiseMember) -> list[Rows]:
    """Return random inputs of the member, laid out as by `circuits.circuit.pack`."""
    words = -(-member.plan.parameters.instances // WORD_BITS)
    widths = [member.plan.circuit.inputs[index] for index in member.input_values]
    return [
        np.frombuffer(secrets.token_bytes(8 * width * words), np.uint64).reshape(width, words)
        for width in widths
    ]


def _transfers(channel: transfers.Channel, sends: bool, k: int) -> float:
    """Return the correlated transfers per second over a channel, setup not counted."""
    party = transfers.SendingParty(channel, k) if sends else transfers.ReceivingParty(channel, k)
    party.run(transfers.CHUNKS // 8)
    return transfers.CHUNKS * transfers.CHUNK / party.run(transfers.CHUNKS)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:4])) + "\n")
