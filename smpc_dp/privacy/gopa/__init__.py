"""Plan GOPA: the exact privacy of private averaging with correlated noise, and the noise that suffices.

`exact_privacy` certifies one graph; `plan_gopa` plans or checks a whole run before anything is sent.
"""

from smpc_dp.privacy.gopa.exact import CertifiedGraph, ExactPrivacy, exact_privacy
from smpc_dp.privacy.gopa.graphs import HonestGraph, honest_graph
from smpc_dp.privacy.gopa.plan import GopaPlan
from smpc_dp.privacy.gopa.planner import plan_gopa
from smpc_dp.privacy.gopa_request import GopaRequest

__all__ = [
    "CertifiedGraph",
    "ExactPrivacy",
    "GopaPlan",
    "GopaRequest",
    "HonestGraph",
    "exact_privacy",
    "honest_graph",
    "plan_gopa",
]
