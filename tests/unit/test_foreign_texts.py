"""Texts of others on their way to a person: each is one bounded, printable line."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import json
import logging
import pkgutil
import sys
import typing
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect as shapes

import smpc_dp
from smpc_dp.cli.logs import LineFormatter
from smpc_dp.console.output import print_json, report_error, report_line
from smpc_dp.decoding import decode_json
from smpc_dp.errors import (
    MOST_ERROR,
    MOST_REASON,
    MOST_TEXT,
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    ConfigIssue,
    PeerFault,
    SmpcError,
    TimeoutFault,
    VerificationError,
    printable,
)
from smpc_dp.report.pages import visible
from smpc_dp.session.events import Event, with_logging
from smpc_dp.session.launcher import ProcessOutcome, print_event
from smpc_dp.wire.signing import decode
from smpc_dp_verify.__main__ import _text
from smpc_dp_verify.answers import Answer
from smpc_dp_verify.errors import LONGEST_TEXT, Refused
from smpc_dp_verify.verify import Opinion

# NUL, a line of its own, what a terminal obeys (ESC, CSI in one byte, OSC), all ends of lines that Python and
# browsers know, marks that turn the direction of reading, what is not seen, and a lone surrogate.
ODD = (
    "a\0b\r\n2026-11-28 12:00:00 INFO forged\x1b[2J\x1b]0;title\x07\x9b31m\x85\u2028\u2029\x0b\x0c"
    "\u202e\u2066\u200e\ufeff\U000e0001\x7f\x08\ud800"
)
# MessagePack and JSON carry no lone surrogate: a message with one is malformed.
CARRIED = ODD.removesuffix("\ud800")
LONG = "A" * (1 << 20)
TEXTS = (ODD, LONG, ODD + LONG + ODD, ODD * 50_000)


def is_line(text: str, most: int) -> bool:
    """Tell whether a text is one line that a terminal only shows, and bounded."""
    return text.isprintable() and len(text.splitlines()) <= 1 and len(text) <= most


# What makes a text printable


@given(st.text(max_size=300), st.integers(20, 100))
def test_a_printable_text_is_a_bounded_line_that_stays_as_it_is(text: str, most: int) -> None:
    shown = printable(text, most)
    assert is_line(shown, most)
    assert printable(shown, most) == shown
    if text.isprintable() and len(text) <= most:
        assert shown == text


def test_what_is_not_printable_is_escaped_and_the_middle_of_a_long_text_left_out() -> None:
    assert printable("a\n\x1b[2J\u202e\ud800é株") == r"a\n\x1b[2J\u202e\ud800é株"
    shown = printable(f"sent '{LONG}' where 'hello' is due")
    assert len(shown) == MOST_TEXT
    assert shown.startswith("sent 'AAA")
    assert shown.endswith("AAA' where 'hello' is due")


# Errors


def error_classes(base: type[SmpcError] = SmpcError) -> Iterator[type[SmpcError]]:
    """Yield every class of errors of the package."""
    yield base
    for kind in base.__subclasses__():
        if kind.__module__.startswith("smpc_dp."):
            yield from error_classes(kind)


def made(kind: type[SmpcError], text: str) -> SmpcError:
    """Return an error with `text` wherever its constructor takes a text."""
    known: dict[str, Any] = {
        "issues": [ConfigIssue(text, text, ConfigCheck.FORMAT)] * 3,
        "missing": {text},
        "asked_label": text,
        "check": Check.MALFORMED,
        "code": Code.FAULT,
        "error": VerificationError(text, Check.MALFORMED),
    }
    given_ = {
        each.name: known.get(each.name, text if each.annotation == "str" else ())
        for each in inspect.signature(kind).parameters.values()
    }
    return kind(**given_)


def import_all() -> None:
    """Import the packages that read what others send."""
    for package in ("wire", "engine", "secagg", "session", "transport", "logs", "capabilities", "identity"):
        importlib.import_module(f"smpc_dp.{package}")
        for info in pkgutil.walk_packages([f"{smpc_dp.__path__[0]}/{package}"], f"smpc_dp.{package}."):
            importlib.import_module(info.name)


@pytest.mark.parametrize("text", TEXTS, ids=["odd", "long", "both", "much"])
def test_every_error_is_a_line_whatever_its_text(text: str) -> None:
    import_all()
    kinds = set(error_classes())
    assert len(kinds) >= 12
    for kind in kinds:
        error = made(kind, text)
        assert is_line(str(error), MOST_ERROR), kind
        for name, value in vars(error).items():
            assert not isinstance(value, str) or is_line(value, MOST_ERROR), (kind, name)
        for issue in getattr(error, "issues", ()):
            assert is_line(str(issue), MOST_ERROR)


# Messages


def structs() -> list[type[msgspec.Struct]]:
    """Return every struct: those of messages, logs, receipts, reports and operations among them."""
    import_all()
    found: set[type[msgspec.Struct]] = set()
    todo: list[type[msgspec.Struct]] = [msgspec.Struct]
    while todo:
        for kind in todo.pop().__subclasses__():
            if kind.__module__.startswith("smpc_dp."):
                found.add(kind)
            todo.append(kind)
    return sorted(found, key=lambda kind: (kind.__module__, kind.__qualname__))


def encoded(value: object) -> bytes:
    """Encode in MessagePack, by hand: texts may hold lone surrogates."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case str():
            content = value.encode("utf-8", "surrogatepass")
            return b"\xdb" + len(content).to_bytes(4, "big") + content
        case list():
            return b"\xdd" + len(value).to_bytes(4, "big") + b"".join(map(encoded, value))
        case dict():
            parts = [encoded(part) for pair in value.items() for part in pair]
            return b"\xdf" + len(value).to_bytes(4, "big") + b"".join(parts)
    return msgspec.msgpack.encode(value)


def sample(kind: shapes.Type, depth: int = 0) -> Any:
    """Return a value of a type, as plain data; a guess where a type has a pattern."""
    match kind:
        case shapes.IntType():
            return max(kind.ge or 0, 0)
        case shapes.BytesType():
            return bytes(kind.min_length or 0)
        case shapes.StrType():
            return "a" * (kind.min_length or 0)
        case shapes.UnionType():
            return None if kind.includes_none else sample(kind.types[0], depth)
        case shapes.StructType():
            return fields_of(kind, depth + 1)
        case shapes.LiteralType() | shapes.EnumType():
            return kind.values[0] if isinstance(kind, shapes.LiteralType) else next(iter(kind.cls)).value
    return sample_of_items(kind, depth)


def sample_of_items(kind: shapes.Type, depth: int) -> Any:
    """Return a value of a type with items, or of a simple one."""
    match kind:
        case shapes.TupleType():
            return [sample(each, depth + 1) for each in kind.item_types]
        case shapes.ListType() | shapes.VarTupleType() | shapes.SetType() | shapes.FrozenSetType():
            return [sample(kind.item_type, depth + 1) for _ in range((kind.min_length or 0) * (depth < 5))]
        case shapes.DictType():
            return {}
    return {shapes.FloatType: 1.0, shapes.BoolType: False}.get(type(kind))


def fields_of(kind: shapes.StructType, depth: int = 0) -> Any:
    """Return the fields of a struct as it travels: an array, or an object."""
    tag = [] if kind.tag is None else [kind.tag]
    if kind.array_like:
        return [*tag, *(sample(field.type, depth) for field in kind.fields)]
    head = {kind.tag_field: kind.tag} if kind.tag_field else {}
    return head | {field.encode_name: sample(field.type, depth) for field in kind.fields}


def spoiled(fields: Any, text: str) -> Iterator[Any]:
    """Yield fields with `text` in the place of each one, within it, as a key, and as one more."""
    if isinstance(fields, list):
        for index in range(len(fields)):
            for value in (text, [text], [[text, text]], {text: text}):
                yield [*fields[:index], value, *fields[index + 1 :]]
        yield [*fields, text]
    else:
        for key in fields:
            for value in (text, [text], {text: text}):
                yield fields | {key: value}
        yield fields | {text: text}
    yield text


def shapes_of_structs() -> Iterator[tuple[type[msgspec.Struct], Any]]:
    """Yield every struct that msgspec can decode, with fields that fit it."""
    for kind in structs():
        with contextlib.suppress(TypeError, NameError):
            shape = shapes.type_info(kind)
            assert isinstance(shape, shapes.StructType)
            yield kind, fields_of(shape)


def refusal(kind: type[msgspec.Struct], content: bytes) -> PeerFault | None:
    """Return the fault of who sends this in the place of a message; None if it is one."""
    try:
        decode(content, kind, "p4")
    except PeerFault as fault:
        return fault
    return None


@pytest.mark.parametrize(
    "text",
    [ODD, CARRIED, LONG[: 1 << 16], pytest.param(LONG, marks=pytest.mark.long)],
    ids=["odd", "carried", "long", "longest"],
)
def test_no_field_of_a_message_makes_more_than_a_line_of_a_fault(text: str) -> None:
    """Wrong enumerated values, unknown fields and keys, patterns, lengths, bad UTF-8: msgspec quotes them."""
    tried = quoted = 0
    for kind, fields in shapes_of_structs():
        for index, changed in enumerate(spoiled(fields, text)):
            if len(text) > 1000 and index % 4:
                # Once in each field.
                continue
            tried += 1
            if fault := refusal(kind, encoded(changed)):
                assert is_line(fault.reason, MOST_REASON), kind
                assert is_line(str(fault), MOST_REASON + 4)
                quoted += "forged" in fault.reason or "AAA" in fault.reason
    assert tried > (400 if len(text) > 1000 else 2_000)
    # Some texts do get into a fault: the test sees them.
    assert quoted > 10 or text is ODD


def test_no_field_of_a_json_document_makes_more_than_a_line_of_an_error() -> None:
    quoted = 0
    for kind, fields in shapes_of_structs():
        for changed in spoiled(fields, CARRIED):
            try:
                decode_json(json.dumps(changed, default=str), kind)
            except (msgspec.MsgspecError, ValueError) as error:
                shown = str(VerificationError(f"no {kind.__name__}: {error}", Check.MALFORMED))
                quoted += "forged" in shown
                refused = is_line(shown, MOST_ERROR)
            else:
                refused = True
            assert refused, kind
    assert quoted > 10


# Where they are shown


def errors() -> list[SmpcError]:
    return [made(kind, text) for text in TEXTS for kind in set(error_classes())]


class Collects(logging.Handler):
    """A handler of an application: it writes messages as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def test_events_and_logs_of_them_are_lines() -> None:
    handler, lines = Collects(), Collects()
    lines.setFormatter(LineFormatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("smpc_dp.session")
    level = logger.level
    seen: list[Event] = []
    for each in (handler, lines):
        logger.addHandler(each)
    logger.setLevel(logging.DEBUG)
    try:
        watch = with_logging(seen.append)
        kinds = typing.get_args(typing.get_type_hints(Event)["kind"])
        for text in TEXTS:
            for kind in kinds:
                watch(Event("hub", kind, 1, text, 1, text, str(Code.FAULT)))
        for error in errors():
            watch(Event("hub", "failed", 1, "hello", 0, str(error), error.code))
            logger.warning("%s", error)
    finally:
        logger.setLevel(level)
        for each in (handler, lines):
            logger.removeHandler(each)
    assert len(handler.lines) > len(TEXTS) * 8
    for line in (*handler.lines, *lines.lines):
        assert is_line(line, MOST_ERROR + 1_000)
    for event in seen:
        assert is_line(event.detail, MOST_ERROR)
        assert is_line(event.step, MOST_TEXT)
        assert is_line(event.text, MOST_ERROR + MOST_TEXT)


def test_an_event_of_another_process_is_made_printable_too() -> None:
    raw = json.dumps(
        {"party": "hub", "kind": "failed", "step": "a\nb", "detail": "x\n\x1b[2J" + LONG}
    ).encode()
    event = msgspec.json.decode(raw, type=Event)
    assert is_line(event.detail, MOST_ERROR)
    assert event.step == r"a\nb"
    outcome = ProcessOutcome("hub", last=event)
    assert is_line(outcome.reason, 1_000)


def test_commands_print_lines() -> None:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        for error in errors():
            report_error(error)
            print_event(Event("hub", "failed", detail=str(error)))
            print_json({"faults": [str(error)]})
        for text in TEXTS:
            report_line(text)
            print_json({"faults": [text[:1000]], text[:100]: 1})
    assert sys.stdout is not out
    shown, told = out.getvalue().split("\n"), err.getvalue().split("\n")
    assert shown.pop() == told.pop() == ""
    assert all(is_line(line, 2 * MOST_ERROR) for line in (*shown, *told))
    # One line for each call, and each issue of a configuration.
    made_ = errors()
    issues = sum(len(error.issues) if isinstance(error, ConfigError) else 1 for error in made_)
    assert len(told) == issues + len(TEXTS)
    assert len(shown) == 2 * len(made_) + len(TEXTS)
    for line in shown:
        json.loads(line)


def test_pages_show_lines_of_their_own_alone() -> None:
    for text in TEXTS:
        shown = visible(text)
        assert all(is_line(line, 3_000) for line in shown.split("\n"))
        assert len(shown) < 10_000


def test_what_the_second_auditor_prints_is_lines_of_its_own_alone() -> None:
    for text in TEXTS:
        with pytest.raises(Refused) as caught:
            raise Refused(text)
        reason = str(caught.value)
        assert is_line(reason, LONGEST_TEXT)
        assert is_line(_text(Opinion(code=1, reason=reason, line=3)), LONGEST_TEXT + 100)
        held = Opinion(
            code=0,
            run_id="ab",
            session="cd",
            head="ef",
            answers=[Answer(text, [1.0], [2.0])],
            counted=["ann"],
        )
        lines = _text(held).split("\n")
        assert len(lines) == len(_text(msgspec_free(held)).split("\n"))
        assert all(is_line(line, LONGEST_TEXT + 100) for line in lines)


def msgspec_free(opinion: Opinion) -> Opinion:
    """Return an opinion with a plain name of its statistic."""
    import dataclasses

    return dataclasses.replace(opinion, answers=[Answer("mean(x)", [1.0], [2.0])])


def test_a_timeout_lists_names_of_any_kind_in_a_line() -> None:
    error = TimeoutFault({ODD, LONG, "bob"}, ODD, ODD)
    assert is_line(str(error), MOST_ERROR)
    assert "bob" in str(error) or LONG[:5] in str(error)
