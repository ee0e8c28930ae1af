"""Requests for sums and averages of vectors, and of trees as vectors, by a party."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from smpc_dp.engine.result import Result
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.session.party_requests import EncodedVector, PartyRequests, check_label

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from smpc_dp.trees import Bounds, Tree

Kind = Literal["sum", "average"]
# Where the structure of a tree is in the operation too.
TREE_LABEL_LIMIT = 64


def check_sums(requests: PartyRequests, kind: Kind = "average") -> None:
    """Raise ConfigError if the session computes no sums of vectors, or averages alone and `kind` is a sum."""
    requests.membership.refuse_others("vector")
    if kind not in requests.membership.parameters.operations:
        reason = "with epsilon and max_weight a session has averages alone: call average"
        raise ConfigError.at("max_weight", reason, ConfigCheck.UNSUPPORTED)


async def request_average(
    requests: PartyRequests,
    vector: ArrayLike | Mapping[str, Any],
    bounds: Bounds | None,
    weight: float | None,
    clip: bool,
    label: str,
    number: int | None,
) -> Result:
    """Run one request for the average of a vector or tree; ConfigError for a vector with `bounds`."""
    if isinstance(vector, Mapping):
        return await request_tree(requests, vector, bounds, weight, clip, label, number)
    if bounds is not None:
        reason = "is for trees: those of vectors stand in the session file"
        raise ConfigError.at("bounds", reason, ConfigCheck.UNSUPPORTED)
    return await request_vector(requests, "average", vector, weight, clip, label, number)


async def request_vector(
    requests: PartyRequests,
    kind: Kind,
    vector: ArrayLike,
    weight: float | None,
    clip: bool,
    label: str,
    number: int | None,
) -> Result:
    """Encode a party's vector, and run one request for a sum or average."""
    check_label(label)
    check_sums(requests, kind)
    requests.take(number, label)
    async with requests.declining():
        encoding = requests.membership.encoding
        encoded = EncodedVector(*encoding.encode(vector, party=requests.party, weight=weight, clip=clip))
    return await run_encoded(requests, kind, encoded, label)


async def request_tree(
    requests: PartyRequests,
    given: Mapping[str, Any],
    bounds: Bounds | None,
    weight: float | None,
    clip: bool,
    label: str,
    number: int | None,
) -> Result:
    """Encode a party's tree of arrays, run one request for its average, and return the result."""
    # Not at the top: most requests are for vectors.
    from smpc_dp.trees import flatten

    check_sums(requests)
    check_label(label, TREE_LABEL_LIMIT)
    requests.take(number, label)
    encoding = requests.membership.encoding
    async with requests.declining():
        tree = flatten(given, encoding, party=requests.party, bounds=bounds, clip=clip)
        encoded = EncodedVector(*tree.encode(weight=weight))
    return await run_encoded(requests, "average", encoded, label, tree)


async def run_encoded(
    requests: PartyRequests,
    kind: Kind,
    vector: EncodedVector,
    label: str,
    tree: Tree | None = None,
) -> Result:
    """Run one request with an encoded vector, and return the result, as a tree if one is given."""
    structure = "" if tree is None else tree.structure
    planned = " ".join(part for part in (structure, requests.membership.parameters.planned()) if part)
    outcome, receipt = await requests.outcome(kind, vector, label, planned)
    distributions = requests.membership.parameters.noise_distributions
    resumed = requests.connection.resumed
    return Result.of(outcome, kind, vector.clipped, receipt, distributions, tree, resumed=resumed)
