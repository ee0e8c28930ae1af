"""The mod of a node's ClientApp: answers in the node's place, with envelopes and codes alone."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from traceback import format_exception_only
from typing import Any

from smpc_dp.errors import Check, Code, ConfigCheck, ConfigError, LocalError, PeerFault, SmpcError, printable
from smpc_dp.integrations.flower.averages import TRAIN, Answer, task_of
from smpc_dp.integrations.flower.node import Contribution, Node
from smpc_dp.integrations.flower.records import reply_of, task_parts, unpack, without_ours

from flwr.app import Context, Message  # isort: skip

# Key of `node_config`, and the variable of the node's environment in its place: the path of the node's file.
SETTING, VARIABLE = "smpc-node", "SMPC_DP_NODE"
# Flower's own logger: a node's operator reads it.
_LOG = logging.getLogger("flwr")

Call = Callable[[Message, Context], Message]


def secure_mod(message: Message, context: Context, call_next: Call) -> Message:
    """Flower client mod that puts the node's result into a secure average, and replies without the result.

    The app's own reply never leaves the node: its arrays and declared metrics are in the sum, and all else is
    dropped. Of an error the server learns a code; the node's log has the text.
    """
    # Catches everything: Flower sends the text of an exception to the server.
    try:
        answer = _answer(message, context, call_next)
    except SmpcError as error:
        answer = Answer(code=error.code, note=str(error))
    except Exception as error:
        # Not str(): the text of an error may itself raise.
        text = "".join(format_exception_only(error)).strip()
        answer = Answer(code=Code.OWN, note=printable(f"the app failed: {text}"))
    if answer.note:
        level = logging.ERROR if answer.code else logging.WARNING if answer.warns else logging.INFO
        _LOG.log(level, "smpc-dp: %s", answer.note)
    return reply_of(answer, message)


def _answer(message: Message, context: Context, call_next: Call) -> Answer:
    """Begin or continue a request by the server's message; return the node's answer, or raise an error."""
    if message.has_error():
        raise PeerFault("server", "sent an error", Check.MALFORMED)
    kind: str = message.metadata.message_type
    values, envelopes = unpack(message.content, "server")
    number = values.get("request")
    if not isinstance(number, int) or isinstance(number, bool):
        raise PeerFault("server", "sent no number of a request", Check.MALFORMED)
    node = Node.load(node_file(context.node_config), running_app_hash)
    if envelopes:
        return node.proceed(kind, number, envelopes)
    message.content = without_ours(message.content)
    task = task_of(kind, task_parts(message, context.run_config))
    return node.begin(kind, number, task, partial(_work, kind, message, context, call_next))


def _work(kind: str, message: Message, context: Context, call_next: Call) -> Contribution:
    """Let the Flower app train or evaluate; return its arrays and metrics, or raise LocalError."""
    reply = call_next(message, context)
    if reply.has_error():
        raise LocalError(f"the app answers with the error {reply.error.code}")
    arrays, metrics = reply.content.array_records, reply.content.metric_records
    if len(arrays) != (kind == TRAIN) or len(metrics) != 1:
        expected = "one ArrayRecord and one MetricRecord" if kind == TRAIN else "one MetricRecord"
        reason = f"the app's reply to '{kind}' must have {expected}, has {len(arrays)} and {len(metrics)}"
        raise LocalError(reason)
    values = {name: array.numpy() for record in arrays.values() for name, array in record.items()}
    return Contribution(values, dict(next(iter(metrics.values()))))


def node_file(node_config: Any) -> Path:
    """Return the path of the node's settings file, with a simulated node's number; ConfigError if unset.

    Raises ConfigError if there is none.
    """
    path = node_config.get(SETTING) or os.environ.get(VARIABLE, "")
    if not isinstance(path, str) or not path:
        reason = f"missing, and so is {VARIABLE} in the environment: the path of the node's file"
        raise ConfigError.at(f"node_config.{SETTING}", reason, ConfigCheck.MISSING)
    return Path(path.replace("{partition-id}", str(node_config.get("partition-id", ""))))


def running_app_hash() -> str:
    """Return the SHA-256 hash of the Flower app that is running; LocalError unless exactly one is found.

    The app is the folder that Flower has put on the path to load it.
    """
    folders = {Path(entry).resolve() for entry in sys.path if entry and _is_app(Path(entry))}
    if len(folders) != 1:
        raise LocalError(f"{len(folders)} folders of the path are a Flower app: which one runs is not known")
    return app_hash(folders.pop())


def app_hash(folder: Path) -> str:
    """Return the SHA-256 hash of the bundle (FAB) that `flwr build` makes of an app's folder."""
    # Flower's commands take 0.4 s to load, in the process of each message; a hash is for pinned apps alone.
    from flwr.cli.build import build_fab_from_disk

    return hashlib.sha256(build_fab_from_disk(folder)).hexdigest()


def _is_app(folder: Path) -> bool:
    """Return whether a folder holds a Flower app's project file."""
    try:
        text = (folder / "pyproject.toml").read_text("utf-8")
        return "app" in tomllib.loads(text).get("tool", {}).get("flwr", {})
    except (OSError, ValueError):
        return False
