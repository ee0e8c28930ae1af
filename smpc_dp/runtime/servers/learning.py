"""A learner whose averages servers compute on shares: what a server does."""

from __future__ import annotations

import os

from smpc_dp.learn.methods import Averaging
from smpc_dp.learn.needs import Means
from smpc_dp.runtime.averaging import ServingAverager
from smpc_dp.runtime.events import Event, OnEvent, ignore
from smpc_dp.runtime.member import Membership, learn_parameters
from smpc_dp.runtime.requests import Counter, EverybodyLeftError, ServerLostError, ends_session
from smpc_dp.runtime.servers.hub import ServerHub


async def serve_learning_shares(
    session: str | os.PathLike[str],
    name: str,
    *,
    key: str | os.PathLike[str] | None = None,
    listen_on: str | None = None,
    on_event: OnEvent = ignore,
    begin_with: int | None = None,
) -> dict[int, str]:
    """Be a server of a session that learns, to the end of its schedule; arguments as of `serve_shares`.

    It begins when `begin_with` parties (None: all) have connected, or `connect` seconds have passed. Who
    comes later takes part in its groups from then on.

    Returns what went wrong in groups that failed, by request number.

    Raises:
        ServerLostError: a server is gone or at fault; there is no next average.
    """
    membership = Membership.load(session, name, key, "server")
    parameters = learn_parameters(membership)
    hub = await ServerHub.open(membership, on_event, listen_on, keep=True)
    counter, failures = Counter(), dict[int, str]()

    def averager(averaging: Averaging | None) -> ServingAverager | None:
        if averaging is None:
            return None

        async def serve(number: int, names: tuple[str, ...]) -> object | None:
            ended = await hub.request(number, membership.of_group(averaging.plan_shared(len(names)), names))
            if ends_session(ended, membership.servers):
                raise ServerLostError(f"request {number}: {ended}")
            return ended

        return ServingAverager(membership.names, averaging, counter, serve, failures)

    try:
        await hub.gather(begin_with)
        await parameters.learner.run(Means(averager(parameters.average), averager(parameters.mix)), [])
        await hub.close()
    except EverybodyLeftError as error:
        failures[counter.taken] = str(error)
    except ServerLostError:
        # The other servers must hear which one is lost, before they lose this one.
        await hub.close()
        raise
    finally:
        await hub.stop()
    on_event(Event(membership.name, "done", counter.taken, "done"))
    return failures
