"""A learner whose averages servers compute on shares: what its parties and its servers do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault, SmpcError
from smpc_dp.learn.averager import Rows
from smpc_dp.learn.methods import Averaging
from smpc_dp.learn.needs import Means
from smpc_dp.learn.registry import LearnParameters
from smpc_dp.protocols.result import Outcome
from smpc_dp.runtime.averaging import ServingAverager
from smpc_dp.runtime.charging import charge_run
from smpc_dp.runtime.events import Event, OnEvent, ignore
from smpc_dp.runtime.requests import Counter, EverybodyLeftError, ServerLostError, ends_session
from smpc_dp.runtime.servers.hub import ServerHub
from smpc_dp.runtime.servers.line import ServersLine
from smpc_dp.runtime.servers.shared import SharedMembership

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.ledger import Ledger


@dataclass(frozen=True, slots=True)
class AskServers:
    """How a party takes part in a group's average on shares; an `averaging.Ask`.

    `charged`: the ledger, if there is one and the averages are private.
    """

    membership: SharedMembership
    line: ServersLine
    averaging: Averaging
    purpose: str
    charged: Ledger | None

    async def __call__(
        self,
        names: tuple[str, ...],
        number: int,
        vector: Rows,
        weight: NDArray[np.float64],
        before: int,
    ) -> Outcome:
        """See `averaging.Ask`; raises ServerLostError where a server is at fault."""
        parameters = self.averaging.plan_shared(len(names))
        membership = self.membership.of_group(parameters, names)
        try:
            sent = self.averaging.outgoing(vector, weight)
            lanes, _ = parameters.sums.encode(sent[0], party=membership.name)
        except SmpcError as error:
            # The others must not wait for this vector.
            await self.line.decline(number, error, membership)
            raise
        question = " ".join(part for part in ("average", self.purpose, parameters.planned()) if part)

        charge = partial(charge_run, self.charged, parameters.event, number)
        try:
            outcome, _ = await self.line.run_as(membership, number, question, lanes, charge, before)
        except SmpcError as error:
            if ends_session(error, membership.servers):
                raise ServerLostError(f"request {number}: {error}") from None
            raise
        return outcome


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
    membership = SharedMembership.load(session, name, key, "server")
    parameters = membership.session.checked_parameters
    if not isinstance(parameters, LearnParameters):
        raise ConfigError([Fault("protocol", f"is '{membership.session.protocol}', not 'learn'")])
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
