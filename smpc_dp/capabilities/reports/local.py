"""Pairwise statistics under local differential privacy: Algorithm 3.3 of [Bellet 2021].

Each party rounds its record to one of k categories and reports it by k-ary randomised response; the
aggregator computes the mean of the unbiased kernel (3.10) over all pairs from the k counts of the answers.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from smpc_dp.capabilities.pairs.kernels.fields import Codes, Floats, as_array, checked_labels
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.reports.local_estimate import (
    LocalEstimate,
    all_pairs,
    interval_of,
    local_privacy,
    stack_reports,
    two_samples,
)
from smpc_dp.capabilities.reports.quantiser import Quantiser, Rounding, bins_of, choose_bins
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.result import Privacy
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.local_pairwise import exact_variance, two_sample_variance, variance_bound
from smpc_dp.privacy.mechanisms.randomised_response import KaryRandomisedResponse
from smpc_dp.privacy.sampling import NoiseSource

__all__ = ["LocalPairwise"]

FINGERPRINT_BYTES = 8
ANSWER_BYTES = 2


@dataclass(frozen=True)
class LocalPairwise:
    """Public plan of locally private reports for pairwise statistics: randomises records, and estimates.

    The reports serve any kernel on the same fields: `kernel` is the one that is estimated unless another is
    given, and no part of the fingerprint.
    """

    kernel: Kernel
    quantiser: Quantiser
    response: KaryRandomisedResponse
    density_lipschitz: float | None = None

    @classmethod
    def plan(
        cls,
        kernel: Kernel,
        epsilon: float,
        *,
        parties: int | None = None,
        bins: int | Sequence[int] | None = None,
        rounding: Rounding = "simple",
        density_lipschitz: float | None = None,
    ) -> Self:
        """Return a plan of reports: bins for the records, unless given, and randomised response.

        Args:
            epsilon: of one report, above 0, at most 100.
            parties: how many reports are expected; only the choice of the bins depends on it.
            bins: for each field, or one number for all; None: see `choose_bins`.
            density_lipschitz: what is assumed of the records' density: see `Quantiser.bias`.

        Raises:
            ConfigError: an argument is out of range, or bins are not given and cannot be chosen.
        """
        checks = ArgumentChecks()
        checks.require_budget(epsilon)
        if parties is not None:
            checks.require_integer("parties", parties, 2, 1_000_000_000)
        if density_lipschitz is not None:
            checks.require_positive("density_lipschitz", density_lipschitz, 1e6)
        checks.raise_issues()
        if bins is None:
            chosen = choose_bins(kernel, epsilon, parties, density_lipschitz)
        else:
            chosen = bins_of(kernel, bins)
        quantiser = Quantiser(kernel.fields, chosen, rounding)
        response = KaryRandomisedResponse.calibrate(epsilon, 0.0, quantiser.categories)
        return cls(kernel, quantiser, response, density_lipschitz)

    @property
    def epsilon(self) -> float:
        """The exact epsilon that one report spends; below the requested one by about 1e-9."""
        return math.log(self.response.ratio)

    @property
    def event(self) -> Event:
        """The privacy event that a party's ledger charges for one report."""
        return self.response.event()

    @property
    def privacy(self) -> Privacy:
        """The privacy claim of a party's single report, whoever sees it."""
        return local_privacy(self.response.guarantee(0.0))

    @cached_property
    def fingerprint(self) -> bytes:
        """Hash of 8 bytes at the start of each report, which tells plans apart."""
        terms = {
            "fields": [field.terms() for field in self.kernel.fields],
            "bins": self.quantiser.bins,
            "rounding": self.quantiser.rounding,
            "ratio": str(self.response.ratio),
        }
        return digest(Label.LOCAL_PAIRWISE, msgspec.json.encode(terms))[:FINGERPRINT_BYTES]

    def randomise(
        self, record: ArrayLike, *, ledger: Ledger | None = None, label: str = "", run: bytes | None = None
    ) -> bytes:
        """Randomise a party's record into a 10-byte report; charges the ledger, if given, before.

        Each call is a release of its own: two reports on one record cost 2 epsilon. With `ledger` that is
        charged, durably, before anything is drawn.

        Args:
            record: the values of the fields; for one field the value itself will do.
            run: what the ledger charges, once; None: at random.

        Raises:
            PrivacyError: a value is outside of its domain, or the ledger refuses. ConfigError: not a record.
            LocalError: the ledger cannot be written.
        """
        values = as_array("record", record)
        count = len(self.kernel.fields)
        if values.shape != (count,) and (count > 1 or values.shape != ()):
            reason = f"shape {values.shape}, not the values of one record, {count}"
            raise ConfigError.at("record", reason, ConfigCheck.SHAPE)
        codes = self.kernel.codes(values.reshape(1, -1))
        if ledger is not None:
            ledger.charge(run or secrets.token_bytes(16), self.event, label)
        return self.reports(self._answer(codes, None))[0]

    def randomise_many(
        self, records: ArrayLike | Sequence[ArrayLike], randomness: Randomness | None = None
    ) -> Codes:
        """Randomise many parties' records at once; return their answers, for simulations.

        `records` as for `Kernel.codes`; `randomness` None is the operating system's. Raises PrivacyError,
        ConfigError.
        """
        return self._answer(self.kernel.codes(records), randomness)

    def _answer(self, codes: Codes, randomness: Randomness | None) -> Codes:
        """Return randomised categories for encoded records."""
        category = self.quantiser.categorise(codes, randomness)
        return self.response.release(category, noise_source(randomness))

    def reports(self, answers: Codes) -> list[bytes]:
        """Encode each randomised category as a report's bytes."""
        return [self.fingerprint + int(answer).to_bytes(ANSWER_BYTES, "big") for answer in answers]

    def answers(self, reports: Sequence[bytes]) -> Codes:
        """Decode reports to their randomised categories, shape (n,), each 0..k-1.

        Raises ConfigError, naming the first that is wrong: of another length or fingerprint, or no category.
        """
        whole = stack_reports(reports, self.fingerprint, FINGERPRINT_BYTES + ANSWER_BYTES)
        answers = whole[:, FINGERPRINT_BYTES].astype(np.int64) << 8 | whole[:, FINGERPRINT_BYTES + 1]
        wrong = np.flatnonzero(answers >= self.quantiser.categories)
        if len(wrong):
            k = self.quantiser.categories
            raise ConfigError.at(
                f"reports[{wrong[0]}]", f"its answer is none of the {k} categories", ConfigCheck.CHOICE
            )
        return answers

    def estimate(
        self,
        reports: Sequence[bytes] | Codes,
        *,
        labels: ArrayLike | None = None,
        kernel: Kernel | None = None,
        confidence: float = 0.95,
    ) -> LocalEstimate:
        """Return the estimated mean of the kernel over all pairs, unbiased but for rounding to bins.

        O(n + k^2). The error is that of an estimate of U_h, (3.6), for independent records of one
        distribution.

        Args:
            reports: from `randomise`, or the answers of `randomise_many`; at least 3 of different parties.
            labels: public, 0 or 1 for each report, at least 2 of each; needed exactly for a kernel with
                public labels.
            kernel: another kernel on the same fields.

        Raises:
            ConfigError: a report is invalid, labels are not labels, the kernel has other fields.
        """
        kernel = kernel or self.kernel
        if kernel.fields != self.kernel.fields:
            raise ConfigError.at("kernel", "has other fields than the reports", ConfigCheck.DIFFERS)
        if not 0 < confidence < 1:
            raise ConfigError.at("confidence", f"must be between 0 and 1, is {confidence}", ConfigCheck.RANGE)
        answers = self._checked(reports)
        matrix = self.quantiser.matrix(kernel)
        k, n, bound = self.quantiser.categories, len(answers), None
        if kernel.labels == "public":
            public_labels = checked_labels(labels, n)
            up, down = (np.bincount(answers[public_labels == label], minlength=k) for label in (1, 0))
            if min(up.sum(), down.sum()) < 2:
                raise ConfigError.at(
                    "labels", "a label has one report: 2 are needed of each", ConfigCheck.RANGE
                )
            unbiased, pairs = self.unbiased(matrix), min(int(up.sum()), int(down.sum()))
            value, error = two_samples(unbiased, up, down)
        elif labels is not None:
            raise ConfigError.at(
                "labels", f"kernel {kernel.name} has no public labels", ConfigCheck.UNSUPPORTED
            )
        else:
            symmetric = (matrix + matrix.T) / 2
            unbiased, pairs = self.unbiased(symmetric), n // 2
            value, error = all_pairs(unbiased, np.bincount(answers, minlength=k))
            bound = kernel.width * math.sqrt(variance_bound(n, k, self.epsilon))
        bias = self.quantiser.bias(kernel, self.density_lipschitz)
        return LocalEstimate(
            statistic=kernel.name,
            value=value,
            standard_error=error,
            standard_error_bound=bound,
            bias_bound=bias,
            confidence=confidence,
            interval=interval_of(
                value,
                error,
                bias or 0.0,
                confidence,
                (kernel.low, kernel.high),
                pairs=pairs,
                spread=float(np.ptp(unbiased)),
                bound=bound,
            ),
            reports=n,
            categories=k,
            visited=None,
            privacy=self.privacy,
        )

    def _checked(self, reports: Sequence[bytes] | Codes) -> Codes:
        """Return randomised categories, decoded if given as reports; raise ConfigError if invalid."""
        if not isinstance(reports, np.ndarray):
            answers = self.answers(reports)
        elif reports.ndim == 1 and reports.dtype.kind in "iu":
            answers = reports.astype(np.int64)
        else:
            raise ConfigError.at(
                "reports", f"{reports.dtype} {reports.shape} is not a row of answers", ConfigCheck.SHAPE
            )
        if len(answers) < 3:
            raise ConfigError.at(
                "reports", f"there are {len(answers)}, at least 3 are needed", ConfigCheck.FORMAT
            )
        if answers.min() < 0 or answers.max() >= self.quantiser.categories:
            raise ConfigError.at(
                "reports", f"not answers in 0..{self.quantiser.categories - 1}", ConfigCheck.FORMAT
            )
        return answers

    def unbiased(self, matrix: Floats) -> Floats:
        """Return the kernel's matrix corrected for randomised response, so that its mean is unbiased."""
        return self.response.distribution.unbiased_pairs(matrix)

    def exact_error(self, distribution: Floats, parties: int) -> float:
        """Return the estimate's standard deviation for records of a known distribution.

        `distribution`: the chances of the categories after rounding, (k,). Raises ConfigError.
        """
        matrix = self.quantiser.matrix(self.kernel)
        return math.sqrt(exact_variance((matrix + matrix.T) / 2, distribution, parties, self.epsilon))

    def exact_response_error(self, positive: ArrayLike, negative: ArrayLike) -> float:
        """Return the estimate's standard deviation due to randomisation alone, for fixed records.

        `positive` and `negative` count the records of each label by category, (k,). Raises ConfigError.
        """
        up, down = (np.asarray(row, dtype=np.float64) for row in (positive, negative))
        return math.sqrt(two_sample_variance(self.quantiser.matrix(self.kernel), up, down, self.epsilon))


def noise_source(randomness: Randomness | None) -> NoiseSource:
    """Return a random generator seeded by the operating system, or by the given randomness."""
    return NoiseSource.system() if randomness is None else NoiseSource.keyed(randomness.bytes(32))
