"""The task "records": statistics of records, in one request or in steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.net.session_file import SessionFile
from smpc_dp.net.tasks import SUM_OPTIONS, AuditedRelease, Json
from smpc_dp.net.vector_task import VectorTask

if TYPE_CHECKING:
    from smpc_dp.net.host import HostMember
    from smpc_dp.net.member import Membership
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.empirical import Progress
    from smpc_dp.protocols.records import RecordParameters
    from smpc_dp.report.document import Section


class RecordsTask(VectorTask):
    """Statistics of records, from sums of vectors of them."""

    name: ClassVar[str] = "records"
    is_long_to_plan: ClassVar[bool] = True
    refused: ClassVar[frozenset[str]] = SUM_OPTIONS | {"--audit"}
    refusal: ClassVar[str] = "is not for statistics of records"
    refused_together: ClassVar[frozenset[str]] = frozenset({"--statistic"})
    agreed: ClassVar[tuple[str, ...]] = ("estimates",)

    def other(self, _session: SessionFile) -> ConfigError:
        """Return the error of a request for a sum."""
        reason = "the session asks statistics of records: call statistics"
        return ConfigError.at("records", reason, ConfigCheck.UNSUPPORTED)

    def lacking(self, _session: SessionFile) -> ConfigError:
        """Return the error of a request for statistics in another session."""
        reason = "the session file has no records: it asks no statistics of them"
        return ConfigError.at("records", reason, ConfigCheck.UNSUPPORTED)

    def check_ledger(self, ledger: Ledger, membership: Membership) -> None:
        """Raise PrivacyError or ConfigError unless the ledger affords all steps of a request."""
        ledger.check([membership.event()] * membership.parameters.steps)

    def suffixes(self, _session: SessionFile) -> tuple[str, ...]:
        """Return the suffixes of tables."""
        from smpc_dp.net.inputs import TABLE_SUFFIXES

        return TABLE_SUFFIXES

    def check_inputs(
        self,
        session: SessionFile,
        files: Mapping[str, Path],
        membership: Callable[[str], Membership],
        _weights: Mapping[str, int],
        *,
        clip: bool,  # noqa: ARG002
    ) -> None:
        """Read the tables of all parties; raises the errors of `read_rows` and `Table.check_rows`."""
        from smpc_dp.net.record_requests import read_rows

        checked = cast("RecordParameters", session.checked_parameters)
        for name, file in files.items():
            read_rows(file, checked, membership(name)).check_rows(name)

    def steps(self, session: SessionFile) -> int:
        """Return the requests that the answers take."""
        return cast("RecordParameters", session.checked_parameters).steps

    async def contribute(
        self, host: HostMember, membership: Membership, _options: Mapping[str, Any], results: list[Any]
    ) -> None:
        """Read the party's table, and say to it alone what of it does not count; then connect and compute."""
        from smpc_dp.cli.statistics import load_rows, take_part

        results.append(await take_part(host, load_rows(host, membership)))

    def text(self, results: Mapping[str, Json]) -> str:
        """Return the answers in lines."""
        from smpc_dp.cli.statistics import records_text

        return records_text(next(iter(results.values())))

    def title(self, _result: Json) -> str:
        """Return the title of the report."""
        return "Statistics of records"

    def own_sections(self, _session: SessionFile, result: Json) -> list[Section]:
        """Return the section of the answers."""
        from smpc_dp.report.sections import statistics_section

        return statistics_section(result, exact=result["privacy"]["epsilon"] is None)

    def audit_release(
        self,
        session: SessionFile,
        samples: int | None,
        epsilon: float | None,
        delta: float | None,
        progress: Progress,
    ) -> AuditedRelease:
        """Audit the sums of the parties that count, and their noise."""
        from smpc_dp.simulate.record_audit import audit_records

        result = audit_records(
            session.checked_parameters, samples, epsilon=epsilon, delta=delta, progress=progress
        )
        return AuditedRelease(
            result,
            f"the sums and the noise of {result.counted} parties, those that count",
            (
                (
                    "variance of the noise",
                    f"{result.variance:.6g} of that claimed, {result.least:.6g} at least",
                ),
                ("neighbours", f"{result.moved:.6g} of the sensitivity apart, 1 at most"),
            ),
        )


TASKS = (RecordsTask(),)
