"""Both setups of transfers of a garbler with an evaluator, in opposite directions, with their counters."""

from __future__ import annotations

from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, GARBLER
from smpc_dp.capabilities.pairs.garbled.transfers import Transfers
from smpc_dp.crypto.active import MOST_NUMBER
from smpc_dp.crypto.ot import MAX_INDEX, Receiver, Sender
from smpc_dp.errors import LocalError

State = tuple[bytes, int, bytes, int, int, int]


class Setups:
    """One side's state of the oblivious transfer setups with a peer, kept over several evaluations.

    Roles of several evaluations with the same peer are given the same object. It is held in memory alone. A
    failure of any of them destroys it.

    Attributes:
        triples, gates: numbers of leaky triples and of AND gates of all instances since the setups.
    """

    def __init__(self) -> None:
        self._transfers = {side: Transfers() for side in (GARBLER, EVALUATOR)}
        self.triples = self.gates = 0

    def __repr__(self) -> str:
        return f"Setups(triples={self.triples}, gates={self.gates})"

    @property
    def state(self) -> State:
        """Contexts and next indices of both setups, and the counters: what two sides compare in hellos."""
        garblers, evaluators = self._transfers[GARBLER], self._transfers[EVALUATOR]
        return (
            garblers.context,
            garblers.next_index,
            evaluators.context,
            evaluators.next_index,
            self.triples,
            self.gates,
        )

    def keep(self, side: int, context: bytes, end: Sender | Receiver) -> None:
        """Store this side's end of the oblivious transfer setup in which `side` is the sender."""
        self._transfers[side].keep(context, end)

    def ends(self) -> tuple[Sender, Receiver] | None:
        """Return this side's ends of both transfer setups, or None before the setups are made."""
        held = self._transfers.values()
        senders = [sender for transfers in held if (sender := transfers.sender()) is not None]
        receivers = [receiver for transfers in held if (receiver := transfers.receiver()) is not None]
        return (senders[0], receivers[0]) if senders and receivers else None

    def made(self) -> tuple[Sender, Receiver]:
        """Return this side's ends of both transfer setups; raise LocalError before they are made."""
        if (ends := self.ends()) is None:
            raise LocalError("there are no setups of transfers")
        return ends

    def destroy(self) -> None:
        """Delete both setups and their counters: the next evaluation makes new ones."""
        for transfers in self._transfers.values():
            transfers.destroy()
        self.triples = self.gates = 0

    def make_room(self, rows: tuple[int, int], triples: int, gates: int) -> None:
        """Destroy the setups if their indices or counters would run out; both sides decide alike."""
        indices = [
            self._transfers[side].next_index + count
            for side, count in zip((GARBLER, EVALUATOR), rows, strict=True)
        ]
        if max(indices) > MAX_INDEX or max(self.triples + triples, self.gates + gates) > MOST_NUMBER:
            self.destroy()
