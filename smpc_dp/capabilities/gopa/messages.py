"""Messages of GOPA beyond those of secure aggregation; each struct is the body of a signed envelope.

With `on_dropout = "keep"` a run has these steps of a party, each answered by the aggregator: hello,
advertise, reveal, attest-participants, publish. With "roll-back" it has the steps of secure aggregation.
"""

from __future__ import annotations

from smpc_dp.engine.phases import messages as m
from smpc_dp.wire.envelope import Body, Large

PUBLISH = "publish"
AVERAGE = "average"

PARTY_STEPS = (m.HELLO, m.ADVERTISE, m.REVEAL, m.ATTEST_PARTICIPANTS, PUBLISH)


class Published(Body, frozen=True):
    """Message of a party to the aggregator: its noisy vector, packed."""

    x_hat: Large


class Average(m.Result, frozen=True):
    """Message of the aggregator to parties: the noisy sum, its survivors, and how many pairs left noise.

    These are the pairs of which one published, and the other takes part and did not.
    """

    published: bytes
    residual_pairs: int
