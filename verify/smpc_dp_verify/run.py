"""The log of a verifiable average: chain, signatures, certificates, proofs, exclusions and the total."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Set
from concurrent.futures import Executor, Future
from fractions import Fraction
from functools import lru_cache
from typing import Any

from smpc_dp_verify import proofs, ristretto
from smpc_dp_verify.answers import Answer, Sums
from smpc_dp_verify.encodings import party_list, read_list, read_message, tuple_hash, uint
from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.log import CERTIFICATE, LONGEST_PAYLOAD, RunLog, header_of
from smpc_dp_verify.proofs import committed, decode_point, decode_scalar, total
from smpc_dp_verify.session import BEFORE
from smpc_dp_verify.terms import read_terms

# The same statements come again where several logs are read.
verify_noise = lru_cache(1 << 12)(proofs.verify_noise)
verify_range = lru_cache(1 << 12)(proofs.verify_range)
verify_norm = lru_cache(1 << 12)(proofs.verify_norm)


def false_value(context: bytes, value: bytes, length: int, bounds: tuple[Any, ...], proof: bytes) -> str:
    """Return what a proof about a committed vector fails in: "range" or "norm"; "" if it holds."""
    kind, verify = ("norm", verify_norm) if len(bounds) == 1 else ("range", verify_range)
    try:
        verify(context, value, length, *bounds, proof)
    except Refused:
        return kind
    return ""


def false_sum(noise: tuple[Any, ...] | None, points: list[bytes], values: list[int], blinding: bytes) -> str:
    """Return what is false in a published vector: "noise" (its proof), "sum" (its opening), or ""."""
    try:
        if noise is not None:
            verify_noise(*noise)
    except Refused:
        return "noise"
    # (4.4)
    shown, expected = total([*map(decode_point, points)]), committed(values, decode_scalar(blinding))
    return "" if ristretto.is_same(shown, expected) else "sum"


# Each kind, and whether it is the aggregator's.
ORDER = (
    ("certify-begin", True),
    ("commit", False),
    ("certify-commitments", True),
    ("coin", False),
    ("certify-coins", True),
    ("publish", False),
    ("tally", True),
    ("certify-tally", True),
)
# Sizes of the fields of each message; None: of any size, -1: an integer.
FIELDS: dict[str, tuple[int | None, ...]] = {
    "commit": (32, None, 32, 32, None, None),
    "coin": (32,),
    "publish": (None, 32, 32, None),
    "open": (None, None, None),
    "tally": (None, None, -1),
}
# Tries that the bound on the bias is for, where no session log lists them.
TRIES = 1000


def integers(packed: bytes, length: int) -> list[int]:
    """Decode a vector of signed 8-byte integers; raise Refused for another length."""
    required(len(packed) == 8 * length, "a vector has another length")
    return [int.from_bytes(packed[i : i + 8], "little", signed=True) for i in range(0, len(packed), 8)]


class Audit(RunLog):
    """Auditor of the log of a verifiable average, read on construction; Refused says which check fails.

    Args:
        lines: of the log.
        proven: the parties whose proofs are verified; None: all.
        executor: verifies proofs and sums of several parties at a time; None: this process, one by one.

    Attributes:
        terms: what the header fixes.
        participants, counted, silent: names, in the order of the roster.
        excluded: what is false, by name; shown_by: the number of the entry that shows it.
        void: the pairs of participants whose edge does not count.
        total: the sum that was published, in steps from the lowest value of each party.
    """

    def __init__(
        self, lines: Iterable[str], proven: Set[str] | None = None, executor: Executor | None = None
    ) -> None:
        self._proven, self._executor = proven, executor
        # Checks under way: of whom, the number of the entry, and what is found false.
        self._checks: list[tuple[str, int, Future[str]]] = []
        header, rest = header_of(lines)
        self.terms = read_terms(header.session, header.fields["request"], header.fields["question"])
        super().__init__(header, self.terms.names, self.terms.corrupt, self.terms.scope)
        fields = header.fields
        self.bound = (b"gopa", uint(header.session.version))
        parts = (header.session.digest, uint(self.request), fields["question"].encode(), fields["present"])
        required(tuple_hash("star-run-id", *self.bound, *parts, fields["root"]) == self.run, "the run id")
        self.excluded: dict[str, str] = {}
        self.shown_by: dict[str, int] = {}
        self.participants: list[str] = []
        self.counted: list[str] = []
        self.total: list[int] = []
        self.void: list[tuple[str, str]] = []
        self._order = list(ORDER)
        self._entries: dict[str, dict[str, Any]] = {kind: {} for kind, _ in ORDER}
        # Rounds of openings: who is known to be false, who owes which edges, and Delta that was opened.
        self.rounds = 0
        self._known: set[str] = set()
        self._owed: dict[str, set[str]] = {}
        self._opened: dict[tuple[str, str], list[int]] = {}
        self._step, self._last = 0, 0
        required((1 << 10) + self._longest_right() <= LONGEST_PAYLOAD, "the session is malformed")
        try:
            self.read(rest)
        finally:
            # Of a log that is refused.
            for _, _, future in self._checks:
                future.cancel()

    def _end(self) -> None:
        required(self._step == len(self._order), "no end")

    @property
    def is_one_log(self) -> bool:
        """Whether no other valid log of this run can exist: at most c parties were excluded."""
        return len(self.excluded) <= self.corrupt

    def _longest(self, kind: str) -> int:
        if kind == "tally":
            return len(self.names) // 8 + 80 + 8 * self.terms.length
        if kind.startswith("certify"):
            return self._longest_certificate()
        return min((18 << 10) + 2 * self._longest_right(), LONGEST_PAYLOAD)

    def _longest_right(self) -> int:
        """Return the length in bytes of the longest valid message of a party ["The auditor"]."""
        terms, neighbours = self.terms, self.terms.noise.most_neighbours
        edges = min(neighbours, terms.lost + max(self.corrupt, 1))
        return max(
            8 * terms.length + proofs.noise_proof_bytes(terms.length * terms.bits),
            (34 + 8 * terms.length) * edges,
            self._value_proof_bytes() + 34 * neighbours,
        )

    def epsilon(self) -> float | None:
        """Return each honest party's epsilon after the exclusions; None if no guarantee is left."""
        return self.terms.noise.epsilon_after(len(self.excluded), self.terms.bits, self.terms.pair_variance)

    def standard_error(self) -> float:
        """Return the standard deviation of the noise in each coordinate, in the session's unit."""
        return math.sqrt(self.terms.bits / 4 / len(self.counted)) * 2.0**-self.terms.fractional_bits

    def bias(self, tries: int) -> float:
        """Return the most by which cheats can move a coordinate in so many tries ["What cheats gain"]."""
        s, cheats = math.sqrt(self.terms.bits / 4), max(self.corrupt, len(self.excluded), 1)
        most = cheats * s / 2 + s * math.sqrt(2 * cheats * math.log(tries))
        return most / len(self.counted) * 2.0**-self.terms.fractional_bits

    def average(self) -> list[Fraction]:
        """Return the average of the counted parties' vectors, as fractions in the session's unit."""
        count, scale = len(self.counted), Fraction(2) ** self.terms.fractional_bits
        return [Fraction(value + count * self.terms.lowest, count) / scale for value in self.total]

    def answers(self) -> list[Answer] | None:
        """Return the computed answers about records; None if the run averages vectors."""
        if self.terms.request is None:
            return None
        counted = [self.names.index(name) for name in self.counted]
        total = [value + len(counted) * self.terms.lowest for value in self.total]
        request = self.terms.request
        return Sums.of_request(request, total, self.terms.bits // 4, counted).answers(request.asked)

    @property
    def silent(self) -> list[str]:
        """The names of participants that have not published a vector."""
        return [name for name in self.participants if name not in self._entries["publish"]]

    def _take(self, entry: dict[str, Any]) -> None:
        required(self._step < len(self._order), "an entry after the last one")
        name, kind, body, signature = (entry[key] for key in ("party", "kind", "payload", "signature"))
        self._signed(kind, name, body, signature, self.run)
        self._go_to(kind)
        is_own = self._order[self._step][1]
        required((name == self.aggregator) == is_own, "the author")
        if not is_own:
            party = self.names.index(name) + 1
            required(party > self._last, "the order of the roster")
            self._last = party
        plain = kind.rstrip("-0123456789")
        fields = read_message(body, FIELDS.get(plain, CERTIFICATE))
        if plain in ("commit", "publish", "open"):
            {"commit": self._commit, "publish": self._publish, "open": self._open}[plain](name, fields)
        else:
            required(fields is not None, "the format")
            self._other(plain, name, fields or [])
        self._step += is_own

    def _go_to(self, kind: str) -> None:
        """Move on to the step of this kind of entry; raise Refused if an aggregator's step is skipped."""
        suffix = "" if self.rounds == 0 else f"-{self.rounds + 1}"
        step = self._order[self._step][0]
        following = [kind for kind, _ in self._order[self._step + 1 : self._step + 2]]
        if kind == "certify-exclusions" + suffix and following == ["tally"] and step[:4] in ("publ", "open"):
            self.rounds += 1
            self._order[self._step + 1 : self._step + 1] = [(kind, True), ("open" + suffix, False)]
        before = self._step
        while self._order[self._step][0] != kind:
            required(not self._order[self._step][1], "the order of entries")
            self._step += 1
            required(self._step < len(self._order), "the order of entries")
        if self._step > before:
            self._last = 0

    def _other(self, kind: str, name: str, fields: list[Any]) -> None:
        if kind == "certify-begin":
            self._certify("attest-begin", fields, self.present, head=self.session_head)
        elif kind == "certify-commitments":
            self._certify_commitments(fields)
        elif kind == "coin":
            self._coin(name, fields)
        elif kind == "certify-coins":
            self._certify_coins(fields)
        elif kind == "certify-exclusions":
            self._certify_exclusions(fields)
        elif kind == "tally":
            self._tally(fields)
        else:
            self._certify("attest-tally", fields, self.participants)
        if name == self.aggregator:
            self._last = 0

    def _exclude(self, name: str, reason: str, entry: int | None = None) -> None:
        self.excluded[name], self.shown_by[name] = reason, entry or self.entries + 1

    def _start(self, name: str, check: Callable[..., str], *call: Any) -> None:
        """Check a party's entry, now or on the executor; exclude the party for what is false in it."""
        if self._executor is not None:
            self._checks.append((name, self.entries + 1, self._executor.submit(check, *call)))
        elif false := check(*call):
            self._exclude(name, false)

    def _settle(self) -> None:
        """Wait for the checks on the executor, and exclude the parties whose entries are false."""
        for name, entry, future in self._checks:
            false = future.result()
            if not isinstance(false, str):
                raise TypeError("an executor has returned no value of a check")
            if false:
                self._exclude(name, false, entry)
        self._checks.clear()

    def _context(self, name: str) -> bytes:
        return tuple_hash("proof-context", self.run, name.encode())

    def _is_proven(self, name: str) -> bool:
        return self._proven is None or name in self._proven

    # commitments

    def _commit(self, name: str, fields: list[Any] | None) -> None:
        required(name in self.present, "who is present")
        own = self.names.index(name) + 1
        try:
            required(fields is not None, "not canonical")
            value, proof, secret, coin, neighbours, edges = fields or []
            peers = read_list(neighbours, len(self.names))
            required(peers is not None and own not in peers, "neighbours")
            peers = peers or []
            required(
                len(edges) == 32 * len(peers) and len(peers) <= self.terms.noise.most_neighbours, "length"
            )
            points = {self.names[peer - 1]: edges[32 * i : 32 * i + 32] for i, peer in enumerate(peers)}
            for point in (value, secret, *points.values()):
                decode_point(point)
            required(len(proof) == self._value_proof_bytes(), "length")
        except Refused:
            self._exclude(name, "commit-malformed")
            return
        terms = self.terms
        if self._is_proven(name):
            bounds = self._range() if terms.squared is None else (terms.squared,)
            self._start(name, false_value, self._context(name), value, terms.length, bounds, proof)
        commit = {"value": value, "secret": secret, "coin": coin, "edges": points}
        self._entries["commit"][name] = commit

    def _range(self) -> tuple[Any, Any]:
        """Return the bounds of the range proof: two integers, or two lists if coordinates differ."""
        low, high = self.terms.range
        return (low[0], high[0]) if len(low) == 1 else (low, high)

    def _value_proof_bytes(self) -> int:
        """Return the length in bytes of a proof that a vector is within its bounds."""
        if self.terms.squared is None:
            return proofs.range_proof_bytes(self.terms.range_bits)
        return proofs.norm_proof_bytes(self.terms.length, self.terms.squared)

    def _certify_commitments(self, fields: list[Any]) -> None:
        self._settle()
        commits = self._entries["commit"]
        self.participants = [name for name in self.names if name in commits and name not in self.excluded]
        required(len(self.participants) >= self.terms.least_left(len(self.excluded)), "too few take part")
        self._known = {*self.excluded}
        inside = {*self.participants}
        self.edges: dict[str, dict[str, bytes]] = {name: {} for name in self.participants}
        position = {name: index for index, name in enumerate(self.names)}
        for name in self.participants:
            for peer, edge in commits[name]["edges"].items():
                if peer not in inside:
                    continue
                other = commits[peer]["edges"].get(name)
                # (4.5)
                if other is not None and self._cancel(edge, other):
                    self.edges[name][peer] = edge
                else:
                    self.void.append((name, peer) if position[name] < position[peer] else (peer, name))
        self.void = sorted({*self.void}, key=lambda pair: (position[pair[0]], position[pair[1]]))
        self._certify("attest-commitments", fields, self.participants)

    @staticmethod
    def _cancel(edge: bytes, other: bytes) -> bool:
        return ristretto.is_same(ristretto.negate(decode_point(edge)), decode_point(other))

    # coins

    def _coin(self, name: str, fields: list[Any]) -> None:
        required(name in self.participants, "who takes part")
        expected = self._entries["commit"][name]["coin"]
        digest = tuple_hash("coin-commitment", *self.bound, self.run, name.encode(), fields[0])
        required(digest == expected, "the coin is what was committed to")
        self._entries["coin"][name] = fields[0]

    def _certify_coins(self, fields: list[Any]) -> None:
        coins = self._entries["coin"]
        required(list(coins) == self.participants, "every participant's coin")
        packed = self._packed(self.participants)
        self._combined = tuple_hash("coins", *self.bound, self.run, packed, b"".join(coins.values()))
        self._certify("attest-coins", fields, self.participants)

    def _coins_of(self, name: str) -> bytes:
        """Return a party's public random bits, as bytes with spare bits zero, from all coins."""
        count = self.terms.length * self.terms.bits
        seed = tuple_hash("coin-bits", *self.bound, self.run, self._combined, name.encode())
        stream = bytearray(hashlib.shake_256(seed).digest(-(-count // 8)))
        stream[-1] &= 0xFF >> (-count % 8)
        return bytes(stream)

    # publications

    def _false_publication(self, fields: list[Any] | None) -> str:
        """Return what is false in a publication's form: "malformed", "bounds" and so on; else ""."""
        length = self.terms.length
        try:
            required(fields is not None, "not canonical")
            x_hat, blinding, noise, proof = fields or []
            values = integers(x_hat, length)
            decode_scalar(blinding)
            decode_point(noise)
            required(len(proof) == proofs.noise_proof_bytes(length * self.terms.bits), "length")
        except Refused:
            return "malformed"
        is_before = self.session.version == BEFORE
        most = self.terms.most_x_hat_before if is_before else self.terms.most_x_hat
        if max(map(abs, values)) <= most:
            return ""
        return "bounds-before" if is_before else "bounds"

    def _publish(self, name: str, fields: list[Any] | None) -> None:
        required(name in self.participants, "who takes part")
        self._entries["publish"][name] = []
        if false := self._false_publication(fields):
            self._exclude(name, false)
            return
        x_hat, blinding, noise, proof = fields or []
        commit, terms = self._entries["commit"][name], self.terms
        values = integers(x_hat, terms.length)
        self._entries["publish"][name] = values
        proven = None
        if self._is_proven(name):
            secret, coins = commit["secret"], self._coins_of(name)
            proven = (self._context(name), secret, noise, terms.length, terms.bits, coins, proof)
        points = [commit["value"], noise, *self.edges[name].values()]
        self._start(name, false_sum, proven, points, [value - terms.centre for value in values], blinding)

    def _good(self) -> list[str]:
        self._settle()
        good = [name for name in self._entries["publish"] if name not in self.excluded]
        required(len(good) >= self.terms.least_left(len(self.excluded)), "too few are left")
        return good

    # openings

    def _certify_exclusions(self, fields: list[Any]) -> None:
        good = self._good()
        fresh = {*self.excluded} - self._known
        required(fresh, "a round without a reason")
        self._known |= fresh
        self._owed = {name: fresh & {*self.edges[name]} for name in good}
        false = party_list([index for index, name in enumerate(self.names, 1) if name in fresh])
        step = "attest-exclusions" + ("" if self.rounds == 1 else f"-{self.rounds}")
        self._certify(step, fields, good, false)

    def _false_opening(self, name: str, fields: list[Any] | None) -> str:
        """Store a party's opening of edges and return "", or return what is false in it."""
        size = 8 * self.terms.length
        parties, deltas, blindings = fields or [b"", b"", b""]
        numbers = read_list(parties, len(self.names))
        if fields is None or numbers is None:
            return "opening-malformed"
        if len(deltas) != size * len(numbers) or len(blindings) != 32 * len(numbers):
            return "opening-malformed"
        peers = self._names(numbers)
        if {*peers} != self._owed[name]:
            return "opening-other"
        required(peers, "an opening of nothing")
        opened, wrong = {}, False
        for i, peer in enumerate(peers):
            delta = integers(deltas[size * i : size * (i + 1)], self.terms.length)
            if max(map(abs, delta)) > self.terms.most_delta:
                return "opening-bounds"
            try:
                point = committed(delta, decode_scalar(blindings[32 * i : 32 * i + 32]))
            except Refused:
                return "opening-malformed"
            wrong |= not ristretto.is_same(point, decode_point(self.edges[name][peer]))
            opened[name, peer] = delta
        if wrong:
            return "opening"
        self._opened |= opened
        return ""

    def _open(self, name: str, fields: list[Any] | None) -> None:
        required(name in self._owed and name not in self.excluded, "who may open edges")
        if false := self._false_opening(name, fields):
            self._exclude(name, false)

    # the end

    def _tally(self, fields: list[Any]) -> None:
        counted, published, residual = fields
        good = self._good()
        required({*self.excluded} == self._known, "who was shown false is excluded")
        required(counted == self._packed(good), "who is counted")
        length = self.terms.length
        values = [self._entries["publish"][name] for name in good]
        opened = [delta for (name, _), delta in self._opened.items() if name in good]
        self.total = [sum(v[i] for v in values) - sum(d[i] for d in opened) for i in range(length)]
        required(integers(published, length) == self.total, "the total")
        outside = {*self.participants} - {*good}
        edges = {(name, peer) for name in good for peer in outside & {*self.edges[name]}}
        left = len(edges - self._opened.keys())
        required(left == residual, "residual pairs")
        required(residual == 0, "every pairwise term cancels")
        required(
            "bounds-before" not in self.excluded.values(),
            "an exclusion for a bound that an honest party can exceed proves nothing",
        )
        self.counted = sorted(good, key=self.names.index)
