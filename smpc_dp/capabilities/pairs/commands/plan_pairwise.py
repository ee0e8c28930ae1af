"""`smpc-dp plan pairwise`: partners, noise and error of a private pairwise statistic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from smpc_dp.console.output import print_plan, print_struct
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.files import read_bounded
from smpc_dp.values import decoded

if TYPE_CHECKING:
    from smpc_dp.privacy.local_baselines import Baseline

MAX_MODEL_BYTES = 1 << 26
_UPWARDS = Context(prec=3, rounding=ROUND_CEILING)


def pairwise(
    parties: Annotated[int, typer.Option(help="Parties n, an even number.")],
    epsilon: Annotated[float, typer.Option(help="Budget for one party's record.")],
    zeta_1: Annotated[
        float | None, typer.Option("--zeta-1", help="Var(E[h given X_1]); default the largest, zeta_2 / 2.")
    ] = None,
    zeta_2: Annotated[
        float | None, typer.Option("--zeta-2", help="Var(h(X_1, X_2)); default the largest, width^2 / 4.")
    ] = None,
    partners: Annotated[int | None, typer.Option(help="Pairs of each party, P; default the best.")] = None,
    width: Annotated[float, typer.Option(help="Largest minus smallest value of the kernel.")] = 1.0,
    model: Annotated[
        Path | None, typer.Option(help='JSON {"kernel": [[..]], "distribution": [..]} for the zetas.')
    ] = None,
    categories: Annotated[int | None, typer.Option(help="Local rival: values of a record.")] = None,
    lipschitz: Annotated[float | None, typer.Option(help="Local rival: constant of the kernel.")] = None,
    density_lipschitz: Annotated[
        float | None, typer.Option(help="Local rival: constant of the records' density.")
    ] = None,
    positives: Annotated[int | None, typer.Option(help="Local AUC: records of label 1.")] = None,
    levels: Annotated[int | None, typer.Option(help="Local AUC: log2 of the number of scores.")] = None,
    engine: Annotated[
        str, typer.Option(help="garbled: two parties for each pair; mpyc: servers, one noise for all pairs.")
    ] = "garbled",
    delta: Annotated[float, typer.Option(help="mpyc: above 0 for Gaussian noise.")] = 0.0,
    steps: Annotated[int, typer.Option(help="mpyc: grid steps of the kernel's range.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan a private pairwise statistic: how many partners, what error.

    The two-party protocol, and the local-DP protocols that the options describe; or servers' computation on
    shares.
    """
    from smpc_dp.privacy.local_baselines import local_baselines, read_model
    from smpc_dp.privacy.local_pairwise import zetas

    read = None if model is None else read_model(_load(model))
    if (positives is None) != (levels is None):
        raise ConfigError.at("positives", "give positives and levels together", ConfigCheck.MISSING)
    auc = None if positives is None or levels is None else (positives, levels)
    baselines = local_baselines(
        parties,
        epsilon,
        width=width,
        model=read,
        categories=categories,
        lipschitz=lipschitz,
        density_lipschitz=density_lipschitz,
        auc=auc,
    )
    first, second = zetas(*read) if read else (None, width**2 / 4)
    second = second if zeta_2 is None else zeta_2
    first = second / 2 if first is None else first
    if engine not in _PLANS:
        raise ConfigError.at("engine", f"{engine!r} is neither 'garbled' nor 'mpyc'", ConfigCheck.CHOICE)
    first = first if zeta_1 is None else zeta_1
    asked = _Asked(parties, epsilon, first, second, width, partners, delta, steps)
    _PLANS[engine](asked, baselines, as_json)


class _Asked(NamedTuple):
    """Options of the command that plans a pairwise statistic: parties, privacy budget, kernel variances."""

    parties: int
    epsilon: float
    zeta_1: float
    zeta_2: float
    width: float
    partners: int | None
    delta: float
    steps: int


def _plan_pairs(asked: _Asked, baselines: Sequence[Baseline], as_json: bool) -> None:
    """Print the plan where each pair of parties computes by garbled circuits, beside local protocols."""
    from smpc_dp.capabilities.pairs.active.claims import CHEAT
    from smpc_dp.capabilities.pairs.active.traffic import ROUND_TRIP, TYPICAL, typical_pair
    from smpc_dp.capabilities.pairs.commands.printed import PlannedPairs
    from smpc_dp.privacy.pairwise_plan import plan_pairwise

    plan = plan_pairwise(
        asked.parties,
        asked.epsilon,
        asked.zeta_1,
        asked.zeta_2,
        width=asked.width,
        partners=asked.partners,
    )
    delta, pair = plan.partners * CHEAT, typical_pair()
    if as_json:
        fields = msgspec.structs.asdict(plan) | {
            "malicious_delta": delta,
            "malicious_bytes": pair.sent,
            "malicious_rounds": pair.rounds,
            "malicious_seconds": pair.seconds,
        }
        print_struct(PlannedPairs(**fields, baselines=tuple(baselines)))
        return
    trip = f"{1000 * ROUND_TRIP:.0f} ms"
    rows = [
        ("partners P", str(plan.partners), f"pairs of each party; best: {plan.best_partners}"),
        ("noise scale", f"{plan.noise_scale:.4g}", "of the Laplace noise on each kernel value"),
        ("sampling error", f"{plan.sampling_error:.4g}", "variance from the data and the drawn pairs"),
        ("noise error", f"{plan.noise_error:.4g}", "variance from the noise"),
        ("error", f"{plan.mean_squared_error:.4g}", f"mean squared; best: {plan.best_error:.4g}"),
        ("no privacy", f"{plan.complete_error:.4g}", "mean squared error of all pairs without noise"),
        (
            "malicious: delta",
            # Upwards: a ledger with what is printed takes it.
            f"{float(_UPWARDS.create_decimal_from_float(delta)):.3g}",
            "of a record: 2^-40 for each of its pairs, failed or not",
        ),
        (
            "malicious: sent",
            f"{pair.sent / 1000:.0f} kB",
            f"of a pair of '{TYPICAL}', {pair.gates} AND gates",
        ),
        ("malicious: rounds", str(pair.rounds), "half round trips of such a pair"),
        (
            "malicious: time",
            f"{pair.seconds:.2f} s",
            f"of such a pair where a round trip takes {trip}, at a stored processor time",
        ),
    ]
    for baseline in baselines:
        exact = "" if baseline.exact is None else f"; exactly {baseline.exact:.4g}"
        note = "" if baseline.proven else "; published, not proven here"
        bins = "" if baseline.bins is None else f", {baseline.bins} values"
        rows.append((f"local: {baseline.protocol}", f"{baseline.bound:.4g}", f"bound{bins}{exact}{note}"))
    printed = f"neighbours: {plan.relation}\nassumes: {plan.assumption}"
    print_plan(plan, False, f"pairwise statistic of {asked.parties} parties", rows, printed)


def _plan_central(asked: _Asked, _baselines: Sequence[Baseline], as_json: bool) -> None:
    """Print the plan of a pairwise statistic that computing servers evaluate on secret shares."""
    from smpc_dp.privacy.central_pairwise import plan_central

    plan = plan_central(
        asked.parties,
        asked.epsilon,
        asked.zeta_1,
        asked.zeta_2,
        delta=asked.delta,
        distribution="gaussian" if asked.delta else "laplace",
        width=asked.width,
        steps=asked.steps,
        partners=asked.partners or 0,
    )
    over = f"{plan.partners} of each party" if plan.partners else "all"
    baseline = "" if plan.two_party_error is None else f"{plan.two_party_error:.4g}"
    gain = "" if plan.gain is None else f"mean squared, with its best partners: {plan.gain:.3g} times this"
    rows = [
        ("pairs", str(plan.pairs), over),
        ("sensitivity", f"{plan.sensitivity:.4g}", "of the mean over pairs, for one record"),
        ("sampling error", f"{plan.sampling_error:.4g}", "variance from the data"),
        ("noise error", f"{plan.noise_error:.4g}", f"variance from one draw of {plan.distribution} noise"),
        ("error", f"{plan.mean_squared_error:.4g}", f"mean squared; its root: {plan.standard_error:.4g}"),
        ("two-party", baseline, gain),
    ]
    printed = f"neighbours: {plan.relation}\nassumes: {plan.assumption}"
    print_plan(plan, as_json, f"pairwise statistic of {plan.parties} parties by servers", rows, printed)


_PLANS = {"garbled": _plan_pairs, "mpyc": _plan_central}


def _load(path: Path) -> object:
    """Return the data of a JSON file; raise ConfigError for invalid JSON, LocalError if unreadable."""
    content = read_bounded(path, "the model", MAX_MODEL_BYTES)
    try:
        return json.loads(decoded(content, str(path)))
    except (ValueError, RecursionError) as error:
        raise ConfigError.at("model", f"{path}: not JSON ({error})", ConfigCheck.FORMAT) from None
