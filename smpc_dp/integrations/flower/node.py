"""A node's part in secure averages: each message is handled by another process, from saved states.

What the node takes part in comes from a file of the node; a message gives the number of a request, the model
and the configuration to train with, and envelopes of the aggregator. Nothing here needs Flower.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.decoding import convert
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.counter import FileCounter
from smpc_dp.engine.driver import Driver
from smpc_dp.engine.events import Message, Start
from smpc_dp.engine.keyring import KeyRing
from smpc_dp.engine.registry import make_party
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.engine.saved import SavedRun, Saving, abandon, charge_once
from smpc_dp.engine.seal import OVER
from smpc_dp.engine.store import Store
from smpc_dp.errors import Code, ConfigCheck, ConfigError, LocalError, PrivacyError, SmpcError
from smpc_dp.files import read_bounded
from smpc_dp.integrations.flower.averages import EVALUATE, TRAIN, Answer, Average, SecureAverage
from smpc_dp.secagg.params import PRIVACY_KEYS
from smpc_dp.session.charging import open_ledger
from smpc_dp.session.member import default_key
from smpc_dp.session.stored_requests import Requests, StoredHeld, StoredSurvivors
from smpc_dp.values import decoded
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode_envelope, encode_envelope

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.ledger import Ledger

MAX_FILE_BYTES = 1 << 20
# Requests are numbered in the messages about errors, in 32 bits.
MAX_NUMBER = (1 << 32) - 1
TRUSTED = "server trusted with code"
SIGNED = "signed"
_HASH = re.compile(r"[0-9a-f]{64}")


class NodeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings file of a Flower node: its name, sessions, keys, ledger, and folders of saved states.

    Attributes:
        party: the node's name in the roster of each session.
        state: folder of the saved states and their keys, which must be in no backup; created if missing.
        counter: folder that nothing ever sets back, outside of `state`; it must exist.
        train, evaluate: the averages of each kind of message; without `evaluate` such messages are refused.
        key: identity file; by default `keys/PARTY.key` beside each session file.
        ledger: privacy ledger, needed where a session has epsilon; all runs share it.
        examples: the metric that is the node's secret weight.
        clip: whether values out of bounds are clipped; otherwise the node leaves the request, which tells
            the server that they are: sessions with epsilon need it.
        app: SHA-256 of the app (FAB) that the node's operator has checked, 64 hex digits; or "signed", where
            the SuperNode runs only apps that a party other than the aggregator has signed; or empty.
    """

    party: str
    state: str
    counter: str
    train: Average
    evaluate: Average | None = None
    key: str = ""
    ledger: str = ""
    examples: str = "num-examples"
    clip: bool = False
    app: str = ""


class Contribution(NamedTuple):
    """Result of a node's own training or evaluation, to be averaged: arrays and metrics."""

    arrays: Mapping[str, NDArray[Any]]
    metrics: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Node:
    """A Flower node, loaded from its settings file: takes part in secure averages, saving its state."""

    file: NodeFile
    averages: Mapping[str, SecureAverage]
    requests: Requests
    ledger: Ledger | None
    trust: str

    @classmethod
    def load(cls, path: str | os.PathLike[str], app_hash: Callable[[], str]) -> Node:
        """Read a node's settings file, with its sessions, keys and ledger; ConfigError if it is incomplete.

        `app_hash` computes the hash of the app that runs, where one is pinned.

        Raises:
            ConfigError: the file, a session file or a key is wrong; a session has epsilon, and there is no
                ledger or no clipping; the counter is missing or within `state`.
            PrivacyError: another app runs than the one that is pinned.
            LocalError: a file cannot be read.
        """
        file = read_node_file(path)
        averages = {
            kind: SecureAverage.load(
                average, file.party, file.key or default_key(average.session, file.party)
            )
            for kind, average in ((TRAIN, file.train), (EVALUATE, file.evaluate))
            if average is not None
        }
        private = [
            kind
            for kind, one in averages.items()
            if set(PRIVACY_KEYS) & set(one.membership.session.parameters)
        ]
        if private and not file.ledger:
            reason = f"{file.party}: the session of '{private[0]}' has epsilon: a ledger is needed"
            raise ConfigError.at("ledger", reason, ConfigCheck.MISSING)
        if private and not file.clip:
            reason = (
                f"{file.party}: the session of '{private[0]}' has epsilon: write clip = true; a node that "
                "leaves where a value is out of bounds tells the server of its data, without noise or charge"
            )
            raise ConfigError.at("clip", reason, ConfigCheck.MISSING)
        ledger = open_ledger(file.ledger, file.party) if file.ledger else None
        requests = Requests(Path(file.counter) / "requests")
        return cls(file, averages, requests, ledger, _trust(file, app_hash))

    def begin(self, kind: str, number: int, task: str, work: Callable[[], Contribution]) -> Answer:
        """Start a request: do the node's training once, save its result, and return the first message.

        A number is taken once, before the work: if that fails, or its process ends, the node has no part in
        this request any more.

        Args:
            task: of `averages.task_of`.
            work: trains or evaluates; may raise anything.

        Raises:
            SmpcError: nothing of the work has left the node.
        """
        average = self._average(kind)
        if not 0 < number <= MAX_NUMBER:
            raise PrivacyError(f"{self.file.party}: {number} is no number of a request")
        membership = average.membership
        self._held(kind).check_open(membership.aggregator)
        before = self.requests.take(membership.session.digest, number)
        if before.operation:
            self._forget(kind, before.number, before.operation)
        contribution = work()
        tree = average.flatten(contribution.arrays, contribution.metrics, clip=self.file.clip)
        examples = contribution.metrics.get(self.file.examples)
        ring_vector, clipped = average.encode(tree, examples)
        operation = average.operation(task, tree)
        self.requests.set_operation(membership.session.digest, number, operation)
        first = self._party(kind, number, operation, ring_vector)
        run: SavedRun[Outcome] = SavedRun.begin(
            first.role, first.member, first.state, self._saving(kind, number, first.role)
        )
        note = f"{self.file.party}: request {number}: {clipped} values were clipped" if clipped else ""
        return Answer(tuple(map(encode_envelope, run.handle(Start()))), trust=self.trust, note=note)

    def proceed(self, kind: str, number: int, messages: Sequence[bytes]) -> Answer:
        """Continue a saved request with messages; return the node's answer; PrivacyError for a past request.

        A message that comes again is answered with the stored bytes. After an error the role's last state is
        a tombstone, and the answer is `leave` with a code.

        Raises:
            SmpcError: there is no such request, or its state cannot be restored or saved.
        """
        average = self._average(kind)
        membership = average.membership
        last = self.requests.last(membership.session.digest)
        if number != last.number or not last.operation:
            reason = f"{self.file.party}: request {number} is not under way, the last one is {last.number}"
            raise PrivacyError(reason, code=Code.PAST)
        run = self._restore(kind, number, last.operation)
        driver = Driver(run)
        stored = run.resend()
        sent: list[Envelope] = []
        for message in messages:
            try:
                event = Message(decode_envelope(memoryview(message), membership.aggregator))
            except SmpcError as error:
                sent += driver.cancel(error)
            else:
                sent += driver.act(event)
        warned = run.state.warning and f"{self.file.party}: request {number}: {run.state.warning}"
        answer = Answer(
            tuple(map(encode_envelope, sent or stored)), trust=self.trust, note=warned, warns=bool(warned)
        )
        if not run.finished:
            return answer
        note = f"{self.file.party}: left request {number}: {driver.error}"
        if driver.error is None:
            note = f"{self.file.party}: request {number}: {_described(run.result)}; {self.trust}"
            answer = Answer(trust=self.trust)
        run.finish()
        return Answer(answer.messages, trust=self.trust, note=note)

    def _average(self, kind: str) -> SecureAverage:
        """Return the settings of this kind of average; raise ConfigError if the node has none."""
        if kind not in self.averages:
            reason = f"{self.file.party}: no average is declared for '{kind}' messages"
            raise ConfigError.at(kind, reason, ConfigCheck.UNSUPPORTED)
        return self.averages[kind]

    def _fixed(self, kind: str) -> StoredSurvivors:
        """Return the store of who survived earlier exact sums of this kind's session."""
        membership = self.averages[kind].membership
        return self.requests.fixed(membership.session.digest, len(membership.names))

    def _held(self, kind: str) -> StoredHeld:
        """Return the store of the node's last accepted result in a kind's session, or of its refusal."""
        return self.requests.held(self.averages[kind].membership.session.digest)

    def _party(
        self, kind: str, number: int, operation: str, ring_vector: NDArray[Any] | None = None
    ) -> Run[Any]:
        """Return the node's role in a request; without a vector one that is only to be restored."""
        membership = self.averages[kind].membership
        if ring_vector is None:
            parameters = membership.parameters
            ring_vector = np.zeros(parameters.shape, parameters.encoding.dtype)
        return make_party(
            membership.context(number, operation),
            membership.parameters,
            membership.identity,
            ring_vector,
            fixed=self._fixed(kind),
            last=self._held(kind),
        )

    def _saving(self, kind: str, number: int, role: Any) -> Saving:
        """Return where the state of a request is saved, and how its release is charged."""
        states = Path(self.file.state)
        charged: dict[str, Any] = {}
        if self.ledger is not None:
            event = self.averages[kind].membership.event
            charged["charge"] = charge_once(self.ledger, event, number)
        return Saving(
            Codec.of_party(role),
            Store(states / "states"),
            KeyRing(states / "keys"),
            FileCounter(Path(self.file.counter)),
            **charged,
        )

    def _restore(self, kind: str, number: int, operation: str) -> SavedRun[Outcome]:
        """Return the node's run of a request, restored from its saved state."""
        first = self._party(kind, number, operation)
        return SavedRun.restore(first.role, first.member, self._saving(kind, number, first.role))

    def _forget(self, kind: str, number: int, operation: str) -> None:
        """Destroy the saved secrets of an earlier request, whether it has ended or not."""
        first = self._party(kind, number, operation)
        saving = self._saving(kind, number, first.role)
        context = first.member.context
        row = saving.store.find(context.scope, number, self.file.party)
        if row is None:
            return
        if row.position.flags & OVER:
            SavedRun.restore(first.role, first.member, saving).finish()
        else:
            abandon(first.member, saving)


def read_node_file(path: str | os.PathLike[str]) -> NodeFile:
    """Read a node's settings file with absolute paths, and create folders of states, or raise ConfigError.

    Raises:
        LocalError: it cannot be read, or a folder cannot be made.
        ConfigError: its content is wrong; the counter is missing, or within the folder of the states.
    """
    content = read_bounded(path, "the node's file", MAX_FILE_BYTES)
    try:
        file: NodeFile = convert(tomllib.loads(decoded(content, str(path))), NodeFile)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError.at(str(path), str(error), ConfigCheck.FORMAT) from None
    if file.app not in ("", SIGNED) and not _HASH.fullmatch(file.app):
        raise ConfigError.at("app", "is neither 64 lower-case hex digits nor 'signed'", ConfigCheck.FORMAT)
    folder = Path(path).resolve().parent
    state, counter = folder / file.state, folder / file.counter
    if counter.resolve().is_relative_to(state.resolve()):
        reason = f"{counter} is within {state}: set back with it, it counts nothing"
        raise ConfigError.at("counter", reason, ConfigCheck.CONFLICT)
    if not counter.is_dir():
        reason = f"{counter} is no folder: make it once, on what is never restored; lost, it starts anew"
        raise ConfigError.at("counter", reason, ConfigCheck.MISSING)
    try:
        (state / "keys").mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(f"{state}: cannot make the folder ({error.strerror})") from None

    def absolute(average: Average | None) -> Average | None:
        return None if average is None else Average(str(folder / average.session), average.metrics)

    return msgspec.structs.replace(
        file,
        state=str(state),
        counter=str(counter),
        train=absolute(file.train),
        evaluate=absolute(file.evaluate),
        key=file.key and str(folder / file.key),
        ledger=file.ledger and str(folder / file.ledger),
    )


def _described(outcome: Outcome) -> str:
    """Return text on who is in a result, and what is claimed of its privacy."""
    missing = f", without {', '.join(outcome.absent)}" if outcome.absent else ""
    return f"average over {len(outcome.survivors)} parties{missing}; {outcome.privacy.claim}"


def _trust(file: NodeFile, app_hash: Callable[[], str]) -> str:
    """Return text on whom the node trusts with the app's code; raise PrivacyError for another app."""
    if not file.app:
        return TRUSTED
    if file.app == SIGNED:
        return f"{file.party} says: its SuperNode runs only apps signed by others than the aggregator"
    running = app_hash()
    if running != file.app:
        reason = f"{file.party}: the app's hash is {running}, pinned is {file.app}: another app"
        raise PrivacyError(reason)
    return f"{file.party} runs the app that it has pinned, {running[:16]}"
