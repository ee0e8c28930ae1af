"""Thirty borrowers learn how debt and credit limit go together from three servers that see neither.

Each borrower is a process with one record, which it shares among three server processes; they compute
Kendall's tau over all pairs on the shares with mpyc, add noise inside, and open the noisy value only. Data:
Lending Club, first quarter of 2016, MIT, as shipped with the demo. docs/proofs/servers.md has the claims.
Run: python examples/three_servers.py, with --servers 5 or 7 for more of them.
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
from smpc_dp.errors import SmpcError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.pairwise_plan import complete_error
from smpc_dp.session.local import Timeouts, create_local_session

DATA = Path(__file__).parents[1] / "smpc_dp" / "demo" / "data" / "lending_club.csv"
BORROWERS = tuple(f"borrower-{number:02d}" for number in range(1, 31))
SERVERS = 3
# Public, and not taken from anyone's data.
KERNEL = kendall_tau(Field(0, 1_000_000, 1, "debt"), Field(0, 1_000_000, 1, "limit"))
EPSILON = 2.0
# Zetas of a strong dependence, tau near 0.8: var(h) is 1 - tau^2, of which a ninth is one record's part.
ZETAS = (0.04, 0.36)
TIMEOUTS = Timeouts(connect=120.0, gather=120.0, step=60.0)


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
    file = Path(path).parent / f"{name}.ledger"
    Ledger.create(file, party=name, dataset="loan", relation="substitution", epsilon=EPSILON, delta=1e-6)
    try:
        async with smpc_dp.connect(path, party=name, ledger=file) as session:
            record = (debts[index], limits[index])
            result = await session.pairwise(KERNEL, record, EPSILON, engine="mpyc", zetas=ZETAS)
    except SmpcError as error:
        raise SystemExit(f"{name}: {error}") from None
    print(json.dumps(result.to_json()))


async def main(count: int = len(BORROWERS), servers: int = SERVERS) -> dict[str, Any]:
    """Start servers and borrowers as processes; print the estimate beside the truth."""
    names = BORROWERS[:count]
    with tempfile.TemporaryDirectory() as folder:
        session = create_local_session(folder, names, {}, protocol="mpyc", servers=servers, timeouts=TIMEOUTS)
        path = str(session)
        serving = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "smpc_dp", "party", path, "--as", f"server{number}"),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            for number in range(1, servers + 1)
        ]
        parties = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, __file__, "--as", name, "--session", path, "--count", str(count)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            for name in names
        ]
        reported = [await party.communicate() for party in parties]
        codes = [await server.wait() for server in serving]
    outputs, errors = zip(*reported, strict=True)
    if any(codes) or not all(outputs):
        first = next((error.decode().strip() for error in errors if error), "a server has failed")
        raise SystemExit(first)
    results = [json.loads(output) for output in outputs]
    result: dict[str, Any] = results[0]
    truth = exact.u_statistic(KERNEL, records(count))
    planned = (complete_error(count, *ZETAS) + result["noise_error"] ** 2) ** 0.5
    low, high = result["interval"]
    spent = result["privacy"]["receipt"]["spent"]
    alike = len({other["value"] for other in results})
    print(
        f"estimate:       {result['value']:.3f} from all {result['pairs']} pairs; {alike} value for everybody"
    )
    print(f"noise:          {result['noise_error']:.3f}, one draw for the whole statistic")
    print(f"planned error:  {planned:.3f}, interval {low:.3f} to {high:.3f}")
    print("                the interval is for the noise and the records as a sample")
    print(f"all pairs:      {truth:.3f} without noise (nobody sees this)")
    print(f"privacy:        epsilon {result['privacy']['epsilon']} for each record")
    print(f"ledger:         {spent['epsilon']:.3f} spent of {EPSILON}")
    print(f"claim:          {result['privacy']['claim']}")
    return result | {"truth": truth}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as", dest="name", default="", help=argparse.SUPPRESS)
    parser.add_argument("--session", default="", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=len(BORROWERS), help="borrowers, 4 to 30")
    parser.add_argument("--servers", type=int, default=SERVERS, help="servers: 3, 5, 7 or 9")
    arguments = parser.parse_args()
    if arguments.name:
        asyncio.run(take_part(arguments.session, arguments.name, arguments.count))
    else:
        try:
            asyncio.run(main(arguments.count, arguments.servers))
        except SmpcError as error:
            sys.exit(str(error))
