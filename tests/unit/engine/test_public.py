"""The public functions of `smpc_dp.engine`."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp import engine
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.events import Start
from smpc_dp.engine.phases.key_graph import AwaitStart
from smpc_dp.engine.public import RoleName
from smpc_dp.engine.registry import built_in_protocols
from smpc_dp.engine.seal import Position
from smpc_dp.errors import ConfigError, VerificationError
from smpc_dp.secagg import states as secagg
from smpc_dp_lab.vectors import runs


@pytest.mark.parametrize("protocol", [name for one in built_in_protocols() for name in one.tables])
@pytest.mark.parametrize("role", ["party", "aggregator"])
def test_a_table_is_one_chain(protocol: str, role: RoleName) -> None:
    lines = engine.table(protocol, role)
    known = {line.state for line in lines}
    ends = {after for line in lines for after in line.next} - known
    assert ends
    assert known <= {lines[0].state, *(after for line in lines for after in line.next)}


def test_an_unknown_table_is_refused() -> None:
    role: Any = "hub"
    with pytest.raises(ConfigError) as raised:
        engine.table("sum", role)
    assert [fault.where for fault in raised.value.issues] == ["protocol", "role"]
    assert not hasattr(engine, "nothing")
    assert set(engine.__all__) <= set(dir(engine))


def test_a_state_is_stepped_from_and_sealed() -> None:
    run = runs.new_run(runs.SCENARIOS[0]).parties[runs.NAMES[0]]
    after, [hello] = engine.step(run.role, run.member, run.state, Start())
    assert isinstance(after, AwaitStart)
    assert hello.step == "hello"
    record = Codec.of_party(secagg.PARTY).encode(after, [hello])
    key = bytes(range(32))
    position = Position(bytes(32), 1, run.name, bytes(16), 1, b"", after.step, bytes(32), b"", bytes(32), 0)
    sealed = engine.seal_state(key, position, record, SystemRandomness())
    assert after.nonce not in sealed
    assert engine.open_state(key, position, sealed) == record
    with pytest.raises(VerificationError):
        engine.open_state(bytes(32), position, sealed)
