"""Relays of verifiable runs that deviate: in what they sign, what they take, or whom they hear."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from smpc_dp.capabilities.gopa.verifiable.hosting import VerifiableAggregator
from smpc_dp.engine.collector import Inbox
from smpc_dp.engine.events import Event, Message, PeersLost
from smpc_dp.engine.phases.run_log import RunLog, Statement
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.wire.envelope import Envelope
from smpc_dp_lab.vectors.verifiable_runs import Host


class Deviating(VerifiableAggregator):
    """A relay that looks at what it logs; `logged` is the newest step's, by kind."""

    logged: ClassVar[dict[str, Mapping[int, Statement]]] = {}

    def log(
        self, inbox: Inbox, log: RunLog, kind: str, claimed: Mapping[int, Statement]
    ) -> tuple[RunLog, bytes]:
        self.logged[kind] = {**claimed}
        return super().log(inbox, log, kind, claimed)


# (the aggregator, run id, what it would say) -> what it says instead
Lie = Callable[[Deviating, bytes, Any], msgspec.Struct]


def liar(step: str, lie: Lie, only: Sequence[str] | None = None) -> type[VerifiableAggregator]:
    """Return an aggregator that says something else in one step, to some parties or to all."""

    class Liar(Deviating):
        def write(
            self, run_id: bytes, at: str, parties: Iterable[int], message: msgspec.Struct
        ) -> list[Envelope]:
            parties = list(parties)
            if at != step:
                return super().write(run_id, at, parties, message)
            lied = [party for party in parties if only is None or self.name_of(party) in only]
            rest = [party for party in parties if party not in lied]
            sent = super().write(run_id, at, rest, message)
            return sent + (super().write(run_id, at, lied, lie(self, run_id, message)) if lied else [])

    return Liar


def losing(name: str, step: str) -> Host:
    """Return an aggregator that loses its link to a party once it has heard what it says in this step."""

    class Losing(Run[Outcome]):
        def handle(self, event: Event) -> Sequence[Envelope]:
            sent = super().handle(event)
            return [*sent, *super().handle(PeersLost((name,)))] if _is(event, name, step) else sent

    return Host(run=Losing)


def censoring(name: str, step: str) -> Host:
    """Return an aggregator that loses its link to a party instead of hearing what it says in this step."""

    class Censoring(Run[Outcome]):
        def handle(self, event: Event) -> Sequence[Envelope]:
            return super().handle(PeersLost((name,)) if _is(event, name, step) else event)

    return Host(run=Censoring)


def _is(event: Event, name: str, step: str) -> bool:
    return isinstance(event, Message) and (event.envelope.sender, event.envelope.step) == (name, step)
