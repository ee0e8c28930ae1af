"""The objects that the members of a session in one process share: connections, seeds, and a memo."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from nacl.signing import SigningKey

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.engine.events import Event
from smpc_dp.engine.run import Run
from smpc_dp.identity.keys import Identity
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.memory.simulated_run import AGGREGATOR, RememberingVerifier, Signer
from smpc_dp.transport.memory_connections import MemoryConnections
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context

# Called with member, step and the seconds that its role has computed.
OnSeconds = Callable[[str, str, float], None]


class _Memo(dict[tuple[Hashable, ...], Any]):
    """Cache of values that a simulated request's roles would otherwise each compute, with a shared verifier.

    Attributes:
        verifier: of the request's signatures.
    """

    def __init__(self) -> None:
        super().__init__()
        self.verifier = RememberingVerifier()


class _TimedRun(Run[Any]):
    """A run that measures and reports the processor time of each of its steps."""

    on_seconds: OnSeconds

    def handle(self, event: Event) -> Sequence[Envelope]:
        """Pass an event to the run, report the processor time by step, and return the messages."""
        step, begun = self.step, time.process_time()
        try:
            return super().handle(event)
        finally:
            self.on_seconds(self.name, step, time.process_time() - begun)


@dataclass(frozen=True, slots=True)
class OneProcess:
    """Objects shared by all members of a simulation: connections, keys, seeds and caches.

    Attributes:
        connections: between them.
        keys: by member, its secret key.
        sources: the seeded randomness of each member; empty where all is real.
        threads: of an aggregator, for the removal of masks.
        on_seconds: called with each role's computing time.
    """

    connections: MemoryConnections
    keys: Mapping[str, SigningKey] = field(default_factory=dict, repr=False)
    sources: Mapping[str, Randomness] = field(default_factory=dict)
    threads: int = 1
    on_seconds: OnSeconds | None = None
    # By request: each may be of another group.
    memos: WeakValueDictionary[int, _Memo] = field(default_factory=WeakValueDictionary)

    def noise_source(self, name: str) -> NoiseSource:
        """Return a noise source outside of runs: keyed by the member's next bytes, or the system's."""
        if name not in self.sources:
            return NoiseSource.system()
        return NoiseSource.keyed(self.sources[name].bytes(32), b"member")

    def maker(self, name: str, make: Callable[..., Run[Any]]) -> Callable[..., Run[Any]]:
        """Return a version of `make` whose runs use the member's key, its seed and the shared caches."""

        def simulated(
            context: Context, parameters: Any, _identity: Identity, *arguments: Any, **named: Any
        ) -> Run[Any]:
            memo = self.memos.setdefault(context.request, _Memo())
            context = replace(context, verify=memo.verifier, memo=memo)
            if name == AGGREGATOR:
                named["threads"] = self.threads
            elif name in self.sources:
                named["randomness"] = self.sources[name]
            signer = Signer(name, self.keys[name], memo.verifier)
            run = make(context, parameters, signer, *arguments, **named)
            if self.on_seconds is None:
                return run
            timed = _TimedRun(run.role, run.member, run.state)
            timed.on_seconds = self.on_seconds
            return timed

        return simulated
