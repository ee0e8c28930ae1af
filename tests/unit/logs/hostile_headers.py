"""Headers of logs that agree with themselves, whatever session a test puts into them."""

from __future__ import annotations

from msgspec.structs import replace

from smpc_dp.engine.phases.keys import run_identifier
from smpc_dp.logs.audits.log_session import parse_session_text
from smpc_dp.logs.log import Header
from smpc_dp.wire.signing import Context


def with_session(header: Header, session: str) -> Header:
    """Return a header with another session, and with the run id that follows."""
    return with_run_id(replace(header, session=session))


def with_run_id(header: Header) -> Header:
    """Return a header with the run id that follows from the rest of it."""
    held = parse_session_text(header.session)
    context = Context(
        # Groups of a learner run verifiable GOPA.
        protocol="gopa" if held.protocol == "learn" else held.protocol,
        version=held.version,
        session_digest=held.digest,
        request=header.request,
        names=held.names,
        aggregator=str(held.aggregator),
        keys=held.keys,
        operation=header.operation,
    )
    run_id = run_identifier(context, header.operation, header.present, header.root)
    return replace(header, run_id=run_id.hex())
