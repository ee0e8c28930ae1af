"""`simulate.run`: whole sessions in one process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from numbers import Integral
from typing import TypeVar

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError, Issues
from smpc_dp.session.events import OnEvent, ignore
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import Simulated, run_members, simulated_session
from smpc_dp.session.session import Session

T = TypeVar("T")


def run(
    take_part: Callable[[Session], Awaitable[T]],
    parties: int,
    parameters: Mapping[str, object],
    *,
    protocol: str = "secagg",
    kill: Mapping[str, int] | None = None,
    seed_for_simulation: int | None = None,
    on_event: OnEvent = ignore,
) -> Simulated[T]:
    """Simulate a whole session in one process: each party runs `take_part`; return results by party.

    Each party has the `Session` of a real one, and the aggregator serves as `serve` does.

    This process holds all inputs and keys: claims hold for a session between hosts, and not here.
    Time is simulated: it passes only while all members wait. A function that waits for another process, or
    for a thread, sees deadlines pass before it goes on.

    Args:
        take_part: what each party does in its session, which is closed afterwards. `session.party` is its
            name, "party-00001" to "party-N".
        parties: how many.
        parameters, protocol: as in a session file.
        kill: by party, the number of the message (1 is its first) that it does not send any more.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.
        on_event: called with every event of every member.

    Returns:
        for each party the value that `take_part` returned or the `SmpcError` that it raised, and what the
        aggregator served (None without one), as of `serve`.

    Raises:
        ConfigError: every fault of the parameters; `kill` names another party, or a wrong number; servers
            compute. LocalError: nothing is sent for hours of simulated time. Any other error of
            `take_part`.
    """
    simulated = simulated_session(protocol, parameters, parties, seed_for_simulation=seed_for_simulation)
    simulated.shared.connections.kill = _checked_kill(kill or {}, simulated.parties)
    return run_simulation(lambda: run_members(simulated, take_part, on_event=on_event))


def _checked_kill(kill: Mapping[str, int], parties: Sequence[str]) -> dict[str, int]:
    """Return by party the number, from 1, of the message before which it dies; ConfigError if invalid."""
    issues = Issues()
    if not isinstance(kill, Mapping):
        raise ConfigError.at("kill", "must be a mapping of names to numbers", ConfigCheck.TYPE)
    for name, number in kill.items():
        if name not in parties:
            issues.add_issue(f"kill[{name}]", "no party is called so", ConfigCheck.UNKNOWN_NAME)
        elif isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
            issues.add_issue(
                f"kill[{name}]", f"must be an integer from 1 on, is {shown(number)}", ConfigCheck.RANGE
            )
    issues.raise_issues()
    return {name: int(number) for name, number in kill.items()}
