"""Recovery of the secrets that the sum needs, from shares; it names a culprit for every wrong share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from smpc_dp.crypto import agree, shamir
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.key_graph import Edges
from smpc_dp.engine.phases.masks import Masks
from smpc_dp.errors import Check, PeerFault, TimeoutFault, VerificationError
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.wire.signing import Context


class Recovery:
    """Aggregator's collection of revealed secret shares, which gives the masks to remove from the sum.

    For a survivor the self-mask seed is recovered and checked against its commitment; for a participant that
    did not survive the masking key, checked against the public key that it committed to.
    """

    def __init__(
        self,
        context: Context,
        plan: SecAggPlan,
        run_id: bytes,
        *,
        participants: Iterable[int],
        survivors: Iterable[int],
        edges: Edges,
        self_commitments: Mapping[int, bytes],
    ) -> None:
        self._context = context
        self._plan = plan
        self._run_id = run_id
        self._participants = participants
        self._survivors = frozenset(survivors)
        self._mask_keys = edges.mask_keys
        self._self_commitments = self_commitments
        self._drawn = edges.drawn
        self._neighbours = edges.neighbours
        self._unmasks: dict[int, tuple[dict[int, int], m.Unmask]] = {}
        self._complaints: dict[int, list[int]] = {}
        self.faults: list[str] = []

    def add(self, holder: int, unmask: m.Unmask, complaints: Sequence[int]) -> None:
        """Store the shares that one holder reveals, and its complaints about invalid dealt shares."""
        dealers = np.frombuffer(unmask.dealers, dtype="<u2").tolist()
        self._unmasks[holder] = ({dealer: index for index, dealer in enumerate(dealers)}, unmask)
        for dealer in complaints:
            self._complaints.setdefault(dealer, []).append(holder)

    def masks(self) -> Masks:
        """Return the masks to remove from the sum: survivors' self-masks and lost parties' pairwise masks.

        Raises:
            TimeoutFault: too few shares of a party were revealed; names the missing holders.
            PeerFault: a party dealt shares that do not give the secret that it committed to.
        """
        own: list[bytes] = []
        seeds: list[bytes] = []
        signs: list[int] = []
        for party in self._participants:
            name = self._name(party)
            secret = self._recover(party)
            if party in self._survivors:
                own.append(keys.self_mask_seed(self._context, self._run_id, name, secret))
                continue
            for peer in self._neighbours[party]:
                if peer in self._survivors:
                    seeds.append(
                        keys.pair_mask_seed(
                            self._context,
                            self._run_id,
                            secret,
                            name,
                            self._name(peer),
                            self._mask_keys[peer],
                        )
                    )
                    signs.append(-1 if peer < party else 1)
        return Masks(own, -1, seeds, signs)

    def _name(self, party: int) -> str:
        """Return the name of the party with this number, from 1."""
        return self._context.names[party - 1]

    def _share(self, dealer: int, holder: int) -> bytes | None:
        """Return the share of a dealer's secret that a holder revealed; None if it revealed none."""
        if holder not in self._unmasks:
            return None
        indices, unmask = self._unmasks[holder]
        index = indices.get(dealer)
        return None if index is None else unmask.shares[m.SHARE_BYTES * index : m.SHARE_BYTES * (index + 1)]

    def _recover(self, dealer: int) -> bytes:
        """Return a dealer's secret from revealed shares; record wrong shares, raise if too few are left."""
        shares: dict[int, bytes] = {}
        for holder in self._drawn[dealer]:
            share = self._share(dealer, holder)
            if share is not None:
                shares[holder] = share
        if len(shares) >= self._plan.threshold:
            secret = shamir.combine(shares, self._plan.threshold)
            if self._matches(dealer, secret):
                return secret
            for holder in list(shares):
                if not self._signed(dealer, holder, shares[holder]):
                    self.faults.append(
                        f"{self._name(holder)}: revealed a share that {self._name(dealer)} did not sign"
                    )
                    del shares[holder]
        if len(shares) < self._plan.threshold:
            raise self._too_few_shares(dealer, shares)
        return self._without_one(dealer, shares)

    def _without_one(self, dealer: int, shares: Mapping[int, bytes]) -> bytes:
        """Return the secret from signed shares, of which one may be wrong; PeerFault for more wrong ones.

        `combine` takes the lowest holders, so only their shares can be wrong. More than one wrong signed
        share is the dealer's fault, and the run stops with its name.
        """
        threshold, name = self._plan.threshold, self._name(dealer)
        secret = shamir.combine(shares, threshold)
        if self._matches(dealer, secret):
            return secret
        for left_out in sorted(shares)[:threshold] if len(shares) > threshold else ():
            rest = {holder: share for holder, share in shares.items() if holder != left_out}
            secret = shamir.combine(rest, threshold)
            if self._matches(dealer, secret):
                self.faults.append(
                    f"{name}: dealt {self._name(left_out)} a share that does not fit the others"
                )
                return secret
        raise PeerFault(
            name, "dealt signed shares that do not give the secret it committed to", Check.BAD_SHARE
        )

    def _matches(self, dealer: int, secret: bytes) -> bool:
        """Tell whether a recovered secret matches its dealer's commitment or public key."""
        if dealer in self._survivors:
            commitment = keys.self_commitment(self._context, self._run_id, self._name(dealer), secret)
            return commitment == self._self_commitments[dealer]
        return agree.public_key(secret) == self._mask_keys[dealer]

    def _signed(self, dealer: int, holder: int, share: bytes) -> bool:
        """Tell whether the dealer signed the share that a holder reveals."""
        indices, unmask = self._unmasks[holder]
        index = indices[dealer]
        other = unmask.others[m.SHARE_BYTES * index : m.SHARE_BYTES * (index + 1)]
        signature = unmask.signatures[m.SIGNATURE_BYTES * index : m.SIGNATURE_BYTES * (index + 1)]
        survived = dealer in self._survivors
        shown = keys.share_digest(
            self._context,
            self._run_id,
            self._name(dealer),
            self._name(holder),
            keys.SELF_MASK if survived else keys.MASKING_KEY,
            share,
        )
        mask, own = (other, shown) if survived else (shown, other)
        try:
            keys.check_share(
                self._context, self._run_id, self._name(dealer), self._name(holder), mask, own, signature
            )
        except VerificationError:
            return False
        return True

    def _too_few_shares(self, dealer: int, shares: Mapping[int, bytes]) -> PeerFault | TimeoutFault:
        """Return the error for a secret with too few shares: a culprit's fault, or a timeout.

        A complaint is a holder's word against the dealer's. The plan excludes that more than
        `corrupt_holders` complaints are false. Where it plans for none, one dishonest holder refutes the
        plan, and only the word of all holders counts.
        """
        name, plan = self._name(dealer), self._plan
        complaints = self._complaints.get(dealer, [])
        if len(complaints) >= (plan.corrupt_holders + 1 if plan.corrupt_holders else plan.degree):
            return PeerFault(
                name, f"dealt shares that {len(complaints)} of its holders could not open", Check.BAD_SHARE
            )
        missing = {self._name(holder) for holder in self._drawn[dealer] if holder not in shares}
        detail = f"{len(shares)} shares of {name} are there, {plan.threshold} are needed"
        if complaints:
            missing.add(name)
            holders = ", ".join(self._name(holder) for holder in complaints[:5])
            detail += (
                f"; of {len(complaints)} holders ({holders}) each says that its share of {name} did not open:"
                " either the holder or the dealer is at fault, nothing shows which"
            )
        return TimeoutFault(missing, m.UNMASK, detail)
