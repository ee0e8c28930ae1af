"""The buffers in which an envelope is sent are its encoding, with the body that it has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import encode_envelope, envelope_buffers

NAMES = st.text(max_size=63)


@given(
    st.binary(max_size=32),
    st.text(max_size=40),
    NAMES,
    NAMES,
    st.binary(max_size=300),
    st.binary(max_size=64),
)
def test_the_buffers_are_the_encoding(
    run_id: bytes, step: str, sender: str, receiver: str, body: bytes, signature: bytes
) -> None:
    envelope = Envelope(run_id, step, sender, receiver, body, signature)
    assert b"".join(envelope_buffers(envelope)) == encode_envelope(envelope)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 65_535, 65_536, 1 << 20])
def test_a_body_of_any_length_is_not_copied(length: int) -> None:
    """An aggregator queues one body for all parties."""
    envelope = Envelope(b"run", "result", "hub", "p1", bytes(length), b"signature")
    buffers = envelope_buffers(envelope)
    assert b"".join(buffers) == encode_envelope(envelope)
    assert buffers[1] is envelope.body
