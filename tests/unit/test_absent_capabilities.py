"""Without a capability its protocols and commands are unknown, and the others work.

The names of its protocols stay reserved.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import smpc_dp.capabilities
from smpc_dp import extensions
from smpc_dp.capabilities.pairs.ustatistic import messages as statistic
from smpc_dp.cli.commands import COMMANDS, Commands
from smpc_dp.cli.live import _index
from smpc_dp.cli.plan import PLANS
from smpc_dp.engine import registry
from smpc_dp.engine.events import PeersLost
from smpc_dp.engine.registry import RESERVED, built_in_protocols, find_protocol
from smpc_dp.errors import Code, ConfigCheck, ConfigError, LocalError
from smpc_dp.extensions import CAPABILITIES
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.logs.audits.audit import _audit_of
from smpc_dp.logs.audits.log_session import parse_session_text
from smpc_dp.session import tasks
from smpc_dp.session.aggregator import RequestServer
from smpc_dp.session.connection_pool import InboundEvent
from smpc_dp.session.events import Event
from smpc_dp.session.member import CERTIFICATES
from smpc_dp.session.session_file import load_session, parse_session, write_session
from smpc_dp.session.session_state import SessionState
from smpc_dp.session.tasks import Beside
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context
from tests.baselines import help
from tests.command import smpc_dp as run_command
from tests.unit.absent import BUILT_ON, clear
from tests.unit.blocked import Blocked

# By name of a protocol the capability that has it.
NAMED = {
    name: home.removeprefix(f"{CAPABILITIES}.").removesuffix(".capability")
    for name, home in registry.BUILT_IN.items()
    if home.startswith(CAPABILITIES)
}
SUM = {"length": 10, "lower": 0.0, "upper": 1.0, "precision": 0.001}
MEMBERS = [
    Identity.from_seed("agg", b"agg".ljust(32)).entry("aggregator", "127.0.0.1:7000"),
    *(Identity.from_seed(f"p{n}", bytes([n]) * 32).entry() for n in range(1, 9)),
]


@pytest.fixture(params=sorted(BUILT_ON))
def absent(request: pytest.FixtureRequest) -> Iterator[str]:
    """A capability that is absent."""
    name: str = request.param
    # Its options are made of settings in a module of a capability, which must still be there.
    Commands()["simulate"]
    before = {key: value for key, value in sys.modules.items() if key.startswith(f"{CAPABILITIES}.")}
    with pytest.MonkeyPatch.context() as monkeypatch:
        clear(monkeypatch, Blocked(f"{CAPABILITIES}.{name}"))
        yield name
    for key in [key for key in sys.modules if key.startswith(f"{CAPABILITIES}.")]:
        del sys.modules[key]
    sys.modules.update(before)
    for key, module in before.items():
        if key.count(".") == 2:
            setattr(smpc_dp.capabilities, key.rpartition(".")[2], module)
    registry._built_in.cache_clear()
    extensions.find.cache_clear()


def test_the_names_of_all_capabilities_are_in_the_list() -> None:
    folders = {path.parent.name for path in Path(smpc_dp.capabilities.__path__[0]).glob("*/capability.py")}
    assert folders == {*BUILT_ON} == {*NAMED.values()}
    assert all(find_protocol(name) is not None for name in registry.BUILT_IN)


def without(text: str, protocol: str) -> str:
    """Return the error of the session with this protocol in the place of its own."""
    with pytest.raises(ConfigError) as caught:
        parse_session(text.replace('protocol = "secagg"', f'protocol = "{protocol}"'), audited=True)
    (reason,) = [
        issue.reason
        for issue in caught.value.issues
        if issue.where == "protocol" and issue.check is ConfigCheck.CHOICE
    ]
    return reason


def test_a_session_that_names_an_absent_capability_has_an_unknown_protocol(
    absent: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.toml"
    write_session(path, "secagg", 2, SUM, MEMBERS)
    assert load_session(path).checked_parameters is not None
    gone = {name for name, home in NAMED.items() if home in {absent, *BUILT_ON[absent]}}
    assert {one.name for one in built_in_protocols()} == {*registry.BUILT_IN} - gone
    for name in gone:
        reason = without(path.read_text("utf-8"), name)
        assert reason.startswith(f"{name!r} is unknown, the known ones are ")
        known = reason.partition("; ")[0]
        assert "secagg 2" in known
        assert f"{name} " not in known


AVERAGED = {"learner": "sgd", "features": 2, "epsilon": 5.0, "delta": 1e-5}
SERVERS = [
    Identity.from_seed(f"s{n}", bytes([n]) * 32).entry("server", f"127.0.0.1:{n}") for n in (11, 12, 13)
]


@pytest.mark.parametrize(
    ("method", "verifiable"),
    [("secagg", False), ("local", False), ("gopa", False), ("gopa", True), ("mpyc", False)],
)
def test_learners_average_by_what_is_there(
    absent: str, method: str, verifiable: bool, tmp_path: Path
) -> None:
    """The session is refused where the capability of its averages is absent, and only there."""
    path, averager = tmp_path / "s.toml", {"method": method, "verifiable": verifiable}
    # Checked parameters are remembered: those of no two absent capabilities are the same.
    steps, version = 3 + sorted(BUILT_ON).index(absent), 4
    parameters = AVERAGED | {"steps": steps, "averager": averager}
    members = [*SERVERS, *MEMBERS[1:]] if method == "mpyc" else MEMBERS
    of_learners = {"learn"} | {name for name in BUILT_ON if "learn" in BUILT_ON[name]}
    of_averages = {"gopa": "gopa", "mpyc": "servers"}.get(method)
    without_averages = of_averages is not None and of_averages in {absent, *BUILT_ON[absent]}
    if absent not in of_learners and not without_averages:
        write_session(path, "learn", version, parameters, members)
        assert load_session(path).is_logged == verifiable
        return
    with pytest.raises(ConfigError) as caught:
        write_session(path, "learn", version, parameters, members)
    reasons = [issue.reason for issue in caught.value.issues]
    if absent in of_learners:
        assert any("'learn' is unknown" in reason for reason in reasons)
    elif verifiable:
        assert any("'gopa' is not in this installation" in reason for reason in reasons)
    else:
        assert f"'{method}' is not in this installation" in reasons


def test_the_name_of_an_absent_capability_stays_reserved(
    absent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = extensions.Group.PROTOCOLS
    # Would raise if it were loaded.
    monkeypatch.setattr(
        extensions, "registered", lambda _: [EntryPoint(name, "gone:x", group) for name in sorted(RESERVED)]
    )
    for name in RESERVED:
        assert registry.origin_of(name) == ""
        protocol = find_protocol(name)
        assert protocol is None or protocol in built_in_protocols()
    gone = [name for name, home in NAMED.items() if home in {absent, *BUILT_ON[absent]}]
    assert gone
    assert all(find_protocol(name) is None for name in gone)


def test_the_tasks_of_an_absent_capability_are_absent(absent: str) -> None:
    gone = {f"{CAPABILITIES}.{name}.capability" for name in (absent, *BUILT_ON[absent])}
    for name, home in tasks.BUILT_IN.items():
        if home in gone:
            with pytest.raises(ConfigError, match=f"'{name}' is not in this installation"):
                tasks.find_task(name)
    assert tasks.find_task("vector").name == "vector"
    for beside in tasks.BESIDE.values():
        is_there = tasks.BUILT_IN[beside.task] not in gone
        assert beside.is_there == is_there
        with nullcontext() if is_there else pytest.raises(LocalError, match="not in this installation"):
            assert _audit_of(beside) is beside.find().audit


def test_what_is_asked_beside_sums_is_signed_as_its_capability_says() -> None:
    assert {statistic.HELLO: Beside("pairs", statistic.PROTOCOL, statistic.VERSION)} == tasks.BESIDE


async def test_a_request_of_an_absent_capability_is_refused_in_its_own_context(absent: str) -> None:
    """The aggregator signs in the context of the statistic, and lets the sum go on without the party."""
    refused: list[tuple[str, str, Code]] = []
    server: Any = RequestServer.__new__(RequestServer)
    names: Any = {"names": ("alice",), "aggregator": "hub", "keys": {}}
    context = Context(protocol="secagg", version=2, session_digest=b"", request=1, **names)
    server.beside, server._groups, server._culprits = None, {}, {}
    server._state = SessionState()
    server._membership = SimpleNamespace(context=lambda _: context)
    server._asked = SimpleNamespace(hear=lambda *_: None)
    server._pool = SimpleNamespace(
        refuse_request=lambda context, inbound, code: refused.append((context.protocol, inbound.peer, code))
    )
    run = SimpleNamespace(role=SimpleNamespace(has_taken=lambda *_: False), member=None, state=None)
    drive: Any = SimpleNamespace(run=run, request=1, saved=False)
    hello = InboundEvent("alice", 1, Envelope(b"", statistic.HELLO, "alice", "hub", b"", b""))
    assert await server.event_of(drive, hello) == PeersLost(("alice",))
    assert refused == [(statistic.PROTOCOL, "alice", Code.KIND)]
    assert absent


async def test_certificates_that_nobody_can_judge_stop_an_aggregator(absent: str, tmp_path: Path) -> None:
    """They may convict a party of its sums; where there are none, nothing is loaded to judge them."""
    server: Any = RequestServer.__new__(RequestServer)
    server._judged, server._convictions, server._culprits = False, None, {}
    session = SimpleNamespace(roster=Roster(MEMBERS))
    server._membership = SimpleNamespace(certificate_folder=tmp_path / CERTIFICATES, session=session)
    await server._heed_certificates()
    assert server._convictions is None
    assert f"{CAPABILITIES}.pairs" not in sys.modules
    (tmp_path / CERTIFICATES).mkdir()
    # The first request alone looks for them.
    await server._heed_certificates()
    assert server._convictions is None
    server._judged, gone = False, absent == "pairs"
    refused = pytest.raises(LocalError, match="cannot judge the certificates: 'pairs' is not in this")
    with refused if gone else nullcontext():
        await server._heed_certificates()
    assert (server._convictions is None) == gone


def commands_of(*capabilities: str) -> set[str]:
    """Return the commands that these capabilities have, without those below them."""
    plans = {f"plan {name}" for name, listed in PLANS.items() if listed.capability in capabilities}
    return {name for name, listed in COMMANDS.items() if listed.capability in capabilities} | plans


def pages(text: str) -> dict[str, str]:
    """Return pages of help by the command."""
    return {page.partition("--help\n")[0].strip(): page for page in text.split("$ smpc-dp ")[1:]}


def listed_in(page: str) -> set[str]:
    """Return the commands that a page of help lists."""
    return {line.split()[0] for line in page.partition("Commands:\n")[2].splitlines() if line[2:3].strip()}


def check_pages(text: str, *absent: str) -> None:
    """Check the help of all commands where these capabilities are absent."""
    stored, shown, gone = pages(help.FILE.read_text("utf-8")), pages(text), commands_of(*absent)
    assert {*shown} == {name for name in stored if not any(f"{name} ".startswith(f"{one} ") for one in gone)}
    # The width of the lists follows from the longest name; a simulation has the settings of GOPA.
    for name in {*shown} - {"", "plan", "simulate average"}:
        assert shown[name] == stored[name]
    assert listed_in(shown[""]) == {*COMMANDS} - gone
    assert listed_in(shown["plan"]) == {name for name in PLANS if f"plan {name}" not in gone}


def test_the_commands_of_an_absent_capability_are_unknown(absent: str) -> None:
    gone = {absent, *BUILT_ON[absent]}
    check_pages(help.text(), *gone)
    for command in commands_of(*gone):
        done, name = run_command(*command.split(), "--help"), command.split()[-1]
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"smpc-dp: No such command '{name}'")


def test_the_core_has_commands_without_any_capability() -> None:
    """In a process of its own: none of their modules is loaded before."""
    blocked = f"from tests.unit.blocked import Blocked; sys.meta_path[:0] = [Blocked('{CAPABILITIES}')]"
    code = f"import sys; {blocked}; from tests.baselines import help; print(help.text(), end='')"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    check_pages(done.stdout, *BUILT_ON)


def test_a_certificate_is_audited_where_pairs_are_there(absent: str, tmp_path: Path) -> None:
    done = run_command("audit", "--certificate", str(tmp_path / "certificate.json"))
    assert (done.returncode, done.stdout) == (1, "")
    assert ("task: 'pairs' is not in this installation" in done.stderr) == (absent == "pairs")


@pytest.mark.parametrize(
    ("capability", "step", "place"), [("gopa", "published", 5), ("servers", "compute", 5), ("", "unmask", 7)]
)
def test_progress_is_shown_of_protocols_that_are_there(
    absent: str, capability: str, step: str, place: int
) -> None:
    event = Event("alice", "step", 1, step)
    assert _index(event) == (0 if capability in {absent, *BUILT_ON[absent]} else place)


def test_another_module_that_a_capability_lacks_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capability with a fault of its own is no absent one."""
    for name in ("lacking", f"{CAPABILITIES}.gopa.lacking", f"{CAPABILITIES}.gopa.capability.lacking"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "meta_path", [Blocked(name), *sys.meta_path])
            with pytest.raises(ModuleNotFoundError):
                extensions.imported(name)
    for name in ("gopa.capability", "lacking.capability"):
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, f"{CAPABILITIES}.{name}", raising=False)
            patch.setattr(sys, "meta_path", [Blocked(f"{CAPABILITIES}.{name}"), *sys.meta_path])
            assert extensions.imported(f"{CAPABILITIES}.{name}") is None


VERIFIABLE = Path(__file__).parents[2] / "protocols" / "gopa" / "vectors" / "verifiable-run-honest.json"


def test_a_log_of_an_absent_capability_is_not_called_wrong(absent: str) -> None:
    session = json.loads(json.loads(VERIFIABLE.read_text("utf-8"))["log"][0])["session"]
    if absent != "gopa":
        assert parse_session_text(session).protocol == "gopa"
        return
    with pytest.raises(LocalError, match="the log needs the protocol 'gopa', which is not in this install"):
        parse_session_text(session)


def test_a_statistic_of_an_absent_capability_is_refused(absent: str, tmp_path: Path) -> None:
    write_session(tmp_path / "s.toml", "secagg", 2, SUM, MEMBERS)
    given = ("--statistic", "gini", "--field", "0:9", "--epsilon", "1")
    done = run_command("run", "s.toml", *given, cwd=tmp_path)
    assert done.returncode == 1
    assert ("task: 'pairs' is not in this installation" in done.stderr) == (absent == "pairs")
