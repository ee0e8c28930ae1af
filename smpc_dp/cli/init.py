"""`smpc-dp init`: the terms of a session from options and answers, or a whole session on this machine."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec
import typer

from smpc_dp.cli.init_terms import (
    PROTOCOL,
    SUM_IS_ASKED_FOR,
    Compute,
    Terms,
    at_option,
    check_setting,
    settings_of,
    shares_of,
)
from smpc_dp.cli.prompts import Prompts
from smpc_dp.console.output import console, print_note
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.files import write_file
from smpc_dp.identity.roster import is_name
from smpc_dp.records.published import KNOWN_NAMES, PublishedRange, published_range
from smpc_dp.records.schema import SchemaSettings
from smpc_dp.secagg.noisy import DEFAULT_STEPS
from smpc_dp.secagg.params import check_parameters
from smpc_dp.session.inputs import read_vector
from smpc_dp.session.local import create_local_session
from smpc_dp.session.planned import session_plan, tolerance_lines
from smpc_dp.session.session_file import SessionFile, load_session
from smpc_dp.session.terms import AGGREGATOR, check_new, write_new
from smpc_dp.values import parse_number

Kind = Literal["real", "integer"]

_DELTA = 1e-6
_DIGITS = re.compile("[+-]?[0-9]{1,40}")
_OF_VECTORS = "--kind --length --length-from --estimator --lower --upper --precision --public"
_OF_RECORDS = "--ask --column --max-rows --rows-expected"
_EXACT = "there is no default; results without differential privacy are asked for with --exact"
_PRIVATE = (
    "all members read the bounds, and a party's own least and greatest values are private; give numbers that "
    "are known without the data"
)
_OR_PUBLIC = ", or with --public a file of public values"


def init(
    compute: Annotated[Compute | None, typer.Option(help="What is computed.")] = None,
    parties: Annotated[str | None, typer.Option(help="Names of the parties, with commas between.")] = None,
    lost: Annotated[int | None, typer.Option(help="How many parties may be lost.")] = None,
    collude: Annotated[
        int | None, typer.Option(help="How many parties may collude with the aggregator.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Without differential privacy.")] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(help="With differential privacy: of a party, or of a record, in one request."),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Beside --epsilon.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Kind of the values of vectors; default real.")] = None,
    length: Annotated[int | None, typer.Option(help="Coordinates of a vector.")] = None,
    length_from: Annotated[
        Path | None, typer.Option(help="Suggest the length of the vector in this file; no value is used.")
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="Suggest the number of coefficients of this linear model of scikit-learn, such as Ridge."
        ),
    ] = None,
    features: Annotated[int | None, typer.Option(help="Columns of the rows of --estimator.")] = None,
    classes: Annotated[int | None, typer.Option(help="Classes of --estimator; default 2.")] = None,
    # As texts: a float does not have every integer of 64 bits.
    lower: Annotated[str | None, typer.Option(help="Least value of every coordinate.")] = None,
    upper: Annotated[str | None, typer.Option(help="Greatest value of every coordinate.")] = None,
    precision: Annotated[float | None, typer.Option(help="Step of a real value, at most.")] = None,
    public: Annotated[
        Path | None,
        typer.Option(help="Suggest length and bounds of the vector in this file, whose values are public."),
    ] = None,
    max_weight: Annotated[
        int | None, typer.Option(help="Of an average: largest secret weight of a party.")
    ] = None,
    ask: Annotated[
        list[str] | None, typer.Option(help="Of statistics: what is asked, such as 'mean(age)'.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Of statistics: NAME=LOWER:UPPER[:STEP], or NAME=VALUE,VALUE. A NAME as age or height_cm, "
            "alone, has published bounds."
        ),
    ] = None,
    max_rows: Annotated[int | None, typer.Option(help="Of statistics: most rows of a party.")] = None,
    rows_expected: Annotated[
        int | None, typer.Option(help="Of statistics: rows of all parties, to state errors beforehand.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File of the terms; never over an existing one; default terms.toml."),
    ] = None,
    local: Annotated[
        Path | None,
        typer.Option(help="For a trial, in place of --out: a new folder with the session and all its keys."),
    ] = None,
    example: Annotated[
        Literal["hospitals"] | None,
        typer.Option(help="Make a session that runs, with inputs, in a folder of this name or in --local."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take defaults, and ask only what has none.")] = False,
) -> None:
    """Write the terms of a session, or an example that runs.

    The terms have comments; `smpc-dp roster` adds the members. Asks on a terminal what no option says. Terms
    are checked as a session file is before anything is written.
    """
    given = {
        **{"--compute": compute, "--parties": parties, "--lost": lost, "--collude": collude},
        **{"--epsilon": epsilon, "--delta": delta, "--max-weight": max_weight},
        **{"--length": length, "--length-from": length_from, "--estimator": estimator},
        **{"--features": features, "--classes": classes, "--public": public},
        **{"--lower": lower, "--upper": upper, "--precision": precision},
        **{"--ask": "\n".join(ask or ()) or None, "--column": "\n".join(column or ()) or None},
        **{"--max-rows": max_rows, "--rows-expected": rows_expected},
        **{"--exact": exact or None, "--kind": kind, "--out": out},
    }
    prompts = Prompts(given, takes_defaults=yes)
    if example is not None:
        prompts.exclude(" ".join(given), f"is not for --example: '{example}' has terms of its own")
        _write_example(local or Path(example))
        return
    if local is not None:
        prompts.exclude("--out", "is not for --local: the session file is in that folder")
    out = out or Path("terms.toml")
    # Before the questions: their answers would be lost.
    if local is None:
        check_new(out)
    else:
        _check_new_folder(local)
    terms = _answered(prompts)
    session = terms.checked()
    if local is None:
        write_new(out, terms.text())
        entries = " ".join(f"{name}.toml" for name in (AGGREGATOR, *terms.parties))
        steps = [
            "each party, on its own host:  smpc-dp keygen NAME > NAME.toml",
            f"the aggregator, on its host:  smpc-dp keygen {AGGREGATOR} --role aggregator "
            f"--address HOST:PORT > {AGGREGATOR}.toml",
            f"one member, with all entries: smpc-dp roster {out} {entries} --out session.toml",
        ]
        if terms.compute == "sum":
            steps.append(f"then {SUM_IS_ASKED_FOR}")
        _print_plan(session, f"{out}: the terms, without members", steps)
        return
    path = _write_local(local, terms)
    operation = " --operation sum" if terms.compute == "sum" else ""
    files = f"{local}/inputs/NAME.{'csv' if terms.compute == 'statistics' else 'txt'}"
    steps = [f"an input of each party: {files}", f"then: smpc-dp run {path}{operation}"]
    _print_plan(session, f"{path}: a session with all keys on this machine, for a trial", steps)


def _answered(prompts: Prompts) -> Terms:
    """Return the session's terms from options and answers; ConfigError for missing or unfit options."""
    compute = prompts.needed("--compute", "What is computed", _compute, "average")
    names = prompts.needed("--parties", "Names of the parties, with commas between", _names)
    prompts.exclude(_OF_VECTORS if compute == "statistics" else _OF_RECORDS, f"is not for '{compute}'")
    if compute != "average":
        prompts.exclude("--max-weight", f"is not for '{compute}'")
    default_lost, default_colluding = _tolerated(len(names))

    def lost_of(text: str) -> int:
        _tolerated(len(names), (number := _whole(text), 0))
        return number

    lost = prompts.answer("--lost", "How many parties may be lost", lost_of, default_lost)

    def colluding_of(text: str) -> int:
        _tolerated(len(names), (lost or 0, number := _whole(text)))
        return number

    text = "How many parties may collude with the aggregator"
    colluding = prompts.answer("--collude", text, colluding_of, default_colluding)
    privacy = _privacy(prompts, compute)
    asked = _records(prompts) if compute == "statistics" else _vectors(prompts, exact=not privacy)
    prompts.raise_missing()
    return Terms(compute, names, lost or 0, colluding or 0, asked | privacy)


def _tolerated(parties: int, counts: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return (parties that may be lost, that may collude), checked or by default; ConfigError if too many.

    `counts`: how many; without it, as many as where a session file does not say it. Raises ConfigError for
    more than a plan permits.
    """
    parameters: dict[str, object] = {"length": 1, "lower": 0, "upper": 1, "kind": "integer"}
    if counts is not None:
        parameters |= shares_of(*counts, parties)
    checked, issues = check_parameters(parameters, parties)
    if checked is None and counts is not None:
        given = f"{counts[0]} of {parties} parties lost, {counts[1]} colluding"
        raise ConfigError(issue._replace(reason=f"{given}: {issue.reason}") for issue in issues)
    if checked is None:
        raise ConfigError(map(at_option, issues))
    _, lost, colluding = checked.tolerated
    return lost, colluding


def _privacy(prompts: Prompts, compute: Compute) -> dict[str, object]:
    """Ask for epsilon and delta, and return them as parameters; an empty dictionary for exact results."""
    settings = settings_of(compute)
    number = partial(_setting, settings, "epsilon")
    exact = prompts.given("--exact") is not None
    if compute == "statistics":
        prompts.exclude("--exact", "is not for 'statistics', which have differential privacy always")
        epsilon: object = prompts.answer("--epsilon", "Epsilon", number)
        return {"epsilon": epsilon, "delta": _delta(prompts, settings)}

    def epsilon_of(text: str) -> object:
        return text if text == "none" else number(text)

    if not exact:
        epsilon = prompts.answer("--epsilon", "Epsilon, or none for exact results", epsilon_of, why=_EXACT)
        exact = epsilon == "none"
    if exact:
        prompts.exclude("--epsilon --delta", "is not for exact results")
        return {}
    return {"epsilon": epsilon, "delta": _delta(prompts, settings)}


def _delta(prompts: Prompts, settings: type[msgspec.Struct]) -> object:
    """Ask for delta, check it by the rules of the protocol's settings, and return it."""
    return prompts.answer("--delta", "Delta", partial(_setting, settings, "delta"), _DELTA)


def _vectors(prompts: Prompts, *, exact: bool) -> dict[str, object]:
    """Ask for the settings of sums of vectors (length, bounds, precision), and return them."""
    kind = prompts.given("--kind") or "real"
    number = partial(_setting, settings_of("sum"))
    counted, low, high = _suggested(prompts)
    length = prompts.answer("--length", "Coordinates of a vector", partial(number, "length"), counted)
    bound = _number if kind == "real" else _whole
    lower = prompts.answer("--lower", "Least value of every coordinate", bound, low, _PRIVATE + _OR_PUBLIC)

    def upper_of(text: str) -> float:
        number = bound(text)
        if lower is not None and number <= lower:
            raise ValueError(f"{number:g} is not above the least value {lower:g}")
        return number

    upper = prompts.answer("--upper", "Greatest value of every coordinate", upper_of, high)
    parameters: dict[str, object] = {"length": length, "lower": lower, "upper": upper}
    if kind == "integer":
        parameters["kind"] = kind
    if (
        lower is not None
        and upper is not None
        and (prompts.given("--precision") is not None or (kind == "real" and exact))
    ):
        parameters["precision"] = prompts.answer(
            "--precision", "Step of a value, at most", partial(number, "precision"), _step(upper - lower)
        )
    if prompts.given("--max-weight") is not None:
        parameters["max_weight"] = prompts.given("--max-weight")
    return parameters


def _step(width: float) -> float:
    """Return a default precision: a power of ten of at most a 2^20th of the range; 1 for a wrong range."""
    if not 0 < width < math.inf:
        return 1.0
    return float(f"1e{math.floor(math.log10(width / DEFAULT_STEPS))}")


class _Suggested(NamedTuple):
    """Suggested length of a vector, and bounds if a file has public values; None where unknown."""

    length: int | None = None
    lower: float | None = None
    upper: float | None = None


def _suggested(prompts: Prompts) -> _Suggested:
    """Return what --length-from, --public or --estimator suggests, nothing without; ConfigError for two."""
    sources = [option for option in ("--length-from", "--estimator", "--public") if prompts.given(option)]
    if len(sources) > 1:
        raise ConfigError.at(sources[1], f"is not for {sources[0]}", ConfigCheck.CONFLICT)
    if sources != ["--estimator"]:
        prompts.exclude("--features --classes", "is for --estimator")
    if sources == ["--length-from"]:
        return _Suggested(len(read_vector(prompts.given("--length-from"))))
    if sources == ["--public"]:
        path = prompts.given("--public")
        values = read_vector(path)
        if not len(values):
            return _Suggested(0)
        low, high = values.min().item(), values.max().item()
        if prompts.given("--lower") is None or prompts.given("--upper") is None:
            print_note(
                f"{path}: its least value {low:g} and its greatest {high:g} are suggested as bounds, which "
                "all members read: its values must be public"
            )
        return _Suggested(len(values), low, high)
    if sources == ["--estimator"]:
        # Not at the top: scikit-learn need not be installed.
        from smpc_dp.integrations.sklearn.averaged import coefficient_count

        columns = prompts.needed("--features", "Columns of the rows of the estimator", _whole)
        classes = prompts.answer("--classes", "Classes of the estimator; of a regressor any", _whole, 2)
        try:
            return _Suggested(coefficient_count(prompts.given("--estimator"), columns, classes or 2))
        except ConfigError as error:
            raise ConfigError(one._replace(where=f"--{one.where}") for one in error.issues) from None
    return _Suggested()


def _records(prompts: Prompts) -> dict[str, object]:
    """Ask for the settings of statistics of records (schema and questions), and return them."""
    ask = prompts.answer("--ask", "What is asked, as mean(age); several with ';' between", _asked)
    text = "Columns, as age=0:120 or sex=f,m; several with ';' between; age alone has published bounds"
    columns = prompts.answer("--column", text, _columns, why=_PRIVATE)
    _print_sources(columns or {})
    number = partial(_setting, SchemaSettings)
    rows = prompts.answer("--max-rows", "Most rows of a party", partial(number, "max_rows"))
    records: dict[str, object] = {"unit": "record", "max_rows": rows}
    if prompts.given("--rows-expected") is not None:
        records["rows_expected"] = prompts.given("--rows-expected")
    return {"ask": ask, "records": records | {"columns": columns}}


def _compute(text: str) -> Compute:
    """Return the kind of computation that a text names; raise ValueError for unknown names."""
    known: tuple[Compute, ...] = get_args(Compute)
    for compute in known:
        if text == compute:
            return compute
    raise ValueError(f"{text!r} is none of {', '.join(get_args(Compute))}")


def _names(text: str) -> list[str]:
    """Return the party names in a text; ValueError for invalid or repeated names, too few or too many."""
    names = text.replace(",", " ").split()
    for name in names:
        if not is_name(name):
            raise ValueError(
                f"{name!r} is not 1 to 63 of a-z, 0-9, '_', '.' and '-', a letter or digit first"
            )
    if AGGREGATOR in names:
        raise ValueError(f"{AGGREGATOR!r} is the name of the aggregator: give the party another")
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is there twice: each party has a name of its own")
    try:
        _tolerated(len(names))
    except ConfigError as error:
        raise ValueError(f"number of parties: {error.issues[0].reason}") from None
    return names


def _whole(text: str) -> int:
    """Return the whole number that a text gives; raise ValueError for anything else."""
    if _DIGITS.fullmatch(text.strip()):
        return int(text)
    number = _number(text)
    if number != math.floor(number):
        raise ValueError(f"{text!r} is no whole number")
    return int(number)


def _number(text: str) -> float:
    """Return the finite number that a text gives; raise ValueError for anything else."""
    number = parse_number(text)
    if number is None or not math.isfinite(number):
        raise ValueError(f"{text!r} is no finite number")
    return number


def _setting(table: type[msgspec.Struct], key: str, text: str) -> float:
    """Return the number in a text; raise ValueError or ConfigError unless the setting `key` allows it."""
    number = _number(text)
    value = int(number) if text.strip().isdigit() else number
    check_setting(table, key, value)
    return value


def _asked(text: str) -> list[str]:
    """Return the list of statistics in a text, split at semicolons and line ends."""
    return [part.strip() for part in text.replace("\n", ";").split(";") if part.strip()]


def _columns(text: str) -> dict[str, dict[str, object]]:
    """Return a schema's columns from texts as NAME=LOWER:UPPER:STEP and NAME=VALUE,VALUE; or ValueError.

    The name of a quantity alone takes the bounds that are published of the quantity.
    """
    columns: dict[str, dict[str, object]] = {}
    for part in _asked(text):
        name, equals, values = (piece.strip() for piece in part.partition("="))
        bounds = values.split(":")
        published = None if equals else published_range(name)
        if name in columns or (published is None and (not values or len(bounds) > 3)):
            known = ", ".join(KNOWN_NAMES)
            reason = (
                f"is not NAME=LOWER:UPPER[:STEP] or NAME=VALUE,VALUE of another column, nor one of {known}"
            )
            raise ValueError(f"{part!r} {reason}")
        if published is not None:
            columns[name] = _bounds_of(published)
        elif len(bounds) > 1:
            columns[name] = dict(zip(("lower", "upper", "step"), map(_number, bounds), strict=False))
        else:
            columns[name] = {"values": [value.strip() for value in values.split(",")]}
    return columns


def _bounds_of(published: PublishedRange) -> dict[str, object]:
    """Return the declaration of a column with the bounds of a published range."""
    return {"lower": published.lower, "upper": published.upper}


def _print_sources(columns: Mapping[str, object]) -> None:
    """Print the source of each column's bounds that are those of a published range."""
    for name, column in columns.items():
        published = published_range(name)
        if published is not None and column == _bounds_of(published):
            print_note(
                f"{name}: {published}; closer bounds mean less noise, and more values that are clipped"
            )


def _write_local(folder: Path, terms: Terms) -> Path:
    """Write a session file with all keys, and an empty `inputs`, into a new folder; return the file's path.

    Returns the session file.
    """
    _check_new_folder(folder)
    path = create_local_session(folder, terms.parties, terms.all_parameters(), protocol=PROTOCOL)
    session = load_session(path)
    write_file(path, terms.text(session.roster.members, session.timeouts).encode(), "the session file")
    (folder / "inputs").mkdir(mode=0o700)
    return path


def _check_new_folder(folder: Path) -> None:
    """Raise LocalError if a path is a folder with content, or no folder."""
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise LocalError(f"{folder}: exists already, and nothing is overwritten")


def _write_example(folder: Path) -> None:
    """Write the example session of hospitals, with inputs and keys, into a new folder; print its plan."""
    from smpc_dp.demo import hospitals

    terms = Terms(
        "statistics", hospitals.HOSPITALS, hospitals.LOST, hospitals.COLLUDING, hospitals.PARAMETERS
    )
    session = terms.checked()
    path = _write_local(folder, terms)
    hospitals.write_inputs(folder)
    steps = (f"then: smpc-dp run {path} --ledgers {folder}/ledgers",)
    _print_plan(session, f"{path}: five hospitals with made-up records, all on this machine", steps)


def _print_plan(session: SessionFile, written: str, steps: Sequence[str]) -> None:
    """Print which file was written, the plan of one request, and the next steps."""
    shown = console()
    plan = session_plan(session)
    for line in (written, *tolerance_lines(session), *(() if plan is None else plan.lines()), *steps):
        shown.print(line)
