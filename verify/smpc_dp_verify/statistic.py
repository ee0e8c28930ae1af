"""The log of a pairwise statistic: coins, matchings and outcome [protocols/pairwise/README.md, "The log"]."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from smpc_dp_verify.encodings import read_message, read_set, tuple_hash, uint
from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.log import CERTIFICATE, RunLog, header_of
from smpc_dp_verify.session import check_values
from smpc_dp_verify.terms import corrupt_of

STATISTIC, BOUND = "pairwise-statistic ", (b"pairwise-statistic", uint(3))
ATTEMPTS, MOST_PARTNERS = 3, 1000
# The longest terms and operation; what other fields of a payload take.
LONGEST_TERMS, LONGEST_OPERATION, MORE = 1 << 20, 3000, 1024
COINS = ("coin", "coin-2", "coin-3")
AGAINS = ("again-2", "again-3")
Pair = tuple[str, str]


@dataclass(frozen=True)
class Attempt:
    """One draw of a statistic's matchings: number of parties present, and those without valid coins."""

    present: int
    silent: list[str]
    false: list[str]
    dropped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Estimate:
    """Content of a pairwise statistic's log, with the fields that `smpc-dp audit --json` prints."""

    statistic: str
    terms: dict[str, Any]
    present: list[str]
    partners: int
    attempts: list[Attempt]
    run_id: str
    beacon: str
    pairs: list[list[Pair]]
    failed: list[tuple[int, str, str]]
    disputed: list[tuple[int, str, str]]
    unheard: list[str]
    value: float
    standard_error: float | None
    noise_error: float


def fields_of(body: bytes, *kinds: type | tuple[type, ...]) -> list[Any]:
    """Decode a message's fields of these types (or tuples of types); raise Refused if not canonical."""
    try:
        fields = msgspec.msgpack.decode(body)
        same = msgspec.msgpack.encode(fields) == body
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError, RecursionError):
        raise Refused("the format") from None
    required(same and is_array(fields, *kinds), "the format")
    return list(fields)


def is_array(value: object, *kinds: type | tuple[type, ...]) -> bool:
    """Tell whether a value is a list whose items have exactly these types, one by one; bool is no int."""
    each = [kind if isinstance(kind, tuple) else (kind,) for kind in kinds]
    return (
        isinstance(value, list)
        and len(value) == len(each)
        and all(type(one) in kind for one, kind in zip(value, each, strict=True))
    )


class StatisticAudit(RunLog):
    """Auditor of a pairwise statistic's log, read on construction; Refused says which check fails."""

    bound = BOUND

    def __init__(self, lines: Iterable[str]) -> None:
        header, rest = header_of(lines)
        session, fields = header.session, header.fields
        super().__init__(header, session.names, corrupt_of(session), session.digest)
        text, self._root = fields["question"].removeprefix(STATISTIC), fields["root"]
        try:
            self._asked = bytes.fromhex(text)
        except ValueError:
            raise Refused("the question") from None
        right = fields["question"] == STATISTIC + self._asked.hex() and len(self._asked) == 32
        required(right and len(self._root) == 32, "the question")
        parts = (session.digest, uint(self.request), self._asked, fields["present"], self._root)
        required(tuple_hash("run-id", *BOUND, *parts) == self.run, "the run id")
        required(len(self.present) >= self.quorum, "too few are present")
        self._first = list(self.present)
        self._begun = False
        self._terms: dict[str, Any] | None = None
        self._hellos: dict[str, list[Any]] = {}
        self._attempts: list[Attempt] = []
        self._coins: dict[str, bytes] = {}
        self._false: list[str] = []
        self._dones: dict[str, list[int]] = {}
        self._outcome: list[Any] | None = None
        self._last = 0
        self.read(rest)

    @property
    def is_one_log(self) -> bool:
        """Return False: the aggregator alone signs the log's end, so that it may sign two."""
        return False

    def _end(self) -> None:
        required(self._outcome is not None, "no end")

    def _longest(self, kind: str) -> int:
        partners = 0 if self._terms is None else self._terms["partners"]
        sizes = {
            "certify-begin": self._longest_certificate(),
            "statistic-terms": LONGEST_TERMS + MORE,
            "statistic-hello": 4 * LONGEST_OPERATION + MORE,
            "pairs-done": 9 * partners + MORE,
            "outcome": 27 * partners * (len(self.names) // 2) + MORE,
        }
        return sizes.get(kind, len(self.names) // 8 + MORE)

    def _expected(self) -> tuple[str, ...]:
        if not self._begun:
            return ("certify-begin",)
        if self._terms is None:
            return ("statistic-terms",)
        if len(self._hellos) < len(self._first):
            return ("statistic-hello",)
        if len(self._coins) == len(self.present):
            return ("pairs-done", "outcome")
        given_up = len(self._attempts)
        return (COINS[given_up], *AGAINS[given_up : given_up + 1])

    def _take(self, entry: dict[str, Any]) -> None:
        name, kind, body = (entry[key] for key in ("party", "kind", "payload"))
        required(self._outcome is None, "an entry after the last one")
        required(kind in self._expected(), "the order of entries")
        own = ("certify-begin", "statistic-terms", "outcome", *AGAINS)
        required((name == self.aggregator) == (kind in own), "the author")
        run = self.run_id
        if kind == "statistic-hello":
            run = self.session.digest
        elif kind in AGAINS:
            [packed] = fields_of(body, bytes)
            run = tuple_hash("statistic-again", *BOUND, run, uint(len(self._attempts) + 2), packed)
        self._signed(kind, name, body, entry["signature"], run)
        if kind == "certify-begin":
            fields = read_message(body, CERTIFICATE)
            required(fields is not None, "the format")
            self._certify("attest-begin", fields or [], self.present, head=self.session_head)
            self._begun = True
        elif kind in AGAINS:
            self._again(packed, run)
        elif kind in COINS:
            self._coin(name, *fields_of(body, bytes))
        else:
            steps = {"statistic-terms": self._take_terms, "statistic-hello": self._hello}
            steps |= {"pairs-done": self._done, "outcome": self._take_outcome}
            steps[kind](name, body)

    def _take_terms(self, _name: str, body: bytes) -> None:
        text, circuit = fields_of(body, bytes, bytes)
        required(len(text) <= LONGEST_TERMS and len(circuit) == 32, "the format")
        required(tuple_hash("statistic-terms", text, circuit) == self._asked, "the terms")
        try:
            terms = json.loads(text)
            spelt = json.dumps(terms, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
        except (ValueError, RecursionError):
            raise Refused("the terms") from None
        required(spelt == text and isinstance(terms, dict), "the terms")
        check_values(terms)
        partners = terms.get("partners")
        required(type(partners) is int and 1 <= partners <= MOST_PARTNERS, "the terms")
        self._terms = terms

    def _hello(self, name: str, body: bytes) -> None:
        hello = fields_of(body, bytes, int, bytes, bytes, str, int, int)
        session, request, commitments, asked, operation, label, known = hello
        required(name == self._first[len(self._hellos)], "the order of the roster")
        required((session, request) == (self.session.digest, self.request), "a hello of another request")
        required(asked == self._asked and len(operation) <= LONGEST_OPERATION, "a hello of another statistic")
        fits = len(commitments) == 32 * ATTEMPTS and -1 <= label <= 1 and 0 <= known < 1 << 62
        required(fits, "the format")
        self._hellos[name] = hello
        if len(self._hellos) < len(self._first):
            return
        labels = self._labels(self._first)
        given = b"".join(each[2] for each in self._hellos.values())
        required(
            tuple_hash("statistic-root", given, bytes(label + 1 for label in labels)) == self._root, "root"
        )
        terms: dict[str, Any] = self._terms or {}
        required(all((label >= 0) == (terms.get("labels") == "public") for label in labels), "labels")

    def _labels(self, names: Iterable[str]) -> list[int]:
        return [self._hellos[name][5] for name in names]

    def _coin(self, name: str, coin: bytes) -> None:
        self._in_order(name)
        required(len(coin) == 32 and name in self.present, "the format")
        attempt = len(self._attempts)
        parts = (self.session.digest, uint(self.request), self._asked, uint(attempt + 1))
        expected = tuple_hash("statistic-coin", b"".join(parts), name.encode(), coin)
        if self._hellos[name][2][32 * attempt : 32 * (attempt + 1)] != expected:
            self._false.append(name)
            return
        self._coins[name] = coin
        if len(self._coins) == len(self.present):
            self._match()

    def _again(self, packed: bytes, run: bytes) -> None:
        left = self._names(read_set(packed, len(self.names)))
        required(len(left) >= self.quorum and {*left} <= {*self._coins}, "who is still present")
        dropped = [name for name in self.present if name in self._coins and name not in left]
        self._attempts.append(self._ended(dropped))
        self.run_id, self.present = run, left
        self._coins, self._false, self._last = {}, [], 0

    def _ended(self, dropped: list[str]) -> Attempt:
        silent = [name for name in self.present if name not in self._coins and name not in self._false]
        return Attempt(len(self.present), silent, self._false, dropped)

    def _match(self) -> None:
        """Draw the random matchings of the present parties from all their coins; store the pairs."""
        self._last = 0
        opened = [part for name in self.present for part in (name.encode(), self._coins[name])]
        self._beacon = tuple_hash("statistic-beacon", self.run_id, *opened)
        terms: dict[str, Any] = self._terms or {}
        self._pairs: list[list[Pair]] = []
        for number in range(terms["partners"]):
            if self._labels(self.present)[0] < 0:
                order = self._permuted(number, self.present)
                self._pairs.append([*zip(order[0::2], order[1::2], strict=False)])
            else:
                sides = [
                    [name for name in self.present if self._hellos[name][5] == label] for label in (1, 0)
                ]
                one, other = (self._permuted(2 * number + i, side) for i, side in enumerate(sides))
                self._pairs.append([*zip(one, other, strict=False)])

    def _permuted(self, number: int, names: list[str]) -> list[str]:
        seed = tuple_hash("statistic-matching", self._beacon, uint(number))
        encryptor = Cipher(AES256(seed), CTR(bytes(16))).encryptor()
        stream = encryptor.update(bytes(16 * len(names)))
        # Two words of 64 bits each, the second counts first: one number, little-endian.
        keys = [int.from_bytes(stream[16 * i : 16 * (i + 1)], "little") for i in range(len(names))]
        return [names[i] for i in sorted(range(len(names)), key=keys.__getitem__)]

    def _done(self, name: str, body: bytes) -> None:
        self._in_order(name)
        [failed] = fields_of(body, list)
        paired = [number for number, pairs in enumerate(self._pairs) if any(name in pair for pair in pairs)]
        right = all(type(number) is int and number in paired for number in failed)
        required(name in self.present and right and failed == sorted({*failed}), "what failed")
        self._dones[name] = failed

    def _take_outcome(self, _name: str, body: bytes) -> None:
        bound = (float, NoneType)
        *figures, pairs, failed, before = fields_of(
            body, float, bound, bound, bound, float, float, int, list, bytes
        )
        for figure in figures:
            required(figure is None or math.isfinite(figure), "the outcome")
        required(before == self.head, "the outcome is of another log")
        required(all(is_array(index, int, int) for index in failed), "the format")
        drawn = {(m, i) for m, each in enumerate(self._pairs) for i in range(len(each))}
        indices = [(matching, index) for matching, index in failed]
        required(indices == sorted(drawn & {*indices}), "the pairs that failed")
        required(pairs == len(drawn) - len(indices), "how many pairs count")
        self._outcome = [figures[0], figures[1], figures[5], indices]

    def _in_order(self, name: str) -> None:
        party = self.names.index(name) + 1
        required(party > self._last, "the order of the roster")
        self._last = party

    def estimate(self) -> Estimate:
        """Return the logged statistic with parties, draws, pairs, failures and errors."""
        value, error, noise, indices = self._outcome or []
        failed = [(matching, *self._pairs[matching][index]) for matching, index in indices]
        disputed = [
            each
            for each in failed
            if all(name in self._dones and each[0] not in self._dones[name] for name in each[1:])
        ]
        return Estimate(
            statistic=self._asked.hex(),
            terms=self._terms or {},
            present=self.present,
            partners=len(self._pairs),
            attempts=[*self._attempts, self._ended([])],
            run_id=self.run_id.hex(),
            beacon=self._beacon.hex(),
            pairs=self._pairs,
            failed=failed,
            disputed=disputed,
            unheard=[name for name in self.present if name not in self._dones],
            value=value,
            standard_error=error,
            noise_error=noise,
        )
