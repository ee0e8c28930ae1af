"""The task "vector": sums and averages of vectors, and of trees as vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from smpc_dp.errors import ConfigCheck, ConfigError, OtherRequestError, SmpcError
from smpc_dp.session.session_file import SessionFile, load_session
from smpc_dp.session.tasks import GivenInputs, Json, Task

if TYPE_CHECKING:
    from smpc_dp.encoding import RingVector
    from smpc_dp.engine.result import Outcome, Result
    from smpc_dp.identity.roster import Role
    from smpc_dp.logs.audits.audit_report import Report
    from smpc_dp.report.document import Section
    from smpc_dp.session.events import OnEvent
    from smpc_dp.session.host import HostMember
    from smpc_dp.session.member import Membership
    from smpc_dp.session.session import Session


class VectorTask(Task):
    """Kind of session that computes sums and averages of vectors."""

    name: ClassVar[str] = "vector"
    agreed: ClassVar[tuple[str, ...]] = ("fixed_point",)

    def has_weights(self, session: SessionFile) -> bool:
        """Tell whether parties may give secret weights in a session."""
        checked: Any = session.checked_parameters
        return checked.encoding is None or bool(checked.encoding.max_weight)

    def check_inputs(self, session: SessionFile, given: GivenInputs) -> None:
        """Read and encode all parties' vectors, only to raise errors of wrong ones before a run."""
        from smpc_dp.session.inputs import read_vector

        encoding = cast("Any", session.checked_parameters).sum_encoding
        for name, file in given.files.items():
            weight = given.weights.get(name)
            encoding.encode(read_vector(file), party=name, weight=weight, clip=given.clip)

    async def serve(
        self, host: HostMember, role: Role, requests: int | None, results: list[Any]
    ) -> list[str]:
        """Serve requests as aggregator or server, appending to `results`; return no texts, raise errors.

        Raises the error of the first request that has none.
        """
        named: dict[str, Any] = {
            "name": host.name,
            "key": host.key,
            "requests": requests,
            "listen_on": host.listen,
            "on_event": host.watch,
        }
        served: Sequence[Any]
        if role == "aggregator":
            from smpc_dp.session.aggregator import serve

            served = await serve(
                host.session, **named, board=host.board, web=host.web, state=host.state, stop=host.stop
            )
        else:
            named["requests"] = requests or None
            served = await load_session(host.session).described.serving[role](host.session, **named)
        for ended in served:
            if isinstance(ended, SmpcError):
                raise ended
            results.append(ended)
        if not requests:
            # what the last of several steps gave
            del results[:-1]
        return []

    async def serve_opened(
        self,
        membership: Membership,
        opening: AbstractAsyncContextManager[Any],
        on_event: OnEvent,  # noqa: ARG002
    ) -> Sequence[Any]:
        """Serve requests for sums on an open connection, and return the results."""
        from smpc_dp.session.aggregator import serve_requests

        return await serve_requests(membership, opening)

    async def contribute(
        self, host: HostMember, membership: Membership, options: Mapping[str, Any], results: list[Any]
    ) -> Report | None:
        """Run a request with the party's vector, append to `results`; return the audit asked for, or None."""
        from smpc_dp.session.inputs import read_vector

        if host.audit is not None and not membership.session.is_logged:
            raise ConfigError.at(
                "--audit", "is for a session with verifiable = true", ConfigCheck.UNSUPPORTED
            )
        encoding = membership.encoding
        vector = read_vector(host.input_file)
        clip, weight = bool(options["--clip"]), options["--weight"]
        ring_vector, clipped = encoding.encode(vector, party=host.name, weight=weight, clip=clip)
        operation: Literal["sum", "average"] = options["--operation"] or "average"
        async with host.connect() as opened:
            # Added at once: it is there, whatever the audit says.
            results.append(
                await self._sum(host, opened, operation, ring_vector, clipped, number=options["--number"])
            )
            return None if host.audit is None else await opened.log().audit(keep=host.audit)

    async def _sum(
        self,
        host: HostMember,
        opened: Session,
        operation: Literal["sum", "average"],
        ring_vector: RingVector,
        clipped: int,
        *,
        number: int | None,
    ) -> Result:
        """Run one request for a sum, of this number; without a number, the next that can be joined."""
        following = number
        if number is None and host.state is not None:
            following = host.state.following(host.state.number)
        while True:
            try:
                return await opened.sum_encoded(operation, ring_vector, clipped, number=following)
            except OtherRequestError as error:
                if number is not None or host.state is None:
                    raise
                following = error.next

    def read_numbers(self, stored: Json) -> Any:
        """Return the numbers in the stored JSON of a sum or average, for an audit."""
        from smpc_dp.results.numbers import read_total

        return read_total(stored)

    def check_numbers(
        self,
        numbers: Any,
        parameters: Any,  # noqa: ARG002
        outcome: Outcome,
        operation: str,
        names: Sequence[str],  # noqa: ARG002
    ) -> None:
        """Raise VerificationError unless a result's numbers follow from the run's outcome."""
        from smpc_dp.results.numbers import check_total

        check_total(numbers, outcome, operation.split(" ")[0])

    def text(self, results: Mapping[str, Json]) -> str:
        """Return, as lines of text, the result and whose values were clipped."""
        from smpc_dp.report.texts import result_text

        clipped = [
            f"clipped: {result['clipped']} values of {name}"
            for name, result in results.items()
            if result["clipped"]
        ]
        return "\n".join([result_text(next(iter(results.values()))), *clipped])

    def title(self, result: Json) -> str:
        """Return the title of a report on a sum or an average."""
        kind: str = result["kind"]
        return kind.capitalize()

    def own_sections(self, session: SessionFile, result: Json) -> list[Section]:
        """Return the report's section about a sum or average: its values and their noise."""
        from smpc_dp.report.sections import vector_section

        known = session.parameters
        # A sum has other bounds; with an L2 bound coordinates have none of their own.
        bounds = (
            (known["lower"], known["upper"]) if result["kind"] == "average" and "lower" in known else None
        )
        return vector_section(result, interval_of(result, session.checked_parameters), bounds)


def interval_of(result: Json, parameters: Any) -> tuple[float, float] | None:
    """Return (half-width of a result's noise, level); None without noise, or if weights have noise."""
    from smpc_dp.engine.result import LEVEL, noise_reach

    averaged = result["kind"] == "average"
    weight = result["weight"] if averaged else 1
    error = result["standard_error"]
    # As `Result.interval`: the weight has noise too.
    if not error or (averaged and parameters.sum_encoding.max_weight):
        return None
    distributions = parameters.noise_distributions(len(result["survivors"]), result["residual_pairs"])
    return noise_reach(distributions, error * weight, result["step"], LEVEL) / weight, LEVEL


TASKS = (VectorTask(),)
