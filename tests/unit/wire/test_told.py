"""What may be told of an error: the closed list of codes, and that no message has room for a text."""

from __future__ import annotations

import importlib
import pkgutil
import re
import typing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import smpc_dp.capabilities
import smpc_dp.engine
import smpc_dp.logs
import smpc_dp.secagg
import smpc_dp.session
import smpc_dp.transport
import smpc_dp.wire
from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    LocalError,
    PeerFault,
    PrivacyError,
    SmpcError,
    TimeoutFault,
    VerificationError,
)
from smpc_dp.wire.abort import BLAMES, LACKS, TEXTS, Abort, abort_of, error_of, leave_of
from smpc_dp.wire.signing import Context, decode, encode

ROOT = Path(__file__).resolve().parents[3]
OWN_WORDS = "canary 4711.25 /home/canary/bob.ledger"
CONTEXT = Context("secagg", 2, bytes(32), 1, ("ann", "ben", "cem"), "hub", {})

# The fields of text that messages have, each with what bounds what it may say.
TEXT_FIELDS = {
    "Abort.culprit": "a name of the roster",
    "Abort.missing": "names of the roster, with a code each",
    "Abort.step": "a pattern without blanks",
    "Envelope.step": "signed, and must be the step that is due",
    "Envelope.sender": "a name of the roster",
    "Envelope.receiver": "a name of the roster",
    "Greeting.protocol": "must be the one that the receiver speaks",
    "Greeting.name": "a name of the roster",
    "Greeting.to": "a name of the roster",
    "Inquiry.protocol": "must be the one that the receiver speaks",
    "Inquiry.name": "a name of the roster",
    "Inquiry.to": "a name of the roster",
    "Answer.name": "a name of the roster",
    "Welcome.name": "a name of the roster",
    "Witness.step": "must be a step of the protocol",
    "Output.values": "integers in decimal",
    "Hello.operation": "what is asked for, a label included, which everybody may read",
}


def structs() -> set[type[msgspec.Struct]]:
    """Return every struct that is sent: those of the modules that hold messages."""
    result: set[type[msgspec.Struct]] = set()
    for package in (
        smpc_dp.wire,
        smpc_dp.engine,
        smpc_dp.secagg,
        smpc_dp.session,
        smpc_dp.logs,
        smpc_dp.capabilities,
        smpc_dp.transport,
    ):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith(("messages", ".abort", ".envelope", ".handshake", ".relay")):
                continue
            module = importlib.import_module(info.name)
            result |= {
                each
                for each in vars(module).values()
                if isinstance(each, type)
                and issubclass(each, msgspec.Struct)
                and each.__module__ == info.name
            }
    return result


def has_text(kind: object) -> bool:
    """Tell whether a field of this type may hold a text that is not of a closed list."""
    if typing.get_origin(kind) is typing.Literal:
        return False
    return kind is str or any(map(has_text, typing.get_args(kind)))


def test_no_message_has_room_for_a_text_but_where_it_is_public() -> None:
    result = {
        f"{struct.__name__}.{name}"
        for struct in structs()
        for name, kind in typing.get_type_hints(struct).items()
        if has_text(kind)
    }
    assert "Abort.step" in result
    extra = {field for field in result if not any(field.startswith(known) for known in TEXT_FIELDS)}
    assert not extra


def test_documents_list_exactly_the_codes() -> None:
    document = (ROOT / "protocols" / "channel" / "README.md").read_text()
    [table] = re.findall(r"\| code \| says \|\n\|---\|---\|\n((?:\|.*\n)+)", document)
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == [str(code) for code in Code]
    assert set(TEXTS) == set(Code)
    assert not BLAMES & LACKS


OWN: list[SmpcError] = [
    ConfigError.at("weight", OWN_WORDS, ConfigCheck.RANGE),
    ConfigError(OWN_WORDS, ConfigCheck.FORMAT),
    LocalError(OWN_WORDS),
    PrivacyError(OWN_WORDS),
    SmpcError(OWN_WORDS),
]


def test_whatever_is_wrong_with_own_data_is_told_by_the_same_bytes() -> None:
    assert {encode(abort_of(error)) for error in OWN} == {encode(Abort(Code.OWN))}


@pytest.mark.parametrize(
    "error",
    [
        *OWN,
        PrivacyError(OWN_WORDS, code=Code.NEIGHBOURHOOD),
        ConfigError(OWN_WORDS, ConfigCheck.INFEASIBLE, code=Code.IMPOSSIBLE),
        VerificationError(OWN_WORDS, Check.LOG_CUT),
        PeerFault("ben", OWN_WORDS, Check.MALFORMED, {"signed": OWN_WORDS.encode()}),
        PeerFault("ben", OWN_WORDS, Check.OTHER_OPERATION, code=Code.OPERATION),
        TimeoutFault({"ben", "cem"}, "masked", OWN_WORDS),
        TimeoutFault({"ben", "cem"}, "masked", OWN_WORDS, code=Code.FEW, why={"ben": Code.OWN}, number=3),
    ],
    ids=lambda error: f"{type(error).__name__}-{error.code}",
)
def test_an_errors_text_stays_and_its_kind_arrives(error: SmpcError) -> None:
    body = encode(abort_of(error))
    assert not [word for word in OWN_WORDS.split() if word.encode() in body]
    abort = decode(body, Abort, "hub")
    assert abort.is_sound
    arrived = error_of(abort, CONTEXT)
    assert "malformed" not in str(arrived)
    if isinstance(error, PeerFault | TimeoutFault | VerificationError):
        assert type(arrived) is type(error)
        # What another has said is not passed on as an observation; who is missing is.
        passed_on = body if isinstance(error, TimeoutFault) else encode(Abort(Code.STOPPED))
        assert encode(abort_of(arrived)) == passed_on
    else:
        assert isinstance(arrived, PeerFault)
        assert arrived.culprit == "hub"
    left = leave_of(abort, "ann", "masked", CONTEXT)
    assert left.code == Code.LEFT
    reported = {Code.OWN: Code.OWN, Code.NEIGHBOURHOOD: Code.NEIGHBOURHOOD}.get(error.code, Code.LEFT)
    assert left.why == {"ann": reported}


def test_another_operation_is_said_with_the_own_one() -> None:
    error = PeerFault("ben", OWN_WORDS, Check.OTHER_OPERATION, code=Code.OPERATION)
    arrived = str(error_of(abort_of(error), replace(CONTEXT, operation="sum 'height'")))
    assert arrived == f"ben: {TEXTS[Code.OPERATION]}: this party asks \"sum 'height'\" (said by hub)"


def test_what_is_told_of_several_is_said_of_each() -> None:
    error = TimeoutFault({"ben", "cem"}, "masked", code=Code.FEW, why={"ben": Code.OWN}, number=3)
    arrived = str(error_of(abort_of(error), CONTEXT))
    assert arrived == (
        "missing in step 'masked': ben, cem (fewer are left than are needed (3); "
        f"ben: {TEXTS[Code.OWN]}; said by hub)"
    )


def test_what_is_told_without_a_step_names_none() -> None:
    error = TimeoutFault({"ben"}, "", code=Code.BEGUN, number=3)
    arrived = error_of(abort_of(error), CONTEXT)
    assert str(arrived) == "missing: ben (the run has begun without it (request 3); said by hub)"
