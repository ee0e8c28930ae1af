"""The shape of the package, from its syntax trees: who imports whom, and what library code never does."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.checks import Checks, checks_in
from tests.unit.kinds import Kinds, kinds_in

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "smpc_dp"
LAB = ROOT / "lab" / "smpc_dp_lab"

# Layers, highest first. Each imports from rows below its own and from itself, never from another one in its
# row. A layer is a package or a top module, or has the modules that `OF_LAYER` gives it. `smpc_dp` stands for
# the public names in `smpc_dp/__init__.py`.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"__main__"}),
    frozenset({"cli"}),
    frozenset({"demo"}),
    frozenset({"smpc_dp"}),
    frozenset({"integrations"}),
    frozenset({"simulate", "sync"}),
    # What capabilities do in sessions: requests over connections, commands, simulations.
    frozenset({"capability"}),
    # With the requests of sums and records, and the audits of logs.
    frozenset({"session"}),
    frozenset({"transport"}),
    # Protocols, planners and learners without input and output.
    frozenset({"capabilities"}),
    # Protocols of the core.
    frozenset({"sums"}),
    frozenset({"protocol"}),
    frozenset({"phases"}),
    frozenset({"engine"}),
    frozenset({"result"}),
    frozenset({"logs"}),
    frozenset({"wire"}),
    frozenset({"records"}),
    frozenset({"console", "privacy"}),
    frozenset({"identity", "trees"}),
    frozenset({"executors", "generator_cache", "report", "seen", "settings", "web_settings"}),
    frozenset({"crypto", "database", "encoding", "files"}),
    frozenset({"ball", "box", "extensions", "fixed_point", "optional", "values"}),
    frozenset({"_core", "decoding", "errors", "platforms", "signals", "summary", "when_read"}),
)
RANK = {layer: rank for rank, row in enumerate(LAYERS) for layer in row}

# Folders of a capability, and its modules of these names, in the layer "capability".
OF_CAPABILITY = frozenset({"capability", "commands", "log_view", "requests", "simulation"})

# The layer of modules that are of another one than their package. The longest name counts; a name with
# `__init__` is the package's own module.
OF_LAYER = {
    "engine.__init__": "protocol",
    "engine.phases": "phases",
    "engine.public": "protocol",
    "engine.registry": "protocol",
    "engine.result": "result",
    "engine.signed_result": "result",
    "engine.session_protocol": "protocol",
    "engine.weighted_encoding": "result",
    "logs.audits": "session",
    "logs.board": "session",
    "logs.growing_log": "session",
    "logs.log_http": "session",
    "logs.log_source": "session",
    "records.parameters": "sums",
    "records.record_audit": "sums",
    "records.record_result": "sums",
    "records.step_sums": "sums",
    "records.requests": "session",
    "secagg": "sums",
    "secagg.requests": "session",
    "results": "session",
    "session.exchange": "sums",
}

# Where protocols, tasks and schemas, also of capabilities, stand by the names of their modules.
TABLES = frozenset({"smpc_dp.console.schemas", "smpc_dp.engine.registry", "smpc_dp.session.tasks"})

# Packages that only some others may import, whatever their row.
ONLY_FOR: dict[str, frozenset[str]] = {
    "transport": frozenset({"capability", "session", "simulate"}),
    "demo": frozenset({"cli"}),
    "cli": frozenset({"__main__"}),
    "_core": frozenset({"crypto", "fixed_point"}),
}

# Which of these packages a package of the lab may import; it may import all others.
LAB_OPENS: dict[str, frozenset[str]] = {
    "bench": frozenset({"transport"}),
    "cli": frozenset({"cli"}),
    "vectors": frozenset({"transport"}),
}

# Where a generator that is no cryptographic one may be used: schedules, simulated deaths, measurements.
# `smpc-dp simulate` draws made-up inputs, which keep no secret; `learn/schedule.py` a public order.
MAY_IMPORT_RANDOM = (
    "simulate/",
    "session/memory/",
    "capabilities/learn/schedule.py",
    "capabilities/pairs/published/check.py",
    "capabilities/pairs/simulation/",
    "capabilities/servers/simulation/",
    "transport/memory.py",
    "demo/",
    "cli/simulate.py",
    "lab/",
)

# Flower sends the text of an exception to the server: its mod may raise none. What functions of other
# packages raise ends a request, and no process that serves others. What an observer of a simulation raises
# ends the simulation.
MAY_CATCH_ALL = frozenset({"extensions.py", "integrations/flower/mod.py", "session/memory/members.py"})

# What is claimed and its parts: composed by name (`smpc_dp.privacy.named_sentences`), never by position
# or by their text: a sentence that is added or written anew must not change others. A slice of numbers
# with such a name is refused as well.
STATED = frozenset(
    [
        "assumption",
        "assumptions",
        "claim",
        "clauses",
        "limits",
        "not_protected",
        "premises",
        "protected",
        "sentences",
    ]
)

FILES = [*sorted(PACKAGE.rglob("*.py")), *sorted(LAB.rglob("*.py"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
# The two folders of evidence: from a checkout both would import as namespace packages.
EVIDENCE = frozenset({"protocols", "circuits"})


def module_of(file: Path) -> str:
    folder = LAB.parent if file.is_relative_to(LAB) else ROOT
    parts = file.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = frozenset(module_of(file) for file in FILES) | {"smpc_dp._core"}
# Texts that are one of these names are imports. Some other packages have the names of entry-point groups.
NAMED = frozenset(module_of(file) for file in FILES if file.name != "__init__.py") | frozenset(
    name for name in MODULES if name.startswith("smpc_dp.capabilities.")
)


def layer_of(module: str) -> str:
    """Return the layer of a module; its package if that is in no layer."""
    name = module.partition(".")[2]
    if not name:
        return module
    if f"{name}.__init__" in OF_LAYER:
        return OF_LAYER[f"{name}.__init__"]
    match name.split("."):
        case ["capabilities", _, folder, *_] if folder in OF_CAPABILITY:
            return "capability"
    longest = name
    while longest and longest not in OF_LAYER:
        longest = longest.rpartition(".")[0]
    return OF_LAYER[longest] if longest else name.partition(".")[0]


def imports(nodes: Iterable[ast.AST], package: str) -> Iterator[tuple[str, int]]:
    """Yield each imported module, as far as it names a file of the package or of the lab, with its line."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            deeper = {f"{base}.{alias.name}" for alias in node.names}
            for name in sorted({name if name in MODULES else base for name in deeper}):
                yield name, node.lineno


# What the rules of this file, of test_capabilities.py and of test_errors.py read.
READ = frozenset(
    {
        ast.AnnAssign,
        ast.Assert,
        ast.Assign,
        ast.Attribute,
        ast.Call,
        ast.ClassDef,
        ast.Compare,
        ast.comprehension,
        ast.Constant,
        ast.ExceptHandler,
        ast.Import,
        ast.ImportFrom,
        ast.Match,
        ast.MatchClass,
        ast.Subscript,
    }
)
# More than half of all nodes, with nothing below them.
PASSED_OVER = frozenset({ast.Name, ast.Load, ast.Store})


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes below `tree` that rules read, in the order of `ast.walk`, in less time."""
    every = [tree]
    for node in every:
        for name in node._fields:
            value = getattr(node, name)
            below = value if value.__class__ is list else (value,)
            every += [one for one in below if one.__class__ not in PASSED_OVER and isinstance(one, ast.AST)]
    return [node for node in every if node.__class__ in READ]


class Facts(NamedTuple):
    """What the rules need of a file: its tree is walked once.

    Attributes:
        imports: the modules that it imports, with the lines.
        broken: what the house rules forbid in it, with the lines.
        kinds: what it says of kinds of sessions.
        checks: where it raises errors with a check.
    """

    imports: list[tuple[str, int]]
    broken: list[tuple[int, str]]
    kinds: Kinds
    checks: Checks


@functools.cache
def facts_of(file: Path) -> Facts:
    nodes = nodes_of(parsed(file))
    imported = list(imports(nodes, package_of(file)))
    broken = list(forbidden(nodes, path_in_package(file)))
    return Facts(imported, broken, kinds_in(nodes, module_of(file), NAMED), checks_in(nodes))


def imports_of(file: Path) -> list[tuple[str, int]]:
    return facts_of(file).imports


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"), str(file))


def package_of(file: Path) -> str:
    module = module_of(file)
    return module if file.name == "__init__.py" else module.rpartition(".")[0]


def misplaced(module: str, imported: str) -> str | None:
    """Say what is wrong with `module` importing `imported`, or return None."""
    if imported.split(".")[0] in EVIDENCE:
        return "evidence is read, never imported"
    from_lab = module.split(".")[0] == "smpc_dp_lab"
    if imported.split(".")[0] == "smpc_dp_lab":
        return None if from_lab else "the lab is not in the wheel"
    if imported.split(".")[0] != "smpc_dp":
        return None
    own, other = layer_of(module), layer_of(imported)
    if from_lab:
        closed = other in ONLY_FOR and other not in LAB_OPENS.get(own, frozenset())
        return f"the lab's '{own}' may not import '{other}'" if closed else None
    if own not in RANK or other not in RANK:
        return f"package '{own if own not in RANK else other}' is not in LAYERS"
    if own == other:
        return None
    if RANK[other] <= RANK[own]:
        return f"'{own}' is not above '{other}'"
    if other in ONLY_FOR and own not in ONLY_FOR[other]:
        return f"only {', '.join(sorted(ONLY_FOR[other]))} may import '{other}'"
    return None


def test_imports_go_downwards() -> None:
    result = [
        f"{file.relative_to(ROOT)}:{line}: {imported}: {reason}"
        for file in FILES
        for imported, line in [*imports_of(file), *named_in(file)]
        if (reason := misplaced(module_of(file), imported)) is not None
    ]
    assert not result, "\n".join(result)


def named_in(file: Path) -> list[tuple[str, int]]:
    """Return the modules that a module names as text, to import them; none of the tables of all."""
    return [] if module_of(file) in TABLES else facts_of(file).kinds.modules


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("smpc_dp.crypto.prg", "smpc_dp.wire.envelope"),
        ("smpc_dp.session.session", "smpc_dp.simulate.average"),
        ("smpc_dp.demo.run", "smpc_dp.transport.memory"),
        ("smpc_dp.simulate.average", "smpc_dp_lab.vectors.runs"),
        ("smpc_dp_lab.bench.secagg", "smpc_dp.cli.run"),
        ("smpc_dp_lab.cli.bench", "smpc_dp.transport.memory"),
        ("smpc_dp_lab.vectors.runs", "smpc_dp._core"),
        ("smpc_dp_lab.bench.secagg", "protocols"),
        ("smpc_dp.secagg.states", "smpc_dp.transport.channel"),
        ("smpc_dp.encoding", "smpc_dp._core"),
        ("smpc_dp.simulate.average", "smpc_dp.demo.run"),
        ("smpc_dp.engine.result", "smpc_dp"),
        ("smpc_dp.cli.run", "circuits"),
        ("smpc_dp.attic.old", "smpc_dp.errors"),
    ],
)
def test_the_rule_refuses(module: str, imported: str) -> None:
    assert misplaced(module, imported) is not None


def test_relative_imports_are_resolved() -> None:
    tree = ast.parse("from . import errors\nfrom .crypto import prg\nfrom ..smpc_dp import roster\n")
    assert [name for name, _ in imports(nodes_of(tree), "smpc_dp")][:2] == [
        "smpc_dp.errors",
        "smpc_dp.crypto.prg",
    ]


def test_modules_do_not_import_in_circles() -> None:
    graph = {
        module_of(file): {
            imported
            for imported, _ in imports_of(file)
            if imported in MODULES and imported != module_of(file)
        }
        for file in FILES
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"imports in a circle: {' < '.join(error.args[1])}")


def test_nothing_else_imports_the_evidence() -> None:
    """Tests, examples and benchmarks reach the two folders as files only."""
    named = re.compile(rf"^\s*(?:from|import)\s[^#\n]*(?<![.\w])(?:{'|'.join(EVIDENCE)})\b", re.MULTILINE)
    folders = (ROOT / name for name in ("tests", "examples", "benchmarks"))
    result = [
        f"{file.relative_to(ROOT)}:{line}: {imported}"
        for folder in folders
        for file in sorted(folder.rglob("*.py"))
        if named.search(file.read_text("utf-8"))
        for imported, line in imports(ast.walk(parsed(file)), "")
        if imported.split(".")[0] in EVIDENCE
    ]
    assert not result, "\n".join(result)


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler catches every exception, and does not raise it again."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {kind.id if isinstance(kind, ast.Name) else "" for kind in kinds}
    reraises = bool(handler.body) and isinstance(handler.body[-1], ast.Raise)
    return handler.type is None or "Exception" in names or ("BaseException" in names and not reraises)


def last_name(node: ast.expr) -> str:
    """Return the name that an expression ends with: of a function that it calls, an attribute or a key.

    Of the items of named sentences the name of these.
    """
    match node:
        case ast.Call(func=ast.Attribute(attr=method)):
            return method
        case ast.Call():
            return last_name(node.func)
        case ast.Name():
            return node.id
        case ast.Attribute(attr="items", value=named):
            return last_name(named)
        case ast.Attribute():
            return node.attr
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return key
    return ""


def is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id.isupper()


def cut(node: ast.AST) -> ast.expr | None:
    """Return the claim, or part of one, that code takes by position, reads or changes as text, or filters.

    A whole sentence that is a constant may be looked for: however it is written anew, it is found.
    """
    match node:
        case ast.Subscript(slice=ast.Slice()):
            stated = node.value
        case ast.Subscript(slice=ast.Constant(value=int()) | ast.UnaryOp(), value=stated):
            # Others are one text, or have the name of a pair of numbers.
            if last_name(stated) not in ("assumptions", "not_protected"):
                return None
        case ast.Assign(targets=[ast.Tuple(elts=parts) | ast.List(elts=parts)], value=stated):
            if not any(isinstance(part, ast.Starred) for part in parts):
                return None
        case (
            ast.Call(
                func=ast.Attribute(attr="replace", value=stated),
                args=[ast.Constant(value=str()) | ast.JoinedStr(), *_],
            )
            | ast.Call(func=ast.Attribute(attr="removeprefix" | "removesuffix", value=stated))
        ):
            if is_constant(stated):
                return stated
        case ast.Call(func=ast.Attribute(attr="split" | "startswith" | "endswith", value=stated)):
            pass
        case ast.Compare(left=sought, ops=[ast.In() | ast.NotIn()], comparators=[stated]):
            if is_constant(sought):
                return None
        case ast.comprehension(ifs=[_, *_]):
            stated = node.iter
        case _:
            return None
    return stated if last_name(stated) in STATED else None


# The last names of what may not be called: to write an expression as text takes long.
LAST = frozenset({"decode", "convert"})


def forbidden(nodes: Iterable[ast.AST], path: str) -> Iterator[tuple[int, str]]:
    """Yield what code at `path` (below the package, or `lab/...`) may not have."""
    for node in nodes:
        if (stated := cut(node)) is not None:
            yield stated.lineno, f"a part of {ast.unparse(stated)} by position or text"
        elif isinstance(node, ast.Assert):
            yield node.lineno, "an assert statement, which python -O removes"
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in LAST
            and ast.unparse(node)
            in (
                "msgspec.json.decode",
                "msgspec.msgpack.decode",
                "msgspec.convert",
            )
        ):
            if path != "decoding.py" and not path.startswith("lab/"):
                yield node.lineno, f"{ast.unparse(node)}, which threads may not share"
        elif isinstance(node, ast.ExceptHandler):
            if catches_all(node) and path not in MAY_CATCH_ALL:
                yield node.lineno, "a handler that catches everything"
        elif not path.startswith(MAY_IMPORT_RANDOM):
            if isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names):
                yield node.lineno, "random, which is predictable"
            elif isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random"):
                yield node.lineno, f"{node.module}, which is predictable"
            elif (
                isinstance(node, ast.Attribute)
                and node.attr == "random"
                and ast.unparse(node) in ("np.random", "numpy.random")
            ):
                yield node.lineno, "numpy.random, which is predictable"


def path_in_package(file: Path) -> str:
    if file.is_relative_to(LAB):
        return f"lab/{file.relative_to(LAB).as_posix()}"
    return file.relative_to(PACKAGE).as_posix()


def test_library_code_keeps_the_house_rules() -> None:
    result = [
        f"{file.relative_to(ROOT)}:{line}: {reason}"
        for file in FILES
        for line, reason in facts_of(file).broken
    ]
    assert not result, "\n".join(result)


def test_examples_take_no_part_of_a_claim_by_position_or_text() -> None:
    result = [
        f"{file.relative_to(ROOT)}:{stated.lineno}: {ast.unparse(stated)}"
        for file in EXAMPLES
        for node in ast.walk(parsed(file))
        if (stated := cut(node)) is not None
    ]
    assert EXAMPLES
    assert not result, "\n".join(result)


@pytest.mark.parametrize(
    "code",
    [
        "assert 1",
        "try:\n    pass\nexcept Exception:\n    raise",
        "try:\n    pass\nexcept (OSError, Exception):\n    pass",
        "try:\n    pass\nexcept:\n    pass",
        "try:\n    pass\nexcept BaseException:\n    pass",
        "import msgspec\nmsgspec.json.decode(b'1')",
        "import random",
        "from random import choice",
        "import numpy as np\nx = np.random.default_rng()",
        "limits = (*first, *exact.not_protected[2:])",
        "limits = not_protected(schema)[:1]",
        "claim = exact.claim.replace('an exact', 'a noisy', 1)",
        "who = protected(schema).replace(' of an honest party', '')",
        "lost = LEFT_IN.replace('in it', 'in the total')",
        "limits = [reason for reason in relayed.not_protected if 'aggregator' not in reason]",
        "text = result['privacy']['claim'].removeprefix('an exact')",
        "limits = exact.limits.items[2:]",
        "limits = [item for item in exact.limits.items if item[0] != 'exact']",
        "print(result['privacy']['assumptions'][0])",
        "last = exact.not_protected[-1]",
        "_, *rest = exact.not_protected",
        "[*most, last] = claim.clauses.sentences",
        "who = protected(schema).replace(f'of {party}', '')",
        "aggregated = 'aggregator' in claimed.claim",
        "left = [] if reason not in exact.not_protected else [reason]",
        "first = result['privacy']['claim'].split('; ')[0]",
        "is_exact = claim.startswith('an exact')",
    ],
)
def test_the_house_rules_refuse(code: str) -> None:
    assert list(forbidden(nodes_of(ast.parse(code)), "crypto/example.py"))


@pytest.mark.parametrize(
    "code",
    [
        "start = EPOCH.replace(tzinfo=UTC)",
        "PATH.replace(target)",
        "noisy = claim.replace(epsilon=1)",
        "path.replace(limits)",
        "text = text.replace('an exact', 'a noisy')",
        "first, *rest = names",
        "low, high = self.limits",
        "high = limits[1]",
        "sentences = {name: text for name, text in sentences.items() if text}",
        "lines = [f'not protected: {line}' for line in privacy.not_protected]",
        "is_few = FEW in privacy['not_protected']",
        "limits = exact.limits.without('exact').items",
        "is_claim = name in ('claim', 'limits')",
    ],
)
def test_the_house_rules_accept(code: str) -> None:
    assert not list(forbidden(nodes_of(ast.parse(code)), "crypto/example.py"))
