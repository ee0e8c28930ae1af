"""The relay's side of GOPA when noise of lost users stays in. Specification: protocols/gopa/README.md."""

from __future__ import annotations

from msgspec.structs import replace

from smpc_dp.errors import PeerFault
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.gopa import messages as g
from smpc_dp.protocols.gopa.params import GopaParameters
from smpc_dp.protocols.secagg import endings, keys
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.aggregator import AggregatorMachine, Watch
from smpc_dp.protocols.secagg.graph import pack_set


class GopaRelayMachine(AggregatorMachine):
    """The relay in one run; arguments as of `AggregatorMachine`. It reads noisy vectors and nothing else."""

    def __init__(
        self,
        context: Context,
        parameters: GopaParameters,
        identity: Signer,
        *,
        threads: int = 1,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(context, parameters, identity, threads=threads, watch=watch)
        self._gopa = parameters
        self._published: set[int] = set()
        self._steps = {
            m.HELLO: (self._accept_hello, self._finish_hello),
            m.ADVERTISE: (self._accept_advertise, self._finish_advertise),
            m.REVEAL: (self._accept_reveal, self._finish_reveal),
            m.ATTEST_PARTICIPANTS: (self._accept_attestation, self._finish_attest_participants),
            g.PUBLISH: (self._accept_published, self._finish_published),
        }

    def _needed(self) -> int:
        return self._plan.min_survivors

    def _kept(self, envelope: Envelope) -> Envelope:
        # A noisy vector is in the sum already: keeping it would cost a vector for each party.
        return replace(envelope, body=b"") if envelope.step == g.PUBLISH else envelope

    def _finish_reveal(self) -> list[Envelope]:
        sent = super()._finish_reveal()
        self._participants = tuple(sorted(self._alive))
        packed = pack_set(self._participants, self._parties)
        self._set_digest = keys.participants_digest(self._context, self._run_id, self._roll_digest, packed)
        return sent

    def _accept_published(self, party: int, envelope: Envelope) -> None:
        published = decode(envelope.body, g.Published, envelope.sender)
        try:
            lanes = self._parameters.encoding.unpack(published.x_hat)
        except ValueError as error:
            raise PeerFault(envelope.sender, f"malformed Published: {error}") from None
        if self._watch is not None:
            self._watch(envelope.sender, lanes)
        self._sum += lanes
        self._published.add(party)

    def _finish_published(self) -> list[Envelope]:
        lost = [party for party in self._participants if party not in self._published]
        residual = sum(peer in self._published for party in lost for peer in self._neighbours[party])
        published = tuple(sorted(self._published))
        message = g.Average(
            self._parameters.encoding.pack(self._sum), pack_set(published, self._parties), residual
        )
        sent = self._broadcast(g.AVERAGE, message)
        self._outcome = endings.outcome(
            self._context,
            self._gopa,
            self._run_id,
            self._sum,
            self._roll_digest,
            participants=self._participants,
            survivors=published,
            participants_certificate=self._participants_certificate,
            survivors_certificate=None,
            faults=tuple(self._faults),
            residual_pairs=residual,
        )
        return sent
