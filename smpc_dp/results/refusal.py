"""`smpc-dp audit FILE.evidence.json`: whether the evidence of a party's refusal convicts the aggregator.

Specification: protocols/secagg/README.md, "Last results".
"""

from __future__ import annotations

import os
from pathlib import Path

from smpc_dp.engine.phases.last_results import check_contradiction
from smpc_dp.errors import Check, VerificationError, printable
from smpc_dp.logs.audits.audit_selection import FAILS
from smpc_dp.results.audit import TWO_RESULTS, Comparison, session_of, without_session
from smpc_dp.session.refusals import SUFFIX, read_evidence


def is_refusal(path: str | os.PathLike[str]) -> bool:
    """Tell by its name whether a file holds a party's evidence of why it refused an aggregator's result."""
    return os.fspath(path).endswith(SUFFIX)


def audit_refusal(
    path: str | os.PathLike[str], *, session: str | os.PathLike[str] | None = None
) -> Comparison:
    """Check evidence that the aggregator signed one result of a run and named another; return a report.

    Raises LocalError if a file cannot be read or is damaged, ConfigError for a wrong session file.
    """
    evidence, loaded = read_evidence(Path(path)), session_of(session)
    if loaded is None:
        return without_session()
    aggregator = loaded.roster.aggregator
    if aggregator is None:
        reason = "It convicts nobody: the session has no aggregator."
        return Comparison(ok=False, code=FAILS, conclusion=reason)
    try:
        check_contradiction(loaded.roster.keys[aggregator.name], evidence)
    except VerificationError as error:
        reason = f"It does not convict {aggregator.name}: {printable(str(error))}."
        return Comparison(ok=False, code=FAILS, conclusion=reason, check=error.check)
    reason = f"Two results: {aggregator.name} has signed one of this run, and names another in a later run."
    return Comparison(
        ok=False,
        code=TWO_RESULTS,
        conclusion=reason,
        run_id=evidence["result run id"].hex(),
        digests=(evidence["result"].hex(),),
        check=Check.EQUIVOCATION,
        culprit=aggregator.name,
    )
