"""The parameters of computations on shares, as a session file gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from smpc_dp.encoding import Encoding, encoding_faults, shown
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy.central_gaussian import WideGaussian
from smpc_dp.privacy.guarantee import PrivacyGuarantee, delta_warnings
from smpc_dp.privacy.secagg_plan import default_dropout, part_of
from smpc_dp.protocols import names
from smpc_dp.protocols.mpyc.claims import HONEST_SERVERS, vector_privacy
from smpc_dp.protocols.result import Privacy
from smpc_dp.roster import Member

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

PROTOCOL = names.MPYC
VERSION = 1

FEWEST_SERVERS, MOST_SERVERS = 3, 9
"""mpyc's pseudorandom sharing has a key for each of the C(m, t) sets of servers."""
MAX_USERS = 100_000
MAX_LENGTH = 1 << 20
SUM_KEYS = ("length", "lower", "upper", "kind", "precision", "max_weight")
NOISE_KEYS = ("epsilon", "delta", "mechanism")
MECHANISMS = ("laplace", "gaussian")
KEYS = (*SUM_KEYS, *NOISE_KEYS, "dropout", "seconds")


class SharedParameters(msgspec.Struct, frozen=True):
    """Checked parameters.

    Attributes:
        users: in the roster; fewest: with how many a run goes on.
        encoding: of the vectors of sums; None where the session has none, and only statistics are asked for.
        epsilon, delta, mechanism: of the noise in sums; epsilon is None for exact ones.
        seconds: the longest that mpyc may compute.
    """

    users: int
    fewest: int
    encoding: Encoding | None
    epsilon: float | None
    delta: float
    mechanism: str
    seconds: float

    @property
    def sums(self) -> Encoding:
        """The encoding of sums; raise ConfigError where the session has none."""
        if self.encoding is None:
            what = f"a session for sums needs {', '.join(SUM_KEYS[:3])}"
            raise ConfigError([Fault("parameters.length", what)])
        return self.encoding

    def planned(self) -> str:
        """Return what else is derived with floating point, and so compared before a run begins."""
        return ""


class VectorParameters(SharedParameters, frozen=True):
    """Checked parameters of sums of vectors of a bounded L2 norm, for groups of a learner.

    `noise` is drawn once for a sum, by the servers together; None for exact sums.
    """

    noise: WideGaussian | None = None

    def planned(self) -> str:
        """Return the noise's parameter in hexadecimal."""
        if self.noise is None:
            return ""
        parameter = self.noise.parameter
        return f"{parameter.numerator:x}/{parameter.denominator:x}"

    def event(self) -> Event:
        """Return what one sum is to a privacy ledger."""
        if self.noise is not None:
            return self.noise.event()
        # Not at the top: a session without a ledger needs no accountant.
        from smpc_dp.privacy.accountant.events import exact_release

        return exact_release("sum on shares", "substitution")

    def privacy(self) -> Privacy:
        """Return the claim of one sum, whatever the number of servers is."""
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
                proof="docs/servers.md: as good as a discrete Gaussian but for an explicit error",
                warnings=delta_warnings(self.delta, self.users),
            )
        return vector_privacy(guarantee)


def threshold_of(servers: int) -> int:
    """Return t, the number of servers that learn nothing together."""
    return (servers - 1) // 2


def roster_faults(members: Iterable[Member]) -> list[Fault]:
    """Return what keeps a roster from computing on shares."""
    listed = list(members)
    faults = [
        Fault(f"roster[{place}].role", f"'{member.name}': there is no aggregator, servers compute")
        for place, member in enumerate(listed)
        if member.role == "aggregator"
    ]
    count = sum(member.role == "server" for member in listed)
    if count < FEWEST_SERVERS:
        why = "with 2 servers a share is the secret itself (threshold (m - 1) // 2 = 0): no secrecy at all"
        what = f"has {count} members with the role 'server', {FEWEST_SERVERS} are needed: {why}"
        faults.append(Fault("roster", what))
    elif count > MOST_SERVERS:
        faults.append(Fault("roster", f"has {count} servers, at most {MOST_SERVERS} compute together"))
    elif count % 2 == 0:
        what = (
            f"has {count} servers: no more may collude than of {count - 1}, {threshold_of(count)}, at a "
            f"greater cost; take {count - 1} or {count + 1}"
        )
        faults.append(Fault("roster", what))
    return faults


def check_parameters(
    parameters: Mapping[str, object], parties: int
) -> tuple[SharedParameters | None, list[Fault]]:
    """Check a `[parameters]` table for a session of `parties` users; return every fault found.

    Keys: `length`, `lower`, `upper`, `kind`, `precision`, `max_weight` as in "secagg", all left out in a
    session for statistics alone; `epsilon`, `delta`, `mechanism` ("laplace", the default, with delta 0, or
    "gaussian") for noise in the sums; `dropout` (fraction of the users that may be missing, default 0.1, with
    `epsilon` `default_dropout`); `seconds` (the longest computation, default 600).
    """
    faults = [
        Fault(key, f"unknown parameter of {PROTOCOL} (known: {', '.join(sorted(KEYS))})")
        for key in parameters
        if key not in KEYS
    ]
    numbers = {}
    for key, default, low, high in (
        ("dropout", default_dropout(parties) if "epsilon" in parameters else 0.1, 0.0, 0.5),
        ("seconds", 600.0, 1.0, 86_400.0),
        ("epsilon", 1.0, 1e-6, 1000.0),
        ("delta", 0.0, 0.0, 0.5),
    ):
        value = parameters.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            faults.append(Fault(key, f"must be a number from {low:g} to {high:g}, is {shown(value)}"))
        else:
            numbers[key] = float(value)
    if not 2 <= parties <= MAX_USERS:
        faults.append(Fault("roster", f"has {parties} users (role 'party'), 2 to {MAX_USERS} are needed"))
    mechanism = parameters.get("mechanism", "laplace")
    if mechanism not in MECHANISMS:
        faults.append(Fault("mechanism", f"must be one of {', '.join(MECHANISMS)}, is {shown(mechanism)}"))
    if "epsilon" not in parameters and set(NOISE_KEYS) & set(parameters):
        faults.append(Fault("epsilon", "is missing: without it sums are exact"))
    if "epsilon" in parameters and (mechanism == "gaussian") != (numbers.get("delta", 0.0) > 0):
        faults.append(Fault("delta", "must be above 0 for Gaussian noise, and for that alone"))
    encoding, more = _encoding(parameters, min(max(parties, 1), MAX_USERS))
    faults += more
    if encoding is None and set(NOISE_KEYS) & set(parameters):
        faults.append(Fault("epsilon", "is for sums: a statistic is asked for with its own"))
    if faults:
        return None, faults
    checked = SharedParameters(
        users=parties,
        fewest=max(2, parties - part_of(parties, numbers["dropout"])),
        encoding=encoding,
        epsilon=numbers["epsilon"] if "epsilon" in parameters else None,
        delta=numbers["delta"],
        mechanism=str(mechanism),
        seconds=numbers["seconds"],
    )
    return checked, []


def _encoding(parameters: Mapping[str, object], parties: int) -> tuple[Encoding | None, list[Fault]]:
    if not set(SUM_KEYS) & set(parameters):
        return None, []
    kind = parameters.get("kind", "real")
    if kind not in ("real", "integer"):
        return None, [Fault("kind", f"must be 'real' or 'integer', is {shown(kind)}")]
    faults = [Fault(key, "is missing") for key in SUM_KEYS[:3] if key not in parameters]
    precision = parameters.get("precision")
    if (kind == "real") != (precision is not None):
        faults.append(Fault("precision", "is needed for kind 'real', and for that alone"))
    arguments = {key: parameters.get(key) for key in ("length", "lower", "upper", "precision")}
    weight = parameters.get("max_weight", 0)
    faults += encoding_faults(integer=kind == "integer", parties=parties, max_weight=weight, **arguments)
    if isinstance(length := arguments["length"], int) and length > MAX_LENGTH:
        faults.append(Fault("length", f"must be at most {MAX_LENGTH} on shares, is {length}"))
    if faults:
        return None, faults
    encoding = Encoding.plan(parties=parties, max_weight=weight, **arguments)  # type: ignore[arg-type]
    return encoding, []
