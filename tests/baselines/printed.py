"""What `--json` prints and what `to_json` of results returns: keys in their order, kinds, values.

Numbers may differ in the last digits of a float, which depend on the C library. Of a value that is drawn, or
measured, only its kind is stored: `<int>`, `<float>`, `<str>` or `<bool>`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import shlex
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from smpc_dp import simulate
from smpc_dp.capabilities.pairs.kernels.fields import Field
from smpc_dp.identity.keys import Identity
from smpc_dp.privacy.accountant.events import Event, Pure
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.records.record_result import RecordResult
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import roster_entry
from tests.command import smpc_dp

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("printed.json")
RELATIVE = 1e-9
# Measured, or drawn for each ledger.
VARYING = frozenset(["seconds", "peak_bytes", "identifier", "receipt"])
# Follow from the parameters alone, in drawn results too.
PLANNED = frozenset(
    [
        "schema",
        "schema_version",
        "privacy",
        "guarantee",
        "kind",
        "protocol",
        "version",
        "learner",
        "circuit",
        "kernel",
    ]
)

# In the order of arrival, or of those that were first.
BY_NAME = frozenset(["signatures", "aggregator_saw"])
# Of a longer list of values of one kind the first and the length are stored.
SHOWN = 8

VECTORS = ROOT / "protocols" / "secagg" / "vectors"
CHECKED: dict[str, Any] = json.loads((VECTORS / "result-checked.json").read_bytes())
FROM_0_1 = "--session session.toml --session-log session.jsonl"
RUN = "c986e1af33449732fcfc3aa10e403f421698eb5910fe3b967b352a6a43468aac"
# Commands by the name of a case, which is the heading in docs/reference/commands.md where that has one.
COMMANDS = {
    "audit": f"audit request-1.jsonl {FROM_0_1} --run {RUN}",
    "audit without a session": "audit request-1.jsonl",
    "audit without a run": "audit request-1.jsonl --session session.toml",
    "audit of a changed log": "audit changed.jsonl",
    "audit of no log": "audit session.toml",
    "audit of a result": f"audit checked.json --session checked.toml --run {CHECKED['run']}",
    "audit of a result without a session": "audit checked.json",
    "audit --compare": "audit --compare second.json checked.json --session checked.toml",
    "audit --certificate": "audit --certificate certificate.bin",
    "audit --certificate of another session": "audit --certificate certificate.bin --session sum.toml",
    "audit --certificate of nobody": "audit --certificate no-certificate.bin",
    "keygen": "keygen zoe --out .",
    "keygen --checkpoints": "keygen hub --out . --role aggregator --address 192.0.2.7:7100 --checkpoints",
    "keygen --show": "keygen alice --out . --show",
    "roster": "roster sum.toml",
    "roster of servers": "roster servers.toml",
    "roster of a learner": "roster learn.toml",
    "plan session": "plan session sum.toml",
    "plan session, noisy": "plan session noisy.toml",
    "plan session, weights": "plan session weights.toml",
    "plan session, gopa": "plan session gopa.toml",
    "plan session, direct": "plan session direct.toml",
    "plan session, verifiable": "plan session verifiable.toml",
    "plan session, records": "plan session records.toml",
    "plan session, records by gopa": "plan session records-gopa.toml",
    "plan session, reports": "plan session reports.toml",
    "plan budget": "plan budget --rounds 10 --epsilon 2",
    "plan secagg": "plan secagg --parties 5",
    "plan check": "plan check discrete-laplace --samples 10000",
    "plan check --session": "plan check --session records.toml --samples 20000",
    "plan gopa": "plan gopa --parties 5 --epsilon 1",
    "plan gopa, theorem": "plan gopa --parties 100 --epsilon 0.5 --delta 0.01 --method theorem",
    "plan pairwise": "plan pairwise --parties 10 --epsilon 1 --categories 4",
    "plan pairwise --engine mpyc": "plan pairwise --parties 10 --epsilon 1 --engine mpyc",
    "plan network": "plan network --parties 10 --epsilon 1 --delta 0.01",
    "plan network --task histogram": "plan network --parties 10 --epsilon 1 --delta 0.01 --task histogram",
    "plan sgd": "plan sgd --parties 20 --steps 40 --delta 0.01",
    "plan gossip": "plan gossip --parties 4 --steps 4 --epsilon 1 --delta 0.01",
    "plan groups": "plan groups --parties 9 --group 3 --steps 4 --epsilon 1 --delta 0.01",
    "plan collaboration": "plan collaboration --sizes 10,20 --epsilons 1",
    "plan personalized": "plan personalized --sizes 9,8,7 --length 2 --updates 2 --epsilon 1 --delta 0.01",
    "plan boosting": "plan boosting --sizes 9,8,7 --beta 1",
    "plan local-global": (
        "plan local-global --nodes 2 --records 40 --batch 5 --features 2 --epsilon 1 --delta 0.01"
    ),
    "plan diffusion": "plan diffusion --parties 4 --length 2 --steps 5 --epsilon 9",
    "plan verifiable": "plan verifiable --parties 90 --honest 80 --epsilon 1 --delta 1e-5",
    "ledger create, ledger show": "ledger create a.ledger --party ann --dataset d --epsilon 1",
    "ledger show with a charge": "ledger show alice.ledger",
    "simulate average": "simulate average --parties 3 --length 1",
    "simulate average --runs": "simulate average --parties 3 --length 1 --runs 2 --workers 1",
    "check": "check local/session.toml --as aggregator",
    "circuits list": "circuits list",
    "circuits check": "circuits check --folder empty --samples 1",
    "circuits run": "circuits run add32 --inputs 1,2",
    "run": "run local/session.toml --operation average --ledgers local/ledgers",
    "run of a learner": "run learning/session.toml",
    "run of statistics": "run records/session.toml",
    "demo": "demo --no-kill",
}
# Those that start processes, or draw much.
DEAR = frozenset(["plan check --session", "run", "run of a learner", "run of statistics", "demo"])
# Those whose output is drawn.
DRAWN = frozenset(
    [
        "keygen",
        "keygen --checkpoints",
        "plan check",
        "plan check --session",
        "simulate average",
        "simulate average --runs",
        "check",
        "circuits run",
        "run",
        "run of a learner",
        "run of statistics",
        "demo",
    ]
)
# (protocol, version, parameters), as a session file has them.
SESSIONS: dict[str, tuple[str, int, str]] = {
    "sum": ("secagg", 2, "length = 1\nlower = 0\nupper = 1\nprecision = 0.5"),
    "noisy": ("secagg", 2, "length = 2\nl2_bound = 1.0\nepsilon = 1.0\ndelta = 1e-6\ncorrupt = 0.0"),
    "weights": (
        "secagg",
        2,
        "length = 2\nlower = 0\nupper = 1\nmax_weight = 8\nepsilon = 1.0\ndelta = 1e-6\ncorrupt = 0.0",
    ),
    "gopa": ("gopa", 4, "length = 1\nlower = 0\nupper = 1\nepsilon = 1.0\ndelta = 1e-3\ncorrupt = 0.0"),
    "direct": (
        "gopa",
        4,
        'length = 1\nlower = 0\nupper = 1\nepsilon = 1.0\ndelta = 1e-3\ncorrupt = 0.0\ntopology = "direct"',
    ),
    "verifiable": (
        "gopa",
        4,
        'kind = "integer"\nlength = 1\nlower = 0\nupper = 4\nepsilon = 8.0\ndelta = 1e-3\ncorrupt = 0.2\n'
        "dropout = 0.2\nverifiable = true",
    ),
    "records": ("secagg", 2, "RECORDS"),
    "records-gopa": ("gopa", 4, "RECORDS"),
    "servers": ("mpyc", 1, "length = 1\nlower = 0\nupper = 1\nprecision = 0.5"),
    "learn": (
        "learn",
        4,
        'learner = "block-gossip"\nfeatures = 2\nsteps = 4\ngroup = 3\nepsilon = 8.0\ndelta = 1e-5',
    ),
    "reports": (
        "reports",
        1,
        'kernel = "kendall_tau"\nlabel = "age"\nepsilon = 8.0\n'
        "fields = [{ lower = 0, upper = 120 }, { lower = 0, upper = 60000, step = 1000 }]\nbins = [6, 4]",
    ),
}
RECORDS = """\
ask = ["count", "mean(age)", "age x sex"]
epsilon = 1.0
delta = 1e-6
corrupt = 0.0

[parameters.records]
unit = "record"
max_rows = 100

[parameters.records.columns]
age = { lower = 0, upper = 120, bins = [18, 65] }
sex = { values = ["f", "m"] }"""
PARTIES = ("ann", "ben", "cyd", "dan", "eve")


def write_files(folder: Path) -> None:
    """Write what the commands read: files of release 0.1, sessions, a changed log, certificates."""
    for path in (ROOT / "tests" / "fixtures" / "0.1").iterdir():
        shutil.copy(path, folder / path.name)
        (folder / path.name).chmod(0o600)
    log = (folder / "request-1.jsonl").read_bytes()
    (folder / "changed.jsonl").write_bytes(log[:-40] + bytes([log[-40] ^ 1]) + log[-39:])
    (folder / "empty").mkdir()
    write_local(folder / "local")
    write_other(folder)
    compared = json.loads((VECTORS / "result-compared.json").read_bytes())
    (folder / "checked.toml").write_text(CHECKED["session"], "utf-8")
    for name, of in (("checked", CHECKED), ("second", compared["results"][1])):
        (folder / f"{name}.json").write_text(json.dumps(of["result"]), "utf-8")
    vectors = ROOT / "protocols" / "covert" / "vectors"
    for name, source in (("certificate", "certificate-labels"), ("no-certificate", "no-certificate-seed")):
        vector = json.loads((vectors / f"{source}.json").read_bytes())
        (folder / f"{name}.bin").write_bytes(bytes.fromhex(vector["certificate"]))
    for name, (protocol, version, parameters) in SESSIONS.items():
        head = [f'protocol = "{protocol}"', f"version = {version}", "", "[parameters]"]
        text = "\n".join([*head, parameters.replace("RECORDS", RECORDS), "", *roster(name, protocol)])
        (folder / f"{name}.toml").write_text(text + "\n", "utf-8")


def write_local(folder: Path) -> None:
    """Write a session with noise for processes on this machine, with inputs and ledgers."""
    names = PARTIES[:3]
    parameters = {"length": 1, "lower": 0, "upper": 1, "epsilon": 1.0, "delta": 1e-6, "corrupt": 0.0}
    create_local_session(folder, names, parameters)
    for part in ("inputs", "ledgers"):
        (folder / part).mkdir()
    for name in names:
        (folder / "inputs" / f"{name}.json").write_text("[0.5]", "utf-8")
        path = folder / "ledgers" / f"{name}.ledger"
        Ledger.create(path, party=name, dataset="d", relation="substitution", epsilon=2.0, delta=1e-5)


def write_other(folder: Path) -> None:
    """Write sessions of statistics of records and of a learner for processes on this machine."""
    names = PARTIES[:3]
    asked = tomllib.loads(f"[parameters]\n{RECORDS}")["parameters"]
    create_local_session(folder / "records", names, asked)
    create_local_session(folder / "learning", names, GROUP, protocol="learn")
    tables = {"records": "age,sex\n30,f\n70,m\n", "learning": "0.5,0.25,1\n-0.5,0.75,0\n"}
    for part, table in tables.items():
        (folder / part / "inputs").mkdir()
        for name in names:
            (folder / part / "inputs" / f"{name}.csv").write_text(table, "utf-8")


def roster(session: str, protocol: str) -> Iterator[str]:
    """Yield the entries of a session's members, with keys of their names."""
    others = {"mpyc": ["server1", "server2", "server3"]}.get(protocol, ["hub"])
    others = [] if session == "direct" else others
    for number, name in enumerate([*others, *PARTIES]):
        role: Any = "party" if name in PARTIES else {"hub": "aggregator"}.get(name, "server")
        address = None if role == "party" and session != "direct" else f"192.0.2.7:{7100 + number}"
        identity = Identity.from_seed(name, hashlib.sha256(name.encode()).digest())
        yield roster_entry(identity.entry(role, address))


@functools.cache
def ran(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command of a case in the folder, once."""
    return smpc_dp(*shlex.split(COMMANDS[name]), "--json", cwd=folder)


def run(name: str, folder: Path) -> dict[str, Any]:
    """Run the command of a case in the folder; return its exit code and what it has printed."""
    done = ran(name, folder)
    if not done.stdout:
        return {"code": done.returncode, "errors": done.stderr}
    printed = json.loads(done.stdout)
    return {"code": done.returncode, "printed": described(printed, drawn=name in DRAWN)}


# Results of simulations, and of calls that no command reaches at this price.
ROWS = np.array([[0.25], [0.5], [0.75], [1.0], [0.0]])
SEED: dict[str, Any] = {"seed_for_simulation": 1}
NOISY: dict[str, Any] = {"lower": 0, "upper": 1, "epsilon": 1.0, "delta": 1e-3, "corrupt": 0.0, **SEED}
SCHEMA = {"columns": {"age": {"lower": 0, "upper": 120, "bins": [18, 65]}, "sex": {"values": ["f", "m"]}}}
GROUP = {"learner": "block-gossip", "features": 2, "steps": 1, "group": 3, "epsilon": 8.0, "delta": 1e-5}
LEARNER = {"learner": "ring-sum", "rounds": 1, "lower": 0, "upper": 1, "epsilon": 9.0, "delta": 1e-3}


def result_of_records() -> RecordResult:
    """Return a result of statistics of records with the evidence of an average."""
    table = {"age": np.arange(60.0), "sex": ["f", "m"] * 30}
    ask = ["count", "mean(age)", "age x sex"]
    answers = simulate.statistics(
        [table] * 3, ask, schema={**SCHEMA, "max_rows": 100}, epsilon=1.0, delta=1e-6, corrupt=0.0, **SEED
    )
    average = simulate.average(ROWS, lower=0, upper=1, **SEED)
    return RecordResult(answers, average.survivors, (), (), average.privacy, average.evidence)


def receipt(folder: Path) -> Any:
    """Return the receipt of a charge."""
    path = folder / "receipt.ledger"
    ledger = Ledger.create(path, party="ann", dataset="d", relation="substitution", epsilon=2.0, delta=0.0)
    return ledger.charge(bytes(16), Event("pure", "substitution", (Pure(1.0, 0.0),)))


RESULTS: dict[str, Callable[[Path], Any]] = {
    "average": lambda _: simulate.average(ROWS, lower=0, upper=1, **SEED),
    "average with noise": lambda _: simulate.average(ROWS, **NOISY),
    "average with private weights": lambda _: simulate.average(ROWS, weights=[1, 2, 3, 4, 5], **NOISY),
    "average by gopa": lambda _: simulate.average(ROWS, method="gopa", **NOISY),
    "average by direct gopa": lambda _: simulate.average(ROWS, method="gopa", topology="direct", **NOISY),
    "average by verifiable gopa": lambda _: simulate.average(
        ROWS * 4,
        method="gopa",
        verifiable=True,
        **{**NOISY, "upper": 4, "epsilon": 8.0, "planned_dropout": 0.2, "corrupt": 0.2},
    ),
    "statistics of records": lambda _: result_of_records(),
    "statistic of pairs": lambda _: simulate.pairwise(
        "collision", [1, 1, 2, 2], epsilon=2.0, fidelity="ideal", **SEED
    ),
    "statistic by servers": lambda _: simulate.pairwise(
        "collision", [1, 1, 2, 2], epsilon=2.0, engine="mpyc", fidelity="ideal", **SEED
    ),
    "learner": lambda _: simulate.learn(LEARNER, [np.array([[0.5]])] * 4, **SEED),
    "evaluation": lambda _: simulate.evaluate("add32", [[1], [2]], **SEED),
    "local pairwise": lambda _: simulate.local_pairwise("collision", [1, 1, 2, 2], 2.0, bins=4, **SEED),
    "local AUC": lambda _: simulate.local_auc(
        Field(0, 7), [1, 2, 3, 4, 5, 6], [0, 1, 0, 1, 0, 1], 2.0, levels=3, **SEED
    ),
    "names": lambda _: simulate.names(
        [{"age": [1.0, 2.0], "sex": ["f", "x"]}] * 3,
        ["sex"],
        schema={**SCHEMA, "max_rows": 10},
        epsilon=9.0,
        delta=1e-3,
        **SEED,
    ),
    "receipt of a ledger": receipt,
}


@functools.cache
def made(name: str, folder: Path) -> Any:
    """Return a result, made once."""
    return RESULTS[name](folder)


def result(name: str, folder: Path) -> Any:
    """Return the kinds of what `to_json` of a result returns."""
    return described(json.loads(json.dumps(made(name, folder).to_json())), drawn=True)


def described(value: Any, *, drawn: bool) -> Any:
    """Return a value, but of what varies its kind; `drawn`: of all its leaves but null."""
    match value:
        case dict():
            return {
                key: (by_name if drawn and key in BY_NAME else described)(
                    inner, drawn=key in VARYING or (drawn and key not in PLANNED)
                )
                for key, inner in value.items()
            }
        case list():
            inner = [described(one, drawn=drawn) for one in value]
            same = drawn and len(inner) > SHOWN and all(one == inner[0] for one in inner)
            return [inner[0], f"<{len(inner)} of these>"] if same else inner
        case None:
            return None
        case _:
            return f"<{type(value).__name__}>" if drawn else value


def by_name(value: dict[str, Any], *, drawn: bool) -> Any:
    """Return the kind of the values of an object whose keys are parties' names."""
    return {"<name>": described(next(iter(value.values())), drawn=drawn)}


def differences(stored: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield what differs between two values, with the path of keys to it."""
    match stored, now:
        case dict(), dict() if [*stored] == [*now]:
            for key in stored:
                yield from differences(stored[key], now[key], f"{where}.{key}")
        case dict(), dict():
            yield f"{where}: keys {', '.join(now)}, stored are {', '.join(stored)}"
        case list(), list() if len(stored) == len(now):
            for index, (one, other) in enumerate(zip(stored, now, strict=True)):
                yield from differences(one, other, f"{where}[{index}]")
        case float(), float() if math.isclose(stored, now, rel_tol=RELATIVE):
            return
        case _:
            if type(stored) is not type(now) or stored != now:
                yield f"{where}: {now!r}, stored is {stored!r}"


def text() -> str:
    """Return the content of the file, made anew."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        made = {
            "commands": {name: run(name, folder) for name in COMMANDS},
            "results": {name: result(name, folder) for name in RESULTS},
        }
    return json.dumps(made, indent=1) + "\n"
