"""What an aggregator has of requests for sums, of which those of a regression follow from each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smpc_dp.engine.result import Outcome, Result
from smpc_dp.errors import LocalError
from smpc_dp.records.record_result import RecordResult

if TYPE_CHECKING:
    from smpc_dp.session.member import Membership
    from smpc_dp.session.progress import Progress


class ServedSteps:
    """Aggregator's decoder of results, which keeps the sums of earlier steps that later ones depend on.

    `progress` keeps the sums of earlier steps for the process that goes on with the regression.
    """

    def __init__(self, membership: Membership, progress: Progress) -> None:
        self._membership, self._progress = membership, progress
        self._sums = dict(progress.results)

    def answered(self, number: int, operation: str, outcome: Outcome) -> Result | RecordResult | LocalError:
        """Return a request's result and store its sums; return LocalError if it does not follow the last one.

        Of a regression it says where the step begins: where the last one has ended, or anew.
        """
        first = self._membership.parameters
        if first.steps == 1:
            result: Result | RecordResult = first.result(outcome, self._membership.names)
            return result
        wanted = (self._following(number), first)
        asked = next((one for one in wanted if one.planned() in operation), None)
        if asked is None:
            self._sums.clear()
            reason = "the parties asked for a step of the regression that does not follow the last result"
            return LocalError(reason)
        self._keep(number, outcome, begins=asked.planned() == first.planned())
        answered: RecordResult = asked.result(outcome, self._membership.names)
        return answered

    def _following(self, number: int) -> Any:
        """Return a request's parameters, derived from the stored sums of all earlier steps."""
        # Not at the top: most sessions have no steps.
        from smpc_dp.records.step_sums import StepSums

        parameters = self._membership.parameters
        for earlier in sorted(one for one in self._sums if one < number):
            parameters = StepSums.decode(self._sums[earlier]).following(parameters)
        return parameters

    def _keep(self, number: int, outcome: Outcome, *, begins: bool) -> None:
        """Store a request's opened sums for later steps, dropping earlier ones if it begins anew."""
        from smpc_dp.records.step_sums import StepSums

        if begins:
            self._sums.clear()
            self._progress.begin("", number)
        self._sums[number] = StepSums.of(outcome, self._membership.names).encode()
        self._progress.add(number, self._sums[number])
