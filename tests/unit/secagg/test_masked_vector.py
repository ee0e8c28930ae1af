"""A masked vector: its bytes, and the vector of the state, which stays as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from smpc_dp.crypto.prg import expand
from smpc_dp.engine.phases.masked_sum import add_vector, mask_vector
from smpc_dp.engine.phases.masks import Masks
from smpc_dp.engine.phases.messages import Masked
from smpc_dp.errors import Check, PeerFault
from smpc_dp.secagg.params import check_parameters
from smpc_dp.wire.signing import decode, encode

SEED = bytes(range(32))


def parameters(width: int) -> Any:
    """Return the parameters of a sum of three parties with elements of so many bytes."""
    given = {"length": 5, "lower": 0, "upper": (1 << 8 * width - 3) - 1, "kind": "integer", "corrupt": 0.0}
    checked, faults = check_parameters(given, 3)
    assert checked is not None, faults
    assert checked.encoding.element_bytes == width
    return checked


@pytest.mark.parametrize("width", range(1, 9))
def test_the_vector_of_a_state_is_not_changed_and_the_step_can_be_repeated(width: int) -> None:
    member: Any = SimpleNamespace(parameters=parameters(width), random=None)
    encoding = member.parameters.encoding
    vector = np.arange(5, dtype=encoding.dtype)
    masks = Masks([SEED], -1, [], [])
    first = bytes(mask_vector(member, vector, masks))
    assert vector.tolist() == [0, 1, 2, 3, 4]
    assert bytes(mask_vector(member, vector, masks)) == first
    stream = expand(SEED, 5, encoding.dtype)
    modulus = 1 << 8 * width
    expected = [(index - int(word)) % modulus for index, word in enumerate(stream)]
    assert first == b"".join(value.to_bytes(width, "little") for value in expected)
    # As bytes, whatever buffer it is.
    body = encode(Masked(mask_vector(member, vector, masks), b""))
    assert body == encode(Masked(first, b""))
    assert decode(body, Masked, "p1").vector == first


@pytest.mark.parametrize("width", range(1, 9))
def test_a_total_that_is_packed_stays_as_it_is(width: int) -> None:
    encoding = parameters(width).encoding
    total = np.arange(5, dtype=encoding.dtype)
    assert bytes(encoding.packed(total)) == encoding.pack(total)
    assert encoding.pack(total) == b"".join(value.to_bytes(width, "little") for value in range(5))
    assert total.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("wrong", [b"", bytes(19), bytes(21)])
def test_a_packed_vector_of_another_length_is_its_sender_s_fault(wrong: bytes) -> None:
    aggregator: Any = SimpleNamespace(parameters=parameters(4), watch=None)
    total = aggregator.parameters.encoding.zeros()
    with pytest.raises(PeerFault, match=f"malformed Masked: {len(wrong)} bytes where 20 are due") as caught:
        add_vector(aggregator, total, "p1", memoryview(wrong), "Masked")
    assert (caught.value.culprit, caught.value.check) == ("p1", Check.MALFORMED)
    assert not total.any()


def test_a_total_that_cannot_be_changed_is_nobody_s_fault() -> None:
    aggregator: Any = SimpleNamespace(parameters=parameters(4), watch=None)
    total = aggregator.parameters.encoding.zeros()
    total.flags.writeable = False
    with pytest.raises(ValueError, match="elements: The given array is not writeable"):
        add_vector(aggregator, total, "p1", bytes(20), "Masked")


def test_a_watcher_sees_the_elements_that_came() -> None:
    seen = []
    aggregator: Any = SimpleNamespace(
        parameters=parameters(3), watch=lambda name, vector: seen.append((name, vector.tolist()))
    )
    encoding = aggregator.parameters.encoding
    total = np.ones(5, encoding.dtype)
    add_vector(aggregator, total, "p1", encoding.pack(np.arange(5, dtype=encoding.dtype)), "Masked")
    assert seen == [("p1", [0, 1, 2, 3, 4])]
    assert total.tolist() == [1, 2, 3, 4, 5]
