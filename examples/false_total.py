"""An aggregator that sends every party a false total, for tests and demonstrations.

It shows internals, which may change in any release.

`smpc_dp.serve(session, role=aggregator_with(one_more, requests={2}))` runs it: in request 2 the total is one
grid step more than the sum. It has the aggregator's key, so its signatures are right.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from smpc_dp.engine.collector import CollectorRole
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.registry import make_aggregator
from smpc_dp.engine.run import Run
from smpc_dp.engine.state import Transition
from smpc_dp.secagg import states
from smpc_dp.wire.signing import decode

Finish = Callable[[Any, Any], Transition]


def one_more(aggregator: states.Aggregator, state: states.CollectUnmask) -> Transition:
    """Send each party a total whose first element is one grid step more than the sum."""
    after = states.finish_unmask(aggregator, state)
    encoding, sent = aggregator.parameters.encoding, []
    for envelope in after.messages:
        result = decode(envelope.body, m.CheckedResult, aggregator.context.aggregator)
        total = encoding.unpack(result.total).copy()
        total[0] += 1
        false = msgspec.structs.replace(result, total=encoding.pack(total))
        party = aggregator.context.number(envelope.receiver)
        sent += aggregator.write(envelope.run_id, m.RESULT, (party,), false)
    return Transition(after.state, sent)


def aggregator_with(finish: Finish, requests: Collection[int]) -> Callable[..., Run[Any]]:
    """Return what makes an aggregator that ends these requests with `finish`, and all others honestly."""

    def make(context: Any, *arguments: Any, **more: Any) -> Run[Any]:
        run = make_aggregator(context, *arguments, **more)
        if context.request in requests and isinstance(run.role, CollectorRole):
            run.role = run.role.with_row(states.CollectUnmask, finish=finish)
        return run

    return make
