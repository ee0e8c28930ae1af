"""Codes of errors: a closed list, each raised somewhere, each site with one of them, and kept when saved."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smpc_dp
from smpc_dp.engine.saved_inbox import SavedError
from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    PeerFault,
    SmpcError,
    VerificationError,
    check_of,
)
from tests.unit.checks import SLOTS, Checks, name_of
from tests.unit.test_layers import FILES, PACKAGE, facts_of

# A member, in one or in the other case, or the check of another error that is passed on.
MEMBER = r"(Config)?Check\.[A-Z_]+"
ALLOWED = re.compile(
    rf"{MEMBER}|{MEMBER} if \w+ else {MEMBER}|(\w+\.)?check|check_of\(error, {MEMBER}\)|CHECKS\[kind\]"
    r"|_check_of\(field\.type, given\[key\]\)"
)


def sources() -> Iterator[tuple[Path, Checks]]:
    for path in FILES:
        if path.is_relative_to(PACKAGE):
            yield path, facts_of(path).checks


def test_every_site_names_its_check() -> None:
    sites = 0
    for path, checks in sources():
        for node in checks.calls:
            if name_of(node) == "fault" and len(node.args) == 1:
                # A log's reader: an error about the line that was read last.
                continue
            index = SLOTS[name_of(node)]
            given_ = [keyword.value for keyword in node.keywords if keyword.arg == "check"]
            [check] = given_ or node.args[index : index + 1] or [ast.Constant(None)]
            assert ALLOWED.fullmatch(ast.unparse(check)), f"{path}:{node.lineno}"
            sites += 1
    assert sites > 1100


@pytest.mark.parametrize("codes", [Check, ConfigCheck], ids=lambda codes: codes.__name__)
def test_every_code_is_given_somewhere(codes: type[Check | ConfigCheck]) -> None:
    used = {
        attribute
        for path, checks in sources()
        for name, attribute in checks.attributes
        if path.name != "errors.py" and name == codes.__name__
    }
    assert used == {member.name for member in codes}


@pytest.mark.parametrize("codes", [Check, ConfigCheck], ids=lambda codes: codes.__name__)
def test_codes_are_spelt_alike_and_say_what_they_mean(codes: type[Check | ConfigCheck]) -> None:
    for member in codes:
        assert member.value == member.name.lower().replace("_", "-")
        assert re.fullmatch(r"[a-z][^|.]*[a-z]", member.meaning)
    assert len({member.meaning for member in codes}) == len(codes)


texts = st.text(max_size=20)


@given(st.builds(PeerFault, texts, texts, st.sampled_from(Check), accuser=texts, code=st.sampled_from(Code)))
def test_the_check_of_a_fault_survives_saving(fault: PeerFault) -> None:
    saved = msgspec.msgpack.encode(SavedError.of(fault))
    again = msgspec.msgpack.decode(saved, type=SavedError).error()
    assert type(again) is PeerFault
    assert vars(again) == vars(fault)


@given(st.builds(VerificationError, texts, st.sampled_from(Check)))
def test_the_check_of_evidence_survives_saving(error: VerificationError) -> None:
    saved = msgspec.msgpack.encode(SavedError.of(error))
    again = msgspec.msgpack.decode(saved, type=SavedError).error()
    assert type(again) is VerificationError
    assert (str(again), vars(again)) == (str(error), vars(error))


@pytest.mark.parametrize("check", [None, "no-such-check"])
def test_a_saved_fault_without_one_of_the_checks_is_none(check: str | None) -> None:
    saved = msgspec.to_builtins(SavedError.of(PeerFault("bob", "lied", Check.REPORTED)))
    saved[3] = check
    with pytest.raises(ValueError, match=r"error|check"):
        msgspec.convert(saved, SavedError).error()


def test_an_error_without_a_check_has_the_one_that_is_given() -> None:
    assert check_of(SmpcError("full disk"), Check.MALFORMED) == Check.MALFORMED
    assert check_of(PeerFault("bob", "lied", Check.REPORTED), Check.MALFORMED) == Check.REPORTED


def test_a_configuration_that_is_wrong_in_one_way_has_one_fault() -> None:
    error = ConfigError("count must be 1 or more, is 0", ConfigCheck.RANGE)
    [fault] = error.issues
    assert (fault.where, fault.reason, fault.check) == ("", str(error), ConfigCheck.RANGE)


def test_a_check_is_its_text() -> None:
    assert smpc_dp.Check("equivocation") is Check.EQUIVOCATION
    assert str(Check.EQUIVOCATION) == "equivocation"
