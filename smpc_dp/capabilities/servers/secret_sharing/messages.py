"""The messages of a computation on shares, between parties and servers and among the servers.

HELLO and SHARES go from a party to every server; PRESENT, HELD and SEAL from every server to every other one;
START and OUTPUT from every server to all parties, OUTPUT to the other servers too.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.errors import Code
from smpc_dp.wire.envelope import Body

HELLO = "shared-hello"
PRESENT = "present"
START = "shared-start"
SHARES = "shares"
HELD = "held"
SEAL = "seal"
COMPUTE = "compute"
OUTPUT = "output"
# Of a server that waits for what the others say of a run that has stopped; it has no message of its own.
STOPPING = "stopping"

EVERY_PARTY_STEPS = (START, OUTPUT)
SERVER_STEPS = (HELLO, PRESENT, SHARES, HELD, SEAL, COMPUTE, OUTPUT)

MAX_OPERATION = 1 << 16
"""Characters of an operation: it carries the circuit of a party's own kernel."""
MAX_OUTPUTS = 1 << 20

Bytes16 = Annotated[bytes, Meta(min_length=16, max_length=16)]
Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
Bytes64 = Annotated[bytes, Meta(min_length=64, max_length=64)]


class Hello(Body, frozen=True):
    """Party to servers: its operation as text, with a nonce; the same for every server.

    `public_label` is 0 or 1; -1 where there is none.
    """

    session_digest: Bytes32
    request: int
    operation: Annotated[str, Meta(max_length=MAX_OPERATION)]
    public_label: Annotated[int, Meta(ge=-1, le=1)]
    nonce: Bytes16


class Present(Body, frozen=True):
    """Server: the parties whose hello it has, a packed set, and the SHA-256 of each hello in roster order."""

    parties: bytes
    hellos: bytes


class Start(Body, frozen=True):
    """Server: the participants (a packed set), digests of hellos and of the terms, and labels plus 1."""

    present: bytes
    hellos: Bytes32
    public_labels: bytes
    terms: Bytes32


class Shares(Body, frozen=True):
    """Party: one server's shares of its record: field elements of equal width, big-endian."""

    values: bytes


class Refused(Body, frozen=True):
    """Party whose shares a server does not hold, and the reason."""

    party: int
    code: Code


class Held(Body, frozen=True):
    """Server: the parties whose valid shares it holds (a packed set), and the reasons for the others."""

    parties: bytes
    refused: list[Refused]


class LeftOut(Body, frozen=True):
    """Participant that is not in the result: its number, the server's index, and the reason."""

    party: int
    server: int
    code: Code


class Seal(Body, frozen=True):
    """Server: the set of parties whose shares all servers hold, and its signature on it."""

    included: bytes
    signature: Bytes64


class Output(Body, frozen=True):
    """Server: the opened integers in decimal, the parties in them, those left out, and signatures.

    `seals` are all servers' signatures on the set, in roster order; `signature` is the sender's on the rest.
    """

    values: Annotated[list[Annotated[str, Meta(max_length=2000)]], Meta(max_length=MAX_OUTPUTS)]
    included: bytes
    faults: list[LeftOut]
    seals: list[Bytes64]
    signature: Bytes64
