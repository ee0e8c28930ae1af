"""The core and the capabilities: who imports whom, and who asks of what kind a session is."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from smpc_dp.engine import registry
from smpc_dp.session import tasks
from tests.unit.kinds import Kinds, kinds_in
from tests.unit.test_layers import (
    FILES,
    MODULES,
    PACKAGE,
    facts_of,
    imports,
    imports_of,
    module_of,
    nodes_of,
    parsed,
)

# The capabilities, and of which others each may import.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "gopa": frozenset(),
    "learn": frozenset({"pairs", "reports"}),
    "pairs": frozenset(),
    "reports": frozenset({"pairs"}),
    "servers": frozenset({"pairs"}),
}
CAPABILITIES = frozenset(MAY_IMPORT)
ABOVE = frozenset({"__main__", "cli", "demo", "integrations", "public", "simulate", "sync"})
SOURCES = [file for file in FILES if file.is_relative_to(PACKAGE)]

# The modules that name types of all capabilities, and import them for type checkers alone: the public names,
# and in the core the types of the calls of `Session` and `serve`: users' checkers must know their fields.
PUBLIC, CALL_TYPES = "smpc_dp", "smpc_dp.session.call_types"
# Who has such calls, or passes on what they are given.
HAVE_CALLS = frozenset({"smpc_dp.session.aggregator", "smpc_dp.session.session", "smpc_dp.session.tasks"})
# Of a method of `Session`.
MOST_STATEMENTS = 8

# A class with such a name is of parameters, members or results; so is what sessions return, what is derived
# from one, and what stands in a union with one.
KIND = re.compile(r"(Parameters|Membership|Result)$")
SESSION = "smpc_dp.session.session"

# The capability or part of the core where names of protocols and tasks may be compared; `exchange` has none.
OWNERS: Mapping[str, str] = {"pairwise-statistic": "pairs"}
# Where all of them may be: the registry, and the objects that are registered.
REGISTRIES = frozenset(
    {
        "smpc_dp.console.schemas",
        "smpc_dp.session.tasks",
        "smpc_dp.engine.registry",
        "smpc_dp.engine.session_protocol",
        *registry.BUILT_IN.values(),
        *tasks.BUILT_IN.values(),
    }
)
PROTOCOLS = registry.RESERVED
TASKS = frozenset(tasks.BUILT_IN)


def part_of(module: str) -> str | None:
    """Return the capability, or the package or top module, that a module belongs to; None for others'."""
    match module.split("."):
        case ["smpc_dp"]:
            return "public"
        case ["smpc_dp", "capabilities", capability, *_]:
            return capability
        case ["smpc_dp", top, *_]:
            return top
    return None


def short(module: str) -> str:
    return module.removeprefix("smpc_dp.")


def is_forbidden(module: str, imported: str) -> bool:
    """Tell whether a module of the core or of a capability imports what it may not."""
    own, other = part_of(module), part_of(imported)
    if imported == CALL_TYPES:
        return module not in HAVE_CALLS
    if own == other or own in ABOVE:
        return False
    if other == "capabilities":
        return True
    if other in ABOVE or module == CALL_TYPES:
        return other in ABOVE
    return other in CAPABILITIES and other not in MAY_IMPORT.get(own or "", ())


def test_each_folder_of_a_capability_is_listed() -> None:
    folders = {part_of(name) for name in MODULES if name.startswith("smpc_dp.capabilities.")}
    assert folders == CAPABILITIES


@pytest.mark.parametrize("name", sorted(CAPABILITIES))
def test_a_capability_is_absent_with_those_that_it_builds_on(name: str) -> None:
    """Its package imports theirs, which have nothing else at their top."""
    assert {part_of(imported) for imported in loaded_by(f"smpc_dp.capabilities.{name}")} == MAY_IMPORT[name]


def test_capabilities_do_not_import_in_circles() -> None:
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()


def refuse(found: Iterable[str]) -> None:
    """Fail with a line for each thing that a rule finds."""
    result = sorted({*found})
    if result:
        pytest.fail("\n".join(["not allowed:", *result]))


def edges() -> set[tuple[str, str]]:
    """Return who imports whom, and which module names another one as text, to import it later."""
    result = {(module_of(file), imported) for file in SOURCES for imported, _ in imports_of(file)}
    for file in SOURCES:
        module = module_of(file)
        if module not in REGISTRIES:
            result |= {(module, named) for named, _ in facts_of(file).kinds.modules}
    return {(module, imported) for module, imported in result if imported in MODULES}


def test_the_core_imports_no_capability_and_these_only_what_is_listed() -> None:
    refuse(
        (
            f"{short(module)} -> {short(imported)}"
            for module, imported in edges()
            if is_forbidden(module, imported)
        )
    )


def test_names_of_capabilities_are_made_where_they_are_registered_or_looked_up() -> None:
    """A text that is made of the name of their package is no import that the rules see."""
    made = {module_of(file) for file in SOURCES if "CAPABILITIES" in file.read_text("utf-8")}
    assert made == {
        "smpc_dp.cli.commands",
        "smpc_dp.engine.registry",
        "smpc_dp.extensions",
        "smpc_dp.session.tasks",
    }


def test_each_listed_import_of_a_capability_is_needed() -> None:
    there = {(part_of(module), part_of(imported)) for module, imported in edges()}
    assert not [(own, other) for own in MAY_IMPORT for other in MAY_IMPORT[own] if (own, other) not in there]


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("smpc_dp.session.driver", "smpc_dp.capabilities.gopa.params"),
        ("smpc_dp.records.plan", "smpc_dp.capabilities.pairs.kernels.fields"),
        ("smpc_dp.crypto.prg", "smpc_dp.capabilities.gopa.capability"),
        ("smpc_dp.logs.log", "smpc_dp.cli.party"),
        ("smpc_dp.capabilities.gopa.states", "smpc_dp.capabilities.learn.sgd"),
        ("smpc_dp.capabilities.learn.sgd", "smpc_dp.capabilities.gopa.params"),
        ("smpc_dp.capabilities.pairs.kernels.fields", "smpc_dp.capabilities.servers.statistics.plan"),
        ("smpc_dp.capabilities.learn.sgd", "smpc_dp.simulate.average"),
        ("smpc_dp.capabilities.learn.sgd", "smpc_dp"),
        ("smpc_dp.session.driver", "smpc_dp.session.call_types"),
        ("smpc_dp.session.call_types", "smpc_dp.simulate.average"),
        ("smpc_dp.session.session", "smpc_dp.capabilities.learn.requirements"),
    ],
)
def test_the_rule_of_imports_refuses(module: str, imported: str) -> None:
    assert is_forbidden(module, imported)


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("smpc_dp.session.driver", "smpc_dp.engine.run"),
        ("smpc_dp.capabilities.learn.sgd", "smpc_dp.capabilities.pairs.kernels.named"),
        ("smpc_dp.capabilities.gopa.states", "smpc_dp.secagg.states"),
        ("smpc_dp.capabilities.servers.statistics.plan", "smpc_dp.capabilities.pairs.kernels.fields"),
        ("smpc_dp.cli.run", "smpc_dp.capabilities.learn.sgd"),
        ("smpc_dp.simulate.average", "smpc_dp.capabilities.gopa.params"),
        ("smpc_dp.session.session", "smpc_dp.session.call_types"),
        ("smpc_dp.session.call_types", "smpc_dp.capabilities.learn.requirements"),
    ],
)
def test_the_rule_of_imports_accepts(module: str, imported: str) -> None:
    assert not is_forbidden(module, imported)


def loaded_by(module: str) -> set[str]:
    """Return the modules that a file imports when a program runs, and not for type checkers alone."""
    [file] = (file for file in SOURCES if module_of(file) == module)
    tree = parsed(file)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return {imported for imported, _ in imports(ast.walk(tree), "smpc_dp")}


def test_the_public_names_of_capabilities_are_imported_for_types_alone() -> None:
    assert loaded_by(PUBLIC)
    assert not [imported for imported in loaded_by(PUBLIC) if part_of(imported) in CAPABILITIES | ABOVE]


def test_the_types_of_calls_are_for_type_checkers_alone() -> None:
    assert {part_of(imported) for module, imported in edges() if module == CALL_TYPES} == {
        "learn",
        "pairs",
        "reports",
    }
    assert loaded_by(CALL_TYPES) == {"__future__", "typing"}
    assert {module for module, imported in edges() if imported == CALL_TYPES} == HAVE_CALLS
    for module in HAVE_CALLS:
        assert CALL_TYPES not in loaded_by(module)


def test_methods_of_a_session_are_short() -> None:
    """A session asks the registered tasks: a method that decides by their kind itself would be longer."""
    tree = parsed(PACKAGE / f"{short(SESSION).replace('.', '/')}.py")
    [session] = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Session")
    methods = [node for node in session.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    # The first one is the method itself.
    lengths = {
        one.name: sum(isinstance(node, ast.stmt) for node in ast.walk(one)) - 1 - bool(ast.get_docstring(one))
        for one in methods
    }
    assert len(lengths) > 20
    assert {name: length for name, length in lengths.items() if length > MOST_STATEMENTS} == {}


@functools.cache
def kinds_of_all() -> Mapping[str, Kinds]:
    return {module_of(file): facts_of(file).kinds for file in SOURCES}


@functools.cache
def classes() -> frozenset[str]:
    """Return the classes of parameters, members and results."""
    bases = {name: found for kinds in kinds_of_all().values() for name, found in kinds.classes.items()}
    result = {name for name in bases if KIND.search(name)}
    aliases = aliases_of_all()
    returned = (one for name in kinds_of_all()[SESSION].returned for one in resolved(name, aliases))
    result |= {name for name in returned if name in bases}
    for name in aliases:
        union = resolved(name, aliases)
        if len(aliases[name]) > 1 and not result.isdisjoint(union):
            result |= {one for one in union if one in bases}
    grown = True
    while grown:
        derived = {
            name
            for name, found in bases.items()
            if any(not result.isdisjoint(resolved(base, aliases)) for base in found)
        }
        grown = not derived <= result
        result |= derived
    return frozenset(result)


def kinds_asked(
    kinds: Kinds, module: str, listed: frozenset[str], aliases: Mapping[str, tuple[str, ...]]
) -> Counter[str]:
    """Return the listed classes by which a module tests the kind of an object, outside their own part."""
    result: Counter[str] = Counter()
    for name, _ in kinds.tested:
        found = resolved(name, aliases)
        result.update(one for one in found if one in listed and part_of(one) != part_of(module))
    return result


def resolved(name: str, aliases: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a name with those that it stands for, in turn."""
    result = [name]
    for one in result:
        result += [other for other in aliases.get(one, ()) if other not in result]
    return result


@functools.cache
def aliases_of_all() -> Mapping[str, tuple[str, ...]]:
    return {name: several for kinds in kinds_of_all().values() for name, several in kinds.aliases.items()}


def test_nothing_asks_of_what_class_parameters_members_and_results_are() -> None:
    refuse(
        (
            f"{short(module)} {short(name)} {times}"
            for module, kinds in kinds_of_all().items()
            for name, times in kinds_asked(kinds, module, classes(), aliases_of_all()).items()
        )
    )


def test_the_classes_of_parameters_members_and_results_are_found() -> None:
    assert classes() >= {
        "smpc_dp.capabilities.learn.registry.LearnParameters",
        "smpc_dp.capabilities.learn.requirements.Learned",
        "smpc_dp.session.member.Membership",
        "smpc_dp.capabilities.pairs.garbled.evaluation.Evaluation",
        "smpc_dp.capabilities.gopa.records.DirectRecordParameters",
        "smpc_dp.records.record_result.RecordResult",
        "smpc_dp.engine.result.Result",
        "smpc_dp.capabilities.reports.report_parameters.ReportParameters",
    }


def kinds_of(code: str, module: str = "smpc_dp.session.example") -> Kinds:
    return kinds_in(nodes_of(ast.parse(code)), module)


IMPORTED = """
import smpc_dp
from smpc_dp.capabilities.learn import registry
from smpc_dp.capabilities.learn.registry import LearnParameters
from smpc_dp.capabilities.gopa.params import GopaParameters as Given
BOTH = (Given, LearnParameters)
"""


def found_in(code: str, module: str) -> Counter[str]:
    kinds = kinds_of(IMPORTED + code, module)
    return kinds_asked(kinds, module, classes(), {**aliases_of_all(), **kinds.aliases})


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(x, LearnParameters)",
        "isinstance(x, registry.LearnParameters)",
        "isinstance(x, int | LearnParameters)",
        "isinstance(x, (int, Given))",
        "isinstance(x, BOTH)",
        "isinstance(x, smpc_dp.Result)",
        "def function(x):\n    return not isinstance(x, Given)",
        "issubclass(x, Given)",
        "type(x) is Given",
        "type(x) == registry.LearnParameters",
        "Given == type(x)",
        "type(x) in (int, Given)",
        "type(x) in BOTH",
        "x.__class__ is not Given",
        "match x:\n    case Given():\n        pass",
        "match x:\n    case [int(), Given(n=1) | registry.LearnParameters()]:\n        pass",
        "match type(x):\n    case registry.LearnParameters:\n        pass",
        "isinstance(x, (*BOTH, int))",
        "isinstance(x, tuple([Given]))",
        "isinstance(x, Given if y else int)",
        "{Given: 1}[type(x)]",
        "{Given: 1}.get(type(x), 2)",
    ],
)
def test_the_rule_of_kinds_refuses(code: str) -> None:
    assert found_in(code, "smpc_dp.session.example")


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("isinstance(x, int)", "smpc_dp.session.tasks"),
        ("match x:\n    case int():\n        pass", "smpc_dp.session.tasks"),
        ("x = Given(1)", "smpc_dp.session.tasks"),
        ("x == Given.protocol", "smpc_dp.session.tasks"),
        (
            "class LearnParameters:\n    x: Given\nisinstance(x, other.LearnParameters)",
            "smpc_dp.session.tasks",
        ),
        ("type(x) is type(y)", "smpc_dp.session.tasks"),
        ("isinstance(x, Given)", "smpc_dp.capabilities.gopa.example"),
        ("isinstance(x, LearnParameters)", "smpc_dp.capabilities.learn.example"),
    ],
)
def test_the_rule_of_kinds_accepts(code: str, module: str) -> None:
    assert not found_in(code, module)


def owner_of(name: str) -> str | None:
    """Return the part in which the name of a protocol or task may be compared; None if there is none."""
    home = registry.BUILT_IN.get(name) or tasks.BUILT_IN.get(name)
    part = OWNERS.get(name) if home is None else part_of(home)
    return None if part == "session" else part


def compared(
    kinds: Kinds, module: str, constants: Mapping[str, str], aliases: Mapping[str, tuple[str, ...]]
) -> Counter[str]:
    """Return the names of protocols and tasks that a module compares, though another part owns them.

    Names of tasks are words of other subjects too: they count where a task is asked.
    """
    result: Counter[str] = Counter()
    for one in kinds.compared:
        texts = (
            [one.text] if one.is_text else [constants.get(name, "") for name in resolved(one.text, aliases)]
        )
        for text in texts:
            counts = text in PROTOCOLS or (text in TASKS and not one.is_looked_for and "task" in one.other)
            if counts and module not in REGISTRIES and owner_of(text) != part_of(module):
                result[text] += 1
    return result


@functools.cache
def constants_of_all() -> Mapping[str, str]:
    return {name: text for kinds in kinds_of_all().values() for name, text in kinds.constants.items()}


def test_nothing_compares_the_name_of_a_protocol_or_task() -> None:
    refuse(
        (
            f"{short(module)} {name} {times}"
            for module, kinds in kinds_of_all().items()
            for name, times in compared(kinds, module, constants_of_all(), aliases_of_all()).items()
        )
    )


def named_in(code: str, module: str) -> Counter[str]:
    imported = (
        "from smpc_dp.capabilities.gopa import versions\n"
        "from smpc_dp.capabilities.gopa.params import GopaParameters\n"
        "from smpc_dp.capabilities.gopa.versions import GOPA\n"
        "OWN = 'mpyc'\n"
    )
    kinds = kinds_of(imported + code, module)
    return compared(
        kinds, module, {**constants_of_all(), **kinds.constants}, {**aliases_of_all(), **kinds.aliases}
    )


@pytest.mark.parametrize(
    "code",
    [
        "session.protocol == 'gopa'",
        "'gopa' != session.protocol",
        "session.protocol in ('secagg', 'reports')",
        "session.protocol not in {'gopa'}",
        "session.protocol in frozenset(['gopa'])",
        "(session.protocol, session.version) == ('gopa', 2)",
        "session.protocol == GOPA",
        "session.protocol == versions.GOPA",
        "session.protocol == GopaParameters.protocol",
        "session.protocol == OWN",
        "1 < len(x) == 'pairwise-statistic'",
        "'learn' in protocols",
        "match session.protocol:\n    case 'gopa':\n        pass",
        "match session.protocol, 1:\n    case 'x' | 'learn', _:\n        pass",
        "task_of(session).name == 'learner'",
        "self.task in ('vector', 'records')",
        "match task:\n    case 'report':\n        pass",
        "session.protocol in {'gopa': 1}",
        "session.protocol in ('a', *('gopa',))",
        "session.protocol.startswith('gopa')",
        "{'gopa': 1}[session.protocol]",
        "{'gopa': 1}.get(session.protocol)",
    ],
)
def test_the_rule_of_names_refuses(code: str) -> None:
    assert named_in(code, "smpc_dp.session.example")


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("session.protocol == other.protocol", "smpc_dp.session.example"),
        ("session.protocol == 'unanimous'", "smpc_dp.session.example"),
        ("make(protocol='gopa')", "smpc_dp.session.example"),
        ("FOLDERS['gopa']", "smpc_dp.session.example"),
        ("'records' in parameters", "smpc_dp.session.example"),
        ("'learner' in task.parameters", "smpc_dp.session.example"),
        ("terms.kind == 'pairs'", "smpc_dp.session.example"),
        ("method == 'gopa'", "smpc_dp.capabilities.gopa.example"),
        ("method == 'gopa'", "smpc_dp.engine.registry"),
        ("task_of(session).name == 'records'", "smpc_dp.records.example"),
        ("_averager(parameters).get('method') == 'mpyc'", "smpc_dp.capabilities.learn.capability"),
    ],
)
def test_the_rule_of_names_accepts(code: str, module: str) -> None:
    assert not named_in(code, module)


def test_no_module_of_the_session_compares_the_name_of_the_exchange() -> None:
    assert named_in("parameters.protocol == 'exchange'", "smpc_dp.session.session")


def test_what_a_rule_finds_is_shown() -> None:
    refuse([])
    with pytest.raises(pytest.fail.Exception, match="not allowed:\na\nb"):
        refuse(["b", "a"])
