"""All fuzz targets, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzz import audits, evaluations, files, logs, messages, questions, results, states
from tests.fuzz.target import Target

TARGETS: Mapping[str, Target] = {
    target.name: target
    for part in (messages, files, logs, states, audits, results, questions, evaluations)
    for target in part.targets()
}
