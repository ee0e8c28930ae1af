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
    """First message of a party to every server: the operation that it asks for, and a nonce.

    `public_label` is 0 or 1; -1 where there is none.
    """

    session_digest: Bytes32
    request: int
    operation: Annotated[str, Meta(max_length=MAX_OPERATION)]
    public_label: Annotated[int, Meta(ge=-1, le=1)]
    nonce: Bytes16


class Present(Body, frozen=True):
    """Message of a server to the other servers: which parties' hellos it has, and the hash of each."""

    parties: bytes
    hellos: bytes


class Start(Body, frozen=True):
    """Message of a server to the parties of a run: its participants, their labels, and a digest of terms."""

    present: bytes
    hellos: Bytes32
    public_labels: bytes
    terms: Bytes32


class Shares(Body, frozen=True):
    """Message of a party to one server: that server's secret shares of the party's record."""

    values: bytes


class Refused(Body, frozen=True):
    """Part of a server's message: one party whose shares the server does not hold, and why."""

    party: int
    code: Code


class Held(Body, frozen=True):
    """Message of a server to the other servers: whose valid shares it holds, and why others' are missing."""

    parties: bytes
    refused: list[Refused]


class LeftOut(Body, frozen=True):
    """Part of a server's message: one party that is not in the result, the server that lacked it, and why."""

    party: int
    server: int
    code: Code


class Seal(Body, frozen=True):
    """Message of a server to the other servers: the set of parties whose shares all hold, signed."""

    included: bytes
    signature: Bytes64


class Output(Body, frozen=True):
    """Message of a server to all members: the opened integers, who is included, and the signatures.

    `seals` are all servers' signatures on the set, in roster order; `signature` is the sender's on the rest.
    """

    values: Annotated[list[Annotated[str, Meta(max_length=2000)]], Meta(max_length=MAX_OUTPUTS)]
    included: bytes
    faults: list[LeftOut]
    seals: list[Bytes64]
    signature: Bytes64
