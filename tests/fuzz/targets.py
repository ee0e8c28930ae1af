"""All fuzz targets, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzz import audits, files, logs, messages, results, states
from tests.fuzz.target import Target

TARGETS: Mapping[str, Target] = {
    target.name: target
    for part in (messages, files, logs, states, audits, results)
    for target in part.targets()
}
