"""What each role sees in a run that follows its protocol, and what it does not see: from the specifications.

What a role could learn by deviating, alone or with others, is in the claim of a result.
"""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """Words for one role (party, aggregator, server): what it saw in a run, and what it did not see."""

    role: str
    saw: str
    unseen: str


AROUND = "who took part, when, and lengths"
NETWORK = View(
    "the network",
    "addresses, times and lengths",
    "the content of any message: each channel is mutual TLS 1.3",
)
_OPENED = (
    "of each survivor the seed of its self-mask, and of a party that was lost before its vector arrived its "
    "masking key, never both of one party; "
)
# The kinds, where a session has several; by the keys of VIEWS.
KINDS = {
    "secagg": "in sums without noise",
    "secagg-checked": "in sums without noise",
    "secagg-noisy": "in sums with noise",
    "secagg-noisy-checked": "in sums with noise",
    "records": "in sums of records",
    "gopa-keep": "in averages by GOPA",
    "gopa-roll-back": "in averages by GOPA",
    "gopa-roll-back-checked": "in averages by GOPA",
    "records-checked": "in sums of records",
    "gopa-records": "in sums of records by GOPA",
    "gopa-direct": "in averages by GOPA",
    "gopa-direct-records": "in sums of records by GOPA",
    "verifiable": "in verifiable averages",
    "verifiable-records": "in verifiable sums of records",
    "pairs": "in statistics of pairs",
    "servers": "in computations on shares",
    "exchange": "in exchanges of messages",
    "log": "of averages",
    "log-of-records": "of sums of records",
    "log-of-pairs": "of statistics",
}
_SHARES = "shares of other parties' mask secrets, for those who may be lost"
_KEEP = View(
    "each party",
    "its own vector and noise; the noise that it shares with its neighbours; the result; who took part",
    "another party's vector, with noise or without",
)
_AGGREGATOR_OF_NOISE = (
    "each party's vector with noise of its own and noise that it shares with others{}; the total; "
)
_IN_LOG = (
    "commitments, proofs and coins; {}, with its noise; the noise that parties shared with one that was "
    f"excluded; {{}}; {AROUND}"
)
_AVERAGE_IN_LOG = _IN_LOG.format("each published vector", "the average")
_ANSWERS_IN_LOG = _IN_LOG.format("the published sums of each party", "the sums over the parties; the answers")
_NO_ROW = "any row; the sums of any party without noise"
_NO_ROW_OF_OTHERS = "another party's rows, and its sums without noise"
# What a role sees besides of a sum whose total is checked.
_COMMITTED = "; commitments to the vectors, of which the sum alone is opened"
_CHECKED_VIEWS = {
    "the aggregator": _COMMITTED,
    "each party": f"{_COMMITTED} (of more than 10,000 parties those that check the total for all see them)",
}


def _checked(views: tuple[View, ...]) -> tuple[View, ...]:
    """Return views of the roles in a secure sum, extended for sums whose total parties check."""
    return tuple(view._replace(saw=view.saw + _CHECKED_VIEWS.get(view.role, "")) for view in views)


# protocols/secagg, gopa, pairwise, mpyc and exchange have the messages of each.
VIEWS: dict[str, tuple[View, ...]] = {
    "secagg": (
        View(
            "the aggregator",
            "the masked vector of each party, which without its masks cannot be told from random numbers; "
            f"shares that it forwards and cannot read; {_OPENED}the sum; {AROUND}",
            "the vector of any party",
        ),
        View(
            "each party",
            f"its own vector; {_SHARES}; the result; who took part",
            "another party's vector, masked or not",
        ),
        NETWORK,
    ),
    "secagg-noisy": (
        View(
            "the aggregator",
            "the masked vector of each party, with its share of the noise, which without its masks cannot be "
            f"told from random numbers; shares that it forwards and cannot read; {_OPENED}"
            f"the noisy sum; {AROUND}",
            "the vector of any party; the sum without noise",
        ),
        View(
            "each party",
            f"its own vector and its own share of the noise; {_SHARES}; the result; who took part",
            "another party's vector, masked or not; another party's noise",
        ),
        NETWORK,
    ),
    "records": (
        View(
            "the aggregator",
            "the masked sums of each party, with its share of the noise, which without their masks cannot be "
            f"told from random numbers; shares that it forwards and cannot read; {_OPENED}"
            f"the noisy sums; {AROUND}",
            "any row; the sums of any party; the sums without noise",
        ),
        View(
            "each party",
            f"its own rows and its own share of the noise; {_SHARES}; the result; who took part",
            "another party's rows, and its sums, masked or not",
        ),
        NETWORK,
    ),
    "gopa-keep": (
        View(
            "the aggregator",
            _AGGREGATOR_OF_NOISE.format("") + AROUND,
            "the vector of any party without noise",
        ),
        _KEEP,
        NETWORK,
    ),
    "gopa-roll-back": (
        View(
            "the aggregator",
            _AGGREGATOR_OF_NOISE.format(", once it has opened the self-masks") + AROUND,
            "the vector of any party without noise",
        ),
        _KEEP,
        NETWORK,
    ),
    "gopa-records": (
        View(
            "the aggregator",
            "each party's sums with noise of its own and noise that it shares with others, once it has "
            f"opened the self-masks; the total; {AROUND}",
            _NO_ROW,
        ),
        View(
            "each party",
            "its own rows and noise; the noise that it shares with its neighbours; the result; who took part",
            "another party's rows, and its sums, with noise or without",
        ),
        NETWORK,
    ),
    "gopa-direct": (
        View(
            "each party",
            "its own vector and noise; the noise that it shares with its neighbours; every published vector, "
            f"with its noise; the result; {AROUND}",
            "another party's vector without noise",
        ),
        NETWORK,
    ),
    "gopa-direct-records": (
        View(
            "each party",
            "its own rows and noise; the noise that it shares with its neighbours; the sums of every party, "
            f"with their noise; the result; {AROUND}",
            _NO_ROW_OF_OTHERS,
        ),
        NETWORK,
    ),
    "verifiable": (
        View(
            "the aggregator, and whoever has the log",
            _AVERAGE_IN_LOG,
            "the vector of any party without noise",
        ),
        View(
            "each party",
            "its own vector and noise; the noise that it shares with its neighbours; the result; who took "
            "part; the log, if it fetches it",
            "another party's vector without noise",
        ),
        NETWORK,
    ),
    "verifiable-records": (
        View("the aggregator, and whoever has the log", _ANSWERS_IN_LOG, _NO_ROW),
        View(
            "each party",
            "its own rows and noise; the noise that it shares with its neighbours; the result; who took "
            "part; the log, if it fetches it",
            _NO_ROW_OF_OTHERS,
        ),
        NETWORK,
    ),
    "pairs": (
        View(
            "the aggregator",
            "the noisy output of each pair; who is paired with whom, and which pairs failed; of pairs that "
            f"it relays when messages come and how long they are; {AROUND}",
            "a record",
        ),
        View(
            "each party",
            "its own record; with whom it is paired; the garbled circuit or the labels of its evaluations; "
            "the estimate",
            "another party's record; the output of a pair",
        ),
        NETWORK,
    ),
    "servers": (
        View(
            "each server",
            "a share of each party's input; what is opened, which is the result; labels that are public; who "
            f"was left out; {AROUND}",
            "an input: fewer than half of the servers together learn nothing but what is opened",
        ),
        View("each party", "its own input; the result; who took part", "another party's input or its shares"),
        NETWORK,
    ),
    "exchange": (
        View(
            "the aggregator",
            f"who sends to whom; sealed messages that it cannot read; {AROUND}",
            "the content of any message between parties",
        ),
        View(
            "each party",
            "its own data; the messages that it was sent, as its learner sends them",
            "messages between others",
        ),
        NETWORK,
    ),
    "log": (
        View(
            "whoever has the log of a verifiable run",
            _AVERAGE_IN_LOG,
            "the vector of any party without noise",
        ),
    ),
    "log-of-records": (View("whoever has the log of a verifiable run", _ANSWERS_IN_LOG, _NO_ROW),),
    "log-of-pairs": (
        View(
            "whoever has the log of a statistic",
            "the terms; the coins of the draw; who is paired with whom, and which pairs failed; the estimate",
            "a record; the output of a pair",
        ),
    ),
}
VIEWS |= {
    f"{key}-checked": _checked(VIEWS[key]) for key in ("secagg", "secagg-noisy", "records", "gopa-roll-back")
}
