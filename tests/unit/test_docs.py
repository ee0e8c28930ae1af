"""The documents against the code: their programs run, their commands parse, their links lead somewhere.

A block fenced as `python` is run in an empty folder; one fenced as `python no-run` is a fragment and is only
compiled. Commands stand in blocks fenced as `sh` or `console`; they are parsed, and those that plan are run.
`tests/processes/test_guides.py` runs the `sh` blocks of guides, but for those fenced as `sh no-run`.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import typer.main
from typer.testing import CliRunner

from smpc_dp import simulate
from smpc_dp.capabilities.learn.learned_graph import GraphLearning
from smpc_dp.capabilities.learn.methods import AveragerTable
from smpc_dp.capabilities.learn.registry import LEARNERS, check_learn
from smpc_dp.capabilities.reports.name_parameters import NameSettings
from smpc_dp.capabilities.reports.report_parameters import ReportSettings
from smpc_dp.cli import app
from smpc_dp.console.schemas import meanings
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.privacy import empirical
from smpc_dp.records.record_result import RecordResult
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import Category, Elapsed, Function, Grouped, Number, SchemaSettings
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab import vectors
from smpc_dp_lab.bench.page import load_results
from smpc_dp_lab.bench.scale import Units
from smpc_dp_lab.reference import BENCHMARKS, measured, rendered, specified
from tests.command import smpc_dp
from tests.documents import FENCE, assert_documented, fields_below

ROOT = Path(__file__).resolve().parents[2]
WISCONSIN = ROOT / "examples" / "data" / "breast_cancer_wisconsin_original.csv"
LENDING = ROOT / "smpc_dp/demo/data/lending_club.csv"
DOCUMENTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "protocols/**/*.md",
        "benchmarks/**/*.md",
        "lab/**/*.md",
        "verify/**/*.md",
        "examples/**/*.md",
    )
    for path in ROOT.glob(pattern)
)

INLINE = re.compile(r"`([^`\n]+)`")
CONNECTION = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
COMMAND = re.compile(r"(?:^|[;|&(]|\bdo )\s*(?:\$ )?(?:time )?(smpc-dp .*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language words and its text."""

    document: Path
    line: int
    info: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks_of(path: Path) -> Iterator[Block]:
    text = path.read_text("utf-8")
    for match in FENCE.finditer(text):
        yield Block(path, text.count("\n", 0, match.start()) + 1, tuple(match[1].split()), match[2])


BLOCKS = [block for path in DOCUMENTS for block in blocks_of(path)]


def in_language(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.info and block.info[0] in languages]


def commands_of(block: Block) -> Iterator[list[str]]:
    """Yield the arguments of each `smpc-dp` command of a block."""
    for line in block.text.replace("\\\n", " ").splitlines():
        match = COMMAND.search(line)
        if match is None:
            continue
        lexer = shlex.shlex(match[1], posix=True, punctuation_chars=True)
        words: list[str] = []
        lexer.whitespace_split = True
        for word in lexer:
            if set(word) <= set("();<>|&"):
                break
            words.append(word)
        yield words[1:]


# Whatever Click the installed Typer stands on, its own or the package.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


@functools.cache
def commands() -> Any:
    """Return `smpc-dp` as the group of its commands."""
    return typer.main.get_command(app)


def parse(arguments: list[str]) -> None:
    """Raise UsageError unless `smpc-dp ARGUMENTS` is well formed; nothing is run."""
    command = commands()
    rest, name = list(arguments), "smpc-dp"
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in command.commands:
            raise UsageError(f"no command {name!r}")
        command = command.commands[name]
    try:
        command.make_context(name, rest)
    except typer.Exit:
        return


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as it is made where the documents are shown."""
    retained = re.sub(r"[^\w\- ]", "", heading.lower())
    return retained.replace(" ", "-")


def text_outside_blocks(path: Path) -> str:
    return FENCE.sub("", path.read_text("utf-8"))


def test_there_is_something_to_check() -> None:
    assert len(DOCUMENTS) >= 8
    assert in_language("python")
    assert sum(len(list(commands_of(block))) for block in in_language("sh", "console")) >= 5


@pytest.mark.parametrize("block", in_language("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    assert block.info[1:] in ((), ("no-run",))
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.thin(2)
@pytest.mark.parametrize("block", [b for b in in_language("python") if b.info == ("python",)], ids=str)
def test_python_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "block.py"
    program.write_text(block.text, "utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(program), run_name="__main__")


@pytest.mark.parametrize("block", in_language("toml"), ids=str)
def test_toml_parses(block: Block) -> None:
    table = tomllib.loads(block.text)
    if table.get("protocol") == "learn" and "parameters" in table:
        assert check_learn(table["parameters"], 60)[1] == []


@pytest.mark.parametrize("block", in_language("sh", "console", "bash"), ids=str)
def test_commands_parse(block: Block) -> None:
    for arguments in commands_of(block):
        try:
            parse(arguments)
        except UsageError as error:
            pytest.fail(f"{block}: smpc-dp {' '.join(arguments)}: {error}")


def plans() -> list[Any]:
    """Return the commands of blocks that plan something, but for plans of a session.

    Its file is made by the processes of a guide: tests/processes/test_guides.py.
    """
    return [
        pytest.param(arguments, id=f"{block}-{' '.join(arguments[1:3])}")
        for block in in_language("sh", "console", "bash")
        for arguments in commands_of(block)
        if arguments[:1] == ["plan"] and arguments[1] != "session"
    ]


@pytest.mark.thin(3)
@pytest.mark.parametrize("arguments", plans())
def test_plans_are_made(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # an empirical audit has false alarms: the noise of its examples is fixed
    monkeypatch.setattr(empirical, "SystemRandomness", lambda: SeededRandomnessForSimulation(1, "docs"))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "line",
    ["smpc-dp sing", "smpc-dp plan secagg --people 3", "smpc-dp run", "smpc-dp plan secagg --parties x"],
)
def test_a_wrong_command_is_found(line: str) -> None:
    (arguments,) = commands_of(Block(ROOT / "README.md", 1, ("sh",), f"$ {line} | head\n"))
    with pytest.raises(UsageError):
        parse(arguments)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_prose_exist(path: Path) -> None:
    group = commands()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for code in INLINE.findall(text_outside_blocks(path)):
        words = code.split()
        if words[0] == "smpc-dp" and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
            assert words[1] in group.commands, f"{path.name}: {code}"
        if words[0] == "make" and len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]):
            assert words[1] in targets, f"{path.name}: {code}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    broken = []
    for target in CONNECTION.findall(text_outside_blocks(path)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or not file.is_relative_to(ROOT):
            broken.append(target)
        elif fragment and file.suffix == ".md":
            headings = HEADING.findall(text_outside_blocks(file))
            if fragment not in {anchor(heading) for heading in headings}:
                broken.append(target)
    assert not broken, f"{path.relative_to(ROOT)}: {', '.join(broken)}"


SOURCES = sorted(
    path
    for folder in ("smpc_dp", "lab", "verify", "core", "bindings", "timing", "tests", "examples")
    for pattern in ("*.py", "*.rs", "*.toml")
    for path in (ROOT / folder).rglob(pattern)
)
NAMED = re.compile(r"\b(?:docs|protocols|benchmarks)/[\w/.-]*\.(?:md|png)\b")


def test_documents_that_sources_name_exist() -> None:
    named = {(path, name) for path in SOURCES for name in NAMED.findall(path.read_text("utf-8"))}
    assert len({name for _, name in named}) >= 20
    missing = [f"{path.relative_to(ROOT)}: {name}" for path, name in named if not (ROOT / name).is_file()]
    assert not missing, "; ".join(sorted(missing))


# docs/reference/ names every key and field, and no key or field that is not there.


@pytest.mark.parametrize("protocol", ["secagg", "gopa"])
def test_every_parameter_is_documented(protocol: str) -> None:
    # The checker itself lists the keys that it knows.
    _, faults = checker_of(protocol, session_protocol(protocol).version)(
        {"": 0, "length": 1, "lower": 0, "upper": 1}, 3
    )
    known = re.search(r"known: (.*)\)", faults[0].reason)
    assert known is not None
    assert set(fields_below("docs/reference/session-file.md", f"Parameters of {protocol}")) == set(
        known[1].split(", ")
    )


def test_the_tables_of_settings_are_those_of_the_checks() -> None:
    page = (ROOT / "docs" / "reference" / "session-file.md").read_text("utf-8")
    assert page.count("<!-- settings: ") >= 4
    assert rendered(page) == page, "python -m smpc_dp_lab.reference writes them"


def test_pages_and_plots_of_performance_have_the_stored_results() -> None:
    written = measured(ROOT)
    assert len(written) == 6
    for path, text in written.items():
        assert (ROOT / path).read_text("utf-8") == text, f"{path}: python -m smpc_dp_lab.reference writes it"
    page = (ROOT / BENCHMARKS / "tables.md").read_text("utf-8")
    for result in load_results(ROOT / BENCHMARKS):
        rows = page.partition(f"## {result['bench']}\n")[2].partition("\n## ")[0]
        assert rows.count("\n| ") + rows.count("\n- ") >= 3


def test_the_page_of_many_machines_follows_from_the_stored_results() -> None:
    results = load_results(ROOT / BENCHMARKS)
    # By hand: 100,000 pairs are 13 shards of 8,192, seven for each of two cores, one for each of twenty.
    pair = Units.of(results).works[1]
    assert pair.clock(100_000, 2) == pytest.approx(7 * 8_192 * pair.seconds)
    assert pair.clock(100_000, 20) == pytest.approx(8_192 * pair.seconds)
    assert pair.clock(100, 2) == pytest.approx(100 * pair.seconds)


# The site alone lists the keys of these tables.
COLUMNS = (Number, Category, Function, Grouped, Elapsed)
TABLES = (AveragerTable, GraphLearning, NameSettings, ReportSettings, SchemaSettings, *COLUMNS)


def test_every_parameter_of_a_learner_is_explained() -> None:
    for name, kind in LEARNERS.items():
        printed = smpc_dp("schema", "--learner", name).stdout.splitlines()
        keys = [field.encode_name for field in msgspec.structs.fields(kind)]
        assert [line.split("`")[1] for line in printed] == keys
    page = (ROOT / "docs/reference/session-file.md").read_text("utf-8")
    documented = set(fields_below("docs/reference/session-file.md", "Parameters of learn"))
    assert documented == {"learner", "averager", "columns", *LEARNERS}
    for table in TABLES:
        assert page.count(f"<!-- keys: {table.__module__}.{table.__name__} -->") == 1
    assert page.count("smpc-dp schema --learner NAME") == 1


def test_keys_of_an_unknown_learner_are_refused() -> None:
    refused = smpc_dp("schema", "--learner", "sing")
    assert refused.returncode == 1
    assert refused.stderr.startswith("smpc-dp: learner: 'sing' is none of sgd, block-gossip, ")
    both = smpc_dp("schema", "keygen", "--learner", "sgd")
    assert "stands without NAME, here 'keygen'" in both.stderr


def test_every_field_of_a_result_is_explained() -> None:
    result = simulate.average(np.zeros((3, 1)), lower=0, upper=1)

    def paths(value: object, prefix: str) -> Iterator[str]:
        if isinstance(value, dict) and not prefix.endswith("signatures."):
            for key, inner in value.items():
                yield f"{prefix}{key}"
                yield from paths(inner, f"{prefix}{key}.")

    fields = set(paths(msgspec.to_builtins(result.to_json()), ""))
    leaves = {field for field in fields if not any(other.startswith(field + ".") for other in fields)}
    assert {*meanings()["average"]} - {"privacy", "evidence", "evidence.survivors"} == leaves


def test_every_field_of_a_statistic_is_explained() -> None:
    result = simulate.pairwise(
        "collision", [1, 1, 2, 2], epsilon=2.0, fidelity="ideal", seed_for_simulation=1
    )
    assert {*meanings()["pairwise"]} == set(result.to_json())


def test_every_field_of_statistics_of_records_is_explained() -> None:
    own = [field for field in RecordResult.__dataclass_fields__ if field not in ("answers", "dropped")]
    shown = {
        *(f"estimates.{field}" for field in Estimate.__struct_fields__),
        "kind",
        "estimates",
        "level",
        "simultaneous",
        "rows",
        "present",
        "counted",
    }
    assert {*meanings()["statistics"]} == {*own, *shown}


def test_every_field_of_what_is_learned_is_explained() -> None:
    parameters = {"learner": "ring-sum", "rounds": 1, "lower": 0, "upper": 1, "epsilon": 9.0, "delta": 1e-3}
    learned = simulate.learn(parameters, [np.array([[0.5]])] * 4)
    assert {*meanings()["learned"]} == set(learned.to_json())


def test_errata_name_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "proofs" / "errata.md").read_text("utf-8")))
    written = {
        path: set(re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE))
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    assert named <= set().union(*written.values())
    for path, tests in written.items():
        if path.parent.name == "reference" and path.name.startswith("test_errata"):
            assert tests <= named, path.name


@pytest.mark.parametrize(
    ("heading", "arguments"),
    [
        ("reproduce gopa-tradeoff", ["reproduce", "gopa-tradeoff", "--parties", "5", "--repetitions", "100"]),
        (
            "reproduce kendall-tripadvisor",
            ["reproduce", "kendall-tripadvisor", "--parties", "10", "--repetitions", "2", "--epsilon", "1"],
        ),
        (
            "reproduce auc",
            ["reproduce", "auc", "--negatives", "20", "--repetitions", "2", "--bins", "2", "--levels", "1"],
        ),
        (
            "reproduce homomorphic",
            ["reproduce", "homomorphic", "--steps", "10", "--repetitions", "2"],
        ),
        pytest.param(
            "reproduce network-sgd",
            [
                *("reproduce", "network-sgd", "--parties", "200", "--steps", "1000", "--runs", "2"),
                *("--epsilon", "9"),
            ],
            marks=pytest.mark.long,
        ),
        (
            "reproduce local-scale",
            [
                *("reproduce", "local-scale", "--parties", "6", "--size", "3", "--participations", "1"),
                *("--repetitions", "2", "--data", str(WISCONSIN)),
            ],
        ),
        pytest.param(
            "reproduce cost-of-privacy",
            [
                *("reproduce", "cost-of-privacy", "--quick", "--runs", "1", "--steps", "20"),
                *("--lending", str(LENDING)),
            ],
            marks=pytest.mark.long,
        ),
        ("reproduce without-replacement", ["reproduce", "without-replacement", "--quick", "--each", "100"]),
        pytest.param(
            "reproduce personalized-iterations",
            ["reproduce", "personalized-iterations", "--quick"],
            marks=pytest.mark.long,
        ),
        pytest.param("reproduce movielens", ["reproduce", "movielens", "--quick"], marks=pytest.mark.long),
        pytest.param(
            "reproduce party-tables", ["reproduce", "party-tables", "--problems", "1"], marks=pytest.mark.long
        ),
        pytest.param(
            "reproduce private-boosting", ["reproduce", "private-boosting", "--quick"], marks=pytest.mark.long
        ),
        ("vectors check", ["vectors", "check", "empty"]),
    ],
)
def test_every_field_of_a_command_of_the_lab_is_documented(
    heading: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    # The shape of what is printed is the same for those of one protocol.
    monkeypatch.setattr(vectors, "PROTOCOLS", {"sampling": vectors.PROTOCOLS["sampling"]})
    reported = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert_documented("lab/COMMANDS.md", heading, reported)


def test_every_command_is_documented() -> None:
    def leaves(command: Any, name: str) -> Iterator[str]:
        if not hasattr(command, "commands") and not command.hidden:
            yield name
        for word, inner in getattr(command, "commands", {}).items():
            yield from leaves(inner, f"{name} {word}".strip())

    pages = [(ROOT / page).read_text("utf-8") for page in ("docs/reference/commands.md", "lab/COMMANDS.md")]
    named = {code.removeprefix("smpc-dp ") for page in pages for code in INLINE.findall(page)}
    words = {" ".join(code.split()[:2]) for code in named} | {code.split()[0] for code in named}
    missing = sorted(set(leaves(commands(), "")) - words)
    assert not missing


# Where the tables of roles are, each of a party and of this one.
ROLES = {
    "secagg.states": "AGGREGATOR",
    "capabilities.gopa.states": "AGGREGATOR",
    "capabilities.gopa.verifiable.states": "AGGREGATOR",
    "capabilities.gopa.direct_states": "COORDINATOR",
    "session.exchange.states": "AGGREGATOR",
    "capabilities.pairs.ustatistic.states": "AGGREGATOR",
}


@pytest.mark.parametrize(
    "page", sorted((ROOT / "protocols").glob("*/*.md")), ids=lambda page: f"{page.parent.name}/{page.stem}"
)
def test_states_in_specifications_are_those_of_the_code(page: Path) -> None:
    text = page.read_text("utf-8")
    assert specified(text) == text, "python -m smpc_dp_lab.reference writes them"


def test_the_states_of_all_message_driven_roles_are_in_specifications() -> None:
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "protocols").glob("*/*.md"))
    marked = re.findall(r"<!-- states: smpc_dp\.([\w.]+)\.(\w+) -->", pages)
    roles = {(module, role) for module in ROLES for role in ("PARTY", ROLES[module])}
    assert set(marked) == roles
