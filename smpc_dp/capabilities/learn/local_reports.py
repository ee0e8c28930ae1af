"""Gossip under local DP: each record is randomised once into a report, and only reports move [Remark 3.5].

A party's record, one of k categories, becomes a report by k-ary randomised response. It stands for the record
everywhere, at its own party too, since estimates and sums of gradients are sent on; kernel and gradient are
replaced by their unbiased versions (3.10) on reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Parties, Rows, is_whole
from smpc_dp.capabilities.learn.gosta import PairKernel
from smpc_dp.capabilities.learn.pairwise_losses import PairGradient
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.mechanisms.randomised_response import KaryRandomisedResponse
from smpc_dp.privacy.sampling import NoiseSource

Floats = NDArray[np.float64]

CLAIM = (
    "what a party sends is computed from reports: each record is protected by randomised response against "
    "everybody else together; labels, where they are said to be public, are not protected"
)
# Numbers that a gradient on reports has in memory at a time.
_BLOCK = 1 << 22
_ANSWER, _PARTY, _LABEL = 0, 1, 2


@dataclass(frozen=True)
class LocalReports:
    """Randomised response on records that are categories 0 to k - 1, and unbiased estimates from it.

    A row is (answer, party) or (answer, party, label): the party's number tells a report from all others, so
    that no party pairs its report with itself, which would bias.
    """

    response: KaryRandomisedResponse

    @classmethod
    def plan(cls, epsilon: float, categories: int) -> LocalReports:
        """Return the randomised response of at most epsilon on k categories, or raise ConfigError."""
        if not 2 <= categories <= 1 << 16:
            raise ConfigError.at("categories", f"must be 2 to 65,536, is {categories}", ConfigCheck.RANGE)
        return cls(KaryRandomisedResponse.calibrate(epsilon, 0.0, categories))

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """The local privacy of one report; anything computed from reports costs nothing more."""
        return self.response.guarantee(0.0)

    @property
    def claim(self) -> str:
        """The sentence that says how much a randomised report reveals, and to whom."""
        return f"{CLAIM}; epsilon = {self.guarantee.epsilon:.4g}"

    def randomise(
        self,
        categories: NDArray[np.integer],
        here: Parties,
        *,
        labels: Floats | None = None,
        source: NoiseSource | None = None,
    ) -> Rows:
        """Return new reports, each call a further release: rows of (answer, party[, label]).

        Each call is a release of its own: two reports on one record cost twice.

        Args:
            categories: shape (rows,), the records. here: shape (rows,), their parties.
            labels: public, shape (rows,). source: None is the operating system's randomness.

        Raises:
            ConfigError: shapes do not fit each other. PrivacyError: a record is no category.
        """
        categories = np.asarray(categories)
        if categories.shape != here.shape or (labels is not None and labels.shape != here.shape):
            raise ConfigError.at(
                "records", f"must be one category, and one label, a party: {len(here)}", ConfigCheck.SHAPE
            )
        answers = self.response.release(categories, source or NoiseSource.system())
        columns = [answers, here] if labels is None else [answers, here, labels]
        return np.column_stack(columns).astype(np.float64)

    def known(self, parties: int, *, labels: int | None = None) -> Callable[[Rows], NDArray[np.bool_]]:
        """Return a function that tells which rows can be reports of this many parties and labels."""

        def known(rows: Rows) -> NDArray[np.bool_]:
            good = is_whole(rows[:, _ANSWER], self.response.categories) & is_whole(rows[:, _PARTY], parties)
            return good if labels is None else good & is_whole(rows[:, _LABEL], labels)

        return known

    def kernel(self, matrix: Floats) -> PairKernel:
        """Return an unbiased kernel on pairs of reports for `matrix`; 0 of a party with itself.

        The mean of the estimates tends to (n - 1)/n times (3.9). Raises ConfigError.
        """
        table = self.response.distribution.unbiased_pairs(self._square(matrix))

        def kernel(own: Rows, other: Rows) -> Floats:
            values = table[_answers(own), _answers(other)]
            return np.where(_own(own, other), 0.0, values)

        return kernel

    def labelled_kernel(self, matrix: Floats) -> PairKernel:
        """Return the unbiased kernel on reports with public labels, over pairs of label 1 and 0.

        0 for equal labels: n^2 / (n+ n-) times the mean of the estimates estimates the mean over the pairs of
        a record of either label. Raises ConfigError.
        """
        table = self.response.distribution.unbiased_pairs(self._square(matrix)) / 2

        def kernel(own: Rows, other: Rows) -> Floats:
            first, second = _answers(own), _answers(other)
            mine, theirs = (np.rint(rows[:, _LABEL]) for rows in (own, other))
            values = np.where(mine > theirs, table[first, second], table[second, first])
            return np.where(mine == theirs, 0.0, values)

        return kernel

    def gradient(self, gradient: PairGradient, points: Floats, *, labelled: bool = False) -> PairGradient:
        """Return an unbiased pair gradient on reports, by evaluating `gradient` on all k^2 pairs.

        Its mean over the responses, theta given, is the gradient at the records.

        Args:
            gradient: of the loss, on rows of features or, if `labelled`, of (features, label).
            points: shape (k, d), the features of each category.

        Raises:
            ConfigError: there are not k points.
        """
        k = self.response.categories
        points = np.asarray(points, dtype=np.float64)
        if points.ndim != 2 or len(points) != k or not np.isfinite(points).all():
            raise ConfigError.at(
                "points", f"must be finite, of shape ({k}, d), shape is {points.shape}", ConfigCheck.SHAPE
            )
        first, second = (grid.ravel() for grid in np.meshgrid(np.arange(k), np.arange(k), indexing="ij"))

        def on_reports(theta: Rows, own: Rows, other: Rows) -> Rows:
            result = np.empty_like(theta)
            step = max(1, _BLOCK // (k * k * theta.shape[1]))
            for start in range(0, len(theta), step):
                part = slice(start, start + step)
                result[part] = block(theta[part], own[part], other[part])
            return result

        def block(theta: Rows, own: Rows, other: Rows) -> Rows:
            rows, p = theta.shape
            everywhere = gradient(
                np.repeat(theta, k * k, axis=0), _records(own, first), _records(other, second)
            ).reshape(rows, k, k, p)
            unbiased = self.response.distribution.unbiased_pairs(np.moveaxis(everywhere, 0, 2))
            values = unbiased[_answers(own), _answers(other), np.arange(rows)]
            return np.where(_own(own, other)[:, None], 0.0, values)

        def _records(reports: Rows, category: NDArray[np.intp]) -> Rows:
            features = np.tile(points[category], (len(reports), 1))
            if not labelled:
                return features
            return np.column_stack([features, np.repeat(np.rint(reports[:, _LABEL]), k * k)])

        return on_reports

    def _square(self, matrix: Floats) -> Floats:
        """Return the matrix as floats; raise ConfigError unless it is finite of shape (k, k)."""
        k = self.response.categories
        matrix = np.asarray(matrix, dtype=np.float64)
        if matrix.shape != (k, k) or not np.isfinite(matrix).all():
            raise ConfigError.at(
                "matrix", f"must be finite, of shape ({k}, {k}), is {matrix.shape}", ConfigCheck.SHAPE
            )
        return matrix


def _answers(rows: Rows) -> NDArray[np.intp]:
    """Return the randomised category numbers in rows of reports."""
    # Received numbers may have been rounded to a grid.
    return np.rint(rows[:, _ANSWER]).astype(np.intp)


def _own(own: Rows, other: Rows) -> NDArray[np.bool_]:
    """Tell for each row whether it pairs a party's report with itself."""
    return np.asarray(np.rint(own[:, _PARTY]) == np.rint(other[:, _PARTY]))
