"""Decoders of saved states."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from smpc_dp.capabilities.gopa import states as gopa
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.events import Event, Message, Start
from smpc_dp.secagg import checkers
from smpc_dp.secagg import states as secagg
from smpc_dp_lab.vectors import checked_runs, gopa_runs, runs
from tests.fuzz.target import Decoder, Target


def _states(scenario: runs.Scenario, codec: Codec, name: str) -> Iterator[bytes]:
    """Yield each state of a role in a run without losses, as it is saved."""
    ran = runs.new_run(scenario)
    roles = {**ran.parties, runs.AGGREGATOR: ran.aggregator}
    queue: deque[tuple[str, Event]] = deque((role, Start()) for role in roles)
    before = None
    while queue:
        role, event = queue.popleft()
        sent = tuple(roles[role].handle(event))
        queue.extend((envelope.receiver, Message(envelope)) for envelope in sent)
        state = roles[role].state
        if role == name and type(state) is not before:
            before = type(state)
            yield codec.encode(state, sent[:1], (b"i" * 32, b""))


def _decoder(codec: Codec) -> Decoder:
    def decode(content: bytes) -> bytes:
        state, record = codec.decode(content)
        return codec.encode(state, record.messages, (record.input, record.released))

    return decode


def targets() -> list[Target]:
    """Return the targets of this file."""
    sums, shown, averages = runs.SCENARIOS[0], checked_runs.SCENARIOS[-1], gopa_runs.SCENARIOS[0]
    rows = (
        ("state-secagg-party", Codec.of_party(secagg.PARTY), sums, sums.names[0]),
        ("state-secagg-aggregator", Codec.of_collector(secagg.AGGREGATOR), sums, runs.AGGREGATOR),
        ("state-checkers-party", Codec.of_party(checkers.PARTY), shown, shown.names[0]),
        ("state-checkers-aggregator", Codec.of_collector(checkers.AGGREGATOR), shown, runs.AGGREGATOR),
        ("state-gopa-party", Codec.of_party(gopa.PARTY), averages, averages.names[0]),
    )
    return [
        Target(name, _decoder(codec), tuple(_states(scenario, codec, role)), "msgpack", cost=10)
        for name, codec, scenario, role in rows
    ]
