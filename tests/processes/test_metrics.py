"""Metrics of an aggregator: counts of what happens, and no name."""

from __future__ import annotations

import asyncio
import http.client
import re
import urllib.request
from pathlib import Path

import pytest

import smpc_dp
from smpc_dp.errors import LocalError
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from smpc_dp.session.metrics import Metrics
from tests.processes.test_connections import EVERYONE, PARAMETERS, PARTIES, TIMEOUTS, take_part


def value(text: str, name: str, **labels: str) -> float:
    """Return the value of one sample."""
    wanted = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    for line in text.splitlines():
        sample, _, number = line.rpartition(" ")
        if sample == f"{name}{{{wanted}}}":
            return float(number)
    raise AssertionError(f"{name} {wanted}: not in {text}")


async def test_a_session_is_counted(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=TIMEOUTS)
    metrics = Metrics()
    served = asyncio.create_task(smpc_dp.serve(path, requests=1, on_event=metrics.watch("0123")))
    async with metrics.serving(0) as port:
        results = await asyncio.gather(*(take_part(path, name) for name in PARTIES))
        assert [result.value.tolist() for result in results] == [[EVERYONE]] * len(PARTIES)
        await served
        url = f"http://127.0.0.1:{port}/metrics"

        def read() -> str:
            # A name that another's page was led here by.
            rebound = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            rebound.request("GET", "/metrics", headers={"Host": f"hub.example.org:{port}"})
            assert rebound.getresponse().status == 421
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                return str(answer.read().decode())

        text = await asyncio.to_thread(read)
        with pytest.raises(LocalError, match=f"127.0.0.1:{port}: the port is in use"):
            async with metrics.serving(port):
                pass
    assert value(text, "smpc_dp_connections_opened_total", session="0123") == len(PARTIES)
    assert value(text, "smpc_dp_connections", session="0123") == 0
    assert value(text, "smpc_dp_requests_total", outcome="done", session="0123") == 1
    assert value(text, "smpc_dp_request", session="0123") == 1
    assert value(text, "smpc_dp_request_seconds_count", session="0123") == 1
    for direction in ("sent", "received"):
        assert value(text, "smpc_dp_message_bytes_total", direction=direction, session="0123") > 1000
    assert "process_open_fds" in text
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    for name in (*PARTIES, "aggregator", "secagg"):
        assert not [line for line in samples if re.search(rf"\b{name}\b", line)]


def test_what_goes_wrong_is_counted() -> None:
    metrics = Metrics()
    count, other = metrics.watch("a"), metrics.watch("b")

    async def happen() -> None:
        for kind in ("connected", "connected", "refused", "lost"):
            count(Event("hub", kind, 1, detail="bob"))
        count(Event("hub", "step", 1, "hello", 2))
        other(Event("hub", "connected", detail="bob"))

    asyncio.run(happen())
    text = metrics.text().decode()
    assert value(text, "smpc_dp_waiting_parties", session="a") == 2

    async def end() -> None:
        count(Event("hub", "failed", 1))
        count(Event("hub", "traffic", detail="bob", sent=3, received=5))

    asyncio.run(end())
    text = metrics.text().decode()
    assert value(text, "smpc_dp_waiting_parties", session="a") == 0
    assert value(text, "smpc_dp_connections", session="a") == 1
    assert value(text, "smpc_dp_connections", session="b") == 1
    assert value(text, "smpc_dp_connections_refused_total", session="a") == 1
    assert value(text, "smpc_dp_parties_lost_total", session="a") == 1
    assert value(text, "smpc_dp_requests_total", outcome="failed", session="a") == 1
    assert value(text, "smpc_dp_message_bytes_total", direction="received", session="a") == 5
