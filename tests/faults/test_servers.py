"""Computations on shares under attack: bad shares, split views, other parameters, bad children."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import pytest

from smpc_dp.capabilities.pairs.kernels import Field, Kernel
from smpc_dp.capabilities.servers.requests import engine as engines
from smpc_dp.capabilities.servers.requests.child import Answer
from smpc_dp.capabilities.servers.requests.computing_server import serve_shares
from smpc_dp.capabilities.servers.requests.engine import Engine
from smpc_dp.capabilities.servers.secret_sharing import messages as m
from smpc_dp.capabilities.servers.secret_sharing.agreement import MakeTerms
from smpc_dp.capabilities.servers.secret_sharing.params import FAULT_BYTES, check_parameters, roster_issues
from smpc_dp.capabilities.servers.secret_sharing.party import PartyRun
from smpc_dp.capabilities.servers.secret_sharing.server import Job, ServerRun
from smpc_dp.capabilities.servers.secret_sharing.sharing import field_bytes, split, unpack
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms, modulus_for
from smpc_dp.capabilities.servers.statistics.plan import statistic_program, sum_program
from smpc_dp.engine.events import Cancellation, Deadline, Message, Report, Start
from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    LocalError,
    PeerFault,
    PrivacyError,
    SmpcError,
    TimeoutFault,
    VerificationError,
)
from smpc_dp.identity.keys import Identity
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership, default_key
from smpc_dp.session.session_file import Timeouts, load_session, write_session
from smpc_dp.wire.abort import LEAVE, TEXTS, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, decode, encode
from smpc_dp_lab.bench.servers import split_records

PARTIES = ("alice", "bob", "carol", "dave")
SERVERS = ("server1", "server2", "server3")
IDENTITIES = {name: Identity.generate(name) for name in (*PARTIES, *SERVERS)}
DIGEST = b"d" * 32

Change = Callable[[Envelope], Envelope | None]


def make(_operation: str, parties: int, public_labels: tuple[int, ...], _seed: bytes) -> ProgramTerms:
    return ProgramTerms(
        kind="sum", parties=parties, length=2, modulus=modulus_for(32, 60), bits=32, lower=(0, 0),
        upper=(9, 9), public_labels=public_labels,
    )  # fmt: skip


def context(operation: str = "sum") -> Context:
    keys = {name: identity.public_key for name, identity in IDENTITIES.items()}
    return Context("mpyc", 1, DIGEST, 1, PARTIES, "*", keys, operation)


class SimulatedRun:
    """All machines in one process; `change` may alter or drop (None) what travels.

    What mpyc does is done here: shares are added up and recombined from the first two servers.
    """

    def __init__(
        self,
        change: Change = lambda envelope: envelope,
        *,
        fewest: int = 3,
        records: dict[str, Sequence[int]] | None = None,
        operations: dict[str, str] | None = None,
        public_labels: dict[str, int] | None = None,
        lie: dict[str, int] | None = None,
        makes: dict[str, MakeTerms] | None = None,
    ) -> None:
        self.change = change
        self.lie = lie or {}
        self.errors: dict[str, SmpcError] = {}
        self.queue: list[Envelope] = []
        self.parties = {
            name: PartyRun(
                context((operations or {}).get(name, "sum")),
                SERVERS,
                IDENTITIES[name],
                (makes or {}).get(name, make),
                (records or {}).get(name, (index, 1)),
                threshold=1,
                fewest=fewest,
                public_label=(public_labels or {}).get(name, -1),
            )
            for index, name in enumerate(PARTIES)
        }
        self.servers = {
            name: ServerRun(
                context(), SERVERS, IDENTITIES[name], (makes or {}).get(name, make), fewest=fewest
            )
            for name in SERVERS
        }
        self.machines: dict[str, PartyRun | ServerRun] = {**self.parties, **self.servers}

    def act(self, name: str, act: Callable[[], Sequence[Envelope]]) -> None:
        try:
            self.queue += act()
        except SmpcError as error:
            self.errors[name] = error
            self.queue += self.machines[name].handle(Cancellation(error))

    def run(self) -> Self:
        for name, machine in self.machines.items():
            self.act(name, partial(machine.handle, Start()))
        for _ in range(50):
            self.deliver()
            self.compute()
            waiting = [name for name in SERVERS if not self.servers[name].finished]
            if not self.queue and waiting:
                # Nothing moves: deadlines pass, those of steps in which parties are awaited first.
                parties = [name for name in waiting if self.servers[name].step in (m.HELLO, m.SHARES)]
                for name in parties or waiting:
                    self.act(name, partial(self.servers[name].handle, Deadline()))
            if all(machine.finished for machine in self.machines.values()):
                break
            if not self.queue and not waiting:
                for name, machine in self.parties.items():
                    self.act(name, partial(machine.handle, Deadline()))
        return self

    def deliver(self) -> None:
        while self.queue:
            changed = self.change(self.queue.pop(0))
            if changed is not None and not self.machines[changed.receiver].finished:
                self.act(changed.receiver, partial(self.machines[changed.receiver].handle, Message(changed)))

    def compute(self) -> None:
        jobs = {name: self.servers[name].job for name in SERVERS}
        if not all(jobs.values()):
            return
        first, second = (jobs[name] for name in SERVERS[:2])
        assert first is not None
        assert second is not None
        p = first.terms.prime
        # Degree 1: f(0) = 2 f(1) - f(2).
        values = [
            sum(2 * a - b for a, b in zip(one, two, strict=True)) % p
            for one, two in zip(
                zip(*first.shares, strict=True), zip(*second.shares, strict=True), strict=True
            )
        ]
        for name in SERVERS:
            reported = [values[0] + self.lie.get(name, 0), *values[1:]]
            self.act(name, partial(self.servers[name].handle, Report(reported)))


def resign(envelope: Envelope, body: bytes) -> Envelope:
    """Return the envelope with another body, signed by its sender."""
    changed = msgspec.structs.replace(envelope, body=body)
    message = msgspec.msgpack.decode(body)
    kind = {m.SHARES: m.Shares, m.HELD: m.Held, m.HELLO: m.Hello, m.START: m.Start, m.SEAL: m.Seal}
    message = msgspec.msgpack.decode(body, type=kind[changed.step])
    (written,) = context().write(
        IDENTITIES[changed.sender], changed.run_id, changed.step, (changed.receiver,), message
    )
    return written


def test_everybody_gets_the_sum_with_all_servers_signatures() -> None:
    simulated = SimulatedRun().run()
    assert not simulated.errors
    for machine in simulated.machines.values():
        opened = machine.result
        assert opened.values == (6, 4)
        assert opened.included == PARTIES
        assert set(opened.opened_by.signatures) == set(SERVERS)
        assert not opened.faults


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (lambda width: b"\0" * (2 * width - 1), "are due"),
        (lambda width: b"\0" * (3 * width), "are due"),
        (lambda width: b"\0" * width, "are due"),
        (lambda width: b"\xff" * (2 * width), "no element of the field"),
    ],
)
def test_shares_of_another_length_or_field_leave_their_user_out(
    packed: Callable[[int], bytes], reason: str
) -> None:
    width = field_bytes(int(modulus_for(32, 60), 16))

    def change(envelope: Envelope) -> Envelope:
        if (envelope.step, envelope.sender, envelope.receiver) == (m.SHARES, "bob", "server2"):
            return resign(envelope, encode(m.Shares(packed(width))))
        return envelope

    simulated = SimulatedRun(change).run()
    assert set(simulated.errors) == {"bob"}
    for name in ("alice", "carol", "dave", *SERVERS):
        opened = simulated.machines[name].result
        assert opened.values == (5, 3)
        assert opened.included == ("alice", "carol", "dave")
        (fault,) = opened.faults
        assert fault == f"bob: left out by server2: {TEXTS[Code.FAULT]}"
    assert reason in str(simulated.servers["server2"]._failures[2])


@pytest.mark.parametrize("step", [m.HELLO, m.SHARES])
def test_a_user_that_serves_only_some_servers_is_left_out_by_all(step: str) -> None:
    def change(envelope: Envelope) -> Envelope | None:
        short = (envelope.step, envelope.sender, envelope.receiver) == (step, "dave", "server3")
        return None if short else envelope

    simulated = SimulatedRun(change).run()
    for name in ("alice", "bob", "carol", *SERVERS):
        assert simulated.machines[name].result.included == ("alice", "bob", "carol")
    assert "dave" in str(simulated.errors["dave"])


def test_a_user_that_says_another_hello_to_one_server_is_left_out() -> None:
    def change(envelope: Envelope) -> Envelope:
        if (envelope.step, envelope.sender, envelope.receiver) == (m.HELLO, "dave", "server3"):
            hello = decode(envelope.body, m.Hello, "dave")
            return resign(envelope, encode(msgspec.structs.replace(hello, nonce=b"x" * 16)))
        return envelope

    simulated = SimulatedRun(change).run()
    assert simulated.machines["alice"].result.included == ("alice", "bob", "carol")
    assert "server3" in str(simulated.errors["dave"])


def test_who_asks_for_something_else_is_left_out() -> None:
    simulated = SimulatedRun(operations={"carol": "average"}).run()
    assert simulated.machines["alice"].result.included == ("alice", "bob", "dave")
    assert "something else" in str(simulated.errors["carol"])


@pytest.mark.parametrize(("most", "odd"), [(-1, 1), (1, -1)])
def test_one_label_too_many_or_too_few_costs_its_user_alone(most: int, odd: int) -> None:
    """A program takes labels from all parties or from none: one party could stop every run of the others."""
    public_labels = {"alice": most, "bob": odd, "carol": most, "dave": min(most, 0)}
    simulated = SimulatedRun(
        public_labels=public_labels,
        makes=dict.fromkeys((*PARTIES, *SERVERS), make_labelled(labels=most >= 0)),
    ).run()
    assert set(simulated.errors) == {"bob"}
    assert simulated.errors["bob"].code == Code.OPERATION
    for server in simulated.servers.values():
        assert f"gives {'a' if odd >= 0 else 'no'} label, unlike most parties" in str(server._failures[2])
    assert simulated.machines["alice"].result.included == ("alice", "carol", "dave")


def make_labelled(*, labels: bool) -> MakeTerms:
    def make_terms(operation: str, parties: int, public_labels: tuple[int, ...], seed: bytes) -> ProgramTerms:
        if labels != bool(public_labels) or not set(public_labels) <= {0, 1}:
            raise ConfigError.at("marks", f"{public_labels}", ConfigCheck.CHOICE)
        return make(operation, parties, public_labels, seed)

    return make_terms


def test_what_users_say_when_they_leave_fits_into_a_message(tmp_path: Path) -> None:
    """As many as may be missing leave, and each server says so with the longest code."""
    parties = tuple(f"user-{'x' * 50}-{number:04d}" for number in range(400))
    names = [f"{'s' * 50}-{number}" for number in range(9)]
    path = create_local_session(
        tmp_path, parties, {"dropout": 0.5}, protocol="mpyc", servers=9, timeouts=Timeouts()
    )
    largest = Membership.load(path, parties[0]).largest_message()

    def change(envelope: Envelope) -> Envelope | None:
        if envelope.step != m.SHARES or envelope.sender != "bob":
            return envelope
        left = Abort(Code.OWN)
        (written,) = context().write(IDENTITIES["bob"], envelope.run_id, LEAVE, (envelope.receiver,), left)
        return written

    faults = SimulatedRun(change).run().machines["alice"].result.faults
    assert len(faults) == len(SERVERS)
    assert all(fault.startswith("bob: left out by ") and TEXTS[Code.OWN] in fault for fault in faults)
    longest = max(Code, key=len)
    reported = [
        m.LeftOut(number, index, longest)
        for number in range(1, len(parties) // 2 + 1)
        for index in range(1, len(names) + 1)
    ]
    # The rest of the bound is for operations and values.
    assert len(msgspec.msgpack.encode(reported)) < len(parties) // 2 * len(names) * FAULT_BYTES < largest
    assert (
        len(msgspec.msgpack.encode([m.Refused(len(parties), longest)] * len(parties)))
        < len(parties) * FAULT_BYTES
    )


def test_too_few_users_end_the_run_and_are_named() -> None:
    def change(envelope: Envelope) -> Envelope | None:
        return None if envelope.step == m.SHARES and envelope.sender in ("carol", "dave") else envelope

    simulated = SimulatedRun(change).run()
    for name in SERVERS:
        error = simulated.errors[name]
        assert isinstance(error, TimeoutFault)
        assert error.missing == {"carol", "dave"}


@pytest.mark.parametrize(
    ("record", "kind"),
    [((10, 1), PrivacyError), ((-1, 1), PrivacyError), ((0.5, 1), ConfigError), ((1,), ConfigError)],
)
def test_a_record_out_of_range_is_never_shared(record: Sequence[int], kind: type[SmpcError]) -> None:
    sent: list[Envelope] = []

    def change(envelope: Envelope) -> Envelope:
        sent.append(envelope)
        return envelope

    simulated = SimulatedRun(change, records={"bob": record}).run()
    assert isinstance(simulated.errors["bob"], kind)
    assert not any(envelope.sender == "bob" and envelope.step == m.SHARES for envelope in sent)
    assert not any("10" in repr(e.body) and e.step == "leave" for e in sent)
    assert simulated.machines["alice"].result.included == ("alice", "carol", "dave")


def test_a_server_that_opens_another_value_is_told_apart_and_nobody_is_blamed() -> None:
    """A wrong share of another server would make it open that value."""
    simulated = SimulatedRun(lie={"server2": 1}).run()
    assert set(simulated.errors) == {*PARTIES, *SERVERS}
    for error in simulated.errors.values():
        assert isinstance(error, VerificationError)
        assert error.check in (Check.DISAGREES, Check.REPORTED)
    seen = [error for error in simulated.errors.values() if error.check == Check.DISAGREES]  # type: ignore[attr-defined]
    assert seen
    for error in seen:
        assert str(error).startswith(
            "server2 opened other values, or over other parties, than server1, server3"
        )
        assert "nothing shows which" in str(error)


class Reckless(ServerRun):
    """A server whose `hidden` parties are left out, not told, and sent the output."""

    hidden: frozenset[str] = frozenset()

    def _computed(self, values: Sequence[int]) -> list[Envelope]:
        sent = super()._computed(values)
        return [*sent, *self._write(m.OUTPUT, sorted(self.hidden), self._outputs[self.name])]

    def _take_untold(self) -> list[Envelope]:
        return [envelope for envelope in super()._take_untold() if envelope.receiver not in self.hidden]


def reckless(change: Change, hidden: frozenset[str] = frozenset()) -> SimulatedRun:
    """Play with servers that go on with however few parties."""
    simulated = SimulatedRun(change)
    for name in SERVERS:
        server = Reckless(context(), SERVERS, IDENTITIES[name], make, fewest=1)
        server.hidden = hidden
        simulated.servers[name] = simulated.machines[name] = server
    return simulated.run()


def test_users_share_nothing_with_servers_that_begin_with_fewer_than_agreed() -> None:
    sent: list[Envelope] = []

    def change(envelope: Envelope) -> Envelope | None:
        sent.append(envelope)
        return None if envelope.step == m.HELLO and envelope.sender in ("carol", "dave") else envelope

    simulated = reckless(change)
    for name in ("alice", "bob"):
        assert "begins with 2 parties, 3 are needed" in str(simulated.errors[name])
    assert not any(envelope.step == m.SHARES for envelope in sent)


def test_users_take_no_result_over_fewer_than_agreed_whoever_signed_it() -> None:
    """All servers sign the set, and sum over two parties: the record of one is the sum less the other's."""

    def change(envelope: Envelope) -> Envelope | None:
        late = envelope.step == m.SHARES and envelope.sender in ("carol", "dave")
        return None if late else envelope

    simulated = reckless(change)
    assert all(simulated.servers[name].result.included == ("alice", "bob") for name in SERVERS)
    for name in ("alice", "bob"):
        error = simulated.errors[name]
        assert isinstance(error, PeerFault)
        assert "opened a value over 2 parties, 3 are needed" in str(error)


def test_a_user_that_is_left_out_in_silence_takes_no_result() -> None:
    def change(envelope: Envelope) -> Envelope | None:
        lost = (envelope.step, envelope.sender, envelope.receiver) == (m.SHARES, "dave", "server3")
        return None if lost else envelope

    simulated = reckless(change, hidden=frozenset({"dave"}))
    assert simulated.machines["alice"].result.included == ("alice", "bob", "carol")
    assert isinstance(simulated.errors["dave"], PeerFault)
    assert "left this party out" in str(simulated.errors["dave"])


def test_a_server_that_begins_with_other_users_is_told_apart_and_nobody_is_blamed() -> None:
    def change(envelope: Envelope) -> Envelope:
        if envelope.step == m.START and envelope.sender == "server3":
            start = decode(envelope.body, m.Start, "server3")
            other = msgspec.structs.replace(start, hellos=b"h" * 32)
            run = dataclasses.replace(context())
            from smpc_dp.capabilities.servers.secret_sharing.agreement import run_identifier

            (written,) = run.write(
                IDENTITIES["server3"], run_identifier(run, other), m.START, (envelope.receiver,), other
            )
            return written
        return envelope

    simulated = SimulatedRun(change).run()
    for name in PARTIES:
        error = simulated.errors[name]
        assert isinstance(error, VerificationError)
        assert str(error).startswith("server3 begins with other parties than server1, server2")


def test_a_server_with_another_circuit_is_named_and_nothing_is_shared() -> None:
    """One gate of a party's kernel differs at one server, so its terms do; parties compare all servers'."""

    def make_of(*, other: bool) -> MakeTerms:
        kernel = Kernel(
            "own",
            (Field(0, 9), Field(0, 9)),
            low=0.0,
            unit=1.0,
            steps=1,
            function=lambda a, b: (a[..., 0] == b[..., 1]) * 1.0,
            integer=lambda a, b: (a[..., 0] == b[..., 1]) * 1,
            gadget=lambda builder, x, y: ((builder.or_ if other else builder.and_)(x[0][0], y[0][0]),),
            symmetric=True,
        )
        return lambda _operation, parties, _public_labels, _seed: (
            statistic_program(kernel, parties, 1.0).terms
        )

    agreed = make_of(other=False)
    makes = dict.fromkeys((*PARTIES, *SERVERS), agreed)
    assert SimulatedRun(makes=makes).run().errors == {}
    seen: list[str] = []

    def watch(envelope: Envelope) -> Envelope:
        seen.append(envelope.step)
        return envelope

    simulated = SimulatedRun(watch, makes=makes | {"server3": make_of(other=True)}).run()
    for name in PARTIES:
        error = simulated.errors[name]
        assert isinstance(error, PeerFault)
        assert error.culprit == "server3"
    assert m.START in seen
    assert m.SHARES not in seen


def test_a_question_is_kept_once_however_many_ask_it() -> None:
    simulated = SimulatedRun(operations=dict.fromkeys(PARTIES, "sum " + "x" * 5000)).run()
    retained = {id(hello.operation) for _, hello in simulated.servers["server1"]._hellos.values()}
    assert len(simulated.servers["server1"]._hellos) == len(PARTIES)
    assert len(retained) == 1


def test_a_server_that_claims_shares_that_others_lack_cannot_split_the_set() -> None:
    """Its list of held shares differs between servers: the sealed sets differ, and nobody computes."""

    def change(envelope: Envelope) -> Envelope:
        if (envelope.step, envelope.sender, envelope.receiver) == (m.HELD, "server1", "server2"):
            from smpc_dp.wire.sets import pack_set

            return resign(envelope, encode(m.Held(pack_set([1, 2, 3], 4), [m.Refused(4, Code.LATE)])))
        return envelope

    simulated = SimulatedRun(change).run()
    assert set(SERVERS) <= set(simulated.errors)
    assert not any(
        machine.finished and name not in simulated.errors for name, machine in simulated.machines.items()
    )


def test_a_message_in_a_users_name_by_another_key_leaves_it_out() -> None:
    def change(envelope: Envelope) -> Envelope:
        if (envelope.step, envelope.sender, envelope.receiver) == (m.SHARES, "bob", "server1"):
            return msgspec.structs.replace(envelope, signature=b"s" * 64)
        return envelope

    simulated = SimulatedRun(change).run()
    assert "bob" not in simulated.machines["alice"].result.included


def test_nothing_is_due_of_who_has_shared_or_opened() -> None:
    """So a party may leave once it has shared, and a server once it has opened: neither is lost."""
    reported: dict[str, tuple[bool, bool]] = {}

    def change(envelope: Envelope) -> Envelope:
        server1 = simulated.servers["server1"]
        if envelope.receiver == "server1":
            reported.setdefault(envelope.step, (server1.expects("alice"), server1.expects("server2")))
        return envelope

    simulated = SimulatedRun(change)
    simulated.run()
    assert reported[m.HELLO] == (True, True)
    assert reported[m.SHARES] == (True, True)
    assert reported[m.HELD] == (False, True)
    assert reported[m.OUTPUT] == (False, True)
    assert not any(simulated.servers["server1"].expects(name) for name in (*PARTIES, *SERVERS))


def test_marks_reach_everybody() -> None:
    simulated = SimulatedRun(public_labels=dict(zip(PARTIES, (1, 0, 1, 0), strict=True))).run()
    assert simulated.machines["alice"].result.terms.public_labels == (1, 0, 1, 0)


def test_shares_of_one_server_say_nothing_and_two_recombine() -> None:
    prime = int(modulus_for(32, 60), 16)
    rows = [unpack(row, 1, prime, "x") for row in split([5], prime, 1, 3)]
    assert (2 * rows[0][0] - rows[1][0]) % prime == 5
    assert len({split([5], prime, 1, 3)[0] for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("servers", "fragment"), [(0, "3 are needed"), (2, "no secrecy at all"), (4, "take 3")]
)
def test_too_few_or_even_servers_are_refused_with_the_reason(
    tmp_path: Path, servers: int, fragment: str
) -> None:
    with pytest.raises(ConfigError, match=fragment):
        create_local_session(tmp_path, PARTIES, {}, protocol="mpyc", servers=servers)


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"length": 2}, "lower"),
        ({"seconds": 0}, "seconds"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"length": 1, "lower": 0, "upper": 1, "kind": "integer", "delta": 1e-6}, "epsilon"),
        ({"length": 1, "lower": 0, "upper": 1, "kind": "integer", "epsilon": 1.0, "delta": 1e-6}, "delta"),
        ({"length": 1, "lower": 0, "upper": 1}, "precision"),
        ({"dropout": 0.9}, "dropout"),
        ({"colour": 1}, "colour"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, object], where: str) -> None:
    checked, faults = check_parameters(parameters, 4)
    assert checked is None
    assert where in {fault.where for fault in faults}


def test_aggregators_have_no_place_among_servers() -> None:
    members = [IDENTITIES[name].entry("server", f"h:{index}") for index, name in enumerate(SERVERS, 1)]
    assert not roster_issues(members)
    assert roster_issues([*members, IDENTITIES["bob"].entry("aggregator", "h:9")])


FAST = Timeouts(connect=4.0, step=2.0, gather=2.0)


async def test_servers_with_other_parameters_do_not_meet(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, {}, protocol="mpyc", timeouts=FAST)
    loaded = load_session(path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "keys").symlink_to(default_key(path, "x").parent)
    write_session(other / "session.toml", "mpyc", 1, {"seconds": 99}, loaded.roster, FAST)
    ended = await asyncio.gather(
        serve_shares(path, "server1"),
        serve_shares(path, "server2"),
        serve_shares(other / "session.toml", "server3"),
        return_exceptions=True,
    )
    assert isinstance(ended[2], ConfigError)
    assert "seconds" in str(ended[2])
    for end in ended[:2]:
        assert isinstance(end, TimeoutFault)
        assert end.missing == {"server3"}
        assert "parameters.seconds: 99 only there" in str(end)


# The child process of one server, its peers played here.


E = TypeVar("E", bound=SmpcError)
SMALL = Job(sum_program("sum", 2, [(0, 9)], None).terms, [[1], [2]])


async def silent(_peer: str, _content: bytes) -> None:
    return


async def drive(
    engine: Engine, kind: type[E], *, seconds: float = 20.0, silence: float = 5.0, job: Job = SMALL
) -> E:
    with pytest.raises(kind) as caught:
        await engine.run(job, 1, seconds=seconds, silence=silence)
    return caught.value


async def test_a_child_whose_peers_are_silent_is_stopped() -> None:
    error = await drive(Engine(SERVERS, "server1", silent), TimeoutFault, silence=1.5)
    assert "anything for 1.5 s" in str(error)
    assert error.missing == {"server2", "server3"}


async def test_a_child_that_takes_too_long_is_stopped() -> None:
    engine = Engine(SERVERS, "server1", silent)

    async def chatter() -> None:
        while True:
            await engine.feed("server2", b"\0")
            await asyncio.sleep(0.2)

    talking = asyncio.create_task(chatter())
    try:
        error = await drive(engine, TimeoutFault, seconds=2.5, silence=0.9)
        assert "more than 2.5 s" in str(error)
        assert error.missing == {"server3"}
    finally:
        talking.cancel()


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (struct.pack("<H", 2), "says that it is another server"),
        (b"\0\0" + b"\0" * 16 + struct.pack("<qI", 7, 1 << 31) + b"x" * 9, "announced 2147483648 bytes"),
    ],
)
async def test_garbage_of_a_peer_names_the_peer(garbage: bytes, reason: str) -> None:
    """The second party is told by the first who it is: another's number, or a message of 2 GiB."""
    engine = Engine(SERVERS, "server2", silent)
    feeding = asyncio.create_task(engine.feed("server1", garbage))
    error = await drive(engine, PeerFault)
    await feeding
    assert error.culprit == "server1"
    assert reason in error.reason


async def test_a_child_that_crashes_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_BOOT", "import os; os.kill(os.getpid(), 11)")
    error = await drive(Engine(SERVERS, "server1", silent), TimeoutFault)
    assert "signal 11" in str(error)
    assert error.missing == {"server1"}


@pytest.mark.parametrize(
    "claimed",
    [
        b"garbage",
        b'{"values": ["one"]}',
        b'{"values": ["1_0"]}',
        b'{"values": ["%s"]}' % (b"9" * 5000),
        b'{"values": []}',
        b'{"values": ["3", "2"]}',
        b'{"values": ["3", "1", "1"]}',
        b'{"values": ["3", "-1"]}',
        b"size",
    ],
)
async def test_an_answer_that_no_program_gives_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, claimed: bytes
) -> None:
    """What peers send may take a child over: its answer must not end its server, or fill its memory."""
    size = 1 << 29 if claimed == b"size" else len(claimed)
    code = (
        "import socket, sys, threading; s = socket.socket(fileno=0); n = int.from_bytes(s.recv(8), 'big')\n"
        "while n: n -= len(s.recv(n))\n"
        f"s.sendall(b'\\1' + ({size}).to_bytes(8, 'big') + {claimed!r}); s.recv(1)"
    )
    monkeypatch.setattr(engines, "_BOOT", code)
    error = await drive(Engine(SERVERS, "server1", silent), TimeoutFault)
    assert "server1: mpyc's process" in str(error)
    assert error.missing == {"server1"}


async def test_a_child_inherits_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No environment, no open file, no listening socket, and its limits are on; it says so by a file."""
    reported = tmp_path / "told"
    secret, other = (
        os.open(tmp_path / "secret", os.O_CREAT | os.O_RDWR),
        socket.create_server(("127.0.0.1", 0)),
    )
    os.set_inheritable(secret, True)
    code = (
        "import os, sys; kinds = sorted(os.readlink(f'/proc/self/fd/{n}').split(':')[0]"
        " for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}'));"
        f"open({str(reported)!r}, 'w').write(repr((dict(os.environ), kinds, os.getcwd())))"
    )
    monkeypatch.setattr(engines, "_BOOT", code)
    monkeypatch.setenv("SMPC_SECRET", "x")
    await drive(Engine(SERVERS, "server1", silent), TimeoutFault)
    other.close()
    os.close(secret)
    environment, kinds, folder = ast.literal_eval(reported.read_text())
    assert "SMPC_SECRET" not in environment
    assert set(environment) <= {*engines.ENVIRONMENT, "LC_CTYPE"}
    assert folder == "/"
    # Standard input's socket and two peers'; /dev/null; standard error's pipe; its own listing of /proc.
    assert kinds.count("socket") == 3
    assert not any("secret" in kind for kind in kinds)


def is_running(process: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        stat = Path("/proc", str(process), "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children_of(parent: int) -> list[int]:
    return [
        int(pid) for pid in Path("/proc", str(parent), "task", str(parent), "children").read_text().split()
    ]


async def eventually(true: Callable[[], object], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.02)


SERVER = """
import asyncio
from smpc_dp.capabilities.servers.secret_sharing.server import Job
from smpc_dp.capabilities.servers.requests.engine import Engine
from smpc_dp.capabilities.servers.statistics.plan import sum_program

async def silent(peer, content):
    pass

job = Job(sum_program("sum", 2, [(0, 9)], None).terms, [[1], [2]])
asyncio.run(Engine(("server1", "server2", "server3"), "server1", silent).run(job, 1, seconds=60, silence=60))
"""


@pytest.mark.parametrize("stopped", [False, True])
async def test_no_child_outlives_a_killed_server(stopped: bool) -> None:
    """Also one that cannot see the end of its socket, being stopped."""
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER)
    await eventually(lambda: children_of(server.pid))
    (child,) = children_of(server.pid)
    status = Path("/proc", str(child), "status")
    await eventually(lambda: "NoNewPrivs:\t1" in status.read_text())
    if stopped:
        os.kill(child, signal.SIGSTOP)
    assert is_running(child)
    server.kill()
    await server.wait()
    await eventually(lambda: not is_running(child))


async def test_what_a_child_has_started_ends_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A peer may take a child over, and make it start processes: they hold its sockets."""
    reported = tmp_path / "told"
    code = (
        "import os, socket, time; s = socket.socket(fileno=0); n = int.from_bytes(s.recv(8), 'big')\n"
        "while n: n -= len(s.recv(n))\n"
        "other = os.fork()\n"
        f"if other: open({str(reported)!r}, 'w').write(str(other))\n"
        'said = b\'{"values": ["3"]}\'\n'
        "if other: s.sendall(b'\\1' + len(said).to_bytes(8, 'big') + said)\n"
        "time.sleep(3600)"
    )
    monkeypatch.setattr(engines, "_BOOT", code)
    answer = await Engine(SERVERS, "server1", silent).run(SMALL, 1, seconds=20, silence=20)
    assert answer.values == ["3"]
    started = int(reported.read_text())
    try:
        await eventually(lambda: not is_running(started))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(started, signal.SIGKILL)


async def test_a_kept_child_computes_again_and_its_death_is_told() -> None:
    """In one field, then in a larger one with another k; a third time one of the three is dead."""
    engines_of: dict[str, Engine] = {}

    def sender(own: str) -> Callable[[str, bytes], Awaitable[None]]:
        async def send(peer: str, content: bytes) -> None:
            await engines_of[peer].feed(own, content)

        return send

    for name in SERVERS:
        engines_of[name] = Engine(SERVERS, name, sender(name), keep=True)

    async def compute(top: int) -> list[object]:
        terms = sum_program("sum", 2, [(0, top)], None).terms
        held = split_records(terms, [[top], [2]], 3)
        runs = (
            engines_of[name].run(Job(terms, own), 1, seconds=60, silence=20)
            for name, own in zip(SERVERS, held, strict=True)
        )
        return list(await asyncio.gather(*runs, return_exceptions=True))

    def children() -> list[int]:
        return [engine._child.process.pid for engine in engines_of.values() if engine._child is not None]

    try:
        for top in (9, 1 << 200):
            for answer in await compute(top):
                assert isinstance(answer, Answer), answer
                assert answer.values == [str(top + 2)]
            if top == 9:
                first = children()
        assert len(first) == 3
        assert children() == first
        os.kill(first[1], signal.SIGKILL)
        assert "server2: mpyc's process ended (signal 9)" in str(
            await drive(engines_of["server2"], LocalError)
        )
    finally:
        for engine in engines_of.values():
            await engine.close()
    assert not any(map(is_running, first))
