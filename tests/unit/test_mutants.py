"""The list of mutants: every one of them applies to the code as it is. `make mutants` runs them."""

from __future__ import annotations

import pytest

from tests.mutants.mutant import ROOT, Mutant, load

MUTANTS = load()


def test_there_are_enough_with_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_changes_something(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text("utf-8")
    assert mutant.apply(text) != text


def test_a_mutant_that_applies_twice_or_not_at_all_is_refused() -> None:
    text = "def one():\n    return 1 + 1\n\n\ndef two():\n    return 2\n"
    twice = Mutant("twice", "a.py", "one", "1", "2", ())
    absent = Mutant("absent", "a.py", "two", "1", "2", ())
    nowhere = Mutant("nowhere", "a.py", "three", "1", "2", ())
    for mutant in (twice, absent, nowhere):
        with pytest.raises(ValueError, match=r"times|no one"):
            mutant.apply(text)
    assert Mutant("fine", "a.py", "two", "2", "3", ()).apply(text).endswith("return 3\n")
