"""Interfaces through which a learner communicates: averages over groups, and exchanges between two parties.

A learner is written once, over the local parties, those whose data are in its process: all of them in a
simulation, one between processes. Row r of its arrays belongs to party `here[r]`. It has no other way to
reach the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import (
    Check,
    ConfigCheck,
    ConfigError,
    PeerFault,
    PrivacyError,
    TimeoutFault,
    VerificationError,
)
from smpc_dp.privacy.guarantee import PrivacyGuarantee

if TYPE_CHECKING:
    # Imported for types alone: the command line needs only the settings of learners.
    from scipy import sparse

Rows = NDArray[np.float64]
# Shape (rows, n, length): a vector for each party from each party here.
Boxes = NDArray[np.float64]
Parties = NDArray[np.intp]
# Group number of each of the n parties, -1 for one who sits out.
Groups = NDArray[np.intp]

ALONE = -1

# Which received rows, shape (m, length), at their ticks, (m,), an honest party can have sent: shape (m,).
PlausibilityCheck = Callable[[Rows, NDArray[np.intp]], NDArray[np.bool_]]

# Errors of an average or exchange after which the session goes on: a learner leaves the step out.
FAILURES = (PeerFault, TimeoutFault, VerificationError)


@dataclass(frozen=True, slots=True)
class Averaged:
    """Result of an average by group: values and weights of the local parties, privacy, and absent parties.

    Attributes:
        values: shape (rows, length): the average of the party's group, or the party's own vector if it sat
            out.
        weights: shape (rows,): total weight of that group's survivors, 0 for a party that sat out; with noise
            in it where weights are private.
        guarantee: of each average for one member of its group, or None where it is exact.
        absent: parties of the group that are not in it, by name, where there are processes.
    """

    values: Rows
    weights: NDArray[np.float64]
    guarantee: PrivacyGuarantee | None = None
    absent: tuple[str, ...] = ()


class Location(Protocol):
    """Interface of an object of a process that says which parties of a network the process runs."""

    @property
    def parties(self) -> int:
        """The number n of parties in the network; parties have the numbers 0 to n - 1."""
        ...

    @property
    def here(self) -> Parties:
        """The numbers of the parties that this process runs, ascending, shape (rows,)."""
        ...

    @property
    def claim(self) -> str:
        """The privacy claim of an average, a message or a token, in words, with its adversary."""
        ...


class Averager(Location, Protocol):
    """Interface for objects that average vectors over groups of parties, with or without privacy.

    All members of a group call it together, in the same order.
    """

    async def average(
        self, vector: Rows, weight: NDArray[np.float64] | None = None, group: Groups | None = None
    ) -> Averaged:
        """Return the (weighted) average of each local party's group; its own vector without a group.

        Args:
            vector: shape (rows, length), a vector of each party here.
            weight: shape (rows,), non-negative; None is one for each party. Private averages take weights
                that are planned for (`requirements.PrivateAverages.weights`), and keep them as private as the
                vectors.
            group: shape (n,), the group of every party, the same wherever it is called; None is one of all.

        Raises:
            ConfigError: a shape or value is refused. PeerFault, TimeoutFault, VerificationError (`FAILURES`):
                the group's average failed. PrivacyError: a party took part as often as planned already.
        """
        ...


class PeerExchange(Location, Protocol):
    """Interface for objects that send vectors between parties: receivers see what was sent."""

    def name_of(self, party: int) -> str:
        """Return the name of the party with this number, for errors."""
        ...

    async def exchange(self, vector: Rows, partner: Parties) -> Rows:
        """Send each local party's vector to its partner, and return, for each, the partner's vector.

        Args:
            vector: shape (rows, length).
            partner: shape (n,), an involution: partner[partner[i]] = i; a party without a partner is its own.
        """
        ...

    async def mix(self, vector: Rows, weights: sparse.csr_array) -> Rows:
        """Return, for each local party k, the sum over l of weights[k, l] times the vector of l.

        Args:
            vector: shape (rows, length).
            weights: shape (n, n); l sends its vector to k where weights[k, l] is not zero.
        """
        ...

    async def all_to_all(self, vectors: Boxes) -> Boxes:
        """Send each local party's vectors, one per receiver, to all parties; return those received.

        Args:
            vectors: shape (rows, n, length): [r, j] is for party j, also where that is the sender itself.

        Returns:
            shape (rows, n, length): [r, i] is the vector from party i to the party of row r.
        """
        ...


class AllLocal:
    """Base of averagers, exchanges and token passing for simulations: all parties are local."""

    def __init__(self, parties: int) -> None:
        self._here = np.arange(parties)

    @property
    def parties(self) -> int:
        """The number of parties of the network, all simulated in this process."""
        return len(self._here)

    @property
    def here(self) -> Parties:
        """The numbers of the parties that this process runs: all parties."""
        return self._here

    def name_of(self, party: int) -> str:
        """Return the name of a simulated party by its number, for error messages."""
        return f"party {party}"


class PlainAverager(AllLocal):
    """Averager in the clear, for tests and comparison: nothing is hidden from anybody."""

    @property
    def claim(self) -> str:
        """The sentence that says that averages by this averager protect nothing."""
        return "NO PRIVACY: vectors are averaged in the clear; for tests and comparison only"

    async def average(
        self, vector: Rows, weight: NDArray[np.float64] | None = None, group: Groups | None = None
    ) -> Averaged:
        """Return each group's exact (weighted) average, unprotected; vectors without a group stay."""
        # Not at the top: reading a session file needs no scipy.
        from scipy import sparse

        vector, weight, group = check_average(self, vector, weight, group)
        member = group >= 0
        labels, location = np.unique(group[member], return_inverse=True)
        totals = np.bincount(location, weight[member], len(labels))
        rows = np.flatnonzero(member)
        gather = sparse.csr_array((weight[member], (location, rows)), shape=(len(labels), len(group)))
        if np.any(totals <= 0):
            raise ConfigError.at(
                "weight", f"group {labels[np.argmin(totals)]} has no weight", ConfigCheck.RANGE
            )
        values, weights = vector.copy(), np.zeros(len(group))
        values[member] = (gather @ vector / totals[:, None])[location]
        weights[member] = totals[location]
        return Averaged(values, weights)


class PlainExchange(AllLocal):
    """Exchange of vectors between parties without protection, for tests: receivers see what was sent."""

    @property
    def claim(self) -> str:
        """The sentence that says that this exchange of models protects nothing."""
        return "NO PRIVACY: every receiver sees what it is sent; for tests and comparison only"

    async def exchange(self, vector: Rows, partner: Parties) -> Rows:
        """Return, for each party, its partner's vector, unchanged and unprotected."""
        vector, partner = check_rows(self, vector), check_partners(self.parties, partner)
        return vector[partner]

    async def mix(self, vector: Rows, weights: sparse.csr_array) -> Rows:
        """Return, for each party, the exact sum of all parties' vectors with its row of weights."""
        vector, weights = check_rows(self, vector), check_mixing(self.parties, weights)
        return np.asarray(weights @ vector)

    async def all_to_all(self, vectors: Boxes) -> Boxes:
        """Return, for each party, the vectors that all parties have addressed to the party."""
        return check_boxes(self, vectors).transpose(1, 0, 2)


def check_rows(location: Location, vector: Rows) -> Rows:
    """Return vectors as float64; raise ConfigError unless they are finite, one for each local party."""
    vector = np.asarray(vector, dtype=np.float64)
    if vector.ndim != 2 or len(vector) != len(location.here):
        reason = f"shape must be ({len(location.here)}, length), is {vector.shape}"
        raise ConfigError.at("vector", reason, ConfigCheck.SHAPE)
    finite = np.isfinite(vector)
    if not finite.all():
        bad = np.flatnonzero(~finite.all(axis=1))
        raise ConfigError.at("vector", f"of party {location.here[bad[0]]} is not finite", ConfigCheck.RANGE)
    return vector


def is_whole(values: Rows, below: int) -> NDArray[np.bool_]:
    """Tell for each value whether it is an integer from 0 to `below` - 1, as an array of booleans."""
    return np.asarray((values == np.rint(values)) & (values >= 0) & (values < below))


def check_received(
    location: PeerExchange,
    received: Rows,
    senders: Parties,
    ticks: NDArray[np.intp],
    is_plausible: PlausibilityCheck | None,
) -> None:
    """Raise PeerFault naming the sender of a row that `is_plausible` refuses; None refuses no row.

    Args:
        received: shape (m, length), of `senders` at `ticks`, (m,).
        is_plausible: the plausibility check; None: every row passes.
    """
    wrong = (
        np.zeros(0, dtype=np.intp) if is_plausible is None else np.flatnonzero(~is_plausible(received, ticks))
    )
    if len(wrong):
        name = location.name_of(int(senders[wrong[0]]))
        reason = f"at tick {ticks[wrong[0]]} it sent an estimate, a sum or a record out of its bounds"
        raise PeerFault(name, reason, Check.OUT_OF_BOUNDS)


def check_boxes(location: PeerExchange, vectors: Boxes) -> Boxes:
    """Return vectors, shape (rows, n, length), as float64; raise ConfigError if they are invalid.

    Raises ConfigError unless they are finite and of shape (rows, n, length).
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    if vectors.ndim != 3 or vectors.shape[:2] != (len(location.here), location.parties):
        reason = f"shape must be ({len(location.here)}, {location.parties}, length), is {vectors.shape}"
        raise ConfigError.at("vectors", reason, ConfigCheck.SHAPE)
    if not np.isfinite(vectors).all():
        raise ConfigError.at("vectors", "must be finite", ConfigCheck.RANGE)
    return vectors


def check_partners(parties: int, partner: Parties) -> Parties:
    """Return `partner`; raise ConfigError unless each party's partner has that party as its partner."""
    partner = np.asarray(partner)
    if partner.shape != (parties,) or partner.dtype.kind not in "iu":
        raise ConfigError.at("partner", f"must be {parties} integers", ConfigCheck.RANGE)
    if partner.min() < 0 or partner.max() >= parties or np.any(partner[partner] != np.arange(parties)):
        raise ConfigError.at("partner", "must pair the parties: partner[partner[i]] = i", ConfigCheck.RANGE)
    return partner.astype(np.intp)


def check_mixing(parties: int, weights: sparse.csr_array) -> sparse.csr_array:
    """Return `weights`; raise ConfigError unless they are finite and of shape (n, n)."""
    if weights.shape != (parties, parties):
        raise ConfigError.at(
            "weights", f"shape must be (n, n) with n = {parties}, is {weights.shape}", ConfigCheck.SHAPE
        )
    if not np.isfinite(weights.data).all():
        raise ConfigError.at("weights", "must be finite", ConfigCheck.RANGE)
    return weights


def check_average(
    location: Averager, vector: Rows, weight: NDArray[np.float64] | None, group: Groups | None
) -> tuple[Rows, NDArray[np.float64], Groups]:
    """Return the checked arguments of an averager's call, with defaults; raise ConfigError if invalid."""
    vector = check_rows(location, vector)
    weight = np.ones(len(vector)) if weight is None else np.asarray(weight, dtype=np.float64)
    if weight.shape != (len(vector),) or not np.all(np.isfinite(weight)) or np.any(weight < 0):
        raise ConfigError.at("weight", f"must be {len(vector)} non-negative numbers", ConfigCheck.RANGE)
    group = np.zeros(location.parties, dtype=np.intp) if group is None else np.asarray(group)
    if group.shape != (location.parties,) or group.dtype.kind not in "iu" or np.any(group < ALONE):
        raise ConfigError.at("group", f"must be {location.parties} integers from {ALONE}", ConfigCheck.RANGE)
    return vector, weight, group.astype(np.intp)


class ParticipationCounter:
    """Counter of each party's private averages or messages, to stop at the planned number.

    `most`: the planned number for each party, or None where nothing is protected.
    """

    def __init__(self, parties: int, most: int | None) -> None:
        self._taken = np.zeros(parties, dtype=np.intp)
        self._most = most

    def count(self, parties: Parties) -> None:
        """Count one more use for each of these parties; raise PrivacyError beyond the planned number."""
        if self._most is not None and np.any(over := self._taken[parties] >= self._most):
            raise PrivacyError(
                f"party {parties[over][0]}: noise is planned for {self._most} private vectors, "
                "this is one more"
            )
        self._taken[parties] += 1
