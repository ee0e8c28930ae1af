"""Foundation of a simulated run: names, keys and randomness of the roles, and the parties that are killed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nacl.signing import SigningKey

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.engine.registry import find_protocol
from smpc_dp.identity.keys import Identity, verify
from smpc_dp.identity.roster import Role
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.session.memory.randomness import checked_seed, randomness_of
from smpc_dp.wire.canonical_session import canonical_session, session_digest, session_json
from smpc_dp.wire.signing import Context

AGGREGATOR = "aggregator"


class RememberingVerifier:
    """Signature verifier of simulations, which skips signatures that this process made or checked."""

    def __init__(self) -> None:
        # By digest: ten thousand parties make millions of signatures.
        self._good: set[bytes] = set()

    def __call__(self, public_key: bytes, message: bytes, signature: bytes) -> None:
        """Raise VerificationError unless the signature is valid."""
        entry = _entry(public_key, message, signature)
        if entry not in self._good:
            verify(public_key, message, signature)
            self._good.add(entry)

    def made(self, public_key: bytes, message: bytes, signature: bytes) -> None:
        """Record that a signature is valid, since this process has just made it."""
        self._good.add(_entry(public_key, message, signature))


def _entry(public_key: bytes, message: bytes, signature: bytes) -> bytes:
    """Return the hash under which a valid signature is remembered."""
    # Keys have 32 bytes and signed messages 32, so the concatenation is unambiguous.
    return hashlib.blake2b(public_key + message + signature, digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class Signer:
    """Member's signing key in a simulation: an Ed25519 key with a name, without a certificate."""

    name: str
    key: SigningKey
    verifier: RememberingVerifier | None = None

    def sign(self, message: bytes) -> bytes:
        """Return a message's Ed25519 signature, 64 bytes; tell the verifier, if any, that it is valid."""
        signature = self.key.sign(message).signature
        if self.verifier is not None:
            self.verifier.made(bytes(self.key.verify_key), message, signature)
        return signature


def draw_signers(
    sources: Mapping[str, Randomness], verifier: RememberingVerifier | None = None
) -> dict[str, Signer]:
    """Return a signer for each name, whose key is drawn from the name's source of randomness."""
    return {name: Signer(name, SigningKey(source.bytes(32)), verifier) for name, source in sources.items()}


def public_keys(signers: Mapping[str, Signer]) -> dict[str, bytes]:
    """Return the public key of each signer, by name."""
    return {name: bytes(signer.key.verify_key) for name, signer in signers.items()}


def party_names(parties: int) -> tuple[str, ...]:
    """Return the names of this many simulated parties."""
    return tuple(f"party-{number:05d}" for number in range(1, parties + 1))


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Ingredients of one simulated run: the context, and each role's signing key and randomness."""

    context: Context
    signers: Mapping[str, Signer]
    sources: Mapping[str, Randomness]


def simulated_run(
    parties: int,
    *,
    request: int = 1,
    seed_for_simulation: int | None = None,
    remember: bool = True,
    protocol: str = "secagg",
    operation: str = "",
) -> SimulatedRun:
    """Return the context, keys and randomness for a run of so many parties and an aggregator.

    Without `seed_for_simulation` every secret comes from the operating system, as in a real run. With
    `remember=False` every role checks everything itself, as it would in a process of its own.
    """
    described, names = find_protocol(protocol), party_names(parties)
    sources = {name: randomness_of(seed_for_simulation, name) for name in (*names, AGGREGATOR)}
    verifier = RememberingVerifier() if remember else None
    signers = draw_signers(sources, verifier)
    context = Context(
        protocol=protocol,
        version=1 if described is None else described.version,
        session_digest=sources[AGGREGATOR].bytes(32),
        request=request,
        names=names,
        aggregator=AGGREGATOR,
        keys=public_keys(signers),
        operation=operation,
        verify=verifier or verify,
        memo={} if remember else None,
    )
    return SimulatedRun(context, signers, sources)


def draw_kills(
    names: Sequence[str], fraction: float, seed_for_simulation: int | None, messages: int
) -> Mapping[str, int]:
    """Return, for a random fraction of parties (rounded down), before which message (from 1) each dies."""
    seed = checked_seed(seed_for_simulation)
    chooser = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311
    dropouts = chooser.sample(list(names), int(fraction * len(names)))
    return {name: chooser.randint(1, messages) for name in dropouts}


def with_board(simulated: SimulatedRun, declared: Mapping[str, object]) -> tuple[SimulatedRun, MemoryBoard]:
    """Return (the simulated run, bound to a session with certificates; a public log of it in memory).

    A log can describe such a run.
    """
    roles: list[tuple[str, Role, str | None]] = [(AGGREGATOR, "aggregator", "127.0.0.1:1")]
    roles += [(name, "party", None) for name in simulated.context.names]
    members = [
        Identity.from_seed(name, bytes(simulated.signers[name].key)).entry(role, address)
        for name, role, address in roles
    ]
    context = simulated.context
    session = session_json(canonical_session(context.protocol, context.version, declared, members))
    context = replace(context, session_digest=session_digest(session))
    return replace(simulated, context=context), MemoryBoard(session.decode("ascii"))
