"""Parameters of computations on shares, as in a session file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.servers.secret_sharing.claims import HONEST_SERVERS, vector_privacy
from smpc_dp.capabilities.servers.secret_sharing.messages import MAX_OPERATION
from smpc_dp.capabilities.servers.secret_sharing.terms import MODULUS_BITS
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Encoding, encoding_issues
from smpc_dp.engine.phases.parameters import RequestParameters
from smpc_dp.engine.result import Privacy
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.identity.roster import Member
from smpc_dp.privacy.central_gaussian import WideGaussian
from smpc_dp.privacy.guarantee import PrivacyGuarantee, delta_warnings
from smpc_dp.privacy.secagg_plan import default_dropout, part_of
from smpc_dp.settings import read

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event


MPYC = "mpyc"
FEWEST_SERVERS, MOST_SERVERS = 3, 9
"""mpyc's pseudorandom sharing has a key for each of the C(m, t) sets of servers."""
MAX_PARTIES = 100_000
MAX_LENGTH = 1 << 20
# Pairs of each party whose outputs are opened one by one, at most: all of them are told to everybody.
MAX_PARTNERS = 32
# Bytes of one message of the bridge.
PIECE = 1 << 18
# Bytes of an opened integer and its index in a message, in decimal; of a fault; of half a pair's output.
OUTPUT_BYTES, FAULT_BYTES, PAIR_BYTES = 2 * MODULUS_BITS[-1] // 6, 32, 8
SUM_KEYS = ("length", "lower", "upper", "kind", "precision", "max_weight")
ENCODING_KEYS = ("length", "lower", "upper", "precision", "max_weight")
# What servers compute: sums of vectors in a box, or of a bounded norm; of records, with noise; exact tables.
Program = Literal["sums", "norm", "records", "tables"]
RECORDS: tuple[Program, ...] = ("records", "tables")
NOISE_KEYS = ("epsilon", "delta", "mechanism")


class SharedParameters(RequestParameters, msgspec.Struct, frozen=True):
    """Checked parameters of a session with computing servers: parties, encoding, noise and time limit.

    Attributes:
        parties: their number in the roster; fewest: the number with which a run goes on.
        encoding: of the vectors of sums; None where the session has none, and only statistics are asked for.
        epsilon, delta, mechanism: of the noise in sums; epsilon is None for exact ones.
        seconds: the longest that mpyc may compute.
    """

    protocol: ClassVar[str] = MPYC
    program: ClassVar[Program] = "sums"
    parties: int
    fewest: int
    encoding: Encoding | None
    epsilon: float | None
    delta: float
    mechanism: str
    seconds: float

    @property
    def view(self) -> str:
        """Which explanation of roles a report shows: always "servers"."""
        return "servers"

    @property
    def tolerated(self) -> tuple[int, int, int]:
        """Numbers of all parties, of those that may be lost, and of those that may collude (all)."""
        return self.parties, self.parties - self.fewest, self.parties

    def largest_message(self, servers: int) -> int:
        """Return an upper bound in bytes on any message that a member sends."""
        values = 64 if self.encoding is None else self.encoding.ring_length
        # A server gives a reason for missing shares; the output has all servers' reasons, for few parties.
        faults = max(self.parties, (self.parties - self.fewest) * servers) * FAULT_BYTES
        pairs = self.parties * (64 + MAX_PARTNERS * PAIR_BYTES)
        return (64 << 10) + MAX_OPERATION + PIECE + values * OUTPUT_BYTES + pairs + faults

    @property
    def opened_once(self) -> str | None:
        """Name of the data set that only one request may open; here None, as any number may."""
        return None

    @property
    def sum_encoding(self) -> Encoding:
        """Encoding of a sum's vectors as integers; raises ConfigError in sessions without sums."""
        if self.encoding is None:
            reason = f"a session for sums needs {', '.join(SUM_KEYS[:3])}"
            raise ConfigError.at("parameters.length", reason, ConfigCheck.MISSING)
        return self.encoding


class VectorParameters(SharedParameters, frozen=True):
    """Checked parameters of sums of vectors with bounded L2 norm, which servers compute for a group.

    `noise` is drawn once for a sum, by the servers together; None for exact sums.
    """

    program: ClassVar[Program] = "norm"
    noise: WideGaussian | None = None

    def planned(self) -> str:
        """The noise distribution's parameter as a hexadecimal fraction; "" without noise."""
        if self.noise is None:
            return ""
        parameter = self.noise.parameter
        return f"{parameter.numerator:x}/{parameter.denominator:x}"

    def event(self) -> Event:
        """Return the privacy event that a ledger charges for one sum."""
        if self.noise is not None:
            return self.noise.event()
        # Not at the top: a session without a ledger needs no accountant.
        from smpc_dp.privacy.accountant.events import exact_release

        return exact_release("sum on shares", "substitution")

    def privacy(self) -> Privacy:
        """The privacy claim of one sum that servers compute, however many servers there are."""
        guarantee = None
        if self.noise is not None and self.epsilon is not None:
            guarantee = PrivacyGuarantee(
                epsilon=self.epsilon,
                delta=self.delta,
                relation="substitution",
                sensitivity={"l2": self.noise.l2},
                unit="grid step",
                mechanism=self.noise.describe(),
                assumption=HONEST_SERVERS,
                proof="docs/proofs/servers.md: as good as a discrete Gaussian but for an explicit error",
                warnings=delta_warnings(self.delta, self.parties),
            )
        return vector_privacy(guarantee)

    def draw_noise(self, coins: Randomness, count: int) -> NDArray[np.int64]:
        """Return `count` random draws of a sum's noise, for simulations; 0 without noise."""
        return np.zeros(count, np.int64) if self.noise is None else self.noise.draws(coins, count)

    @property
    def privacy_of_all(self) -> Privacy:
        """The privacy claim of one sum over any subset of the parties."""
        return self.privacy()


def threshold_of(servers: int) -> int:
    """Return t, the greatest number of servers that learn nothing together: fewer than half."""
    return (servers - 1) // 2


def roster_issues(members: Iterable[Member]) -> list[ConfigIssue]:
    """Return the faults of a roster with which servers could not compute on shares."""
    listed = list(members)
    issues = [
        ConfigIssue(
            f"roster[{index}].role",
            f"'{member.name}': there is no aggregator, servers compute",
            ConfigCheck.CONFLICT,
        )
        for index, member in enumerate(listed)
        if member.role == "aggregator"
    ]
    count = sum(member.role == "server" for member in listed)
    if count < FEWEST_SERVERS:
        why = "with 2 servers a share is the secret itself (threshold (m - 1) // 2 = 0): no secrecy at all"
        reason = f"has {count} members with the role 'server', {FEWEST_SERVERS} are needed: {why}"
        issues.append(ConfigIssue("roster", reason, ConfigCheck.RANGE))
    elif count > MOST_SERVERS:
        issues.append(
            ConfigIssue(
                "roster",
                f"has {count} servers, at most {MOST_SERVERS} compute together",
                ConfigCheck.TOO_LARGE,
            )
        )
    elif count % 2 == 0:
        reason = (
            f"has {count} servers: no more may collude than of {count - 1}, {threshold_of(count)}, at a "
            f"greater cost; take {count - 1} or {count + 1}"
        )
        issues.append(ConfigIssue("roster", reason, ConfigCheck.RANGE))
    return issues


Dropout = Annotated[
    Annotated[float, Meta(ge=0, le=0.5)] | None,
    Meta(
        description="fraction of the parties that may be missing",
        extra={"default": "0.1; with `epsilon`, from five parties up at least one party"},
    ),
]
Seconds = Annotated[float, Meta(ge=1, le=86_400, description="the longest that mpyc may compute")]


class SharedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `[parameters]` table of a session file whose servers compute sums or statistics on shares."""

    length: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_LENGTH)] | None, Meta(description="as for secagg, up to 2^20")
    ] = None
    lower: float | int | list[float | int] | None = None
    upper: float | int | list[float | int] | None = None
    kind: Literal["real", "integer"] = "real"
    precision: float | None = None
    max_weight: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    epsilon: Annotated[
        Annotated[float, Meta(ge=1e-6, le=1000)] | None,
        Meta(
            description="of each party in one sum",
            extra={"range": "1e-6 to 12", "default": "none: exact sums"},
        ),
    ] = None
    delta: Annotated[float, Meta(ge=0, le=0.5, description='above 0 with `"gaussian"`, 0 otherwise')] = 0.0
    mechanism: Annotated[Literal["laplace", "gaussian"], Meta(description="the law of the noise in sums")] = (
        "laplace"
    )
    dropout: Dropout = None
    seconds: Seconds = 600.0


def party_issues(parties: int, least: int = 2) -> list[ConfigIssue]:
    """Return a fault if a roster has too few or too many parties, else an empty list."""
    if least <= parties <= MAX_PARTIES:
        return []
    reason = f"has {parties} parties (role 'party'), {least} to {MAX_PARTIES} are needed"
    return [ConfigIssue("roster", reason, ConfigCheck.RANGE)]


def check_parameters(
    parameters: Mapping[str, object], parties: int
) -> tuple[SharedParameters | None, list[ConfigIssue]]:
    """Check a table of `SharedSettings`; return (parameters, []), or (None, every fault found)."""
    good, issues = read(SharedSettings, parameters, unknown=f"unknown parameter of {MPYC}")
    issues += party_issues(parties)
    if "epsilon" not in parameters and set(NOISE_KEYS) & set(parameters):
        issues.append(ConfigIssue("epsilon", "is missing: without it sums are exact", ConfigCheck.MISSING))
    if "epsilon" in parameters and (good.get("mechanism") == "gaussian") != (good.get("delta", 0.0) > 0):
        issues.append(
            ConfigIssue(
                "delta", "must be above 0 for Gaussian noise, and for that alone", ConfigCheck.CONFLICT
            )
        )
    encoding, more = _encoding(parameters, good, min(max(parties, 1), MAX_PARTIES))
    issues += more
    if encoding is None and set(NOISE_KEYS) & set(parameters):
        issues.append(
            ConfigIssue(
                "epsilon", "is for sums: a statistic is asked for with its own", ConfigCheck.UNSUPPORTED
            )
        )
    if issues:
        return None, issues
    dropout = good["dropout"]
    if dropout is None:
        dropout = default_dropout(parties) if "epsilon" in parameters else 0.1
    checked = SharedParameters(
        parties=parties,
        fewest=max(2, parties - part_of(parties, dropout)),
        encoding=encoding,
        epsilon=good["epsilon"],
        delta=good["delta"],
        mechanism=good["mechanism"],
        seconds=good["seconds"],
    )
    return checked, []


def _encoding(
    parameters: Mapping[str, object], good: Mapping[str, Any], parties: int
) -> tuple[Encoding | None, list[ConfigIssue]]:
    """Return (encoding of a session's sums or None, every fault); (None, []) for a session without sums."""
    if not set(SUM_KEYS) & set(parameters):
        return None, []
    issues = [
        ConfigIssue(key, "is missing", ConfigCheck.MISSING) for key in SUM_KEYS[:3] if key not in parameters
    ]
    if "precision" in good and "kind" in good and (good["kind"] == "real") != (good["precision"] is not None):
        issues.append(
            ConfigIssue("precision", "is needed for kind 'real', and for that alone", ConfigCheck.CONFLICT)
        )
    integer, arguments = good.get("kind") == "integer", {key: good.get(key) for key in ENCODING_KEYS}
    issues += encoding_issues(integer=integer, parties=parties, **arguments)
    if issues or not {*SUM_KEYS} <= {*good}:
        return None, issues
    return Encoding.plan(parties=parties, **arguments), []  # type: ignore[arg-type]
