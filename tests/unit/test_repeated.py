"""Oblivious transfers that tests compute once: what they return is what the core returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smpc_dp import _core
from tests.repeated import Repeated, repeated

SENDER, RECEIVER = (b"c" * 32, b"s" * 32, 2), (b"c" * 32, b"r" * 32, 2)
COUNT, CHOICES = 20, b"\xc5\x31\x09"


def transfer(sender: Any, receiver: Any) -> list[bytes]:
    """Return all messages of a setup and a chunk of random transfers, and the pads of both."""
    first = receiver.finish_setup(sender.respond(receiver.first_message()))
    sender.finish_setup(first)
    corrections = np.zeros(receiver.corrections(COUNT), np.uint8)
    receiver.extend(COUNT, CHOICES, corrections)
    challenge = sender.challenge(COUNT, corrections)
    chosen, pads = np.zeros(COUNT * 16, np.uint8), np.zeros(2 * COUNT * 16, np.uint8)
    response = receiver.random(challenge, chosen)
    sender.random(response, pads)
    return [first, corrections.tobytes(), challenge, response, chosen.tobytes(), pads.tobytes()]


@pytest.fixture
def kinds() -> tuple[type[Repeated], type[Repeated]]:
    """Replacements of the core's own classes, which conftest.py has replaced."""
    replaced: list[Any] = [_core.OtSender, _core.OtReceiver]
    sender, receiver = (repeated(kind.real) for kind in replaced)
    return sender, receiver


def test_transfers_are_those_of_the_core_at_first_and_later(
    kinds: tuple[type[Repeated], type[Repeated]],
) -> None:
    sender, receiver = kinds
    expected = transfer(sender.real(*SENDER), receiver.real(*RECEIVER))
    for _ in range(2):
        assert transfer(sender(*SENDER), receiver(*RECEIVER)) == expected
    changed = SENDER[0], b"t" * 32, 2
    assert transfer(sender(*changed), receiver(*RECEIVER))[0] != expected[0]


def test_other_calls_after_known_ones_and_errors_are_those_of_the_core(
    kinds: tuple[type[Repeated], type[Repeated]],
) -> None:
    sender, receiver = kinds
    transfer(sender(*SENDER), receiver(*RECEIVER))
    for made in (receiver(*RECEIVER), receiver.real(*RECEIVER)):
        made.first_message()
        made.finish_setup(sender(*SENDER).respond(made.first_message()))
        assert made.next_index == 0
        with pytest.raises(RuntimeError):
            made.finish_setup(b"")
    first = receiver(*RECEIVER).first_message()
    for _ in range(2):
        false = sender(*SENDER)
        false.respond(first)
        with pytest.raises(_core.OtPeerFault):
            false.finish_setup(b"")
        with pytest.raises(RuntimeError):
            false.delta()
