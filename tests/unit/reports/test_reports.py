"""Signed local reports: drawn once, sent again byte for byte, checked, and estimated with parties missing."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.capabilities.pairs.kernels import Field, auc, gini_mean_difference, kendall_tau
from smpc_dp.capabilities.reports.commands.reports import reported_text
from smpc_dp.capabilities.reports.local import LocalPairwise
from smpc_dp.capabilities.reports.local_auc import LocalAuc
from smpc_dp.capabilities.reports.reports import FEW, ROUNDED, LocalReport, ReportRequest, auc_error_of_lost
from smpc_dp.errors import ConfigError, LocalError, PrivacyError
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member, Roster
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.wire.signing import decode, encode

PARTIES = [f"p{number}" for number in range(30)]
IDENTITIES = {name: Identity.generate(name) for name in [*PARTIES, "analyst"]}
ROSTER = Roster(
    [IDENTITIES["analyst"].entry("aggregator", "127.0.0.1:7100")]
    + [IDENTITIES[name].entry() for name in PARTIES]
)
SCORE = Field(0, 1, 0.01)
PAIRS = LocalPairwise.plan(gini_mean_difference(Field(0, 5, exact=True)), 4.0)
TREE = LocalAuc.plan(SCORE, 4.0, levels=3, coins=bytes(32))
GINI = ReportRequest(PAIRS, ROSTER, "spread 2026")
AUC = ReportRequest(TREE, ROSTER, "scores 2026")


def ledger(folder: Path, name: str, epsilon: float = 4.0) -> Ledger:
    path = folder / f"{name}.ledger"
    return Ledger.create(path, party=name, dataset="d", relation="substitution", epsilon=epsilon, delta=0.0)


def collected(request: ReportRequest, folder: Path) -> list[bytes]:
    """Return the report of each party, of values that rise with its number."""
    return [
        request.report(
            number / 30 if request is AUC else number % 6,
            IDENTITIES[name],
            ledger(folder, name),
            folder / "reports",
        )
        for number, name in enumerate(PARTIES)
    ]


@pytest.mark.parametrize(
    "plan",
    [
        LocalPairwise.plan(gini_mean_difference(Field(0, 5, exact=True)), 0.1),
        LocalAuc.plan(SCORE, 0.1, levels=3, coins=bytes(32)),
    ],
)
def test_a_report_is_drawn_once_and_sent_again_byte_for_byte(
    plan: LocalPairwise | LocalAuc, tmp_path: Path
) -> None:
    """Fresh draws of all 20 requests are the same with a chance of 3e-6 at most."""
    book = ledger(tmp_path, "p0", 100.0)
    for number in range(20):
        asked = ReportRequest(plan, ROSTER, f"request {number}")
        first = asked.report(0, IDENTITIES["p0"], book, tmp_path)
        assert asked.report(1, IDENTITIES["p0"], book, tmp_path) == first
    assert len(book.entries()) == 20
    assert book.entries()[3].label == "request 3"


def test_a_lost_report_is_never_drawn_anew(tmp_path: Path) -> None:
    book = ledger(tmp_path, "p0", 100.0)
    GINI.report(3, IDENTITIES["p0"], book, tmp_path / "reports")
    (stored,) = (tmp_path / "reports").glob("*.report")
    stored.unlink()
    with pytest.raises(PrivacyError, match="was charged for"):
        GINI.report(3, IDENTITIES["p0"], book, tmp_path / "reports")
    assert not list((tmp_path / "reports").glob("*.report"))
    assert len(book.entries()) == 1


def test_nothing_is_charged_or_stored_for_what_is_refused(tmp_path: Path) -> None:
    book = ledger(tmp_path, "p0", 3.0)
    with pytest.raises(PrivacyError, match="epsilon is short: spread 2026 is refused"):
        GINI.report(3, IDENTITIES["p0"], book, tmp_path / "reports")
    with pytest.raises(PrivacyError, match="out of bounds"):
        GINI.report(6, IDENTITIES["p0"], book, tmp_path / "reports")
    with pytest.raises(ConfigError, match="no party is called 'analyst'"):
        GINI.report(3, IDENTITIES["analyst"], book, tmp_path / "reports")
    with pytest.raises(ConfigError, match="is another key"):
        GINI.report(3, Identity.generate("p0"), book, tmp_path / "reports")
    with pytest.raises(ConfigError, match="no aggregator, who is the analyst"):
        ReportRequest(PAIRS, Roster(ROSTER.parties, requires_aggregator=False), "x")
    assert not book.entries()
    assert not list((tmp_path / "reports").glob("*.report"))


@pytest.mark.parametrize("record", ["x", None, [0.1, 0.2], {"score": 1}, object()])
def test_a_record_that_is_no_score_is_refused_and_not_charged(record: object, tmp_path: Path) -> None:
    book = ledger(tmp_path, "p0")
    with pytest.raises((ConfigError, PrivacyError)):
        AUC.report(record, IDENTITIES["p0"], book, tmp_path)  # type: ignore[arg-type]
    assert not book.entries()


def test_what_no_party_can_answer_is_refused_by_name(tmp_path: Path) -> None:
    for label in ("\ud800", "ä", "a\nb", "a" * 501):
        with pytest.raises(ConfigError, match="label: must have at most 500 printable"):
            ReportRequest(PAIRS, ROSTER, label)
    with pytest.raises(ConfigError, match="kernel: these reports are of the AUC alone"):
        AUC.estimate([], labels=dict.fromkeys(PARTIES, 1), kernel=PAIRS.kernel)
    book = ledger(tmp_path, "p0")
    with pytest.raises(LocalError, match=r"p0\.ledger: cannot be a folder"):
        AUC.report(0.5, IDENTITIES["p0"], book, book.path)


def test_a_stored_file_that_is_another_report_is_refused(tmp_path: Path) -> None:
    book = ledger(tmp_path, "p0", 100.0)
    other = ReportRequest(PAIRS, ROSTER, "another").report(3, IDENTITIES["p0"], book, tmp_path / "other")
    GINI.report(3, IDENTITIES["p0"], book, tmp_path / "reports")
    (stored,) = (tmp_path / "reports").glob("*.report")
    stored.write_bytes(other)
    with pytest.raises(LocalError, match="is not this party's report"):
        GINI.report(3, IDENTITIES["p0"], book, tmp_path / "reports")


def test_estimates_name_missing_parties_and_have_larger_errors(tmp_path: Path) -> None:
    reports = collected(GINI, tmp_path)
    whole, part = GINI.estimate([*reports, reports[4]]), GINI.estimate(reports[:15])
    assert (whole.missing, whole.faults) == ((), ())
    assert whole.reported == tuple(PARTIES)
    assert part.missing == tuple(PARTIES[15:])
    assert (whole.estimate.reports, part.estimate.reports) == (30, 15)
    assert part.estimate.standard_error > whole.estimate.standard_error
    assert any("bias from parties without a report" in line for line in part.estimate.privacy.not_protected)
    assert part.to_json()["missing"] == PARTIES[15:]


def test_a_missing_party_adds_to_the_error_of_an_auc(tmp_path: Path) -> None:
    reports = collected(AUC, tmp_path)
    labels = {name: number % 2 for number, name in enumerate(PARTIES)}
    whole, part = AUC.estimate(reports, labels=labels), AUC.estimate(reports[:20], labels=labels)
    plain = TREE.estimate(
        [decode(one, LocalReport, "x").report for one in reports[:20]], [n % 2 for n in range(20)]
    )
    assert whole.estimate.standard_error == pytest.approx(
        TREE.estimate(
            [decode(one, LocalReport, "x").report for one in reports], list(labels.values())
        ).standard_error
    )
    lost = auc_error_of_lost(labels, PARTIES[:20])
    assert lost == pytest.approx(np.sqrt(5 / (10 * 14)) / 2)
    assert part.estimate.standard_error == pytest.approx(np.hypot(plain.standard_error, lost))
    with pytest.raises(ConfigError, match="must have each party"):
        AUC.estimate(reports, labels={"p0": 1})
    with pytest.raises(ConfigError, match="a report of each label"):
        AUC.estimate(reports)


def test_the_bound_on_lost_sample_holds_for_scores_that_are_far_apart() -> None:
    """Parties that are missing at random, no noise: the error is below the bound. Seed fixed."""
    rng = np.random.default_rng(1)
    labels = {f"p{number}": number % 2 for number in range(40)}
    for scores in (rng.uniform(size=40), np.repeat([0.0, 1.0], 20), np.arange(40) % 4 == 1):
        values = []
        for _ in range(1000):
            up, down = (
                rng.choice(np.arange(label, 40, 2), count, False) for label, count in ((1, 8), (0, 15))
            )
            difference = np.asarray(scores, float)[up][:, None] - np.asarray(scores, float)[down]
            values.append(float(np.mean((difference > 0) + (difference == 0) / 2)))
        there = [f"p{number}" for number in [*range(1, 17, 2), *range(0, 30, 2)]]
        assert np.std(values) <= auc_error_of_lost(labels, there)


def test_reports_that_do_not_count_are_named(tmp_path: Path) -> None:
    reports = collected(GINI, tmp_path)
    first = decode(reports[0], LocalReport, "x")
    elsewhere = reports[2]
    for number in range(100):
        # two draws may be the same
        if elsewhere == reports[2]:
            again = tmp_path / str(number)
            again.mkdir()
            elsewhere = GINI.report(5, IDENTITIES["p2"], ledger(again, "p2"), again)
    other = ReportRequest(PAIRS, ROSTER, "another")
    (tmp_path / "other").mkdir()
    foreign = other.report(3, IDENTITIES["p3"], ledger(tmp_path / "other", "p3"), tmp_path / "other")
    stolen = encode(LocalReport("p1", first.request, first.report, first.signature))
    unknown = encode(LocalReport("eve\n", first.request, first.report, first.signature))
    received = [
        *reports[3:],
        reports[0],
        reports[2],
        elsewhere,
        foreign,
        stolen,
        unknown,
        b"junk",
        b"x" * 9000,
    ]
    estimate = GINI.estimate(received)
    assert estimate.missing == ("p1", "p2")
    for part in (
        "another request",
        "invalid signature",
        "no party of the roster",
        "malformed LocalReport",
        "p2: two different reports to one request",
    ):
        assert any(part in fault for fault in estimate.faults), part
    assert len(estimate.faults) == 6


def test_labels_of_a_kernel_are_given_by_party(tmp_path: Path) -> None:
    plan = LocalPairwise.plan(auc(Field(0, 5, exact=True)), 6.0)
    request = ReportRequest(plan, ROSTER, "auc")
    reports = [
        request.report(number % 6, IDENTITIES[name], ledger(tmp_path, name, 6.0), tmp_path / "reports")
        for number, name in enumerate(PARTIES)
    ]
    labels = {name: int(number % 6 > 2) for number, name in enumerate(PARTIES)}
    assert request.estimate(reports, labels=labels).estimate.value > 0.8


def _report(folder: Path, secret: bytes, number: int, members: list[Member]) -> None:
    """Draw one party's report in a process of its own."""
    name = f"p{number}"
    identity = Identity.from_seed(name, secret)
    request = ReportRequest(PAIRS, Roster(members), "processes")
    request.report(number % 6, identity, ledger(folder, name), folder / "reports")


def test_parties_report_from_processes_of_their_own(tmp_path: Path) -> None:
    seeds = {f"p{number}": bytes([number + 1]) * 32 for number in range(3)}
    people = {name: Identity.from_seed(name, seed) for name, seed in seeds.items()}
    analyst = Identity.generate("analyst").entry("aggregator", "127.0.0.1:7100")
    members = [analyst, *(one.entry() for one in people.values())]
    context = multiprocessing.get_context("spawn")
    running = [
        context.Process(target=_report, args=(tmp_path, seeds[f"p{number}"], number, members))
        for number in range(3)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()
        assert process.exitcode == 0
    received = [path.read_bytes() for path in (tmp_path / "reports").glob("*.report")]
    result = ReportRequest(PAIRS, Roster(members), "processes").estimate(received)
    assert result.reported == ("p0", "p1", "p2")


def test_an_estimate_says_what_its_interval_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding to bins without a known bound, and few reports."""
    fields = Field(0, 9), Field(0, 9)
    binned = ReportRequest(LocalPairwise.plan(kendall_tau(*fields), 4.0, bins=[2, 2]), ROSTER, "binned")
    received = [
        binned.report([number % 10] * 2, IDENTITIES[name], ledger(tmp_path, name), tmp_path / "reports")
        for number, name in enumerate(PARTIES)
    ]
    assert set(binned.estimate(received).estimate.privacy.not_protected) >= {ROUNDED, FEW}
    covered = "for the responses and the records as a sample"
    lines = reported_text(binned.estimate(received).to_json()).splitlines()
    assert lines[1].endswith(f", {covered}; not for the rounding to 4 categories")
    (tmp_path / "exact").mkdir()
    exact = collected(GINI, tmp_path / "exact")
    few = GINI.estimate(exact).to_json()
    value, bound = f"gini_mean_difference: {few['value']:.6g}", few["standard_error_bound"]
    assert reported_text(few).startswith(f"{value}, standard error at most {bound:.2g} (estimated ")
    assert reported_text(few).splitlines()[1].endswith(f", {covered}")
    assert reported_text({**few, "confidence": 0.995}).splitlines()[1].startswith("99.5% interval: ")
    rounded = reported_text({**few, "bias_bound": 0.125, "visited": 7}).splitlines()[1]
    assert rounded.endswith(", for the responses of these parties, a bias of 0.12 at most included")
    assert set(GINI.estimate(exact).estimate.privacy.not_protected) & {ROUNDED, FEW} == {FEW}
    monkeypatch.setattr("smpc_dp.capabilities.reports.reports.ENOUGH_PAIRS", 15)
    assert not set(GINI.estimate(exact).estimate.privacy.not_protected) & {ROUNDED, FEW}
    assert reported_text(GINI.estimate(exact).to_json()).startswith(
        f"{value}, standard error {few['standard_error']:.2g}\n"
    )
    assert set(GINI.estimate(exact[:29]).estimate.privacy.not_protected) & {ROUNDED, FEW} == {FEW}
