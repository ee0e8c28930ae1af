"""The aggregator of a covert evaluation: it takes only the decoding to which the garbler had committed."""

from __future__ import annotations

import hashlib
import hmac

from smpc_dp.capabilities.pairs.covert import terms as t
from smpc_dp.capabilities.pairs.covert.messages import (
    OPEN,
    SIGN,
    ForwardedLabels,
    Open,
    OpenedHashes,
    Statement,
)
from smpc_dp.capabilities.pairs.covert.terms import Terms
from smpc_dp.capabilities.pairs.garbled.aggregator import AggregatorRole
from smpc_dp.capabilities.pairs.garbled.effects import Effects
from smpc_dp.capabilities.pairs.garbled.messages import HASHES, LABELS, RECEIPT, Receipt
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, M
from smpc_dp.capabilities.pairs.garbled.plan import rows_of
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.wire.signing import decode


class CovertAggregatorRole(AggregatorRole):
    """Role of an aggregator in covertly secure garbling: learns the output, from two sealed halves."""

    def _run(self) -> Effects[Evaluated]:
        """Take both sealed halves, check them, send receipts, and return the decoded output."""
        yield from self._greet()
        terms = Terms(self._protocol, self._run_id, self._start, self._plan)
        self.step = "outputs"
        block = next(self._plan.blocks())
        hashes = yield from self._take(self._garbler, HASHES, OpenedHashes)
        labels = yield from self._take(self._evaluator, LABELS, ForwardedLabels)
        if not hmac.compare_digest(hashes.transcript, labels.transcript):
            reason = f"'{self._garbler}' and '{self._evaluator}' signed different hashes of tables"
            raise VerificationError(
                f"{reason}: one of the two lies, and nothing shows which", Check.TRANSCRIPT_DIFFERS
            )
        opening = self._forwarded(terms, self._garbler, OPEN, hashes.opened, hashes.signature, Open)
        statement = self._forwarded(
            terms, self._evaluator, SIGN, labels.statement, labels.signature, Statement
        )
        if not terms.fits(statement.plan, statement.start, statement.streams):
            raise PeerFault(self._garbler, "signed a statement of other terms", Check.OTHER_STATEMENT)
        if not labels.closed == opening.closed <= terms.copies:
            reason = f"says that copy {labels.closed} is closed, and signed that it is {opening.closed}"
            raise PeerFault(self._evaluator, reason, Check.DISAGREES)
        opened = self._unseal(self._garbler, HASHES, block.number, hashes.sealed)
        key, content = opened[: t.SEED_BYTES], opened[t.SEED_BYTES :]
        commitment = statement.streams[opening.closed][terms.positions.index(t.DECODING)]
        try:
            terms.check_decoding(opening.closed, commitment, key, content)
        except VerificationError as error:
            raise PeerFault(self._garbler, str(error), error.check) from None
        outputs = self._decode(block, terms.garbling(opening.closed), content, labels.sealed)
        for party in (self._garbler, self._evaluator):
            yield self._control(party, RECEIPT, Receipt(hashes.transcript))
        return self._evaluated(rows_of(outputs, self._plan.circuit.outputs), hashes.transcript)

    def _forwarded(
        self, terms: Terms, sender: str, step: str, body: bytes, signature: bytes, kind: type[M]
    ) -> M:
        """Return a message of one side that the other forwards, once its signature is checked."""
        author = self._garbler if sender == self._evaluator else self._evaluator
        signed = self._context.statement(terms.run_id, step, author, sender, hashlib.sha256(body).digest())
        try:
            self._context.verify(self._context.keys[author], signed, signature)
        except VerificationError:
            reason = f"forwarded a '{step}' that '{author}' did not sign in this run"
            raise PeerFault(sender, reason, Check.NOT_SIGNED) from None
        return decode(body, kind, author)
