"""Where code raises errors with a check, from the nodes of its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

# Where the check stands among the arguments.
SLOTS = {
    "PeerFault": 2,
    "VerificationError": 1,
    "refuse": 1,
    "ConfigIssue": 2,
    "ConfigError.at": 2,
    "add_issue": 2,
    "fault": 2,
}


class Checks(NamedTuple):
    """What a file says of checks: calls that have a slot for one, and names with their attributes."""

    calls: list[ast.Call]
    attributes: frozenset[tuple[str, str]]


def name_of(call: ast.Call) -> str:
    """Return the name of the function that is called, with its class if it is one of SLOTS."""
    match call.func:
        case ast.Attribute(ast.Name("ConfigError"), attr="at"):
            return "ConfigError.at"
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""


def checks_in(nodes: Iterable[ast.AST]) -> Checks:
    """Return what the nodes of a file say of checks."""
    calls, attributes = [], set()
    for node in nodes:
        if isinstance(node, ast.Call) and name_of(node) in SLOTS:
            calls.append(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.add((node.value.id, node.attr))
    return Checks(calls, frozenset(attributes))
