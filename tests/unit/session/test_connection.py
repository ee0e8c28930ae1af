"""What a learner gets of an aggregator that ends the session."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.capabilities.learn.requests.averaging import PartyAverager
from smpc_dp.capabilities.learn.requests.learning import learn_parameters
from smpc_dp.errors import Check, Code, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.events import ignore
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership, to_wire
from smpc_dp.session.requests import AggregatorLostError, Counter
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.wire.abort import ABORT, abort_of, error_of
from tests.faults.virtual import Pipe, connect, run_virtually

NAMES = ("ann", "bob", "eve")
GIVEN = {"learner": "block-gossip", "features": 2, "steps": 5, "group": 3, "epsilon": 5.0, "delta": 1e-5}

# Of a party, and of the aggregator's own.
ERRORS = [TimeoutFault({"eve"}, "hello", "connection lost", code=Code.LOST), LocalError("the disk is full")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return create_local_session(tmp_path, NAMES, GIVEN, protocol="learn")


async def lose(path: Path, when: Callable[[Pipe, Callable[[], None]], None], error: SmpcError) -> None:
    """Average as ann, whose aggregator tells an error of its own and is then gone; and again.

    `when`: arranges, given ann's end of the connection, that its second argument is called.
    """
    member, aggregator = Membership.load(path, "ann"), Membership.load(path, AGGREGATOR, role="aggregator")
    parameters = learn_parameters(member)
    assert parameters.average is not None
    connection = AggregatorConnection(member, ignore)
    near, far = connect("ann", AGGREGATOR, 0.01)
    connection.connections.welcome(near)  # type: ignore[arg-type]
    requested = parameters.requested("average")
    averager = PartyAverager(connection, parameters.average, Counter(), "average", requested, None, ignore)
    context = aggregator.of_group(parameters.average.parameters(3), NAMES).context(1)
    [told] = context.write(aggregator.identity, context.session_digest, ABORT, ("ann",), abort_of(error))

    def end() -> None:
        near._arrive(b"".join(to_wire(1, told)))
        far.abort()

    when(near, end)
    expected = error_of(abort_of(error), aggregator.context(1))
    with pytest.raises(type(expected), match=re.escape(str(expected))):
        await averager.average(np.zeros((1, 3)), group=np.zeros(3, np.intp))
    assert not connection.live
    with pytest.raises(AggregatorLostError, match="aggregator: lost in request 2"):
        await averager.average(np.zeros((1, 3)), group=np.zeros(3, np.intp))


@pytest.mark.parametrize("error", ERRORS, ids=["another", "itself"])
def test_what_an_aggregator_told_before_it_ended_the_session_stays(path: Path, error: SmpcError) -> None:
    """The connection is gone before the party has read what it was told."""

    def when(near: Pipe, end: Callable[[], None]) -> None:
        sent = near.send

        async def send(*buffers: bytes | memoryview) -> None:
            await sent(*buffers)
            end()

        near.send = send  # type: ignore[method-assign]

    run_virtually(lambda: lose(path, when, error))


async def test_the_evidence_against_an_aggregator_that_is_lost_stays(path: Path) -> None:
    connection = AggregatorConnection(Membership.load(path, "ann"), ignore)
    fault = PeerFault(AGGREGATOR, "signed two", Check.EQUIVOCATION, {"first": b"1", "second": b"2"})
    with pytest.raises(AggregatorLostError, match="signed two") as caught:
        connection.fail(1, fault)
    assert caught.value.__cause__ is fault
    with pytest.raises(PeerFault, match="bob") as kept:
        connection.fail(1, PeerFault("bob", "sent a bad frame", Check.BAD_FRAME))
    assert kept.value.__cause__ is None


@pytest.mark.parametrize("error", ERRORS, ids=["another", "itself"])
def test_what_an_aggregator_told_stays_if_a_message_finds_no_connection(path: Path, error: SmpcError) -> None:
    """The aggregator ends the session while the party sends its hello."""

    def when(near: Pipe, end: Callable[[], None]) -> None:
        async def send(*_buffers: bytes | memoryview) -> None:
            end()
            raise ChannelClosed(AGGREGATOR, clean=False)

        near.send = send  # type: ignore[method-assign]

    run_virtually(lambda: lose(path, when, error))
