"""Where the roles of each protocol are: a protocol's modules are loaded by the sessions that run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A protocol's module of states: it has the tables of its roles, and makes them for one request."""

    module: str

    def role(self, name: str) -> Any:
        """Return the table of "party" or "aggregator"."""
        return getattr(import_module(self.module), name.upper())

    @property
    def party(self) -> Any:
        """The function that makes a party's role; see `registry.MakeParty`."""
        return import_module(self.module).party

    @property
    def aggregator(self) -> Any:
        """The function that makes the aggregator's role; see `registry.MakeAggregator`."""
        return import_module(self.module).aggregator


DESCRIPTORS: Mapping[str, Descriptor] = {
    "secagg": Descriptor("smpc_dp.protocols.secagg.states"),
    "gopa": Descriptor("smpc_dp.protocols.gopa.states"),
    "gopa-verifiable": Descriptor("smpc_dp.protocols.gopa.verifiable.states"),
    "exchange": Descriptor("smpc_dp.protocols.exchange.states"),
    "pairwise": Descriptor("smpc_dp.protocols.ustatistic.states"),
}
"""By name; "pairwise" stands for pairwise statistics."""
