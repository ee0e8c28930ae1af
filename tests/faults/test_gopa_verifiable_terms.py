"""Corrupt parties choose their keys, and so their terms, after they have seen an honest party's key."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.verifiable import joining
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable import params as verifiable_params
from smpc_dp.capabilities.gopa.verifiable.follow import Term, VerifiableMember
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.crypto import commit
from smpc_dp.decoding import decode_json
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases.key_graph import Graph
from smpc_dp.errors import ConfigError, LocalError, PrivacyError
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.second import differences
from smpc_dp.logs.opinion import Opinion
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian
from smpc_dp.wire.sets import pack_list
from smpc_dp_lab.vectors.verifiable_parties import at, off_by_one
from smpc_dp_lab.vectors.verifiable_runs import (
    PARTIES,
    SPARSE,
    Cheater,
    RecordedRun,
    Setting,
    execute,
    message_of,
    parameters,
)
from smpc_dp_verify import terms as second_terms
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.session import Session
from smpc_dp_verify.terms import read_terms
from smpc_dp_verify.verify import Wanted, verify
from tests.audits import ONE, of_itself

# The victim adds the terms of all others with a positive sign.
VICTIM, CHEAT = "ann", "dan"
BOUND = parameters(ONE).greatest_delta
Terms = Mapping[tuple[str, str], int]
Choose = Callable[[Terms], None]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Choose the terms of pairs, as whoever has found keys for them: each end gets them from the pair's seed.

    The pair's party with the smaller number adds the term to its last coordinate, the other subtracts it.
    """
    pair_of: dict[bytes, tuple[str, str]] = {}
    agreed = keys.pair_mask_seed

    def pair_mask_seed(context: Any, run_id: bytes, secret: bytes, me: str, peer: str, key: bytes) -> bytes:
        seed = agreed(context, run_id, secret, me, peer, key)
        first, second = sorted((me, peer))
        pair_of[seed] = first, second
        return seed

    class Keyed:
        """In the place of sources: the seed beside each."""

        @staticmethod
        def keyed(seed: bytes, *labels: bytes) -> tuple[bytes, Any]:
            return seed, NoiseSource.keyed(seed, *labels)

    def with_terms(terms: Terms) -> None:
        def drawn(keyed: tuple[bytes, Any], count: int, variance: int) -> NDArray[np.int64]:
            term = discrete_gaussian(keyed[1], count, variance)
            term[-1] = terms.get(pair_of[keyed[0]], int(term[-1]))
            return term

        monkeypatch.setattr(joining, "discrete_gaussian", drawn)

    monkeypatch.setattr(keys, "pair_mask_seed", pair_mask_seed)
    monkeypatch.setattr(joining, "NoiseSource", Keyed)
    return with_terms


def audited(ran: RecordedRun, folder: Path) -> Report:
    """Return the report of a log, of which both auditors find the same."""
    log = b"".join(line + b"\n" for line in ran.lines)
    wanted = of_itself(log)
    report = audit_stream(io.BytesIO(log), wanted=wanted, threads=1)
    (folder / "log.jsonl").write_bytes(log)
    opinion = verify(folder / "log.jsonl", Wanted(wanted.session, wanted.run))
    assert not differences(report, decode_json(json.dumps(dataclasses.asdict(opinion)).encode(), Opinion))
    return report


def published(ran: RecordedRun, name: str) -> int:
    """Return x_hat of a party of one coordinate."""
    return int.from_bytes(message_of(ran, v.PUBLISH, v.Publish, name).x_hat, "little", signed=True)


def assert_right(ran: RecordedRun, setting: Setting = ONE) -> None:
    """Nobody stops, and the total is that of all values and noise."""
    assert not ran.errors
    noise = sum(party.secret.given[0] for party in ran.parties.values())
    values = sum(row[0] for row in setting.inputs.values())
    assert ran.relay.result.total.tolist() == [values + noise]


@pytest.mark.parametrize("signs", [(1, 1, 1, 1), (-1, -1, -1, -1)])
def test_no_terms_convict_an_honest_party(choose: Choose, signs: tuple[int, ...], tmp_path: Path) -> None:
    """All others have found keys with the largest terms that count, towards one party."""
    pairs = [(VICTIM, peer) for peer in PARTIES[1:]]
    choose({pair: sign * BOUND for pair, sign in zip(pairs, signs, strict=True)})
    ran = execute(setting=ONE)
    checked = parameters(ONE)
    assert checked.greatest_published_before < abs(published(ran, VICTIM)) <= checked.greatest_published
    assert_right(ran)
    report = audited(ran, tmp_path)
    assert report.ok, report.conclusion
    assert (report.excluded, report.verdict and report.verdict.void_edges) == ((), ())


@pytest.mark.parametrize("beyond", [1, 1 << 40])
def test_both_ends_leave_out_an_edge_of_a_larger_term(choose: Choose, beyond: int, tmp_path: Path) -> None:
    larger = {(VICTIM, "cyd"): BOUND + beyond, (VICTIM, CHEAT): -BOUND - beyond}
    choose(larger | {(VICTIM, "eve"): BOUND})
    ran = execute(setting=ONE)
    listed = {name: message_of(ran, v.COMMIT, v.Commit, name).neighbours for name in PARTIES}
    assert listed[VICTIM] == pack_list([2, 5])
    assert (listed["cyd"], listed[CHEAT]) == (pack_list([2, 4, 5]), pack_list([2, 3, 5]))
    assert (listed["ben"], listed["eve"]) == (pack_list([1, 3, 4, 5]), pack_list([1, 2, 3, 4]))
    assert_right(ran)
    report = audited(ran, tmp_path)
    assert report.ok, report.conclusion
    assert (report.excluded, report.verdict and report.verdict.void_edges) == ((), ())


@pytest.mark.parametrize("at_bound", [(1, 0), (-1, 0), (0, 1), (0, -1)])
def test_a_larger_term_in_any_coordinate_leaves_the_edge_out(
    at_bound: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = parameters(ONE)
    for more, counts in ((0, True), (1, False)):
        delta = np.array(at_bound) * (checked.greatest_delta + more)
        monkeypatch.setattr(joining, "discrete_gaussian", lambda *_, delta=delta: delta)
        for sign in (1, -1):
            assert (joining._pair_term(checked, bytes(32), sign) is not None) == counts


def test_an_end_that_alone_claims_an_edge_that_is_left_out_gains_nothing(
    choose: Choose, tmp_path: Path
) -> None:
    def claim(party: Cheater, message: v.Commit) -> v.Commit:
        delta, blinding = np.array([BOUND + 1], dtype=np.uint64), party.fresh_blinding()
        edges = {1: commit.commit([BOUND + 1], blinding), **party.next.edges}
        party.use_edges(edges, {1: (delta, blinding), **party.next.terms})
        return replace(message, neighbours=pack_list(edges), edges=b"".join(edges.values()))

    choose({(VICTIM, CHEAT): BOUND + 1})
    ran = execute({CHEAT: at(v.COMMIT, claim)}, setting=ONE)
    assert message_of(ran, v.COMMIT, v.Commit, CHEAT).neighbours == pack_list([1, 2, 3, 5])
    assert_right(ran)
    report = audited(ran, tmp_path)
    assert report.ok, report.conclusion
    assert report.verdict is not None
    assert (report.excluded, report.verdict.void_edges) == ((), ((VICTIM, CHEAT),))


def test_an_edge_that_is_left_out_is_owed_to_nobody(choose: Choose, tmp_path: Path) -> None:
    """It is opened neither by the end that is left, nor counted among the noise of silent parties."""
    choose({(VICTIM, CHEAT): BOUND + 1})
    ran = execute({CHEAT: off_by_one}, setting=ONE)
    authors = [entry.party for entry in ran.entries if entry.kind == v.OPEN]
    assert authors == ["ben", "cyd", "eve"]
    assert set(ran.errors) == {CHEAT}
    report = audited(ran, tmp_path)
    assert report.ok, report.conclusion
    assert [item.party for item in report.excluded] == [CHEAT]


def test_what_is_left_out_depends_on_no_value(choose: Choose) -> None:
    """Otherwise whoever chose the term would learn of the value by it."""
    choose({(VICTIM, CHEAT): BOUND + 1})
    commits = []
    for value in (0, 4):
        ran = execute(setting=Setting({**ONE.inputs, VICTIM: (value,)}, ONE.declared))
        commits.append(message_of(ran, v.COMMIT, v.Commit, VICTIM))
    assert commits[0].value != commits[1].value
    assert (commits[0].neighbours, commits[0].edges) == (commits[1].neighbours, commits[1].edges)


def test_with_a_small_bound_both_ends_of_all_pairs_leave_out_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the terms that their keys give, a third exceeds one standard deviation."""
    monkeypatch.setattr(verifiable_params, "TAIL", 1)
    monkeypatch.setattr(second_terms, "TAIL", 1)
    ran = execute(setting=ONE)
    commits = [message_of(ran, v.COMMIT, v.Commit, name) for name in PARTIES]
    edges = {
        (one, int(other))
        for one, message in enumerate(commits, 1)
        for other in np.frombuffer(message.neighbours, "<u2")
    }
    assert edges == {(other, one) for one, other in edges}
    assert 0 < len(edges) < len(PARTIES) * (len(PARTIES) - 1)
    assert_right(ran)
    report = audited(ran, tmp_path)
    assert report.ok, report.conclusion
    assert (report.excluded, report.verdict and report.verdict.void_edges) == ((), ())


def test_on_a_drawn_graph_a_party_counts_an_edge_that_is_left_out_as_a_lost_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One more than its plan allows: it leaves, and nobody has published."""
    victim, lost = next(iter(SPARSE.inputs)), parameters(SPARSE).lost_draws + 1
    agreed = joining._pair_terms

    def without_some(member: VerifiableMember, run_id: bytes, graph: Graph) -> dict[int, Term]:
        terms = agreed(member, run_id, graph)
        dropped = graph.holders[:lost] if member.name == victim else ()
        return {peer: term for peer, term in terms.items() if peer not in dropped}

    monkeypatch.setattr(joining, "_pair_terms", without_some)
    ran = execute(setting=SPARSE, memo=True)
    assert isinstance(ran.errors[victim], PrivacyError)
    assert "that it drew count" in str(ran.errors[victim])
    assert not any(entry.kind == v.PUBLISH for entry in ran.entries)


def within(checked: VerifiableParameters, deviation: int) -> VerifiableParameters:
    """Return parameters with this standard deviation of pairwise terms."""
    return replace(checked, session=replace(checked.session, pair_variance=deviation**2))


def test_a_session_is_refused_whose_values_could_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound exactly, by both auditors: n times the largest published value is below 2^63."""
    monkeypatch.setattr(verifiable_params, "MAX_VARIANCE", 1 << 120)
    monkeypatch.setattr(second_terms, "MOST_VARIANCE", 1 << 120)
    checked = parameters(ONE)
    n = checked.encoding.parties
    farthest = max(abs(checked.encoding.lowest), abs(checked.encoding.highest))
    most = ((1 << 63) - 1) // n - checked.highest - checked.bits - farthest
    deviation = most // (40 * (n - 1)) - 1
    right, wrong = within(checked, deviation), within(checked, deviation + 1)
    widest = [n * (one.greatest_published + farthest) for one in (right, wrong)]
    assert widest[0] < 1 << 63 <= widest[1]
    right.check_sizes()
    with pytest.raises(ConfigError, match=r"published values .* have a sum of over 63 bits"):
        wrong.check_sizes()
    session = Session(bytes(32), "gopa", 4, dict(ONE.declared), {}, list(PARTIES), "relay", None)
    for one, reason in ((right, "the pairwise noise that the session plans"), (wrong, "the bounds")):
        with pytest.raises(Refused, match=reason):
            read_terms(session, 1, f"average {one.planned()}")


def test_a_session_is_refused_whose_terms_could_not_be_drawn() -> None:
    checked = parameters(ONE)
    within(checked, 1 << 50).check_sizes()
    wrong = within(checked, (1 << 50) + 1)
    with pytest.raises(ConfigError):
        wrong.check_sizes()
    session = Session(bytes(32), "gopa", 4, dict(ONE.declared), {}, list(PARTIES), "relay", None)
    with pytest.raises(Refused, match="the bounds"):
        read_terms(session, 1, f"average {wrong.planned()}")


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_are_refused_at_which_the_total_could_wrap(sign: int) -> None:
    """What is published counts from the lowest value; the total, with the noise, from 0."""
    end = sign * (((1 << 63) - 1) // len(PARTIES))
    lower, upper = sorted((end, end - 4 * sign))
    declared = dict(ONE.declared) | {"kind": "integer", "lower": lower, "upper": upper}
    declared.pop("precision", None)
    setting = Setting({name: (lower,) for name in ONE.inputs}, declared)
    with pytest.raises(LocalError, match=r"over 63 bits"):
        parameters(setting)
    session = Session(bytes(32), "gopa", 4, declared, {}, list(PARTIES), "relay", None)
    checked = parameters(ONE)
    with pytest.raises(Refused, match="the bounds"):
        read_terms(session, 1, f"average {checked.planned()}")


def test_the_silence_of_parties_with_chosen_terms_is_named_as_that(choose: Choose, tmp_path: Path) -> None:
    """Two of eight leave 12 terms of 30 deviations in the total; nobody has signed anything false."""
    names = [f"user-{number}" for number in range(1, 9)]
    silent = set(names[-2:])
    setting = Setting({name: (1,) for name in names}, dict(ONE.declared) | {"dropout": 0.25, "corrupt": 0.25})
    checked = parameters(setting)
    term = 30 * math.isqrt(checked.session.pair_variance)
    assert 12 * term > 41 * checked.greatest_deviation
    choose({(one, two): term for one in names[:-2] for two in silent})
    ran = execute(setting=setting, kill=dict.fromkeys(silent, 9))
    assert set(ran.errors) <= silent
    noise = ran.relay.result.noise
    assert noise is not None
    assert noise.residual_pairs == 12
    report = audited(ran, tmp_path)
    assert not report.ok
    assert "no publication of user-7, user-8: 12 pairwise terms do not cancel" in report.conclusion
