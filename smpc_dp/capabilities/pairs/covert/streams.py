"""Pieces of the seed transfer and of all copies, each hashed for the transcript of its stream."""

from __future__ import annotations

from smpc_dp.capabilities.pairs.covert.terms import Terms, Transcript, is_evaluators
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Send
from smpc_dp.capabilities.pairs.garbled.messages import MAX_PIECE
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, GARBLER, Participant


class Streams(Participant):
    """Base of covert roles: a participant that hashes each message of the seed transfer and of each copy."""

    def _transcript(self, stream: int) -> Transcript:
        """Return the stored dict of hashes by position of a stream (seed transfer 0, or copy)."""
        if not hasattr(self, "_transcripts"):
            self._transcripts: dict[int, Transcript] = {}
        return self._transcripts.setdefault(stream, {})

    def _record(self, terms: Terms, stream: int, position: int, content: bytes) -> None:
        """Store the hash of a message of a stream (the seed transfer, or a garbled copy)."""
        self._transcript(stream)[position] = terms.hash(stream, position, content)

    def _give(self, terms: Terms, stream: int, position: int, content: bytes) -> Send:
        """Return a message of the seed transfer or a copy to be sent, after recording its hash."""
        self._record(terms, stream, position, content)
        return self._piece(EVALUATOR if is_evaluators(stream, position) else GARBLER, content)

    def _receive(self, terms: Terms, stream: int, position: int) -> Effects[bytes]:
        """Wait for a message of the seed transfer or a copy, and record its hash."""
        side = EVALUATOR if is_evaluators(stream, position) else GARBLER
        content = bytes((yield from self._take_piece(side, MAX_PIECE)))
        self._record(terms, stream, position, content)
        return content

    def _receive_all(self, terms: Terms, position: int) -> Effects[list[bytes]]:
        """Wait for the message at `position` of every garbled copy; return all in order."""
        received: list[bytes] = []
        for copy in range(1, terms.copies + 1):
            received.append((yield from self._receive(terms, copy, position)))
        return received
