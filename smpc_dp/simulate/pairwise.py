"""A two-party evaluation in one process: the same roles, without sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from smpc_dp.errors import PeerFault, SmpcError
from smpc_dp.protocols.pairwise.participant import Evaluated, Participant
from smpc_dp.protocols.pairwise.turns import Receive, Send, Turns

# (sender, receiver, message) -> what arrives instead, in order.
Tamper = Callable[[str, str, bytes], list[bytes]]


class _Actor:
    def __init__(self, role: Participant) -> None:
        self.role = role
        self.turns: Turns[Evaluated] = role.run()
        self.waits: Receive | None = None
        self.answer: bytes | None = None
        self.end: Evaluated | SmpcError | None = None


def _check_size(due: Receive, data: bytes) -> None:
    """Refuse what a channel would."""
    if len(data) > due.limit:
        raise PeerFault(due.sender, f"announced a message of {len(data)} bytes, the limit is {due.limit}")


def evaluate_in_memory(
    roles: Mapping[str, Participant], tamper: Tamper | None = None
) -> dict[str, Evaluated | SmpcError]:
    """Run the roles of one evaluation to their ends, and return what each ended with.

    `tamper` sees every message and says what arrives in its place. Raises RuntimeError when everybody who is
    left waits for somebody else.
    """
    actors = {name: _Actor(role) for name, role in roles.items()}
    links: dict[tuple[str, str], deque[bytes]] = {}

    def deliver(name: str, message: Send) -> None:
        data = b"".join(message.parts)
        arriving = [data] if tamper is None else tamper(name, message.to, data)
        links.setdefault((name, message.to), deque()).extend(arriving)

    while waiting := [name for name, actor in actors.items() if actor.end is None]:
        moved = False
        for name in waiting:
            actor = actors[name]
            while actor.end is None:
                if actor.waits is not None:
                    inbox = links.get((actor.waits.sender, name))
                    if not inbox:
                        break
                    actor.answer = inbox.popleft()
                moved = True
                try:
                    if actor.waits is not None and actor.answer is not None:
                        _check_size(actor.waits, actor.answer)
                    turn = next(actor.turns) if actor.answer is None else actor.turns.send(actor.answer)
                except StopIteration as stop:
                    actor.end = stop.value
                    continue
                except SmpcError as error:
                    actor.turns.close()
                    actor.end = error
                    for message in actor.role.farewell(error):
                        deliver(name, message)
                    continue
                actor.answer = None
                actor.waits = turn if isinstance(turn, Receive) else None
                if isinstance(turn, Send):
                    deliver(name, turn)
        if not moved:
            raise RuntimeError(f"everybody waits: {', '.join(waiting)}")
    return {name: actor.end for name, actor in actors.items() if actor.end is not None}
