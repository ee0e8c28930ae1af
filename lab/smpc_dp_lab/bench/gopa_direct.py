"""Run of GOPA without an aggregator, with the processor time and the bytes of parties and coordinator."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from smpc_dp.capabilities.gopa.direct_evidence import coordinator_of
from smpc_dp.capabilities.gopa.direct_params import DirectParameters
from smpc_dp.capabilities.gopa.direct_states import party
from smpc_dp.engine.events import Event, Message, PeersLost, Start
from smpc_dp.errors import LocalError
from smpc_dp.session.memory.simulated_run import simulated_run
from smpc_dp.wire.envelope import EVERYONE, Envelope
from smpc_dp.wire.signing import encode_envelope


@dataclass(frozen=True, slots=True)
class DirectRecording:
    """CPU seconds and bytes of encoded envelopes of the median party, and bytes that the coordinator sent."""

    seconds: float
    up: float
    down: float
    coordinator_up: int


def record_direct(parameters: DirectParameters, seed: int) -> DirectRecording:
    """Run the protocol; nobody is lost, and every party checks everything itself.

    Raises:
        SmpcError: the run failed.
    """
    encoding, count = parameters.encoding, parameters.plan.parties
    simulated = simulated_run(
        count,
        seed_for_simulation=seed,
        remember=False,
        protocol=parameters.protocol,
        operation=parameters.planned(),
    )
    names = simulated.context.names
    keys = {name: simulated.context.keys[name] for name in names}
    context = replace(simulated.context, aggregator=EVERYONE, keys=keys)
    values = np.random.default_rng(seed).uniform(
        float(encoding.lower), float(encoding.upper), (count, encoding.length)
    )
    parties = {
        name: party(
            context,
            parameters,
            simulated.signers[name],
            encoding.encode(row, party=name)[0],
            simulated.sources[name],
        )
        for name, row in zip(names, values, strict=True)
    }
    seconds = dict.fromkeys(names, 0.0)
    up, down = Counter[str](), Counter[str]()
    queue: deque[Envelope] = deque()

    def act(name: str, event: Event) -> None:
        begun = time.process_time()
        sent = parties[name].handle(event)
        seconds[name] += time.process_time() - begun
        queue.extend(sent)

    for event in (Start(), PeersLost(())):
        for name in names:
            act(name, event)
    while queue:
        envelope = queue.popleft()
        size = len(encode_envelope(envelope))
        up[envelope.sender] += size
        down[envelope.receiver] += size
        act(envelope.receiver, Message(envelope))
    if not all(one.finished for one in parties.values()):
        raise LocalError("the run does not come to its end")
    leading = names[coordinator_of(context.request, count) - 1]
    others = [name for name in names if name != leading]
    return DirectRecording(
        seconds=median(seconds[name] for name in others),
        up=median(up[name] for name in others),
        down=median(down[name] for name in others),
        coordinator_up=up[leading],
    )
