"""Whether the stored result of a party holds, and whether two have one total.

Specification: protocols/secagg/signed-results.md.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature

from smpc_dp_verify import ristretto
from smpc_dp_verify.answers import SHOWN
from smpc_dp_verify.encodings import party_set, read_set, tuple_hash, uint
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.estimates import OF_ROWS, Estimates
from smpc_dp_verify.numbers import NEAR
from smpc_dp_verify.session import has_small_order
from smpc_dp_verify.stored import Certificate, Failed, Stored, demand, read_object, read_stored, session_of
from smpc_dp_verify.sum_plan import Shares, read_shares
from smpc_dp_verify.sums import LONGEST_SESSION, Sums, read_file, read_sums
from smpc_dp_verify.tree import leaf, root_from, root_of
from smpc_dp_verify.vector import opens

HOLDS, FAILS, NO_SESSION, SOME_RUN, NOTHING_SIGNED, TWO_RESULTS = 0, 1, 3, 4, 6, 8
DIGEST = re.compile("[0-9a-f]{64}")
CLOSE = 1e-12


@dataclass(frozen=True, kw_only=True)
class ResultOpinion:
    """Result of auditing a stored result, or of comparing two: exit code, reason, and facts.

    Attributes:
        code: 0: it holds for session and run, or there is one total; 1: it does not hold, for `reason`, by
            the check `check`; 3: no session file; 4: no run was given; 6: it has no signed total, or there is
            nothing to compare; 8: two totals.
        session, run_id: in hex. operation: the question, kind and label, of one party's result or of both.
        digests: SHA-256 in hex of what the aggregator has signed.
        culprit: the aggregator, where its signature shows the fault.
        checked: whether the total was checked against commitments. corrupt: c of the session.
        checkers: how many survivors at least have attested that they checked the total for all; None: this
            auditor has checked it, or nobody.
        survivors: names. receivers: whom the aggregator signed for.
        unchecked: the numbers of the file that were not compared with the signed total.
    """

    code: int
    reason: str = ""
    check: str | None = None
    culprit: str | None = None
    session: str | None = None
    run_id: str | None = None
    operation: str | None = None
    digests: tuple[str, ...] = ()
    checked: bool | None = None
    corrupt: int | None = None
    checkers: int | None = None
    survivors: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def audit_result(
    path: str | os.PathLike[str],
    session: str | os.PathLike[str] | None = None,
    run: str | None = None,
    request: int | None = None,
) -> ResultOpinion:
    """Audit a party's stored result; return what was found; ValueError for a wrong run id or session.

    Raises ValueError for a session file that is none, or a run id that is none. A session digest in
    the place of the file has no keys: it is as no session file.
    """
    if run is not None and not DIGEST.fullmatch(run):
        raise ValueError(f"run: {run!r} is not 64 lower-case hex digits")
    sums: Sums | bytes = b""
    known: dict[str, Any] = {}
    try:
        fields = read_object(path)
        stored = read_stored(fields)
        if session is None or _is_digest(session):
            return ResultOpinion(code=NO_SESSION)
        sums = _sums(session)
        known["session"] = session_of(fields)
        own = sums if isinstance(sums, bytes) else sums.session.digest
        demand(known["session"] in (None, own.hex()), "other-session", "the session is another one")
        if stored is None:
            return ResultOpinion(code=NOTHING_SIGNED, **known)
        if isinstance(sums, bytes):
            raise Failed("other-plan", "the session's runs have no signed result")
        signed = SignedRun(stored, sums)
        signed.check_run()
        known |= {
            "run_id": stored.run.hex(),
            "operation": stored.operation,
            "corrupt": sums.corrupt,
            "receivers": (stored.receiver,),
        }
        signed.check_quorums()
        signed.check_signature()
        known["digests"] = (hashlib.sha256(stored.body).hexdigest(),)
        signed.check_commitments()
        signed.check_numbers()
        demand(request in (None, stored.request), "other-request", "the request is another one")
        demand(run in (None, stored.run.hex()), "other-run", "the run is another one")
    except Failed as failed:
        culprit = sums.session.aggregator if failed.signed and isinstance(sums, Sums) else None
        return ResultOpinion(code=FAILS, reason=str(failed), check=failed.check, culprit=culprit, **known)
    return ResultOpinion(
        code=SOME_RUN if run is None else HOLDS,
        checked=signed.sums.is_checked,
        checkers=sums.corrupt + 1 if signed.sums.has_checkers else None,
        survivors=tuple(stored.survivors),
        unchecked=signed.unchecked,
        **known,
    )


def compare_results(
    one: str | os.PathLike[str], other: str | os.PathLike[str], session: str | os.PathLike[str] | None
) -> ResultOpinion:
    """Compare two stored results, to find an aggregator that signed two totals of one run."""
    signed: list[SignedRun] = []
    for path in (one, other):
        try:
            stored = read_stored(read_object(path))
            if session is None or _is_digest(session):
                return ResultOpinion(code=NO_SESSION)
            sums = _sums(session)
            if stored is None or isinstance(sums, bytes) or stored.session != sums.session.digest:
                return ResultOpinion(code=NOTHING_SIGNED, reason="no signed result, or another session")
            signed.append(SignedRun(stored, sums))
            signed[-1].check_run()
            signed[-1].check_signature()
        except Failed as failed:
            return ResultOpinion(code=FAILS, reason=f"{os.fspath(path)}: {failed}", check=failed.check)
    left, right = (each.stored for each in signed)
    if left.run != right.run:
        return ResultOpinion(code=NOTHING_SIGNED, reason="they are of two runs")
    known: dict[str, Any] = {"session": left.session.hex(), "run_id": left.run.hex()}
    known["operation"] = left.operation
    known["digests"] = tuple(hashlib.sha256(each.body).hexdigest() for each in (left, right))
    known["receivers"] = (left.receiver, right.receiver)
    if left.body != right.body:
        culprit = signed[0].sums.session.aggregator
        reason = f"{culprit} has signed two results of one run"
        return ResultOpinion(code=TWO_RESULTS, reason=reason, check="equivocation", culprit=culprit, **known)
    if left.receiver == right.receiver:
        return ResultOpinion(code=NOTHING_SIGNED, reason=f"both are of {left.receiver}")
    for path, each in zip((one, other), signed, strict=True):
        try:
            each.check_sets()
            each.check_digests()
            each.check_numbers()
        except Failed as failed:
            return ResultOpinion(code=FAILS, reason=f"{os.fspath(path)}: {failed}", check=failed.check)
    return ResultOpinion(code=HOLDS, unchecked=signed[0].unchecked, **known)


def _is_digest(session: str | os.PathLike[str]) -> bool:
    """Tell whether `session` is a hex digest and no file of that name exists."""
    return bool(DIGEST.fullmatch(os.fspath(session))) and not os.path.exists(session)


def _sums(path: str | os.PathLike[str]) -> Sums | bytes:
    """Return a session file's sum parameters, or its digest if nobody signs totals; ValueError if wrong."""
    with open(path, "rb") as file:
        text = file.read(LONGEST_SESSION + 1)
    try:
        session = read_file(text)
    except Refused as refused:
        raise ValueError(f"session: {refused}") from None
    if isinstance(session, bytes):
        return session
    try:
        return read_sums(session)
    except Refused:
        return session.digest


class SignedRun:
    """Run of a stored result with a signed total, and methods that check parts of its evidence."""

    def __init__(self, stored: Stored, sums: Sums) -> None:
        session = sums.session
        self.stored, self.names = stored, session.names
        self.sums = sums.of_total(_elements(stored.body))
        self.bound = (session.protocol.encode(), uint(session.version))
        self.numbers = {name: number for number, name in enumerate(session.names, 1)}
        self.unclear: list[str] = []

    def _hash(self, label: str, *parts: bytes) -> bytes:
        return tuple_hash(label, *self.bound, self.stored.run, *parts)

    def _numbers(self, names: Sequence[str]) -> list[int]:
        for name in names:
            demand(name in self.numbers, "not-in-roster", f"{name} is no party")
        return [self.numbers[name] for name in names]

    def _ordered(self, names: Sequence[str]) -> bytes:
        """Return the packed set of these parties; raise Failed unless they are in roster order."""
        numbers = self._numbers(names)
        demand(numbers == sorted({*numbers}), "wrong-order", "parties are not in order")
        return party_set(numbers, len(self.names))

    def check_run(self) -> None:
        """Raise Failed unless protocol, kind of evidence, names and run id fit; read the sets."""
        stored, sums, session = self.stored, self.sums, self.sums.session
        demand(stored.protocol == (session.protocol, session.version), "other-session", "the protocol")
        given = (stored.is_checked, bool(stored.values_root), stored.survivors_certified is not None)
        is_right = given == (sums.is_checked or None, sums.is_checked, sums.is_certified)
        demand(is_right, "other-plan", "the evidence is not that of the session's runs")
        (_check_record_forms if sums.has_records else _check_forms)(stored.fields)
        try:
            self.present = read_set(stored.present, len(self.names))
            self.advertised = read_set(stored.advertised, len(self.names))
        except Refused:
            raise Failed("bad-set", "a set of parties") from None
        self.participants = self._ordered(stored.participants)
        self.survivors = self._ordered(stored.survivors)
        for certificate in (stored.certified, stored.survivors_certified):
            if certificate is not None:
                self._numbers([*certificate.signatures, *certificate.signers])
        self._numbers([stored.receiver, *stored.absent])
        left = [name for name in self.names if name not in {*stored.survivors}]
        demand(stored.absent == left, "set-differs", "the absent parties")
        parts = (session.digest, uint(stored.request), _utf8(stored.operation), stored.present, stored.nonces)
        run = tuple_hash("following-run-id", *self.bound, *parts, stored.nonce, stored.named)
        demand(run == stored.run, "run-id-differs", "the run id")

    def check_quorums(self) -> None:
        """Raise Failed unless sets, digests, and certificates by quorums are valid."""
        stored = self.stored
        self.check_sets()
        self.check_digests()
        participants, survivors = {*stored.participants}, {*stored.survivors}
        quorum = self.sums.quorum
        self._check_certificate("attest-participants", stored.certified, participants, quorum)
        if stored.survivors_certified is not None:
            self._check_certificate("attest-survivors", stored.survivors_certified, survivors, quorum)

    def check_sets(self) -> None:
        """Raise Failed unless each set lies in the one before, and enough parties survive."""
        stored = self.stored
        participants, survivors = {*stored.participants}, {*stored.survivors}
        advertised, present = ({self.names[i - 1] for i in each} for each in (self.advertised, self.present))
        grown = survivors <= participants <= advertised <= present
        demand(grown, "set-grew", "a set has parties that were out before")
        demand(len(survivors) >= self.sums.least, "set-too-small", "too few survivors")
        demand(stored.receiver in survivors, "not-included", "the receiver is no survivor")

    def check_digests(self) -> None:
        """Raise Failed unless the signed digests are those of the sets and Merkle roots."""
        stored = self.stored
        roots = (stored.root, stored.values_root) if stored.values_root else (stored.root,)
        commitment = self._hash("roll", stored.advertised, *roots)
        demand(commitment == stored.commitment, "other-statement", "the roll digest")
        digest = self._hash("participants", commitment, self.participants)
        is_same = digest == stored.certified.digest
        demand(is_same, "other-statement", "the digest of the participants")
        if stored.survivors_certified is not None:
            digest = self._hash("survivors", digest, self.survivors)
            is_same = digest == stored.survivors_certified.digest
            demand(is_same, "other-statement", "the digest of the survivors")

    def _check_certificate(self, step: str, given: Certificate, members: set[str], quorum: int) -> None:
        """Raise Failed unless `quorum` members of the set have validly signed its digest."""
        check, packed = "bad-certificate", self._ordered(given.signers)
        demand({*given.signers} <= members, check, f"a signer of {step} outside of the set")
        demand(len(given.signers) >= quorum, "no-quorum", f"too few signatures of {step}")
        indices = self._shown(step, given, packed, quorum)
        shown = [given.signers[index] for index in indices]
        demand(list(given.signatures) == shown, check, f"the signatures of {step}")
        if given.is_sampled:
            leaves = {
                index: leaf("attestations", index, name, given.signatures[name])
                for index, name in zip(indices, shown, strict=True)
            }
            root = root_from("attestations", len(given.signers), leaves, given.proof)
            demand(root == given.root, check, f"the proof of {step}")
        body = msgspec.msgpack.encode([given.digest])
        for name, signature in given.signatures.items():
            is_signed = self._is_signed(step, name, self.sums.session.aggregator, body, signature)
            demand(is_signed, check, f"the signature of {name} of {step}")

    def _shown(self, step: str, given: Certificate, packed: bytes, quorum: int) -> list[int]:
        """Return the indices of the signers whose signatures a certificate shows: all, or a sample."""
        many = len(given.signers)
        if not given.is_sampled:
            return list(range(many))
        seed = self._hash("certificate-challenge", step.encode(), given.digest, packed, given.root)
        return sample(seed, many, samples(many, quorum))

    def _check_attested(self, packed: bytes, blinding: bytes, attested: list[bytes]) -> None:
        """Raise Failed unless more survivors than may be corrupt have signed the total."""
        signers, signatures, root, proof = attested
        survivors, least = self.stored.survivors_certified, self.sums.corrupt + 1
        demand(survivors is not None, "other-plan", "no certificate of the survivors")
        try:
            numbers = read_set(signers, len(self.names))
        except Refused:
            raise Failed("bad-set", "the set of the checkers", signed=True) from None
        digest = self._hash("total", survivors.digest if survivors else b"", packed, blinding)
        given = Certificate(digest, {}, [self.names[number - 1] for number in numbers], root, proof)
        if len(numbers) >= least:
            shown = self._shown("attest-total", given, signers, least)
            if len(signatures) == 64 * len(shown):
                names = [given.signers[index] for index in shown]
                given = replace(given, signatures=dict(zip(names, _pieces(signatures, 64), strict=True)))
        try:
            self._check_certificate("attest-total", given, {*self.stored.survivors}, least)
        except Failed as failed:
            raise Failed(failed.check, str(failed), signed=True) from None

    def _is_signed(self, step: str, sender: str, receiver: str, body: bytes, signature: bytes) -> bool:
        parts = (step.encode(), sender.encode(), receiver.encode(), hashlib.sha256(body).digest())
        return self._verifies(sender, self._hash("envelope", *parts), signature)

    def _verifies(self, name: str, statement: bytes, signature: bytes) -> bool:
        try:
            self.sums.session.keys[name].verify(signature, statement)
        except InvalidSignature:
            return False
        return not has_small_order(signature[:32])

    def check_signature(self) -> None:
        """Raise Failed unless the aggregator signed the result message for the receiver."""
        step, stored = "result" if self.sums.is_certified else "average", self.stored
        signed = (step, self.sums.session.aggregator, stored.receiver, stored.body, stored.signature)
        demand(self._is_signed(*signed), "bad-signature", "the aggregator's signature")

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Names of the file's fields that this auditor does not compare with the signed total."""
        sums = self.sums
        if sums.has_records and self.shares is not None:
            return (*self.shares.unchecked, *self.unclear)
        if sums.has_records:
            return ("operation", "estimates", "rows", "present", "counted", "privacy")
        noise = ("range", "standard_error", "curator_standard_error", "bias", "privacy")
        if not sums.is_noisy:
            return ()
        if not sums.most_weight:
            return noise
        return (*noise, "value", "weight", *(("fixed_point",) if len(sums.radii) > 1 else ()))

    def _total(self) -> tuple[list[Any], list[int]]:
        """Return the signed message's fields, and its total as integers; Failed if malformed."""
        sums, fields = self.sums, self._body()
        packed, width = fields[0], sums.width
        count = len(packed) // width if sums.elements is None else sums.elements
        if sums.has_records and self.shares is not None:
            count = self.shares.length
        fits = len(packed) == count * width > 0
        demand(fits, "malformed", "the length of the total", signed=True)
        pieces = _pieces(packed, width)
        return fields, [int.from_bytes(each, "little", signed=sums.is_noisy) for each in pieces]

    def check_commitments(self) -> None:
        """Raise Failed unless a checked total opens the survivors' commitments, or is attested."""
        fields, total = self._total()
        if self.sums.has_checkers:
            self._check_attested(*fields)
        elif self.sums.is_checked:
            self._check_commitments(total, *fields[1:])

    def check_numbers(self) -> None:
        """Raise Failed unless the total is possible and gives the numbers in the file."""
        sums, stored = self.sums, self.stored
        fields, total = self._total()
        pairs = 0
        if not sums.is_certified:
            # No certificate binds the survivors of the file: that it has others shows nothing.
            demand(fields[1] == self.survivors, "set-differs", "the average's survivors")
            pairs = fields[2]
            most = (len(stored.participants) - len(stored.survivors)) * len(stored.survivors)
            demand(0 <= pairs <= most, "wrong-count", "residual pairs", signed=True)
        weight = total[-1] if sums.most_weight and not sums.is_noisy else len(stored.survivors)
        grid = self._grid(total, weight)
        demand(stored.fields["residual_pairs"] == pairs, "wrong-result", "residual_pairs")
        kind = stored.operation.split(" ")[0]
        demand(stored.fields["kind"] == kind, "wrong-result", "kind")
        if not sums.has_records:
            self._check_numbers(grid, weight, kind)
        elif self.shares is not None:
            self._check_plan(self.shares, total)

    @functools.cached_property
    def shares(self) -> Shares | None:
        """The planned noise of statistics of records; None for other sums, or if not planned here."""
        try:
            return read_shares(self.sums) if self.sums.has_records else None
        except Refused as refused:
            raise Failed("other-plan", str(refused)) from None

    def _check_plan(self, shares: Shares, total: list[int]) -> None:
        """Raise Failed unless question and file agree with the session's planned noise and scales."""
        stored, given = self.stored, self.sums.session.parameters
        try:
            variance = shares.check(stored.operation, stored.fields.get("begins"))
        except Refused as refused:
            raise Failed("wrong-result", str(refused)) from None
        numbers = [self.numbers[name] - 1 for name in stored.survivors]
        expected = {
            "present": len(numbers),
            "counted": shares.counted,
            "rows": shares.rows_of(numbers),
        }
        for name, value in expected.items():
            is_same = type(stored.fields[name]) is type(value) and stored.fields[name] == value
            demand(is_same, "wrong-result", name)
        claimed = {"unit": shares.unit, "epsilon": given["epsilon"], "delta": given["delta"]}
        for name, value in claimed.items():
            demand(stored.fields["privacy"][name] == value, "wrong-result", f"privacy.{name}")
        self._check_guarantee(stored.fields["privacy"].get("guarantee"), claimed)
        listed, hide, outside = stored.fields["estimates"], stored.fields["hide"], 1 - stored.fields["level"]
        if shares.asked is not None:
            check_order([*shares.asked], listed)
        if stored.fields["simultaneous"]:
            outside /= max(1, len(listed))
        for one in shares.estimates(total, variance, numbers, SHOWN if hide is None else hide, outside):
            self.unclear += check_estimates(one, listed)

    def _check_guarantee(self, guarantee: Any, claimed: dict[str, Any]) -> None:
        """Raise Failed unless a guarantee, where there is one, has the numbers, relation and unit claimed."""
        if guarantee is None:
            return
        is_public = self.sums.session.parameters["records"].get("rows") == "public"
        expected = {name: claimed[name] for name in ("epsilon", "delta")}
        expected |= {"relation": "substitution" if is_public else "add-remove", "protects": claimed["unit"]}
        is_same = isinstance(guarantee, dict)
        is_same = is_same and all(guarantee.get(name) == value for name, value in expected.items())
        demand(is_same, "wrong-result", "privacy.guarantee")

    def _body(self) -> list[Any]:
        """Return the signed message's decoded fields; raise Failed for wrong types or encoding."""
        kinds: list[type] = [bytes, bytes, int] if not self.sums.is_certified else [bytes]
        if self.sums.is_checked:
            kinds = [bytes, bytes, list] if self.sums.has_checkers else [bytes] * 4
        try:
            fields = msgspec.msgpack.decode(self.stored.body)
        except (msgspec.MsgspecError, ValueError, OverflowError, TypeError, RecursionError):
            raise Failed("malformed", "the body", signed=True) from None
        is_right = isinstance(fields, list) and [type(field) for field in fields] == kinds
        is_right = is_right and (not self.sums.is_checked or len(fields[1]) == 32)
        is_same = msgspec.msgpack.encode(fields) == self.stored.body
        if is_right and self.sums.has_checkers:
            # A certificate without root and proof is read, and has another encoding.
            is_right = 2 <= len(fields[2]) <= 4 and {*map(type, fields[2])} == {bytes}
            is_same = is_same and len(fields[2]) == 4
        demand(is_right, "malformed", "the body", signed=True)
        demand(is_same, "not-canonical", "the body", signed=True)
        return list(fields)

    def _check_commitments(self, total: list[int], blinding: bytes, openings: bytes, hidden: bytes) -> None:
        stored, survivors = self.stored, {*self.stored.survivors}
        members = [self.names[number - 1] for number in self.advertised]
        left = [name for name in members if name not in survivors]
        is_each = (len(openings), len(hidden)) == (96 * len(survivors), 32 * len(left))
        demand(is_each, "not-one-each", "the commitments", signed=True)
        shown = dict(zip(stored.survivors, _pieces(openings, 96), strict=True))
        given = dict(zip(left, _pieces(hidden, 32), strict=True))
        for name, opening in shown.items():
            point, signature = opening[:32], opening[32:]
            statement = self._hash("value-opening", stored.certified.digest, name.encode(), point)
            is_signed = self._verifies(name, statement, signature)
            demand(is_signed, "not-signed", f"the commitment of {name}", signed=True)
            given[name] = self._hash("value-commitment", name.encode(), point)
        root = root_of("values", members, [given[name] for name in members])
        demand(root == stored.values_root, "not-in-tree", "the root of the commitments", signed=True)
        sum_of_blindings = int.from_bytes(blinding, "little")
        demand(sum_of_blindings < ristretto.ORDER, "bad-commitment", "the blinding", signed=True)
        try:
            points = [ristretto.decode(opening[:32]) for opening in shown.values()]
        except ValueError:
            raise Failed("bad-commitment", "a commitment is no point", signed=True) from None
        is_right = opens(total, sum_of_blindings, points)
        demand(is_right, "wrong-total", "the total is not that of the commitments", signed=True)

    def _grid(self, total: list[int], weight: int) -> list[int]:
        """Return the total as integers on the grid; raise Failed if no permitted vectors have it."""
        sums, count = self.sums, len(self.stored.survivors)
        if sums.has_records:
            return total
        if sums.most_weight and sums.is_noisy:
            return self._weighted(total)
        lowest = min(sums.lows)
        grid = [value + weight * lowest for value in total]
        if sums.is_noisy:
            return grid
        values = grid[:-1] if sums.most_weight else grid
        possible = weight <= count * max(1, sums.most_weight)
        sides = [side * (len(values) // len(side)) for side in (sums.lows, sums.highs)]
        possible = possible and all(
            low * weight <= value <= high * weight for value, low, high in zip(values, *sides, strict=True)
        )
        demand(possible, "out-of-bounds", "no vectors within the bounds have this sum", signed=True)
        return values

    def _weighted(self, total: list[int]) -> list[int]:
        """Return the total of privately weighted vectors as grid integers, without its offset."""
        sums, count = self.sums, len(self.stored.survivors)
        given = self.stored.fields["fixed_point"]
        for steps in sums.radii:
            grid = [value - count * steps for value in total]
            if grid == given:
                break
        return grid

    def _check_numbers(self, grid: list[int], weight: int, kind: str) -> None:
        sums, fields = self.sums, self.stored.fields
        step = math.ldexp(1.0, -sums.bits)
        demand(fields["step"] == step, "wrong-result", "step")
        is_private = sums.most_weight and sums.is_noisy
        demand(is_private or fields["weight"] == weight, "wrong-result", "weight")
        demand(fields["fixed_point"] == grid, "wrong-result", "fixed_point")
        if is_private:
            return
        if not sums.is_noisy:
            errors = [fields[name] for name in ("standard_error", "curator_standard_error", "bias")]
            demand(errors == [0, 0, None], "wrong-result", "the error of an exact sum")
            claimed = [fields["privacy"][name] for name in ("unit", "epsilon", "delta")]
            demand(claimed == [None] * 3, "wrong-result", "the privacy of an exact sum")
        demand(kind in ("sum", "average") and (weight > 0 or kind == "sum"), "wrong-result", "kind")
        divisor = (weight if kind == "average" else 1) * Fraction(2) ** sums.bits
        values: list[float] = [float(value / divisor) for value in grid]
        if kind == "average" and not sums.is_noisy:
            lower, upper = (list(side) * (len(grid) // len(side)) for side in sums.sides)
            values = [
                min(max(value, low), high) for value, low, high in zip(values, lower, upper, strict=True)
            ]
        given = fields["value"]
        demand(_are_close(given, values), "wrong-result", "value")


def check_order(asked: Sequence[str], estimates: Any) -> None:
    """Raise Failed for estimates of what is not asked for, or in another order than the question's."""
    demand(isinstance(estimates, list), "wrong-result", "estimates")
    positions = {text: position for position, text in enumerate(asked)}
    texts = [each.get("statistic") if isinstance(each, dict) else None for each in estimates]
    order = [positions[text] for text in texts if isinstance(text, str) and text in positions]
    demand(len(order) == len(texts), "wrong-result", "estimates of what is not asked for")
    demand(order == sorted(order), "wrong-result", "the order of estimates")


def check_estimates(right: Estimates, listed: Sequence[dict[str, Any]]) -> list[str]:
    """Return the fields of an answer's estimates that programs may differ in; raise Failed for wrong ones."""
    own, text = [each for each in listed if each["statistic"] == right.statistic], right.statistic
    demand(len(own) == len(right.each), "wrong-result", f"the number of estimates of {text}")
    unclear: dict[str, None] = {}
    for each, (name, unit, cell, numbers, scales) in zip(own, right.each, strict=True):
        error = numbers["standard_error"] or 0.0
        errors = dict.fromkeys(OF_ROWS, right.row_error) | dict(scales)
        for key, word in {"cell": cell, "name": name, "unit": unit, **right.words}.items():
            demand(each.get(key) == word, "wrong-result", f"{key} in the estimates of {text}")
        for key, number in numbers.items():
            if number is not None and math.isnan(number):
                unclear[f"{key} in the estimates of {text}"] = None
                continue
            is_near = _is_near(each.get(key), number, errors.get(key, error))
            demand(is_near, "wrong-result", f"{key} in the estimates of {text}")
    return [*unclear]


def _is_near(given: Any, number: float | None, error: float) -> bool:
    """Tell whether a number is one that was computed in another order, to a part of its noise."""
    if number is None or type(given) not in NUMBER:
        return number is given
    try:
        return math.isclose(given, number, rel_tol=NEAR, abs_tol=NEAR * error)
    except OverflowError:
        return False


def _elements(body: bytes) -> int:
    """Return how many 8-byte elements the total of a message body has; 0 if it is malformed."""
    try:
        fields = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError, RecursionError):
        return 0
    has_total = isinstance(fields, list) and fields and isinstance(fields[0], bytes)
    return len(fields[0]) // 8 if has_total else 0


def _are_close(given: list[float], values: list[float]) -> bool:
    pairs = zip(given, values, strict=False)
    try:
        return len(given) == len(values) and all(math.isclose(*pair, rel_tol=CLOSE) for pair in pairs)
    except OverflowError:
        # An integer that is no float64.
        return False


NUMBER: tuple[type, ...] = (int, float)
NUMBER_OR_NULL: tuple[type, ...] = (*NUMBER, type(None))
# Types of the numbers of a sum or an average, and of those of its privacy.
FORMS = {"weight": (int,), "bias": NUMBER_OR_NULL}
FORMS |= dict.fromkeys(("step", "standard_error", "curator_standard_error"), NUMBER)
PRIVACY_FORMS = {"unit": (str, type(None)), "epsilon": NUMBER_OR_NULL, "delta": NUMBER_OR_NULL}


def _check_forms(fields: dict[str, Any]) -> None:
    """Raise Failed unless the numbers of a sum or average in a file have the right JSON types."""
    value, grid, privacy = (fields.get(name) for name in ("value", "fixed_point", "privacy"))
    is_right = isinstance(value, list) and all(type(one) in NUMBER for one in value)
    is_right = is_right and isinstance(grid, list) and all(type(one) is int for one in grid)
    tables: tuple[tuple[Any, dict[str, tuple[type, ...]]], ...] = ((fields, FORMS), (privacy, PRIVACY_FORMS))
    for table, forms in tables:
        is_right = is_right and isinstance(table, dict)
        is_right = is_right and all(type(table.get(name, ...)) in forms[name] for name in forms)
    is_right = is_right and all(_fits(fields[name]) for name in FORMS if name != "weight")
    is_right = is_right and privacy is not None and all(_fits(privacy[name]) for name in ("epsilon", "delta"))
    demand(is_right, "malformed", "the numbers of the result")


def _fits(value: Any) -> bool:
    """Tell whether a value is null or a number that a float64 can have."""
    return value is None or abs(value) <= sys.float_info.max


def _check_record_forms(fields: dict[str, Any]) -> None:
    """Refuse numbers of statistics of records of other types."""
    level, hide, privacy, begins = (fields.get(name, ...) for name in ("level", "hide", "privacy", "begins"))
    is_whole = isinstance(begins, list) and all(type(one) is int for one in begins)
    is_right = (
        {*fields} >= {"estimates", "rows", "present", "counted"}
        and (type(level) in NUMBER and 0 < level < 1)
        and type(fields.get("simultaneous")) is bool
        and (hide is None or (type(hide) in NUMBER and hide >= 0 and _fits(hide)))
        and (begins in (None, ...) or is_whole)
        and isinstance(privacy, dict)
        and all(type(privacy.get(name, ...)) in PRIVACY_FORMS[name] for name in PRIVACY_FORMS)
        and all(_fits(privacy[name]) for name in ("epsilon", "delta"))
    )
    demand(is_right, "malformed", "the numbers of the result")


def samples(claimed: int, quorum: int) -> int:
    """Return how many of the claimed signatures a certificate must show [secagg, "Certificates"]."""
    for shown in range(quorum):
        if math.comb(quorum - 1, shown) << 128 <= math.comb(claimed, shown):
            return shown
    return quorum


def sample(seed: bytes, size: int, count: int) -> list[int]:
    """Return `count` distinct indices below `size`, ascending, drawn from a seed by Floyd's method."""
    words = _words(seed)
    chosen: set[int] = set()
    for top in range(size - count, size):
        bound = top + 1
        word = next(word for word in words if word < 2**64 - 2**64 % bound)
        index = word % bound
        chosen.add(top if index in chosen else index)
    return sorted(chosen)


def _words(seed: bytes) -> Any:
    number = 0
    while True:
        block = tuple_hash("certificate-sample", seed, uint(number))
        yield from (int.from_bytes(block[i : i + 8], "little") for i in range(0, 32, 8))
        number += 1


def _pieces(packed: bytes, size: int) -> list[bytes]:
    return [packed[i : i + size] for i in range(0, len(packed), size)]


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Failed("malformed", "operation is malformed") from None
