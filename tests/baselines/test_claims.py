"""What sessions claim, assume and do not protect is what is stored, in its order."""

from __future__ import annotations

import json

from tests.baselines.claims import FILE, all_claims


def test_claims_assumptions_and_limits_are_those_that_are_stored() -> None:
    """In their order, sentence by sentence; `python -m tests.baselines claims` writes them anew."""
    stored, made = json.loads(FILE.read_text("utf-8")), all_claims()
    assert [*made] == [*stored]
    for name, stated in made.items():
        assert stated == stored[name], name
