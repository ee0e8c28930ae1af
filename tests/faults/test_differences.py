"""The rule against differences: an aggregator drops one party in the second request and subtracts.

The attack is run twice: with `same_survivors = false`, where it gets the victim's vector exactly, and with
the rule, where the parties refuse before they sign, let alone open, the second set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.errors import PrivacyError, TimeoutFault
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.wire.envelope import Envelope
from tests.faults.simulated import AGGREGATOR, LENGTH, SimulatedRun

FIVE = plan_secagg(5, dropout=0.2, corrupt=0.0)
NAMES = tuple(f"p{number}" for number in range(1, 6))
VICTIM = "p2"
Retained = dict[str, FixedSurvivors]


def simulated(request: int, retained: Retained, *, same: bool = True) -> SimulatedRun:
    """Return a request of one session; in all of them everybody brings the same vector."""
    encoding = Encoding.plan(length=LENGTH, lower=-9.0, upper=9.0, precision=1e-3, parties=5)
    parameters = SecAggParameters(encoding, FIVE, same_survivors=same)
    return SimulatedRun(5, parameters=parameters, request=request, fixed=retained)


def without(name: str, step: str) -> Callable[[Envelope], Iterable[Envelope]]:
    """Return the network that loses a party before it sends `step`, and from then on."""
    silent = False

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        nonlocal silent
        silent = silent or (envelope.sender, envelope.step) == (name, step)
        return () if silent and name in (envelope.sender, envelope.receiver) else (envelope,)

    return tamper


def everybody(*, aggregator: bool) -> Retained:
    return {name: FixedSurvivors() for name in (*NAMES, *([AGGREGATOR] if aggregator else []))}


def test_without_the_rule_one_lost_party_is_read() -> None:
    retained = everybody(aggregator=False)
    first = simulated(1, retained, same=False).execute()
    second = simulated(2, retained, same=False).execute(without(VICTIM, m.MASKED))
    difference = first.aggregator.result.total - second.aggregator.result.total
    np.testing.assert_array_equal(difference, first.grid(VICTIM))


def test_parties_refuse_a_second_set_before_they_open_it() -> None:
    # The aggregator does not keep to the rule.
    retained = everybody(aggregator=False)
    simulated(1, retained).execute()
    second = simulated(2, retained).execute(without(VICTIM, m.MASKED))
    for name in set(NAMES) - {VICTIM}:
        error = second.errors[name]
        assert isinstance(error, PrivacyError)
        assert "rule against differences (same_survivors)" in str(error)
        assert "request 2 are not those of request 1, but without p2;" in str(error)
        assert m.ATTEST_SURVIVORS not in second.steps_of(name)
        assert m.UNMASK not in second.steps_of(name)
    assert isinstance(second.errors[AGGREGATOR], TimeoutFault)


def test_the_rule_is_about_sets_that_were_signed_even_if_no_sum_was_opened() -> None:
    # Certified, but the aggregator shows the certificate to nobody: some others may have been shown it.
    retained = everybody(aggregator=False)
    simulated(1, retained).execute(
        lambda envelope: () if envelope.step == m.SURVIVORS_CERTIFICATE else (envelope,)
    )
    second = simulated(2, retained).execute(without(VICTIM, m.MASKED))
    assert all(isinstance(second.errors[name], PrivacyError) for name in set(NAMES) - {VICTIM})


def test_an_honest_aggregator_names_who_is_lost_and_goes_on_when_it_is_back() -> None:
    retained = everybody(aggregator=True)
    first = simulated(1, retained).execute()
    second = simulated(2, retained).execute(without(VICTIM, m.MASKED))
    stopped = second.errors[AGGREGATOR]
    assert isinstance(stopped, TimeoutFault)
    assert stopped.missing == {VICTIM}
    assert "same_survivors" in str(stopped)
    assert all(m.ATTEST_SURVIVORS not in second.steps_of(name) for name in NAMES)
    third = simulated(3, retained).execute()
    np.testing.assert_array_equal(third.aggregator.result.total, first.aggregator.result.total)


def test_a_party_that_missed_the_first_request_is_left_out_of_the_next() -> None:
    retained = everybody(aggregator=True)
    first = simulated(1, retained).execute(without(VICTIM, m.MASKED))
    assert VICTIM in first.aggregator.result.absent
    second = simulated(2, retained).execute()
    assert second.aggregator.result.survivors == first.aggregator.result.survivors
    np.testing.assert_array_equal(second.aggregator.result.total, first.aggregator.result.total)
    assert set(second.errors) == {VICTIM}


@pytest.mark.parametrize("step", [m.ATTEST_SURVIVORS, m.UNMASK])
def test_who_is_lost_after_its_vector_was_added_stops_nothing(step: str) -> None:
    retained = everybody(aggregator=True)
    simulated(1, retained).execute()
    second = simulated(2, retained).execute(without(VICTIM, step))
    assert second.aggregator.result.survivors == NAMES


def test_a_result_says_whether_the_rule_holds() -> None:
    retained = everybody(aggregator=False)
    for same, claimed in (
        (True, "sums of other sessions, or of this one"),
        (False, "same_survivors = false"),
    ):
        privacy = simulated(1, retained, same=same).execute().aggregator.result.privacy
        assert sum(reason.startswith(claimed) for reason in privacy.not_protected) == 1
