"""Estimators of scikit-learn: models averaged in a session, and networks of parties simulated in one process.

Guide: docs/guides/integrations.md.
"""

from smpc_dp.integrations.sklearn.averaged import SecureAveraged
from smpc_dp.integrations.sklearn.networks import (
    NetworkDPLogisticRegression,
    PersonalizedBoosting,
    PersonalizedLogisticRegression,
)

__all__ = [
    "NetworkDPLogisticRegression",
    "PersonalizedBoosting",
    "PersonalizedLogisticRegression",
    "SecureAveraged",
]
