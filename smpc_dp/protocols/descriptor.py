"""Module of the roles of each protocol, loaded only by sessions that run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Name of a protocol's module of states, which has its roles' tables and constructors."""

    module: str

    def role(self, name: str) -> Any:
        """Return the table of states of "party" or "aggregator"."""
        return getattr(import_module(self.module), name.upper())

    @property
    def party(self) -> Any:
        """Constructor of a party's role; see `registry.MakeParty`."""
        return import_module(self.module).party

    @property
    def aggregator(self) -> Any:
        """Constructor of the aggregator's role; see `registry.MakeAggregator`."""
        return import_module(self.module).aggregator


DESCRIPTORS: Mapping[str, Descriptor] = {
    "secagg": Descriptor("smpc_dp.protocols.secagg.states"),
    "gopa": Descriptor("smpc_dp.protocols.gopa.states"),
    "gopa-verifiable": Descriptor("smpc_dp.protocols.gopa.verifiable.states"),
    "exchange": Descriptor("smpc_dp.protocols.exchange.states"),
    "pairwise": Descriptor("smpc_dp.protocols.ustatistic.states"),
}
"""By name; "pairwise" stands for pairwise statistics."""
