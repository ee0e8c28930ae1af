"""Convictions in a pairwise statistic: a party shows the certificate against the garbler of its pair."""

from __future__ import annotations

from msgspec.structs import replace

from smpc_dp.capabilities.pairs.circuits.circuit import Circuit
from smpc_dp.capabilities.pairs.covert.certificate import Certificate, CircuitFields, judge
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.terms import pair_context
from smpc_dp.errors import Check, VerificationError
from smpc_dp.wire.signing import Context

_NO_CIRCUIT = CircuitFields([], [], 0, b"", b"", b"", b"")


def accusation(matching: int, certificate: bytes) -> m.Conviction:
    """Return the message that shows others a cheating certificate, without the circuit that they know."""
    return m.Conviction(matching, replace(Certificate.decode(certificate), circuit=_NO_CIRCUIT).encode())


def convict(
    context: Context, run_id: bytes, circuit: Circuit, pair: tuple[str, str], message: m.Conviction
) -> bytes:
    """Check an accusation against a pair of this run; return the full certificate, or raise an error.

    The circuit is the agreed one: nobody is made to garble another. Raises VerificationError for any other
    certificate, and for one that convicts nobody.
    """
    shown = Certificate.decode(message.certificate)
    expected = pair_context(context, run_id, message.matching, pair)
    terms = (shown.session_digest, shown.request, shown.names, shown.public_key, shown.instances)
    names = [*pair, context.aggregator]
    if terms != (expected.session_digest, expected.request, names, expected.keys[pair[0]], 1):
        raise VerificationError("the certificate is not of this pair", Check.OTHER_RUN)
    content = replace(shown, circuit=CircuitFields.of(circuit)).encode()
    judge(content)
    return content
