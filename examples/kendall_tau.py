"""Thirty borrowers estimate how debt and credit limit go together; nobody shows anybody either of them.

Each borrower is a process with one record. Pairs compute Kendall's tau of their two records, plus noise
that neither knows, by garbled circuits; the aggregator learns noisy values only. Data: Lending Club, first
quarter of 2016, MIT, as shipped with the demo. Experimental; docs/proofs/statistics.md has the claims.
Run: python examples/kendall_tau.py
"""

import argparse
import asyncio
import csv
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import smpc_dp
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau
from smpc_dp.capabilities.pairs.statistics import exact
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.pairwise_plan import plan_pairwise
from smpc_dp.session.local import Timeouts, create_local_session

DATA = Path(__file__).parents[1] / "smpc_dp" / "demo" / "data" / "lending_club.csv"
BORROWERS = tuple(f"borrower-{number:02d}" for number in range(1, 31))
# Public, and not taken from anyone's data.
KERNEL = kendall_tau(Field(0, 1_000_000, 1, "debt"), Field(0, 1_000_000, 1, "limit"))
EPSILON, PAIRS_EACH = 8.0, 2
# The session's own protocol is not used here: it only brings everybody together.
PARAMETERS = {
    "length": 1,
    "lower": 0.0,
    "upper": 1.0,
    "precision": 0.5,
    "dropout": 0.2,
}
TIMEOUTS = Timeouts(connect=300.0, gather=60.0, step=30.0)


def records(count: int) -> tuple[list[float], list[float]]:
    """Return debt and limit of the instalment accounts of the borrower of every n-th loan, in dollars."""
    with DATA.open(encoding="utf-8") as file:
        loans = list(csv.DictReader(file))
    chosen = loans[:: len(loans) // count][:count]
    columns = "total_bal_il", "total_il_high_credit_limit"
    debts, limits = ([float(loan[name]) for loan in chosen] for name in columns)
    return debts, limits


async def take_part(path: str, name: str, count: int) -> None:
    """Be one borrower."""
    debts, limits = records(count)
    index = BORROWERS.index(name)
    ledger = Path(path).parent / f"{name}.ledger"
    Ledger.create(ledger, party=name, dataset="loan", relation="substitution", epsilon=EPSILON, delta=1e-6)
    async with smpc_dp.connect(path, party=name, ledger=ledger) as session:
        result = await session.pairwise(KERNEL, (debts[index], limits[index]), EPSILON, PAIRS_EACH)
    print(json.dumps(result.to_json()))


async def main(count: int = len(BORROWERS)) -> dict[str, Any]:
    """Start an aggregator here and the borrowers as processes; print the estimate beside the truth."""
    names = BORROWERS[:count]
    with tempfile.TemporaryDirectory() as folder:
        path = str(create_local_session(folder, names, PARAMETERS, addresses=True, timeouts=TIMEOUTS))
        serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, __file__, "--as", name, "--session", path, "--count", str(count)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            for name in names
        ]
        outputs = await asyncio.gather(*(process.communicate() for process in processes))
        errors = [
            error.decode().strip().rpartition("\n")[2]
            for process, (_, error) in zip(processes, outputs, strict=True)
            if process.returncode
        ]
        if errors:
            serving.cancel()
            sys.exit(
                f"the run failed: {len(errors)} of {count} borrowers did not finish; first error: {errors[0]}"
            )
        await serving
    result: dict[str, Any] = json.loads(outputs[0][0])
    truth = exact.u_statistic(KERNEL, records(count))
    # Zetas of a strong dependence, tau near 0.8: var(h) is 1 - tau^2, of which a ninth is one record's part.
    plan = plan_pairwise(count - count % 2, EPSILON, 0.04, 0.36, width=KERNEL.width, partners=PAIRS_EACH)
    low, high = result["interval"]
    print(f"estimate:       {result['value']:.3f} from {result['pairs']} pairs, {result['failed']} failed")
    print(f"standard error: {result['standard_error']:.3f}, interval {low:.3f} to {high:.3f}")
    print("                the interval is for the noise and the records as a sample")
    print(f"planned error:  {plan.mean_squared_error**0.5:.3f}, of it noise {plan.noise_error**0.5:.3f}")
    print(f"all pairs:      {truth:.3f} without noise (nobody sees this)")
    print(f"privacy:        epsilon {result['privacy']['epsilon']} for each record, all its pairs together")
    print(f"claim:          {result['privacy']['claim']}")
    return result | {"truth": truth}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as", dest="name", default="", help=argparse.SUPPRESS)
    parser.add_argument("--session", default="", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=len(BORROWERS), help="borrowers, 4 to 30")
    arguments = parser.parse_args()
    if arguments.name:
        asyncio.run(take_part(arguments.session, arguments.name, arguments.count))
    else:
        asyncio.run(main(arguments.count))
