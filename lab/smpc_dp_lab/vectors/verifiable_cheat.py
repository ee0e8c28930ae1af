"""Cheats in a verifiable run: a whole log, and the finding of its audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smpc_dp_lab.vectors.runs import header

# The audit holds: the culprits are excluded for a false statement.
EXCLUDED = "excluded"
# The audit holds: an edge of the two culprits is void, and nothing of it is in the average.
VOID = "void"
# The audit does not hold; where there are culprits, it names them.
REFUSED = "refused"
# The log is self-consistent, and not of the true session.
SESSION = "session"

BASE = "verifiable-run-honest"
BALL_BASE = "verifiable-run-honest-ball"
BOX_BASE = "verifiable-run-honest-box"
VERSION_2_BASE = "verifiable-run-honest-of-version-2"
VERSION_3_BASE = "verifiable-run-honest-of-version-3"
VERSION_4_BASE = "verifiable-run-honest-of-version-4"
VERSION_5_BASE = "verifiable-run-honest-of-version-5"
EDGE_LEFT_OUT = "verifiable-run-edge-left-out"
ROUNDS_BASE = "verifiable-run-false-openings"


@dataclass(frozen=True, slots=True)
class Cheat:
    """Test vector of one cheat: the log that it leaves, and what an audit must find.

    Attributes:
        name, about: what is done, one thing.
        check: what catches it: "range", "noise", "sum", "opening" or another key of `FALSE` for a false
            statement, else in words.
        expect: what the audit finds.
        culprits: whom it names.
        make: returns the lines of the log.
        base: the honest run that it is compared with.
    """

    name: str
    about: str
    check: str
    expect: str
    culprits: tuple[str, ...]
    make: Callable[[], list[bytes]]
    base: str = BASE

    def to_json(self, base: Sequence[bytes]) -> dict[str, object]:
        """Return the vector; a line that is also in `base`, the honest run's, is its index there."""
        known: dict[bytes, object] = {line: index for index, line in enumerate(base)}
        return {
            **header("verifiable-negative", self.name, self.about),
            "base": f"{self.base}.json",
            "check": self.check,
            "expect": {"audit": self.expect, "culprits": list(self.culprits)},
            "log": [known.get(line, line.decode("ascii")) for line in self.make()],
        }
