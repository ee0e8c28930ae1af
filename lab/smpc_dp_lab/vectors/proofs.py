"""The test vectors of commitments and proofs, published in `protocols/proofs/vectors`.

`protocols/proofs/README.md` is the specification. A case that is false carries one fault, which names it.
"""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.crypto import proofs
from smpc_dp.crypto.commit import VALUE_LIMIT, commit, fresh_blinding
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.vectors import forged

RUN = bytes(range(32))
AUTHOR = "alice"
ORDER = (1 << 252) + 27742317777372353535851937790883648493

JsonObject = dict[str, object]


def generate() -> dict[str, JsonObject]:
    """Return the content of every published file by its name; the same on every host."""
    return {
        "commitment": _commitments(),
        "range": _ranges(),
        "box": _boxes(),
        "noise": _noise(),
        "norm": _norms(),
    }


def _source(name: str) -> SeededRandomnessForSimulation:
    """Return seeded randomness for the test vector of this name."""
    return SeededRandomnessForSimulation(0, f"vectors {name}")


def _commitments() -> JsonObject:
    """Return the test vector of commitments: values, blindings, and commitments."""
    source = _source("commitment")
    cases: list[JsonObject] = []
    for values in ([], [0], [1], [5, -3, 0], [VALUE_LIMIT - 1, 1 - VALUE_LIMIT]):
        blinding = fresh_blinding(source)
        cases.append(
            {
                "values": [str(value) for value in values],
                "blinding": blinding.hex(),
                "commitment": commit(values, blinding).hex(),
            }
        )
    return {"statement": "commitment", "cases": cases}


def _case(fault: str, statement: JsonObject) -> JsonObject:
    """Return a statement as a case of a test vector; `fault` names why it is false, "" if it is true."""
    return {"valid": not fault, "fault": fault, **statement}


def _with(statement: JsonObject, **changed: object) -> JsonObject:
    """Return a copy of the statement with some fields replaced."""
    return {**statement, **changed}


def _context(author: str = AUTHOR, run: bytes = RUN) -> str:
    return proofs.context(run, author).hex()


def _flip(data: str, index: int) -> str:
    """Return `data`, in hex, with the lowest bit of one byte flipped."""
    changed = bytearray.fromhex(data)
    changed[index] ^= 1
    return changed.hex()


def _faults_of(statement: JsonObject) -> list[JsonObject]:
    """Return the faults that any proof can have: replayed, cut, lengthened, changed, or not canonical."""
    proof = str(statement["proof"])
    # The last scalar plus the order: the same number, not its canonical encoding.
    last = int.from_bytes(bytes.fromhex(proof)[-32:], "little") + ORDER
    return [
        _case("from another author", _with(statement, context=_context("bob"))),
        _case("from another run", _with(statement, context=_context(run=bytes(32)))),
        _case("cut by one byte", _with(statement, proof=proof[:-2])),
        _case("a zero byte after it", _with(statement, proof=f"{proof}00")),
        _case("first byte touched", _with(statement, proof=_flip(proof, 0))),
        _case("last scalar touched", _with(statement, proof=_flip(proof, -32))),
        _case(
            "last scalar not canonical",
            _with(statement, proof=proof[:-64] + last.to_bytes(32, "little").hex()),
        ),
    ]


def _ranges() -> JsonObject:
    """Return the test vector of range proofs with one range for all values."""
    source = _source("range")
    cases: list[JsonObject] = []
    for values, lo, hi in (([1], 0, 1), ([50], -7, 50), ([0, 6, 4], 0, 6), ([1 << 64], 0, (1 << 100) + 1)):
        statement = _range(values, lo, hi, source)
        cases.append(_case("", statement))
    statement = _range([1, 2], 0, 2, source)
    cases += [
        _case("upper bound more by one", _with(statement, hi="3")),
        _case("range moved by one", _with(statement, lo="1", hi="3")),
        _case("one coordinate fewer", _with(statement, length=1)),
        _case(
            "another commitment", _with(statement, commitment=commit([2, 1], fresh_blinding(source)).hex())
        ),
        *_faults_of(statement),
        _forged_range("forged: holds a generator of what fills up to a power of two", forged.RANGE_FILL),
        _forged_range("forged: a value above by one, by a digit of two", forged.RANGE_DIGIT),
    ]
    return {"statement": "range", "cases": cases}


def _boxes() -> JsonObject:
    """Return the test vector of range proofs with a range for each coordinate."""
    source = _source("box")
    cases: list[JsonObject] = []
    for values, lo, hi in (
        ([1, -7], [0, -9], [1, -2]),
        ([0, 6, 100], [0, 0, 36], [1, 6, 100]),
        ([2, 2], [0, 0], [2, 2]),
    ):
        cases.append(_case("", _range(values, lo, hi, source)))
    statement = _range([1, 4], [0, 2], [2, 5], source)
    both = {"lo": ["2", "0"], "hi": ["5", "2"]}
    cases += [
        _case("an upper bound more by one", _with(statement, hi=["2", "6"])),
        _case("a range moved by one", _with(statement, lo=["1", "2"], hi=["3", "5"])),
        _case("ranges exchanged", _with(statement, **both)),
        _case("one coordinate fewer", _with(statement, length=1, lo=["0"], hi=["2"])),
        _case("one range for all", _with(_range([1, 4], 0, 5, source), lo=["0", "0"], hi=["5", "5"])),
        *_faults_of(statement),
    ]
    return {"statement": "box", "cases": cases}


def _forged_range(fault: str, parts: tuple[str, str]) -> JsonObject:
    commitment, proof = parts
    statement: JsonObject = {"context": _context(), "commitment": commitment, "length": 1}
    return _case(fault, {**statement, "lo": "0", "hi": "6", "proof": proof})


def _range(
    values: Sequence[int], lo: proofs.Bound, hi: proofs.Bound, source: SeededRandomnessForSimulation
) -> JsonObject:
    blinding = fresh_blinding(source)
    context = _context()
    return {
        "context": context,
        "commitment": commit(values, blinding).hex(),
        "length": len(values),
        "lo": _spelt(lo),
        "hi": _spelt(hi),
        "proof": proofs.prove_range(bytes.fromhex(context), values, blinding, lo, hi, source).hex(),
    }


def _spelt(bound: proofs.Bound) -> str | list[str]:
    return str(bound) if isinstance(bound, int) else [str(number) for number in bound]


def _noise() -> JsonObject:
    """Return the test vector of proofs that noise follows from secret bits and coins."""
    source = _source("noise")
    cases: list[JsonObject] = []
    for length, bits in ((1, 2), (1, 8), (2, 6)):
        statement = _noise_statement(length, bits, source)
        cases.append(_case("", statement))
    statement = _noise_statement(1, 4, source)
    secret, noise, coins = (str(statement[key]) for key in ("secret_commitment", "noise_commitment", "coins"))
    other = _noise_statement(1, 4, source)
    cases += [
        _case("other coins", _with(statement, coins=_flip(coins, 0))),
        _case("other secret bits", _with(statement, secret_commitment=other["secret_commitment"])),
        _case("other noise", _with(statement, noise_commitment=other["noise_commitment"])),
        _case("commitments exchanged", _with(statement, secret_commitment=noise, noise_commitment=secret)),
        _case("coordinates cut otherwise", _with(statement, length=2, bits=2)),
        *_faults_of(statement),
        _case("forged: noise beyond what bits give, by a digit of three", _forged_noise()),
    ]
    return {"statement": "noise", "cases": cases}


def _forged_noise() -> JsonObject:
    secret, noise, proof = forged.NOISE_DIGIT
    statement: JsonObject = {"context": _context(), "secret_commitment": secret, "noise_commitment": noise}
    return {**statement, "length": 1, "bits": 2, "coins": "01", "proof": proof}


def _noise_statement(length: int, bits: int, source: SeededRandomnessForSimulation) -> JsonObject:
    secret = proofs.NoiseSecret.draw(length, bits, source)
    coins = source.bytes(proofs.coin_bytes(length, bits))
    context = _context()
    noise, proof = secret.prove(bytes.fromhex(context), coins, fresh_blinding(source), source)
    return {
        "context": context,
        "secret_commitment": secret.commitment.hex(),
        "noise_commitment": noise.hex(),
        "length": length,
        "bits": bits,
        "coins": coins.hex(),
        "proof": proof.hex(),
    }


def _norms() -> JsonObject:
    """Return the test vector of proofs of bounded norms."""
    source = _source("norm")
    cases: list[JsonObject] = []
    for values, bound in (([1], 1), ([1, -2, 0], 5), ([3, 4], 30)):
        cases.append(_case("", _norm(values, bound, source)))
    statement = _norm([1, 1], 2, source)
    cases += [
        _case("bound less by one", _with(statement, bound_squared="1")),
        _case("one coordinate fewer", _with(statement, length=1)),
        *_faults_of(statement),
        _case("forged: norm understated", _forged_norm()),
    ]
    return {"statement": "norm", "cases": cases}


def _forged_norm() -> JsonObject:
    commitment, proof = forged.NORM_UNDERSTATED
    statement: JsonObject = {"context": _context(), "commitment": commitment, "length": 3}
    return {**statement, "bound_squared": "5", "proof": proof}


def _norm(values: Sequence[int], bound: int, source: SeededRandomnessForSimulation) -> JsonObject:
    blinding = fresh_blinding(source)
    context = _context()
    return {
        "context": context,
        "commitment": commit(values, blinding).hex(),
        "length": len(values),
        "bound_squared": str(bound),
        "proof": proofs.prove_norm(bytes.fromhex(context), values, blinding, bound, source).hex(),
    }
