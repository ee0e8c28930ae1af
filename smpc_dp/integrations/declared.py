"""Differential privacy that another library gives a party's own models, as one entry of its ledger."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PrivacyError
from smpc_dp.privacy.accountant.events import Event, Pure
from smpc_dp.privacy.accountant.receipt import Receipt
from smpc_dp.privacy.guarantee import Relation, Unit
from smpc_dp.session.charging import open_ledger

__all__ = ["DeclaredPrivacy"]

RUN_BYTES = 16


class DeclaredPrivacy:
    """Privacy budget that a caller declares for models it trains privately, charged to a ledger once.

    For models that are private before they leave, such as those of DP-SGD (Opacus): every average is a
    function of private steps, so that one charge for all planned steps pays for any number of averages,
    whoever is corrupt. That epsilon and delta hold is the caller's claim: the ledger's entry says so.

    Args:
        ledger: path of the party's ledger. Its unit and relation must be those of the mechanism.
        party: its owner.
        epsilon, delta: of all planned steps together.
        spent: epsilon of the steps so far at a delta, by the caller's accountant: `engine.get_epsilon` of
            Opacus. Nothing is sent once it is above `epsilon`.
        mechanism: in words, for the ledger.
        relation, unit: what the mechanism protects; as given, DP-SGD with Poisson sampling.

    Attributes:
        receipt: of the ledger, from the first average on.

    Raises ConfigError for an epsilon or delta out of range; errors of `Ledger.open`.
    """

    def __init__(
        self,
        ledger: str | os.PathLike[str],
        party: str,
        epsilon: float,
        delta: float,
        *,
        spent: Callable[[float], float] | None = None,
        mechanism: str = "local DP-SGD",
        relation: Relation = "add-remove",
        unit: Unit = "record",
    ) -> None:
        issues = [
            ConfigIssue(name, f"{party}: must be {rule}, is {value}", ConfigCheck.RANGE)
            for name, value, rule, holds in (
                ("epsilon", epsilon, "above 0 and finite", 0 < epsilon < float("inf")),
                ("delta", delta, "from 0 to below 1", 0 <= delta < 1),
            )
            if not holds
        ]
        if issues:
            raise ConfigError(issues)
        self.party, self.epsilon, self.delta = party, epsilon, delta
        self.receipt: Receipt | None = None
        self._spent = spent
        self._ledger = open_ledger(ledger, party)
        self._event = Event(
            f"{mechanism}, declared by the caller", relation, (Pure(epsilon, delta),), unit=unit
        )
        self._run = secrets.token_bytes(RUN_BYTES)

    def permit(self) -> Receipt:
        """Charge the ledger, at later calls nothing more; PrivacyError if overspent or the ledger refuses.

        Raises PrivacyError if the accountant has counted more than `epsilon`, or the ledger refuses.
        """
        if self._spent is not None:
            # Written so that NaN fails.
            spent = self._spent(self.delta)
            if not spent <= self.epsilon:
                reason = f"the accountant has counted epsilon = {spent:g}, declared is {self.epsilon:g}"
                raise PrivacyError(f"{self.party}: {reason} (delta = {self.delta:g})")
        self.receipt = self._ledger.charge(
            self._run, self._event, "any number of exact averages", resume=True
        )
        return self.receipt
