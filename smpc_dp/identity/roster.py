"""The roster: names, roles, addresses, keys and certificates of all members."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, Self, TypeVar, get_args

import msgspec

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues, VerificationError
from smpc_dp.identity import certificate
from smpc_dp.identity.address import check_address, is_web_address

Role = Literal["party", "aggregator", "server"]
ROLES: tuple[str, ...] = get_args(Role)
PUBLIC_KEY_BYTES = 32

T = TypeVar("T")

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


class Member(msgspec.Struct, frozen=True):
    """Public entry of a roster for one member of a session: name, role, address, public key, certificate.

    `address`: `host:port`, or of an aggregator also `wss://host[:port]/path`; None: nobody dials the member.
    `checkpoint_key`: of an aggregator that signs checkpoints of its session logs, Ed25519; else None.
    """

    name: str
    role: Role
    address: str | None
    public_key: bytes
    certificate: bytes
    checkpoint_key: bytes | None = None


def entry_of(member: Member) -> dict[str, object]:
    """Return a member's roster entry as JSON data, with keys in hex and the certificate in base64."""
    entry: dict[str, object] = {"name": member.name, "role": member.role}
    if member.address is not None:
        entry["address"] = member.address
    entry["public_key"] = member.public_key.hex()
    entry["certificate"] = b64encode(member.certificate).decode("ascii")
    if member.checkpoint_key is not None:
        entry["checkpoint_key"] = member.checkpoint_key.hex()
    return entry


def is_name(name: str) -> bool:
    """Tell whether a text is a valid member name: 1 to 63 of a-z, 0-9, '_', '.', '-', first a-z or 0-9."""
    return _NAME.fullmatch(name) is not None


class Roster:
    """List of a session's members; its parties are numbered 1 to n in the order listed.

    Raises ConfigError with every fault when a member is wrong, two share a name, a key or an address, or the
    number of aggregators is wrong (`requires_aggregator`: exactly one, otherwise at most one).
    """

    __slots__ = (
        "_by_certificate",
        "_by_name",
        "_index",
        "aggregator",
        "digest",
        "keys",
        "members",
        "parties",
        "party_names",
        "servers",
    )

    members: tuple[Member, ...]
    parties: tuple[Member, ...]
    servers: tuple[Member, ...]
    aggregator: Member | None
    digest: bytes
    # The names of the parties, and the public keys of all members by name: one object for all requests.
    party_names: tuple[str, ...]
    keys: Mapping[str, bytes]

    def __init__(self, members: Iterable[Member], *, requires_aggregator: bool = True) -> None:
        listed = tuple(members)
        issues = check_members(listed, requires_aggregator=requires_aggregator)
        if issues:
            raise ConfigError(issues)
        self.members = listed
        self.parties = tuple(member for member in listed if member.role == "party")
        self.servers = tuple(member for member in listed if member.role == "server")
        self.aggregator = next((member for member in listed if member.role == "aggregator"), None)
        self._by_name = {member.name: member for member in listed}
        self._by_certificate = {member.certificate: member for member in listed}
        self.party_names = tuple(member.name for member in self.parties)
        self._index = {name: number for number, name in enumerate(self.party_names, start=1)}
        self.keys = MappingProxyType({member.name: member.public_key for member in listed})
        self.digest = _digest(listed)

    @classmethod
    def checked(
        cls, members: Iterable[Member], *, requires_aggregator: bool = True
    ) -> tuple[Self | None, list[ConfigIssue]]:
        """Return a roster of these members and no issues, or None and all issues of the members."""
        try:
            return cls(members, requires_aggregator=requires_aggregator), []
        except ConfigError as error:
            return None, list(error.issues)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __eq__(self, other: object) -> bool:
        return self.members == other.members if isinstance(other, Roster) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        aggregators = 0 if self.aggregator is None else 1
        servers = f", {len(self.servers)} servers" if self.servers else ""
        return f"Roster({len(self.parties)} parties, {aggregators} aggregator{servers})"

    @property
    def certificates(self) -> tuple[bytes, ...]:
        """TLS certificates of all members, DER-encoded."""
        return tuple(member.certificate for member in self.members)

    def member(self, name: str) -> Member:
        """Return the roster's entry of the member `name`; raise ConfigError for an unknown name."""
        if name not in self._by_name:
            raise ConfigError.at("roster", f"nobody is called {name!r}", ConfigCheck.UNKNOWN_NAME)
        return self._by_name[name]

    def with_certificate(self, certificate: bytes) -> Member | None:
        """Return the member whose TLS certificate (DER) this is; None if no member has it."""
        return self._by_certificate.get(certificate)

    def index(self, name: str) -> int:
        """Return the number (1 to n) of the party `name`; raise ConfigError if no party has this name."""
        if name not in self._index:
            raise ConfigError.at("roster", f"no party is called {name!r}", ConfigCheck.UNKNOWN_NAME)
        return self._index[name]

    def name_of(self, index: int) -> str:
        """Return the name of party `index` (1 to n); raise ConfigError for a number out of range."""
        if not 1 <= index <= len(self.parties):
            raise ConfigError.at(
                "roster",
                f"no party has the number {index}, they go from 1 to {len(self.parties)}",
                ConfigCheck.UNKNOWN_NAME,
            )
        return self.parties[index - 1].name


def check_members(members: Iterable[Member], *, requires_aggregator: bool = True) -> list[ConfigIssue]:
    """Return every fault of a list of members, for errors about a session file; empty if valid."""
    issues = Issues()
    listed = tuple(members)
    names: dict[str, int] = {}
    keys: dict[bytes, int] = {}
    addresses: dict[str, int] = {}
    aggregators: list[str] = []
    for position, member in enumerate(listed):
        where = f"roster[{position}]"
        issues += check_member(where, member)
        issues += _repeated(f"{where}.name", names, member.name, position)
        issues += _repeated(f"{where}.public_key", keys, member.public_key, position)
        if (key := member.checkpoint_key) is not None:
            if key in keys:
                reason = f"the same as a key in roster[{keys[key]}]: it must be another"
                issues.add_issue(f"{where}.checkpoint_key", reason, ConfigCheck.DUPLICATE)
            keys.setdefault(key, position)
        if member.address is not None:
            issues += _repeated(f"{where}.address", addresses, member.address, position)
        if member.role == "aggregator":
            aggregators.append(member.name)
    issues += _names_in_path(listed)
    if len(aggregators) > 1:
        issues.add_issue(
            "roster",
            f"one aggregator at most, not {len(aggregators)}: {', '.join(aggregators)}",
            ConfigCheck.DUPLICATE,
        )
    if requires_aggregator and not aggregators:
        issues.add_issue("roster", "no member has the role 'aggregator'", ConfigCheck.MISSING)
    if not any(member.role == "party" for member in listed):
        issues.add_issue("roster", "no member has the role 'party'", ConfigCheck.MISSING)
    return issues


def check_member(where: str, member: Member) -> list[ConfigIssue]:
    """Return every fault of one member's entry; `where` is its place in the file, such as `roster[2]`."""
    issues = Issues()
    if not is_name(member.name):
        issues.add_issue(
            f"{where}.name",
            f"{member.name!r} is not 1 to 63 of a-z, 0-9, '_', '.' and '-'",
            ConfigCheck.FORMAT,
        )
    if member.role not in ROLES:
        issues.add_issue(
            f"{where}.role", f"{member.role!r} is none of {', '.join(ROLES)}", ConfigCheck.CHOICE
        )
    if member.address is not None:
        try:
            check_address(member.address, member.role)
        except ValueError as error:
            issues.add_issue(f"{where}.address", str(error), ConfigCheck.FORMAT)
    elif member.role in ("aggregator", "server"):
        issues.add_issue(
            f"{where}.address", f"the {member.role} needs an address, host:port", ConfigCheck.MISSING
        )
    if len(member.public_key) != PUBLIC_KEY_BYTES:
        length = len(member.public_key)
        issues.add_issue(
            f"{where}.public_key", f"an Ed25519 key has 32 bytes, not {length}", ConfigCheck.SHAPE
        )
    elif is_name(member.name):
        try:
            certificate.check(member.certificate, member.name, member.public_key)
        except VerificationError as error:
            issues.add_issue(f"{where}.certificate", str(error), ConfigCheck.FORMAT)
    return issues + _check_checkpoint_key(where, member)


def _names_in_path(listed: tuple[Member, ...]) -> Iterator[ConfigIssue]:
    """Yield a fault for each URL whose path has the name of a member, which outsiders could then see."""
    names = {member.name for member in listed}
    for position, member in enumerate(listed):
        if member.address is None or not is_web_address(member.address):
            continue
        for segment in member.address.split("/")[3:]:
            if segment in names:
                reason = f"the path names '{segment}', and others than members see it: choose another"
                yield ConfigIssue(f"roster[{position}].address", reason, ConfigCheck.CONFLICT)


def _check_checkpoint_key(where: str, member: Member) -> list[ConfigIssue]:
    """Return the faults of a member's key for signing log checkpoints; empty if valid."""
    key, path = member.checkpoint_key, f"{where}.checkpoint_key"
    if key is None:
        return []
    if member.role != "aggregator":
        return [ConfigIssue(path, f"a {member.role} signs no checkpoints", ConfigCheck.CONFLICT)]
    if len(key) != PUBLIC_KEY_BYTES:
        return [ConfigIssue(path, f"an Ed25519 key has 32 bytes, not {len(key)}", ConfigCheck.SHAPE)]
    return []


def _repeated(where: str, seen: dict[T, int], value: T, position: int) -> list[ConfigIssue]:
    """Return a fault if an earlier member has this value; else record it in `seen` and return none."""
    first = seen.setdefault(value, position)
    return (
        []
        if first == position
        else [ConfigIssue(where, f"the same as in roster[{first}]", ConfigCheck.DUPLICATE)]
    )


def digest_parts(member: Member) -> tuple[bytes, ...]:
    """Return the fields of a member, as bytes, that the digest of the roster covers."""
    address = b"" if member.address is None else member.address.encode()
    parts = (member.name.encode(), member.role.encode(), address, member.public_key, member.certificate)
    return parts if member.checkpoint_key is None else (*parts, member.checkpoint_key)


def _digest(members: tuple[Member, ...]) -> bytes:
    """Return the digest of a roster, over all its entries in order."""
    return digest(Label.ROSTER, *(part for member in members for part in digest_parts(member)))
