"""Exchanges from their specification alone: slow, plain integers, nothing of the library.

Hashes, seals and signatures are those of secure aggregation's twin, samples those of the sampling twin.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from smpc_dp_verify.encodings import party_set, tuple_hash, uint
from tests.reference import sampling_twin, secagg_twin
from tests.reference.secagg_twin import Message

Ends = tuple[dict[Message, tuple[str, str]], dict[str, Any]]


def execute(vector: dict[str, Any]) -> Ends:
    """Return (body digest, signature) by (step, sender, receiver) of all messages but aborts, and the end."""
    return Exchange(vector).execute()


@functools.cache
def _table(variance: Fraction) -> sampling_twin.Table:
    return sampling_twin.table(sampling_twin.gaussian(variance))


def noise(key: bytes, variance: Fraction, count: int) -> list[int]:
    """`count` values of the first call of the source of this key; none where the variance is 0."""
    if not variance:
        return [0] * count
    call = sampling_twin.call_key(
        sampling_twin.source_key(key, b"exchange", b"noise"), 0, "discrete-gaussian", variance
    )
    distribution = _table(variance)
    return sampling_twin.samples(call, count, lambda words: sampling_twin.draw(words, distribution))


class Party:
    """One party: what it draws, in order, and what it brings, for all or for each receiver."""

    def __init__(
        self, number: int, name: str, draws: list[bytes], ring_vector: list[Any], apart: bool
    ) -> None:
        self.number, self.name, self._draws = number, name, list(draws)
        self.nonce, self.secret = self.take(), self.take()
        self.ring_vector, self.apart = ring_vector, apart

    def take(self) -> bytes:
        """The next draw."""
        return self._draws.pop(0)

    def blur(self, variance: Fraction) -> None:
        """Add the noise; vectors that differ by receiver have none, and draw no key for it."""
        if not self.apart:
            added = noise(self.take(), variance, len(self.ring_vector))
            self.ring_vector = [
                (element + more) % 2**64 for element, more in zip(self.ring_vector, added, strict=True)
            ]

    def brings(self, receiver: Party) -> list[int]:
        """The vector for a party, or what it keeps for itself."""
        return self.ring_vector[receiver.number - 1] if self.apart else self.ring_vector


class Exchange(secagg_twin.Session):
    """A whole exchange of honest parties, some of which fall silent."""

    def __init__(self, vector: dict[str, Any]) -> None:
        given = {name: words[:1] for name, words in vector["randomness"].items()}
        super().__init__(vector | {"randomness": given})
        self.variance = Fraction(*self.session["variance"])
        self.everyone = [
            Party(
                number,
                name,
                [bytes.fromhex(word) for word in vector["randomness"][name]],
                vector["inputs"][name]["lanes"],
                self.session.get("apart", False),
            )
            for number, name in enumerate(self.names, 1)
        ]

    def there(self, message: int, among: Sequence[Party]) -> list[Party]:
        """Who of `among` sends its message number `message`."""
        return [party for party in among if message < self.kill.get(party.name, 99)]

    def sends(self, sender: Party, receiver: Party) -> bool:
        """Whether there is an edge."""
        edges = self.session["edges"]
        return sender is not receiver and (edges is None or receiver.number in edges[sender.number - 1])

    def execute(self) -> Ends:
        """Go through the four steps."""
        n, early = len(self.names), self.bound(self.digest)
        present = self.there(1, self.everyone)
        requested = (self.session["request"], self.session["question"])
        hellos = {}
        for party in present:
            public = secagg_twin.public_key(party.secret)
            body = self.send(
                early,
                "exchange-hello",
                party.name,
                self.aggregator,
                (self.digest, *requested, party.nonce, public),
            )
            hellos[party] = (
                party.number,
                body,
                self.signatures["exchange-hello", party.name, self.aggregator],
            )
        packed = party_set([party.number for party in present], n)
        nonces = b"".join(party.nonce for party in present)
        head = (self.session["protocol"].encode(), uint(self.session["version"]), self.digest)
        operation = (uint(self.session["request"]), self.session["question"].encode())
        self.run = self.bound(tuple_hash("exchange-run-id", *head, *operation, packed, nonces))
        for party in present:
            met = [hellos[other] for other in present if self.sends(party, other) or self.sends(other, party)]
            self.send(self.run, "exchange-start", self.aggregator, party.name, (packed, nonces, met))
        return self._deliver(present, self.there(2, present))

    def _deliver(self, present: list[Party], sending: list[Party]) -> Ends:
        boxes: dict[tuple[Party, Party], bytes] = {}
        for party in sending:
            party.blur(self.variance)
            for other in present:
                if self.sends(party, other):
                    boxes[party, other] = self._box(party, other)
            sealed = [(other.number, boxes[party, other]) for other in present if (party, other) in boxes]
            self.send(self.run, "exchange-send", party.name, self.aggregator, (sealed,))
        senders = party_set([party.number for party in sending], len(self.names))
        for party in sending:
            brought = [(other.number, boxes[other, party]) for other in sending if (other, party) in boxes]
            self.send(self.run, "exchange-deliver", self.aggregator, party.name, (senders, brought))
        # Who misses a message along an edge has no result.
        outcome = [
            party
            for party in sending
            if self.session["edges"] is None
            or all(other in sending for other in self.everyone if self.sends(other, party))
        ]
        received = {
            party: {other.name: other.brings(party) for other in sending if (other, party) in boxes}
            for party in outcome
        }
        return self.messages, {
            "intermediate": {
                "run_id": self.run.run_id.hex(),
                "received": {party.name: result for party, result in received.items()},
            },
            "result": {party.name: self._result(party, result) for party, result in received.items()},
        }

    def _box(self, party: Party, other: Party) -> bytes:
        key = self.run.seal_key(party.secret, secagg_twin.public_key(other.secret), party.name, other.name)
        associated = self.run.digest("seal-aad", party.name, other.name, "deal", uint(0))
        return secagg_twin.seal(key, party.take(), self.packed(party.brings(other)), associated)

    def _result(self, party: Party, received: dict[str, list[int]]) -> dict[str, Any]:
        vectors = [party.brings(party), *received.values()]
        totals = [sum(column) % 2**64 for column in zip(*vectors, strict=True)]
        names = [name for name in self.names if name == party.name or name in received]
        return {
            "survivors": names,
            "absent": [name for name in self.names if name not in names],
            "weight": len(names),
            "fixed_point": [
                (element - 2**64 if element >= 2**63 else element) + len(names) * self.encoding["lowest"]
                for element in totals
            ],
        }
