"""Options of commands that this capability decides."""

from __future__ import annotations

from smpc_dp.capabilities.pairs.garbled.messages import PAIR_COPIES
from smpc_dp.cli.commands import Commands


def test_the_help_of_statistics_has_the_default_number_of_copies() -> None:
    (covert,) = [one for one in Commands()["run"].params if one.name == "covert"]
    assert covert.help is not None
    assert covert.help.endswith(f"default {PAIR_COPIES}.")
