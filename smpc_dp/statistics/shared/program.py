"""The programs that servers run on shares, by mpyc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.protocols.mpyc.terms import ProgramTerms


async def run_program(mpc: Any, terms: ProgramTerms, shares: Sequence[Sequence[int]]) -> list[int]:
    """Return the opened integers.

    Args:
        mpc: mpyc's runtime, connected.
        terms: what is computed.
        shares: this server's share of each value of each user, shape (users, length).
    """
    if terms.kind == "statistic" or terms.noise:
        raise ConfigError([Fault("kind", f"no program for '{terms.kind}'")])
    secint = mpc.SecInt(terms.bits, p=terms.prime)
    sums = [sum(column) % terms.prime for column in zip(*shares, strict=True)]
    opened = await mpc.output([secint(secint.field(value)) for value in sums])
    return [int(value) for value in opened]
