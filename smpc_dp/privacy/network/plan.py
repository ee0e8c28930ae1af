"""The plan of a walking token, for every topology and task."""

from __future__ import annotations

import msgspec

SUBSTITUTE_PARTY = "substitution of all data of one user"


class NetworkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a computation by a token that walks between parties: its noise, and the network DP it gives."""

    topology: str
    """`ring` or `complete`."""
    task: str
    """`sum`, `histogram` or `sgd`."""
    method: str
    """`exact`, or `theorem` or `clones` for a published bound."""
    noise: str | None = None
    """Ring sums: `single` (once every n - 1 hops) or `distributed` (every party)."""
    paths: str | None = None
    """Complete graph: what colluders know of the path: `hidden`, `neighbours` or `known`."""
    parties: int
    """n."""
    rounds: int | None = None
    """K, turns of the ring."""
    steps: int | None = None
    """T, steps of the random walk."""
    colluding: int = 1
    """c, parties who pool what they see."""
    max_contributions: int | None = None
    """After so many a party passes the token on with noise alone; null: no limit."""
    edge_cap: int | None = None
    """After so many uses of an edge its sender adds noise alone; null: no limit."""
    epsilon: float
    delta: float
    sensitivity: float | None = None
    """How far one contribution moves when its party's data is substituted (L2); null for histograms."""
    sigma: float | None = None
    """Standard deviation of the noise of one noisy contribution, in each coordinate; null for histograms."""
    beta: float | None = None
    """Histograms: the chance of a random answer; null otherwise."""
    error_std: float
    """Standard deviation of the published sum or count due to noise; for sgd that of one gradient."""
    local: float
    """The same noise (sigma, or beta) with every message public: local DP at this epsilon and delta."""
    local_error_std: float | None
    """`error_std` with the local noise; null if only random answers would do."""
    relation: str = SUBSTITUTE_PARTY
    """Which inputs count as neighbours."""
    assumption: str
    """Who is honest, who colludes, what they see."""
    proven: bool
    """Whether docs/proofs/planners.md proves the claim; if not it is the paper's alone."""
    warnings: list[str]


def describe_observers(colluding: int) -> str:
    """Return words for who observes: single parties, or a number of colluding ones."""
    return "any one of them may observe" if colluding == 1 else f"any {colluding} of them may pool"


# Of epsilon and of delta, what a run on a grid may add to what its plan's Gaussian noise costs: far above
# what any run that fits adds (docs/proofs/network.md).
GRID_PART = 1e-9


def without_grid(epsilon: float, delta: float) -> tuple[float, float]:
    """Return the budget left for Gaussian noise when a part is kept for the cost of a discrete grid."""
    return epsilon * (1 - GRID_PART), delta * (1 - GRID_PART)
