"""Members of a session with protocol "reports", for `smpc-dp party` and `smpc-dp run`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from smpc_dp.cli.member import HostMember, exit_code
from smpc_dp.cli.output import deliver, privacy_lines
from smpc_dp.cli.statistic import names_text, reported_text
from smpc_dp.cli.statistics import TABLE_SUFFIXES
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.net.inputs import find_input, read_vector
from smpc_dp.net.launcher import run_child
from smpc_dp.net.member import Membership
from smpc_dp.net.reporting import collect_reports, is_reported, report_parameters
from smpc_dp.statistics.local_names import NamedCategories
from smpc_dp.statistics.name_parameters import NameParameters
from smpc_dp.statistics.report_parameters import AnyReport
from smpc_dp.statistics.reports import ReportedEstimate, SentReport


def run_reporting(host: HostMember, out: Path | None, *, serves: bool, as_json: bool, events: bool) -> int:
    """Run one member of a session of reports, print its result, and return the exit code."""
    results: list[SentReport | ReportedEstimate | NamedCategories] = []

    async def act() -> None:
        if serves:
            results.append(
                await collect_reports(
                    host.session,
                    name=host.name,
                    key=host.key,
                    listen_on=host.listen,
                    on_event=host.watch,
                    folder=host.board,
                )
            )
            return
        membership = Membership.load(host.session, host.name, host.key)
        record = None
        if not is_reported(membership):
            # Whether the record is one is better known before anybody is called.
            parameters = report_parameters(membership)
            record = _record(parameters, host)
            parameters.clipped(record, host.name)
        if host.ledger is None:
            raise ConfigError.at("--ledger", "a report needs one: it is charged once", ConfigCheck.MISSING)
        async with host.connect() as session:
            results.append(await session.report(record))

    code = unwritten = 0
    try:
        code = run_child(partial(exit_code, act, host.name, events=events), supervised=events)
    finally:
        # Also after Ctrl-C: a result may be there before the connection has ended.
        for result in results:
            texts = {SentReport: sent_text, ReportedEstimate: reported_text, NamedCategories: names_text}
            printed = result.to_json()
            text = partial(texts[type(result)], printed)
            unwritten += not deliver(printed, out, text, as_json=as_json, quiet=events)
    return code or int(unwritten > 0)


def _record(parameters: AnyReport, host: HostMember) -> Any:
    """Return a party's record, or the path of its table."""
    if isinstance(parameters, NameParameters):
        return host.vector or find_input(host.session.parent / "inputs", host.name, TABLE_SUFFIXES)
    return read_vector(host.input_file)


def check_records(checked: AnyReport, files: Mapping[str, Path]) -> None:
    """Check the records of all parties before any process starts; raises the errors of `clipped`."""
    for name, file in files.items():
        record: Any = file if isinstance(checked, NameParameters) else read_vector(file)
        checked.clipped(record, name)


def sent_text(result: Mapping[str, Any]) -> str:
    """Format a party's result, as `SentReport.to_json` gives it."""
    how = "sent again, byte for byte" if result["again"] else "drawn, charged and sent"
    lines = [f"report of {result['party']} to {result['analyst']}: {how}"]
    if result["clipped"]:
        lines.append(f"clipped: {result['clipped']} values of {result['party']}")
    return "\n".join([*lines, *privacy_lines(result)])
