"""Faults of this machine that look like those of others: a wrong clock, another event loop."""

from __future__ import annotations

import asyncio
import ssl
import time

import pytest

from smpc_dp.errors import LocalError
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.transport import tls
from smpc_dp.transport.endpoint import Endpoint, dial, listen


def roster_of(identity: Identity) -> Roster:
    return Roster([identity.entry("party", "127.0.0.1:1")], requires_aggregator=False)


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, "1970-01-01 00:00"), (4.8e9, "2122-02-")])
def test_a_wrong_clock_is_called_that(monkeypatch: pytest.MonkeyPatch, seconds: float, shown: str) -> None:
    identity = Identity.generate("alice")
    tls.contexts(identity, roster_of(identity))
    monkeypatch.setattr(time, "time", lambda: seconds)
    with pytest.raises(LocalError, match=f"this machine's clock is wrong, it shows {shown}"):
        tls.contexts(identity, roster_of(identity))


@pytest.mark.parametrize(("code", "clock"), [(9, True), (10, True), (18, False)])
def test_a_certificate_of_another_time_is_the_fault_of_the_clock(code: int, clock: bool) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, "certificate is not yet valid"
    assert ("clock is wrong" in tls.describe(error)) == clock


async def test_another_event_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = Identity.generate("alice")
    roster = roster_of(identity)
    own = Endpoint(identity=identity, roster=roster, session_digest=b"s" * 32, session=lambda: {"session": 1})

    class OtherLoop:
        """No loop of asyncio."""

    monkeypatch.setattr(asyncio, "BaseEventLoop", OtherLoop)
    kind = type(asyncio.get_running_loop()).__qualname__
    for calling in (dial(own, "alice"), listen(own, "127.0.0.1", 0, print, print)):
        with pytest.raises(LocalError, match=f"the event loop is .*{kind}: sessions need that of asyncio"):
            await calling
