"""Messages of secure averages in Flower's records, and what a task's name is the digest of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from smpc_dp.errors import Check, Code, PeerFault
from smpc_dp.integrations.flower.averages import Answer
from smpc_dp.optional import import_optional

import_optional("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict  # noqa: E402

# Records of ours in the content of a message. Envelopes are arrays, which Flower sends in pieces.
HEAD, ENVELOPES = "smpc-dp", "smpc-dp-envelopes"
# Flower's MOD_FAILED_PRECONDITION.
REFUSED = 6


def pack(envelopes: Sequence[bytes], **values: int | str) -> dict[str, Any]:
    """Return the records of a Flower message that carries these protocol messages and values."""
    arrays = {
        str(index): Array(dtype="uint8", shape=(len(content),), stype="bytes", data=content)
        for index, content in enumerate(envelopes)
    }
    return {HEAD: ConfigRecord(values), ENVELOPES: ArrayRecord(arrays)}


def unpack(content: RecordDict, sender: str) -> tuple[ConfigRecord, tuple[bytes, ...]]:
    """Return (values, protocol messages) of a Flower message; raise PeerFault if it has none."""
    values, arrays = content.get(HEAD), content.get(ENVELOPES)
    if not isinstance(values, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        raise PeerFault(sender, "sent a message without a request for a secure average", Check.MALFORMED)
    names = [str(index) for index in range(len(arrays))]
    if set(names) != set(arrays):
        raise PeerFault(sender, "sent envelopes that are not numbered", Check.MALFORMED)
    return values, tuple(arrays[name].data for name in names)


def without_ours(content: RecordDict) -> RecordDict:
    """Return a copy of a Flower message's content without the records of secure averages."""
    return RecordDict({name: record for name, record in content.items() if name not in (HEAD, ENVELOPES)})


def reply_of(answer: Answer, message: Message) -> Message:
    """Return the Flower reply that carries a node's answer, or an error code without text."""
    if answer.code:
        return Message(Error(REFUSED, answer.code), reply_to=message)
    return Message(RecordDict(pack(answer.messages, trust=answer.trust)), reply_to=message)


def answer_of(reply: Message) -> Answer:
    """Return the node's answer in a Flower reply; an error answer if the reply carries none."""
    if reply.has_error():
        return Answer(code=reply.error.reason or str(reply.error.code))
    try:
        values, envelopes = unpack(reply.content, "node")
    except PeerFault:
        return Answer(code=Code.OWN)
    return Answer(envelopes, trust=str(values.get("trust", "")))


def task_parts(message: Message, run_config: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the bytes that define a node's task: the run, its configuration, and each record.

    Names, types and values. Records and their entries come in the order of the message, which Flower keeps:
    apps take arrays by position, so that another order is another model. That of a configuration is not kept.
    """
    yield str(message.metadata.run_id).encode()
    yield message.metadata.group_id.encode()
    yield from _record_parts("", {key: run_config[key] for key in sorted(run_config)})
    for name, record in message.content.items():
        yield from _record_parts(name, record)


def _record_parts(name: str, record: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the bytes of one Flower record, for the hash of the task."""
    yield from (b"record", name.encode(), type(record).__name__.encode(), str(len(record)).encode())
    for key, value in record.items():
        yield key.encode()
        if isinstance(value, Array):
            yield f"{value.dtype} {tuple(value.shape)} {value.stype}".encode()
            yield value.data
        else:
            yield f"{type(value).__name__} {value!r}".encode()
