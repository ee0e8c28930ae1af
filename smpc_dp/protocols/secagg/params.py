"""The parameters of a secure aggregation, as a session file gives them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy.secagg_plan import SecAggPlan, plan_secagg

PROTOCOL = "secagg"
VERSION = 1

MAX_PARTIES = 65_535


class SecAggParameters(msgspec.Struct, frozen=True):
    """Checked parameters: how values are encoded and how the run is planned."""

    encoding: Encoding
    plan: SecAggPlan


class _Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    length: int
    lower: float | int
    upper: float | int
    kind: str = "real"
    precision: float | int | None = None
    max_weight: int = 0
    dropout: float | int = 0.1
    corrupt: float | int = 0.1
    security: float | int = 40


def check_parameters(
    parameters: Mapping[str, object], parties: int
) -> tuple[SecAggParameters | None, list[Fault]]:
    """Check a `[parameters]` table for a session of `parties` parties; return every fault found.

    Keys: `length`, `lower`, `upper` (needed); `kind` ("real", the default, or "integer"); `precision` (needed
    for "real", not allowed for "integer"); `max_weight` (default 0: no weights); `dropout`, `corrupt`
    (fractions of the parties, default 0.1) and `security` (bits, default 40). Source: [Bell et al. 2020,
    section 3].
    """
    faults: list[Fault] = []
    known = {field.encode_name: field for field in msgspec.structs.fields(_Declared)}
    for key in parameters:
        if key not in known:
            faults.append(Fault(key, f"unknown parameter of secagg (known: {', '.join(sorted(known))})"))
    good: dict[str, object] = {}
    for key, field in known.items():
        if key not in parameters:
            if field.required:
                faults.append(Fault(key, "is missing"))
            continue
        try:
            good[key] = msgspec.convert(parameters[key], field.type, strict=True)
        except msgspec.ValidationError as error:
            faults.append(Fault(key, str(error)))
    if parties > MAX_PARTIES:
        faults.append(Fault("roster", f"at most {MAX_PARTIES} parties, has {parties}"))
    if faults:
        return None, faults
    declared = msgspec.convert(good, _Declared)
    encoding: Encoding | None = None
    plan: SecAggPlan | None = None
    if declared.kind not in ("real", "integer"):
        faults.append(Fault("kind", f"must be 'real' or 'integer', is {declared.kind!r}"))
    elif (declared.kind == "real") != (declared.precision is not None):
        needed = "is needed for kind 'real'" if declared.kind == "real" else "is not for kind 'integer'"
        faults.append(Fault("precision", needed))
    else:
        try:
            encoding = Encoding.plan(
                length=declared.length,
                lower=declared.lower,
                upper=declared.upper,
                precision=None if declared.precision is None else float(declared.precision),
                parties=parties,
                max_weight=declared.max_weight,
            )
        except ConfigError as error:
            faults.extend(error.faults)
    try:
        plan = plan_secagg(
            parties,
            dropout=float(declared.dropout),
            corrupt=float(declared.corrupt),
            security=float(declared.security),
        )
    except ConfigError as error:
        # The number of parties is not a parameter: it is the roster's.
        faults += [Fault("roster" if where == "parties" else where, what) for where, what in error.faults]
    if encoding is None or plan is None:
        return None, faults
    return SecAggParameters(encoding=encoding, plan=plan), faults
