"""The state of a session in folders: whose it is, who may use it, and which request a call goes on with."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

import smpc_dp
from smpc_dp.cli.saved_members import SavedMembers
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.counter import FileCounter
from smpc_dp.engine.events import Start
from smpc_dp.engine.keyring import KeyRing
from smpc_dp.engine.phases.parameters import CheckableParameters
from smpc_dp.engine.registry import make_aggregator, make_party
from smpc_dp.engine.saved import SavedRun
from smpc_dp.engine.seal import ATTESTED
from smpc_dp.engine.store import Row, Store
from smpc_dp.errors import Check, Code, ConfigError, LocalError, PeerFault, PrivacyError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.secagg.requests.vector_task import VectorTask
from smpc_dp.secagg.states import PARTY
from smpc_dp.session.aggregator import RequestServer
from smpc_dp.session.charging import Raised, charge_run
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.saved_session import OWNER, SavedSessionState
from smpc_dp.session.session_state import LostRunError, check_can_save
from smpc_dp.session.stored_requests import Requests
from smpc_dp.wire.abort import TEXTS
from tests import command
from tests.faults.saved_scene import KEY_WRITES
from tests.faults.saved_session_schedules import without_syncs

PARTIES = ("alice", "bob", "carol")
GIVEN: dict[str, object] = {"length": 1, "kind": "integer", "lower": 0, "upper": 9, "corrupt": 0}
NOISY: dict[str, object] = {
    "length": 1,
    "lower": 0.0,
    "upper": 9.0,
    "precision": 3.0,
    "epsilon": 10.0,
    "delta": 1e-6,
}


DUAL: dict[str, object] = {"learner": "dual-averaging-groups", "features": 2, "steps": 3, "group": 3}
RECORDS: dict[str, object] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "records": {"max_rows": 9, "columns": {"age": {"lower": 0, "upper": 99}}},
    "ask": ["mean(age)"],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return create_local_session(tmp_path, PARTIES, GIVEN)


@pytest.fixture
def member(path: Path) -> Membership:
    return Membership.load(path, "alice")


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "counter").mkdir()
    return {"folder": tmp_path / "state", "counter": tmp_path / "counter"}


def begun(state: SavedSessionState, member: Membership, number: int, label: str, value: int = 4) -> Any:
    """Begin a call, and return its run, which has said hello."""
    taken = state.begin_call(number, f"sum {label}", chosen=False)
    run, resumed = state.party_run(*role(member, taken, label, value))
    if not resumed:
        run.handle(Start())
    return run


def role(member: Membership, number: int, label: str, value: int = 4) -> tuple[Any, Any]:
    """Return the role of a party and its vector."""
    vector, _ = member.encoding.encode([value], party=member.name)
    context = member.context(number, f"sum {label}")
    return make_party(context, member.parameters, member.identity, vector), vector


def serving(member: Membership, number: int) -> Any:
    """Return the role of an aggregator."""
    return make_aggregator(member.context(number), member.parameters, member.identity)


def test_a_run_goes_on_in_the_next_process(member: Membership, folders: dict[str, Any]) -> None:
    first = SavedSessionState(member, **folders)
    hello = begun(first, member, 1, "a").resend()
    first.close()
    second = SavedSessionState(member, **folders)
    assert second.is_under_way
    assert second.following(0) == 1
    assert second.begin_call(1, "sum a", chosen=False) == 1
    run, resumed = second.party_run(*role(member, 1, "a"))
    assert resumed
    assert isinstance(run, SavedRun)
    assert run.resend() == hello


def test_a_run_whose_first_state_alone_is_saved_begins(member: Membership, folders: dict[str, Any]) -> None:
    first = SavedSessionState(member, **folders)
    first.begin_call(1, "sum a", chosen=False)
    first.party_run(*role(member, 1, "a"))
    first.close()
    run, resumed = SavedSessionState(member, **folders).party_run(*role(member, 1, "a"))
    assert not resumed
    assert [one.step for one in run.handle(Start())] == ["hello"]


def test_a_number_that_was_taken_is_that_of_the_call(member: Membership, folders: dict[str, Any]) -> None:
    first = SavedSessionState(member, **folders)
    first.begin_call(1, "sum a", chosen=False)
    first.close()
    second = SavedSessionState(member, **folders)
    assert second.begin_call(second.following(0), "sum a", chosen=False) == 1
    assert second.party_run(*role(member, 1, "a"))[1] is False


def test_another_vector_is_refused(member: Membership, folders: dict[str, Any]) -> None:
    first = SavedSessionState(member, **folders)
    begun(first, member, 1, "a")
    first.close()
    second = SavedSessionState(member, **folders)
    with pytest.raises(LocalError, match="another input"):
        second.party_run(*role(member, 1, "a", 5))


def test_another_label_is_refused_while_a_run_is_open(member: Membership, folders: dict[str, Any]) -> None:
    first = SavedSessionState(member, **folders)
    begun(first, member, 1, "a")
    first.close()
    second = SavedSessionState(member, **folders)
    for chosen in (False, True):
        with pytest.raises(ConfigError, match="request 1 is under way for 'sum a'"):
            second.begin_call(1, "sum b", chosen=chosen)
    # A later number gives it up.
    assert second.begin_call(2, "sum b", chosen=True) == 2
    assert second._store.find(member.session.digest, 1, "alice") is None
    assert not [*(folders["folder"] / "keys").glob("*.keys")]
    assert not [*folders["counter"].glob("*.counter")]


def test_what_was_answered_is_not_under_way(member: Membership, folders: dict[str, Any]) -> None:
    state = SavedSessionState(member, **folders)
    begun(state, member, 1, "a")
    state.answer(1, with_result=True)
    assert not state.is_under_way
    assert state.following(0) == 2
    state.end_session()
    state.close()
    again = SavedSessionState(member, **folders)
    assert not again.is_under_way
    assert again.following(0) == 2


@pytest.mark.parametrize("with_result", [True, False])
def test_a_program_that_fails_has_taken_an_error_and_no_result(
    member: Membership, folders: dict[str, Any], with_result: bool
) -> None:
    state = SavedSessionState(member, **folders)
    begun(state, member, 1, "a")
    state.answer(1, with_result=with_result)
    state.interrupt()
    state.end_session()
    state.close()
    assert SavedSessionState(member, **folders).is_under_way == with_result


def test_without_a_durable_end_it_is_under_way_again(member: Membership, folders: dict[str, Any]) -> None:
    state = SavedSessionState(member, **folders, answers=False)
    begun(state, member, 1, "a")
    state.answer(1, with_result=True)
    state.end_session()
    state.close()
    again = SavedSessionState(member, **folders)
    assert again.is_under_way
    again.answer(1, with_result=True)
    again.answer_last()
    again.close()
    assert not SavedSessionState(member, **folders).is_under_way


def test_a_request_below_the_newest_one_is_never_begun(member: Membership, folders: dict[str, Any]) -> None:
    state = SavedSessionState(member, **folders)
    begun(state, member, 3, "a")
    assert state.least(0) == 3
    with pytest.raises(ConfigError, match="the newest is 3"):
        state.begin_call(2, "sum a", chosen=True)


def test_states_of_earlier_requests_are_removed(member: Membership, folders: dict[str, Any]) -> None:
    state = SavedSessionState(member, **folders)
    for number in range(1, 6):
        begun(state, member, number, f"round {number}")
        state.answer(number, with_result=True)
    assert [request for _, request, _ in state._attempts()] == [5]
    assert len([*(folders["folder"] / "keys").glob("*.keys")]) == 1
    assert len([*folders["counter"].glob("*.counter")]) == 1


def test_a_charge_is_counted_once(member: Membership, folders: dict[str, Any]) -> None:
    state = SavedSessionState(member, **folders)
    for number in (1, 1, 2, 2):
        state.count_charge(number)
    state.close()
    again = SavedSessionState(member, **folders)
    assert again.charged == 2
    assert again.is_counted(2)
    again.count_charge(2)
    assert again.charged == 2


def test_a_release_is_charged_to_the_ledger_once(tmp_path: Path, folders: dict[str, Any]) -> None:
    member = Membership.load(create_local_session(tmp_path, PARTIES, NOISY), "alice")
    ledger = ledger_of(tmp_path)
    state = SavedSessionState(member, **folders)
    state.charge_to(ledger, member.event)
    saving = state._saving(Codec.of_party(PARTY), 1)
    for _ in range(2):
        assert saving.charge(bytes(32), b"digest") is not None
    assert len(ledger.entries()) == state.charged == 1
    with pytest.raises(PrivacyError, match="was charged"):
        saving.charge(bytes(32), b"another")


def test_exclusions_outlive_the_process(path: Path, folders: dict[str, Any]) -> None:
    member = Membership.load(path, "aggregator", role="aggregator")
    state = SavedSessionState(member, **folders)
    state.keep_exclusions({"bob": PeerFault("bob", "lied", Check.BAD_SIGNATURE)})
    state.close()
    [(name, error)] = SavedSessionState(member, **folders).exclusions().items()
    assert (name, str(error)) == ("bob", str(PeerFault("bob", "lied", Check.BAD_SIGNATURE)))


def test_a_command_of_an_aggregator_goes_on_with_what_is_left(path: Path, folders: dict[str, Any]) -> None:
    member = Membership.load(path, "aggregator", role="aggregator")
    state = SavedSessionState(member, **folders)
    assert state.last_request(5) == 5
    state._requests.begin(member.session.digest, 3, "")
    state.close()
    again = SavedSessionState(member, **folders)
    assert (again.first_request(), again.last_request(5)) == (3, 5)
    again.end_collection(3)
    again.end_command()
    again.close()
    third = SavedSessionState(member, **folders)
    assert (third.first_request(), third.last_request(5)) == (4, 8)
    third.skip_to(7)
    third.close()
    assert SavedSessionState(member, **folders).first_request() == 7


def test_a_release_beside_the_sums_is_not_one_of_the_budget(tmp_path: Path, folders: dict[str, Any]) -> None:
    member = Membership.load(create_local_session(tmp_path, PARTIES, NOISY), "alice")
    ledger = ledger_of(tmp_path)
    state = SavedSessionState(member, **folders)
    state.charge_to(ledger, member.event, counts=False)
    assert state._saving(Codec.of_party(PARTY), 1).charge(bytes(32), b"digest") is not None
    assert (len(ledger.entries()), state.charged) == (1, 0)


def test_a_release_of_all_requests_is_charged_with_the_first(tmp_path: Path, folders: dict[str, Any]) -> None:
    """Also by the process that sends it again, and by no process for a later one."""
    member = Membership.load(create_local_session(tmp_path, PARTIES, NOISY), "alice")
    ledger = ledger_of(tmp_path)
    for number in (2, 2, 3):
        state = SavedSessionState(member, **folders)
        state.charge_to(ledger, member.event, counts=False, once=True)
        receipt = state._saving(Codec.of_party(PARTY), number).charge(bytes([number] * 32), b"digest")
        assert (receipt is None) == (number == 3)
        state.close()
    assert len(ledger.entries()) == 1


def ledger_of(folder: Path) -> Ledger:
    """Return a new ledger of a party."""
    return Ledger.create(
        folder / "l", party="alice", dataset="d", relation="substitution", epsilon=99.0, delta=1e-3
    )


# Folders


def test_a_second_process_is_refused(member: Membership, folders: dict[str, Any]) -> None:
    state = SavedSessionState(member, **folders)
    with pytest.raises(LocalError, match=f"{folders['folder']}: another process uses this state of alice"):
        SavedSessionState(member, **folders)
    state.close()
    SavedSessionState(member, **folders)


@pytest.mark.parametrize("with_counter", [False, True])
def test_a_state_of_another_member_is_refused(
    path: Path, member: Membership, folders: dict[str, Any], with_counter: bool
) -> None:
    given = folders if with_counter else {"folder": folders["folder"]}
    SavedSessionState(member, **given).close()
    with pytest.raises(ConfigError, match=r"is of alice in the session .*, here is bob"):
        SavedSessionState(Membership.load(path, "bob"), **given)


def test_a_state_of_another_session_is_refused(
    path: Path, member: Membership, folders: dict[str, Any]
) -> None:
    SavedSessionState(member, **folders).close()
    path.write_text(path.read_text("utf-8").replace("upper = 9", "upper = 8"), "utf-8")
    with pytest.raises(ConfigError, match=f"{folders['folder']} is of alice in the session"):
        SavedSessionState(Membership.load(path, "alice"), **folders)


def test_a_counter_that_is_gone_is_refused(member: Membership, folders: dict[str, Any]) -> None:
    state = SavedSessionState(member, **folders)
    begun(state, member, 1, "a")
    state.close()
    shutil.rmtree(folders["counter"])
    with pytest.raises(ConfigError, match="is no folder"):
        SavedSessionState(member, **folders)
    folders["counter"].mkdir()
    with pytest.raises(LocalError, match=r"its counter is not in .*: it was lost or set back"):
        SavedSessionState(member, **folders)


def test_a_state_that_is_gone_is_refused(member: Membership, folders: dict[str, Any]) -> None:
    state = SavedSessionState(member, **folders)
    begun(state, member, 1, "a")
    state.close()
    shutil.rmtree(folders["folder"])
    with pytest.raises(LocalError, match=r"its states are not in .*: they were lost or set back"):
        SavedSessionState(member, **folders)


def test_a_crash_between_the_owners_of_both_folders_is_repaired(
    member: Membership, folders: dict[str, Any]
) -> None:
    SavedSessionState(member, **folders).close()
    (folders["folder"] / OWNER).unlink()
    SavedSessionState(member, **folders).close()
    SavedSessionState(member, **folders).close()


def test_the_counter_of_another_state_is_refused(
    tmp_path: Path, member: Membership, folders: dict[str, Any]
) -> None:
    other = {"folder": tmp_path / "state 2", "counter": tmp_path / "counter 2"}
    other["counter"].mkdir()
    for one in (folders, other):
        SavedSessionState(member, **one).close()
    with pytest.raises(LocalError, match="its counter is not in"):
        SavedSessionState(member, folders["folder"], other["counter"])


@pytest.mark.parametrize("with_counter", [False, True])
def test_a_state_goes_on_with_or_without_a_counter_as_it_began(
    member: Membership, folders: dict[str, Any], with_counter: bool
) -> None:
    both, alone = folders, {"folder": folders["folder"]}
    SavedSessionState(member, **(both if with_counter else alone)).close()
    with pytest.raises(ConfigError, match=f"begun {'with' if with_counter else 'without'} a counter"):
        SavedSessionState(member, **(alone if with_counter else both))


def test_a_counter_within_the_state_is_refused(member: Membership, tmp_path: Path) -> None:
    (tmp_path / "state" / "counter").mkdir(parents=True)
    with pytest.raises(ConfigError, match="it counts nothing"):
        SavedSessionState(member, tmp_path / "state", tmp_path / "state" / "counter")


def test_a_newer_version_is_refused(member: Membership, folders: dict[str, Any]) -> None:
    SavedSessionState(member, **folders).close()
    file = folders["folder"] / OWNER
    owner = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(owner | {"version": 3}), "utf-8")
    with pytest.raises(LocalError, match="is a state of version 3; this release reads 2"):
        SavedSessionState(member, **folders)
    file.write_text("{}", "utf-8")
    with pytest.raises(LocalError, match="is damaged, or no state of a session"):
        SavedSessionState(member, **folders)


def test_a_newer_version_of_the_store_is_refused(member: Membership, folders: dict[str, Any]) -> None:
    state = SavedSessionState(member, **folders)
    begun(state, member, 1, "a")
    state.close()
    with sqlite3.connect(folders["folder"] / "states") as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(LocalError, match="version 99"):
        SavedSessionState(member, **folders)


def test_requests_that_were_set_back_are_refused(member: Membership, folders: dict[str, Any]) -> None:
    """Without a counter they lie beside the states: of these the newest tells."""
    alone = {"folder": folders["folder"]}
    state = SavedSessionState(member, **alone)
    begun(state, member, 1, "a")
    state.close()
    earlier = (folders["folder"] / "requests").read_bytes()
    state = SavedSessionState(member, **alone)
    state.answer(1, with_result=True)
    begun(state, member, 2, "b")
    state.close()
    (folders["folder"] / "requests").write_bytes(earlier)
    with pytest.raises(LocalError, match="is at request 1, and a run of request 2 is saved"):
        SavedSessionState(member, **alone)


def test_states_that_were_set_back_are_refused(
    tmp_path: Path, member: Membership, folders: dict[str, Any]
) -> None:
    """An answered request does not come back, nor an earlier state of one under way."""
    state = SavedSessionState(member, **folders)
    begun(state, member, 1, "a")
    state.close()
    shutil.copytree(folders["folder"], tmp_path / "backup")
    state = SavedSessionState(member, **folders)
    state.answer(1, with_result=True)
    begun(state, member, 2, "b")
    state.close()
    shutil.rmtree(folders["folder"])
    shutil.copytree(tmp_path / "backup", folders["folder"])
    state = SavedSessionState(member, **folders)
    assert state.number == 2
    with pytest.raises(ConfigError, match="number"):
        # Its state is gone, and it is never begun a second time.
        state.begin_call(1, "sum a", chosen=True)
    assert state._store.find(member.session.digest, 1, "alice") is not None
    state.begin_call(3, "sum c", chosen=True)
    assert state._attempts() == []


def test_a_state_from_before_a_request_does_not_begin_it_again(
    tmp_path: Path, path: Path, member: Membership, folders: dict[str, Any]
) -> None:
    """No second run of a request that was begun: neither a party's nor an aggregator's."""
    hub = Membership.load(path, "aggregator", role="aggregator")

    def begin(state: SavedSessionState, of: Membership) -> None:
        if of is member:
            begun(state, member, 1, "a")
        elif state.restored_collection(serving(hub, 1)) is None:
            state.begin_collection(serving(hub, 1))

    for of in (member, hub):
        media: dict[str, Any] = {"folder": tmp_path / of.name, "counter": tmp_path / f"{of.name}.counter"}
        media["counter"].mkdir()
        SavedSessionState(of, **media).close()
        shutil.copytree(media["folder"], tmp_path / "backup")
        state = SavedSessionState(of, **media)
        begin(state, of)
        state.close()
        shutil.rmtree(media["folder"])
        (tmp_path / "backup").rename(media["folder"])
        state = SavedSessionState(of, **media)
        assert state.is_under_way
        with pytest.raises(LocalError, match=r"request 1 is not in .*: the store was set back"):
            begin(state, of)
        assert state._attempts() == []
        state.close()
    # A later number goes on without it.
    assert SavedSessionState(member, tmp_path / "alice", tmp_path / "alice.counter").begin_call(
        2, "sum b", chosen=True
    )


def test_of_two_copies_of_a_state_one_begins_a_request(
    tmp_path: Path, member: Membership, folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SavedSessionState(member, **folders)
    first.begin_call(1, "sum a", chosen=False)
    first.close()
    shutil.copytree(folders["folder"], tmp_path / "copy")
    copies = [
        SavedSessionState(member, folder, folders["counter"]) for folder in (first.folder, tmp_path / "copy")
    ]
    # Both have seen that there is none.
    monkeypatch.setattr(SavedSessionState, "_check_not_begun", lambda *_: None)
    copies[0].party_run(*role(member, 1, "a"))
    with pytest.raises(LocalError, match="another process has gone on"):
        copies[1].party_run(*role(member, 1, "a"))


class Crash(BaseException):
    """The end of a process."""


def crash_before(patch: pytest.MonkeyPatch, write: int) -> None:
    """Crash before a write to disk, by its number from 1 on, and before all that follow."""
    left = write

    def wrapped(original: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Crash
            return original(*arguments, **named)

        return call

    for kind, names in (
        (Store, ("begin", "swap", "remove", "append")),
        (KeyRing, KEY_WRITES),
        (FileCounter, ("advance", "remove")),
        (Requests, ("begin", "keep_last_results", "take_attempt", "keep_survivors")),
    ):
        for name in names:
            patch.setattr(kind, name, wrapped(getattr(kind, name)))


def crashed(write: int, process: Callable[[], None]) -> bool:
    """Run a process that crashes before a write; return False if it has fewer."""
    with pytest.MonkeyPatch.context() as patch:
        crash_before(patch, write)
        try:
            process()
        except Crash:
            return True
    return False


@pytest.mark.parametrize("with_counter", [True, False])
def test_a_party_goes_on_after_a_crash_before_any_write(
    tmp_path: Path, member: Membership, with_counter: bool
) -> None:
    for write in range(1, 99):
        media: dict[str, Any] = {"folder": tmp_path / f"state-{write}"}
        if with_counter:
            media["counter"] = tmp_path / f"counter-{write}"
            media["counter"].mkdir()
        sent: dict[int, set[bytes]] = {1: set(), 2: set(), 3: set()}
        done: set[int] = set()

        def process(media: dict[str, Any] = media, sent: Any = sent, done: set[int] = done) -> None:
            state = SavedSessionState(member, **media)
            try:
                for number in sorted({*sent} - done):
                    assert state.begin_call(number, f"sum {number}", chosen=True) == number
                    run: Any
                    run, resumed = state.party_run(*role(member, number, f"{number}"))
                    hello = run.resend() if resumed else run.handle(Start())
                    sent[number].update(one.body for one in hello)
                    state.count_charge(number)
                    done.add(number)
                    state.answer(number, with_result=True)
                state.end_session()
            finally:
                state.close()

        if not crashed(write, process):
            break
        process()
        # Each request once, with one message.
        assert [len(bodies) for bodies in sent.values()] == [1, 1, 1], write
        state = SavedSessionState(member, **media)
        assert (state.number, state.charged) == (3, 3), write
        assert [request for _, request, _ in state._attempts()] == [3], write
    assert write > 25


def test_an_aggregator_goes_on_after_a_crash_before_any_write(tmp_path: Path, path: Path) -> None:
    member = Membership.load(path, "aggregator", role="aggregator")
    for write in range(1, 99):
        media: dict[str, Any] = {
            "folder": tmp_path / f"state-{write}",
            "counter": tmp_path / f"counter-{write}",
        }
        media["counter"].mkdir()

        def process(media: dict[str, Any] = media) -> None:
            state = SavedSessionState(member, **media)
            try:
                first = state.first_request()
                if first > 1:
                    # That of the request before, for those who lack its result.
                    state.restored_collection(serving(member, first - 1))
                for number in range(first, state.last_request(3) + 1):
                    if state.restored_collection(serving(member, number)) is None:
                        state.begin_collection(serving(member, number))
                    state.end_collection(number)
                state.end_command()
            finally:
                state.close()

        if not crashed(write, process):
            break
        process()
        state = SavedSessionState(member, **media)
        assert state.number == 3, write
        assert not state.is_under_way, write
        assert [request for _, request, _ in state._attempts()] == [state.number], write
    assert write > 20


def test_a_lost_run_is_given_up(member: Membership, folders: dict[str, Any]) -> None:
    alone = {"folder": folders["folder"]}
    state = SavedSessionState(member, **alone)
    begun(state, member, 1, "a")
    state.close()
    state = SavedSessionState(member, **alone)
    row = state._row(role(member, 1, "a")[0])
    assert row is not None
    # As it is from `attest-participants` on.
    attested = msgspec.structs.replace(row.position, flags=row.position.flags | ATTESTED)
    state._store.swap(row, Row(attested, row.key, b""))
    with pytest.raises(LostRunError, match="is not restored without a counter; the run may have ended"):
        state.party_run(*role(member, 1, "a"))
    assert not state.is_under_way
    assert state.begin_call(state.following(0), "sum b", chosen=False) == 2


def test_a_read_only_folder_is_named(
    member: Membership, folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_named: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(LocalError, match=r"state/lock: cannot open the lock \(Read-only file system\)"):
            SavedSessionState(member, **folders)
    (folders["counter"] / "file").write_text("", "utf-8")
    with pytest.raises(LocalError, match="cannot make the folder"):
        SavedSessionState(member, folders["counter"] / "file" / "state")


@pytest.mark.parametrize("kind", ["folder", "keys", "counter"])
def test_a_folder_that_all_can_write_is_refused(
    member: Membership, folders: dict[str, Any], kind: str
) -> None:
    """Whoever can replace a file by an earlier one sets it back."""
    folder = folders["folder"] / "keys" if kind == "keys" else folders[kind]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    with pytest.raises(LocalError, match=f"{folder.name}: mode 0777 lets others replace its files"):
        SavedSessionState(member, **folders)
    folder.chmod(0o755)
    SavedSessionState(member, **folders)


def test_a_folder_of_another_user_is_named(
    member: Membership, folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = Path.exists

    def refuse(path: Path) -> bool:
        if path.parent == folders["counter"]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return exists(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", refuse)
        denied = r"counter/owner: cannot read the owner of a state \(Permission denied\)"
        with pytest.raises(LocalError, match=denied):
            SavedSessionState(member, **folders)
    # It is not locked any more.
    SavedSessionState(member, **folders)


def test_what_is_made_is_for_its_owner_alone(member: Membership, folders: dict[str, Any]) -> None:
    earlier = os.umask(0)
    try:
        state = SavedSessionState(member, **folders)
        begun(state, member, 1, "a")
        state.count_charge(1)
    finally:
        os.umask(earlier)
    made = [folders["folder"], *folders["folder"].rglob("*"), *folders["counter"].rglob("*")]
    assert len(made) > 9
    assert all(path.stat().st_mode & 0o077 == 0 for path in made), made


@pytest.mark.parametrize(
    ("number", "text"), [(errno.ENOLCK, "use a file system with locks"), (errno.EROFS, "cannot be locked")]
)
def test_a_file_system_without_locks_is_named(
    member: Membership, folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch, number: int, text: str
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(LocalError, match=text):
        SavedSessionState(member, **folders)


def test_a_full_disk_loses_nothing(
    member: Membership, folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = SavedSessionState(member, **folders)
    taken = state.begin_call(1, "sum a", chosen=False)
    run, _ = state.party_run(*role(member, taken, "a"))
    with monkeypatch.context() as patch:

        def full(*_arguments: object) -> None:
            raise LocalError("states: the saved states cannot be used (database or disk is full)")

        patch.setattr("smpc_dp.engine.store.Store.swap", full)
        with pytest.raises(LocalError, match="disk is full"):
            run.handle(Start())
        # Nothing of the step is sent.
        assert isinstance(run, SavedRun)
        assert run.resend() == ()
    run, resumed = state.party_run(*role(member, taken, "a"))
    assert not resumed
    assert len(run.handle(Start())) == 1


# Sessions


async def test_other_sessions_refuse_a_state_by_name(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, DUAL, protocol="learn")
    why = "'dual-averaging-groups' keeps the average of its models"
    with pytest.raises(ConfigError, match=why):
        await smpc_dp.Session.open(path, "alice", state=tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_a_protocol_that_does_not_say_what_is_saved_is_refused(tmp_path: Path) -> None:
    silent: Any = SimpleNamespace(protocol="other", described=SimpleNamespace(unsaved=None))
    with pytest.raises(ConfigError, match="'other' is not saved yet"):
        check_can_save(silent)


@pytest.mark.parametrize("basis", [NOISY, RECORDS])
@pytest.mark.parametrize(
    "more", [{}, {"on_dropout": "roll-back"}, {"verifiable": True}, {"topology": "direct"}]
)
def test_requests_by_gopa_are_saved(
    tmp_path: Path, basis: dict[str, object], more: dict[str, object]
) -> None:
    path = create_local_session(tmp_path, PARTIES, basis | more, protocol="gopa")
    SavedSessionState(Membership.load(path, "alice"), tmp_path / "state").close()


def test_sums_that_some_parties_check_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckableParameters, "has_checkers", True)
    path = create_local_session(tmp_path, PARTIES, GIVEN)
    SavedSessionState(Membership.load(path, "alice"), tmp_path / "state").close()


async def test_more_false_statements_than_planned_are_charged_once(
    tmp_path: Path, member: Membership
) -> None:
    """Also by a process that goes on; and again where there are more of them."""
    ledger = Ledger.create(
        tmp_path / "l", party="alice", dataset="d", relation="substitution", epsilon=None, delta=1e-3
    )
    for false in (2, 2, 3, 2, 3):
        await charge_run(ledger, member.event, 1, bytes(32), Raised(false, member.event()))
    assert [entry.run for entry in ledger.entries()] == [f"{0:064x}{false:016x}" for false in (2, 3)]


async def test_a_counter_is_for_a_state(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="counter: is for a state"):
        await smpc_dp.Session.open(path, "alice", counter=tmp_path)


def test_all_members_of_a_run_join_one_request(path: Path, tmp_path: Path, member: Membership) -> None:
    """The one that is under way at any of them, or else the next one."""
    media = (tmp_path / "states", tmp_path / "counters")
    loaded = member.session

    def options(name: str) -> dict[str, object]:
        return SavedMembers(loaded, path, None, *media).options(name)

    assert options("alice")["--number"] == 1
    assert options("aggregator") == {
        "--state": media[0] / "aggregator",
        "--counter": media[1] / "aggregator",
        "--number": None,
    }
    for number in (1, 2):
        alice = SavedSessionState(member, media[0] / "alice", media[1] / "alice")
        begun(alice, member, number, "")
        alice.close()
        # Bob has not begun it.
        assert options("bob")["--number"] == number
        alice = SavedSessionState(member, media[0] / "alice", media[1] / "alice")
        alice.answer(number, with_result=True)
        alice.answer_last()
        alice.close()
        assert options("bob")["--number"] == number + 1
    serving = Membership.load(path, "aggregator", role="aggregator")
    assert SavedSessionState(serving, media[0] / "aggregator", media[1] / "aggregator").first_request() == 3
    assert SavedMembers(loaded, path, None, None, None).options("alice") == {}
    with pytest.raises(ConfigError, match="is for --state"):
        SavedMembers(loaded, path, None, None, media[1])


class Late:
    """A session whose others are at a later request."""

    def __init__(self) -> None:
        self.numbers: list[int | None] = []

    async def sum_encoded(self, *_arguments: object, number: int | None) -> str:
        self.numbers.append(number)
        if number != 5:
            raise smpc_dp.OtherRequestError("alice", number or 0, "", 4, "", 5)
        return "sum"


@pytest.mark.parametrize("with_state", [True, False])
async def test_a_command_with_a_state_joins_the_request_that_is_shown(
    member: Membership, path: Path, folders: dict[str, Any], with_state: bool
) -> None:
    state = SavedSessionState(member, **folders) if with_state else None
    host: Any = SimpleNamespace(state=state)
    for number in (None, 1):
        late: Any = Late()
        if with_state and number is None:
            await VectorTask()._sum(host, late, "sum", np.zeros(1, np.uint8), 0, number=None)
            assert late.numbers == [1, 5]
            continue
        # Without a state, or with a number, the caller says which request it is for.
        with pytest.raises(smpc_dp.OtherRequestError):
            await VectorTask()._sum(host, late, "sum", np.zeros(1, np.uint8), 0, number=number)
        assert late.numbers == [number]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--counter", "c"], "--counter is for --state"),
    ],
)
def test_options_of_a_state_go_together(path: Path, options: list[str], text: str) -> None:
    done = command.smpc_dp("party", str(path), "--as", "alice", *options)
    assert done.returncode != 0
    assert text in " ".join(done.stderr.replace("│", " ").split())


def test_codes_of_a_restored_end_are_texts() -> None:
    """A tombstone has a code of the closed list, which has a text."""
    assert {*Code} == {*TEXTS}
    assert all(TEXTS.values())


def test_who_has_called_before_a_result_was_restored_is_waited_for() -> None:
    """An earlier process may have sent it to nobody; who is answered over its connection has it."""

    def connected(*, live: bool = True, clean: bool = False, answered: int = 0) -> Any:
        return SimpleNamespace(live=live, clean=clean, answered=answered)

    known = {
        "alice": connected(),
        "bob": connected(answered=3),
        "carol": connected(live=False, clean=True),
        "dave": connected(live=False),
    }
    survivors = ("alice", "bob", "carol", "dave", "erin")
    server: Any = RequestServer.__new__(RequestServer)
    server._earlier = SimpleNamespace(state=SimpleNamespace(outcome=SimpleNamespace(survivors=survivors)))
    server._drive, server._groups = SimpleNamespace(request=3), {}
    server._membership = SimpleNamespace(names=survivors)
    server._pool = SimpleNamespace(
        connections=known, is_cut=lambda name: not (known[name].live or known[name].clean)
    )
    server._was_over = False
    assert server._survivors_away() == ["dave", "erin"]
    server._was_over = True
    assert server._survivors_away() == ["alice", "dave", "erin"]


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close what a test leaves open: locks end with their process."""
    opened: list[SavedSessionState] = []
    with pytest.MonkeyPatch.context() as patch:
        made = SavedSessionState.__init__

        def init(self: SavedSessionState, *arguments: Any, **named: Any) -> None:
            opened.append(self)
            made(self, *arguments, **named)

        patch.setattr(SavedSessionState, "__init__", init)
        yield
    for one in opened:
        if "_lock" in vars(one):
            one.close()
