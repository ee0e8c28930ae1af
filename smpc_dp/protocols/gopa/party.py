"""A user's side of GOPA when noise of lost users stays in. Specification: protocols/gopa/README.md."""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Lanes
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.gopa import messages as g
from smpc_dp.protocols.gopa.params import GopaParameters
from smpc_dp.protocols.secagg import endings, keys
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.secagg.graph import PartySet
from smpc_dp.protocols.secagg.party import PartyMachine


class GopaPartyMachine(PartyMachine):
    """One user in one run; arguments as of `PartyMachine`.

    It goes as far as the certificate of who takes part, then publishes x_hat and reveals nothing more.
    """

    # It may leave until the average is there: x_hat may be made and not sent, if a ledger refuses it.
    _last_step = g.AVERAGE

    def __init__(
        self,
        context: Context,
        parameters: GopaParameters,
        identity: Signer,
        lanes: Lanes,
        randomness: Randomness | None = None,
    ) -> None:
        super().__init__(context, parameters, identity, lanes, randomness)
        self._gopa = parameters
        self._handlers = {
            m.START: self._on_start,
            m.ROLL: self._on_roll,
            m.NEIGHBOURS: self._on_neighbours,
            m.PARTICIPANTS: self._on_participants,
            g.AVERAGE: self._on_average,
        }

    def _deal(self) -> Sequence[Envelope]:
        """Attest who takes part: [Bellet 2021, 4.1.2] has nobody agree on it, and needs to."""
        self._participants = self._revealed
        self._participants_digest = keys.participants_digest(
            self._context, self._run_id, self._roll_digest, self._participants.packed
        )
        del self._seal_keys, self._seal_secret
        return self._emit(m.ATTEST_PARTICIPANTS, m.Attestation(self._participants_digest))

    def _blind(self, lanes: Lanes) -> None:
        self._parameters.add_pair_terms(lanes, *self._pair_seeds())
        self._parameters.add_noise(lanes, self._random)

    def _send_vector(self, vector: bytes) -> Sequence[Envelope]:
        return self._emit(g.PUBLISH, g.Published(vector))

    def _on_average(self, body: bytes) -> Sequence[Envelope]:
        message = decode(body, g.Average, self._context.aggregator)
        packed, hub = message.published, self._context.aggregator
        published = self._context.remember(
            ("set", packed), lambda: PartySet.unpack(packed, self._parties, hub)
        )
        if not published <= self._participants or len(published) < self._plan.min_survivors:
            raise self._refuse("published an average over parties that do not take part, or over too few")
        if self._index not in published:
            raise self._refuse(f"left {self.name} out of the average")
        lost = len(self._participants) - len(published)
        own = sum(peer in self._participants and peer not in published for peer in self._mask_keys)
        if not own <= message.residual_pairs <= lost * len(published):
            raise self._refuse(f"counts {message.residual_pairs} residual pairs with {lost} users lost")
        try:
            total = self._parameters.encoding.unpack(message.total)
        except ValueError as error:
            raise self._refuse(f"malformed Average: {error}") from None
        self._outcome = endings.outcome(
            self._context,
            self._gopa,
            self._run_id,
            total,
            self._roll_digest,
            participants=self._participants,
            survivors=published,
            participants_certificate=self._participants_certificate,
            survivors_certificate=None,
            residual_pairs=message.residual_pairs,
        )
        self._end()
        return ()
