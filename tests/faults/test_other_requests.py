"""A party that asks for another request than the others: it is told which, with the others' signatures.

In virtual time, with an aggregator, with servers and with neither; and what liars say of others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.direct_evidence import coordinator_of
from smpc_dp.capabilities.gopa.requests.mesh import Mesh
from smpc_dp.capabilities.servers.requests.computing_server import BRIDGE_BIT
from smpc_dp.capabilities.servers.secret_sharing.messages import HELLO as SHARED_HELLO
from smpc_dp.engine.events import Start
from smpc_dp.engine.phases.messages import HELLO, Hello
from smpc_dp.engine.registry import make_party
from smpc_dp.errors import Check, Code, OtherRequestError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.asked import ASKED, SUM_HELLO, Asked, AskedRequests, OwnRequest, needed_signers
from smpc_dp.session.connection_pool import SMALL_MESSAGE
from smpc_dp.session.events import ignore
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.party_requests import MOST_REQUESTS
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from tests.faults.test_early_hellos import NAMES, PARAMETERS, PAUSE, SECAGG, TIMEOUTS, Scene, path, play
from tests.faults.test_fault_schedules import NOISY
from tests.faults.test_mesh_schedules import no_charge
from tests.faults.virtual import Pipe, connect, run_virtually

__all__ = ["path"]
ALICE, *OTHERS = NAMES


async def ask(scene: Scene, name: str, request: int, label: str, kind: str = "average") -> Any:
    """Average as a party; return the number of survivors, or the error."""
    member = scene.members[name]
    encoding = member.parameters.sum_encoding
    ring_vector, _ = encoding.encode([1] * encoding.length, party=name)
    planned = member.parameters.planned()
    operation = " ".join(part for part in (kind, label, planned) if part)
    try:
        outcome, _ = await scene.lines[name].run(request, operation, ring_vector, no_charge, label=label)
    except SmpcError as error:
        return error
    return len(outcome.survivors)


async def ask_all(scene: Scene, names: Sequence[str], request: int, label: str) -> list[Any]:
    return await asyncio.gather(*(ask(scene, name, request, label) for name in names))


def start_anew(scene: Scene, name: str) -> None:
    """Let another process of a party call in the place of the last one."""
    for end in scene.ends[name]:
        end.abort()
    scene.join(name)


def check(error: Any, name: str, own: tuple[int, str], asked: tuple[int, str | None], following: int) -> None:
    assert isinstance(error, OtherRequestError), error
    assert error.code == Code.PAST
    assert (error.party, error.number, error.label) == (name, *own)
    assert (error.asked, error.asked_label, error.next) == (*asked, following)
    shown = [
        f"request {own[0]}{f' {own[1]!r}' * bool(own[1])}, ",
        f"request {asked[0]}",
        f"number={following}",
    ]
    assert all(part in str(error) for part in [name, *shown]), error
    assert asked[1] is None or f"request {asked[0]} {asked[1]!r}" in str(error)


def check_begun(error: Any, *collectors: str) -> None:
    """Its own request has begun without it: nobody but a collector says so."""
    assert isinstance(error, TimeoutFault), error
    assert (error.code, error.missing) == (Code.BEGUN, frozenset({ALICE}))
    joined = f"it can ask for request {error.number}"
    begun = f"the run has begun without it, {joined}; said by "
    assert any(f"{begun}{collector}" in str(error) for collector in collectors)


def test_a_process_that_was_started_anew_is_told_the_request_that_it_can_join(path: Path) -> None:
    """It asks for request 1; the others have ended the second one, and nobody asks for the third yet."""

    async def act(scene: Scene) -> None:
        for request in (1, 2):
            assert await ask_all(scene, NAMES, request, f"round {request}") == [7] * 7
        start_anew(scene, ALICE)
        for own in ((1, "round 1"), (2, "round 1")):
            check(await ask(scene, ALICE, *own), ALICE, own, (2, "round 2"), 3)
        assert await ask_all(scene, NAMES, 3, "round 3") == [7] * 7
        assert all(len(ended) == 3 for ended in scene.ended)

    play(path, (), act)


@pytest.mark.parametrize("code", [Code.PAST, Code.FEW])
def test_who_is_refused_and_not_excluded_sends_its_long_vector(tmp_path: Path, code: Code) -> None:
    """A hello of a past request, or an early one, is answered; its party takes part in the one under way."""
    given = PARAMETERS | SECAGG | {"length": 2 * SMALL_MESSAGE}
    path = create_local_session(tmp_path, NAMES, given, timeouts=TIMEOUTS)

    async def act(scene: Scene) -> None:
        assert await ask_all(scene, NAMES, 1, "a") == [7] * 7
        others_ask = None
        if code == Code.PAST:
            others_ask = asyncio.create_task(ask_all(scene, OTHERS[:5], 2, "a"))
            await asyncio.sleep(0.2)
            start_anew(scene, ALICE)
        else:
            await asyncio.sleep(PAUSE)
        refused = await ask(scene, ALICE, 1 if others_ask else 2, "a")
        assert (type(refused), refused.code) == (OtherRequestError if others_ask else TimeoutFault, code)
        if others_ask is None:
            start_anew(scene, ALICE)
            others_ask = asyncio.create_task(ask_all(scene, OTHERS[:5], 2, "a"))
        assert await ask_all(scene, [ALICE, OTHERS[5]], 2, "a") == [7] * 2
        assert await others_ask == [7] * 5

    play(path, (), act)


def test_it_is_told_the_label_that_enough_ask_before_the_request_begins(path: Path) -> None:
    async def act(scene: Scene) -> None:
        assert await ask_all(scene, NAMES, 1, "round 1") == [7] * 7
        others_ask = asyncio.create_task(ask_all(scene, OTHERS[:5], 2, "round 2"))
        await asyncio.sleep(0.2)
        start_anew(scene, ALICE)
        check(await ask(scene, ALICE, 1, ""), ALICE, (1, ""), (2, "round 2"), 2)
        # In time for the request itself.
        assert await ask_all(scene, [ALICE, OTHERS[5]], 2, "round 2") == [7, 7]
        assert await others_ask == [7] * 5

    play(path, (), act)


def test_all_may_ask_for_a_later_request(path: Path) -> None:
    """Those before fail at once, or when others had time to ask: nobody asks for them."""

    async def act(scene: Scene) -> None:
        before = asyncio.get_running_loop().time()
        assert await ask_all(scene, NAMES, 3, "round 3") == [7] * 7
        assert asyncio.get_running_loop().time() - before < 5 * TIMEOUTS.gather
        assert all(len(ended) == 3 for ended in scene.ended)
        assert await ask_all(scene, NAMES, 4, "round 4") == [7] * 7

    play(path, (), act)


@pytest.mark.thin(3)
@pytest.mark.parametrize("again", [1, 2])
def test_a_request_that_has_begun_cannot_be_joined(path: Path, again: int) -> None:
    """A process ends after the start: the next one asks for the same request, or for an earlier one."""

    async def act(scene: Scene) -> None:
        assert await ask_all(scene, NAMES, 1, "a") == [7] * 7
        others_ask = asyncio.gather(ask(scene, ALICE, 2, "b"), ask_all(scene, OTHERS, 2, "b"))
        await asyncio.sleep(0.5)
        assert [len(ended) for ended in scene.ended] == [1] * len(scene.ended)
        start_anew(scene, ALICE)
        error = await ask(scene, ALICE, again, "b")
        if again == 1:
            check(error, ALICE, (1, "b"), (2, "b"), 3)
        else:
            check_begun(error, *(end.peer for end in scene.ends[ALICE]))
            assert error.number == 3
        await others_ask
        assert await ask_all(scene, NAMES, 3, "c") == [7] * 7

    play(path, (), act)


def test_one_server_alone_names_no_request_to_join(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the same hellos, and says that their request has begun: an aggregator alone may say so."""
    answer = AskedRequests.answer

    async def act(scene: Scene) -> None:
        collectors = [end.peer for end in scene.ends[ALICE]]

        def lie(asked: AskedRequests, party: str, following: int) -> list[Envelope]:
            return answer(asked, party, following + (asked._identity.name == collectors[0]))

        assert await ask_all(scene, NAMES, 1, "round 1") == [7] * 7
        others_ask = asyncio.create_task(ask_all(scene, OTHERS, 2, "round 2"))
        await asyncio.sleep(0.2)
        start_anew(scene, ALICE)
        for end in scene.ends[ALICE][1:]:
            # What the others show comes after all that the first one has sent.
            end._other._latency = 0.2
        monkeypatch.setattr(AskedRequests, "answer", lie)
        error = await ask(scene, ALICE, 1, "")
        check(error, ALICE, (1, ""), (2, "round 2"), 2 if len(collectors) > 1 else 3)
        assert await others_ask == [6] * 6

    play(path, (), act)


def test_a_collector_that_leaves_all_out_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows everybody the hellos of now, and says that their request has begun."""
    hear, lied = AskedRequests.hear, list[str]()

    async def act(scene: Scene) -> None:
        liar = scene.ends[ALICE][-1].peer

        def lie(asked: AskedRequests, drive: Any, inbound: Any, ignored: Any = ()) -> None:
            hear(asked, drive, inbound, ignored)
            if asked._identity.name == liar and not lied:
                for name in NAMES:
                    drive.connections.send(drive.request, asked.answer(name, drive.request + 1))
                    lied.append(name)

        monkeypatch.setattr(AskedRequests, "hear", lie)
        answers = await ask_all(scene, NAMES, 1, "a")
        assert lied == [*NAMES]
        check_begun(answers[0], liar)
        assert {type(answer) for answer in answers} == {TimeoutFault}

    play(path, (), act)


def test_another_label_is_named_and_nothing_else_is(path: Path) -> None:
    async def act(scene: Scene) -> None:
        others_ask = asyncio.gather(ask_all(scene, OTHERS, 1, "round 7"), ask(scene, ALICE, 1, "round 1"))
        answers, error = await others_ask
        assert answers == [6] * 6
        check(error, ALICE, (1, "round 1"), (1, "round 7"), 2)
        answers, error = await asyncio.gather(
            ask_all(scene, OTHERS, 2, "x"), ask(scene, ALICE, 2, "x", kind="sum")
        )
        assert answers == [6] * 6
        # Not another request: another computation.
        assert not isinstance(error, OtherRequestError)
        assert error.code == Code.OPERATION

    play(path, (), act)


def test_liars_move_nobody(path: Path) -> None:
    """They ask for all later requests, with labels of their own; one may lie, and one be lost."""
    liars = NAMES[-2:]

    async def act(scene: Scene) -> None:
        for name in liars:
            for request in range(1, 12):
                await scene.post(name, request, scene.hello(name, request))
        await asyncio.sleep(PAUSE)
        error = await ask(scene, ALICE, 1, "round 1")
        assert isinstance(error, TimeoutFault)
        assert error.code == Code.FEW

    play(path, liars, act)


# What a collector shows


@pytest.fixture
def members(tmp_path: Path) -> dict[str, Membership]:
    given = PARAMETERS | SECAGG
    made = create_local_session(tmp_path, NAMES, given, protocol="secagg", timeouts=TIMEOUTS)
    parties = {name: Membership.load(made, name) for name in NAMES}
    return parties | {AGGREGATOR: Membership.load(made, AGGREGATOR, role="aggregator")}


def hello(member: Membership, request: int, operation: str) -> Envelope:
    vector, _ = member.parameters.encoding.encode([1], party=member.name)
    context = member.context(request, operation)
    [made] = make_party(context, member.parameters, member.identity, vector).handle(Start())
    return made


def shown(
    members: dict[str, Membership], hellos: Sequence[Envelope], following: int, *, signed: bool = True
) -> Envelope:
    """Return what the aggregator shows alice."""
    member = members[AGGREGATOR]
    context = member.context(1)
    listed = [(context.number(one.sender), one.body, one.signature) for one in hellos]
    message = Asked(following, hellos[0].step if hellos else HELLO, listed)
    [envelope] = context.write(member.identity, context.session_digest, ASKED, (ALICE,), message)
    return envelope if signed else replace(envelope, signature=bytes(64))


def own(members: dict[str, Membership], request: int = 1, label: str = "a") -> OwnRequest:
    request_of = OwnRequest.of(members[ALICE], request, f"sum {label}", label)
    assert request_of is not None
    return request_of


def test_what_more_parties_have_signed_than_may_lie_is_believed(members: dict[str, Membership]) -> None:
    assert needed_signers(members[ALICE].parameters) == 2
    hellos = [hello(members[name], 5, "sum b") for name in OTHERS[:2]]
    for following in (5, 6):
        error = own(members).shown_error(ALICE, shown(members, hellos, following))
        check(error, ALICE, (1, "a"), (5, "b"), following)
    # Another computation has no label of this one.
    hellos = [hello(members[name], 5, "average b") for name in OTHERS[:2]]
    check(own(members).shown_error(ALICE, shown(members, hellos, 5)), ALICE, (1, "a"), (5, None), 5)
    hellos = [hello(members[name], 1, "average b") for name in OTHERS[:2]]
    assert own(members).shown_error(ALICE, shown(members, hellos, 2)) is None


Forged = Callable[[dict[str, Membership]], Envelope]


def _hellos(members: dict[str, Membership], request: int = 5, operation: str = "sum b") -> list[Envelope]:
    return [hello(members[name], request, operation) for name in OTHERS[:2]]


FORGED: dict[str, tuple[Forged, Check]] = {
    "one-party": (lambda all_: shown(all_, _hellos(all_)[:1], 5), Check.NOT_SHOWN),
    "one-party-twice": (lambda all_: shown(all_, _hellos(all_)[:1] * 2, 5), Check.NOT_SHOWN),
    "its-own-and-one-party": (
        lambda all_: shown(all_, [hello(all_[ALICE], 5, "sum b"), *_hellos(all_)[:1]], 5),
        Check.NOT_SHOWN,
    ),
    "its-own-beside-enough": (
        lambda all_: shown(all_, [hello(all_[ALICE], 5, "sum b"), *_hellos(all_)], 5),
        Check.NOT_SHOWN,
    ),
    "nobody": (lambda all_: shown(all_, [], 5), Check.NOT_SHOWN),
    "of-servers": (
        lambda all_: shown(all_, [replace(one, step=SHARED_HELLO) for one in _hellos(all_)], 5),
        Check.NOT_SHOWN,
    ),
    "not-signed": (
        lambda all_: shown(all_, [replace(one, signature=bytes(64)) for one in _hellos(all_)], 5),
        Check.NOT_SIGNED,
    ),
    "in-the-name-of-another": (
        lambda all_: shown(
            all_, [replace(one, sender=OTHERS[4]) for one in _hellos(all_)[:1]] + _hellos(all_)[1:], 5
        ),
        Check.NOT_SIGNED,
    ),
    "of-two-requests": (
        lambda all_: shown(all_, [*_hellos(all_)[:1], *_hellos(all_, 6)[1:]], 5),
        Check.SET_DIFFERS,
    ),
    "of-two-labels": (
        lambda all_: shown(all_, [*_hellos(all_)[:1], *_hellos(all_, 5, "sum c")[1:]], 5),
        Check.SET_DIFFERS,
    ),
    "far-ahead": (lambda all_: shown(all_, _hellos(all_), 7), Check.OTHER_REQUEST),
    "its-own-and-not-begun": (lambda all_: shown(all_, _hellos(all_, 1, "sum a"), 1), Check.OTHER_REQUEST),
    "not-signed-by-the-aggregator": (
        lambda all_: shown(all_, _hellos(all_), 5, signed=False),
        Check.BAD_SIGNATURE,
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_what_shows_nothing_blames_who_has_signed_it(members: dict[str, Membership], forged: str) -> None:
    make, expected = FORGED[forged]
    with pytest.raises(PeerFault) as caught:
        own(members).shown_error(ALICE, make(members))
    assert (caught.value.culprit, caught.value.check) == (AGGREGATOR, expected)


def test_an_earlier_request_is_none_to_join(members: dict[str, Membership]) -> None:
    with pytest.raises(PeerFault, match="of no later request"):
        own(members, 6).shown_error(ALICE, shown(members, _hellos(members), 6))


def test_a_collector_shows_valid_hellos_of_most_alone(members: dict[str, Membership]) -> None:
    """Without enough of them it shows nothing, and the party learns no more than that it is late."""
    aggregator = members[AGGREGATOR]
    asked = AskedRequests(aggregator.identity, SUM_HELLO)
    asked.begin(aggregator.context(5), aggregator.parameters)
    made = {name: hello(members[name], 5, "sum b") for name in OTHERS[:3]}
    asked.add(made[OTHERS[0]])
    asked.add(replace(made[OTHERS[1]], signature=bytes(64)))
    assert asked.answer(ALICE, 5) == []
    asked.add(hello(members[OTHERS[3]], 5, "sum z"))
    asked.add(made[OTHERS[2]])
    [envelope] = asked.answer(ALICE, 6)
    check(own(members).shown_error(ALICE, envelope), ALICE, (1, "a"), (5, "b"), 6)
    assert asked.answer(ALICE, 7) == []
    # Another request begins, and nobody has asked for it.
    asked.begin(aggregator.context(6), aggregator.parameters)
    [envelope] = asked.answer(ALICE, 6)
    check(own(members).shown_error(ALICE, envelope), ALICE, (1, "a"), (5, "b"), 6)


def test_the_last_number_has_one_after_it(members: dict[str, Membership]) -> None:
    """Which differs from the tag of what servers send to each other."""
    aggregator = members[AGGREGATOR]
    asked = AskedRequests(aggregator.identity, SUM_HELLO)
    asked.begin(aggregator.context(MOST_REQUESTS), aggregator.parameters)
    for name in OTHERS[:2]:
        asked.add(hello(members[name], MOST_REQUESTS, "sum b"))
    [envelope] = asked.answer(ALICE, MOST_REQUESTS + 1)
    error = own(members).shown_error(ALICE, envelope)
    check(error, ALICE, (1, "a"), (MOST_REQUESTS, "b"), MOST_REQUESTS + 1)
    assert MOST_REQUESTS + 1 < BRIDGE_BIT


def test_no_party_is_shown_its_own_hello(members: dict[str, Membership]) -> None:
    """An earlier process of it has asked: it is none of the others."""
    aggregator = members[AGGREGATOR]
    asked = AskedRequests(aggregator.identity, SUM_HELLO)
    asked.begin(aggregator.context(5), aggregator.parameters)
    for name in (ALICE, OTHERS[0]):
        asked.add(hello(members[name], 5, "sum b"))
    assert asked.answer(ALICE, 6) == []
    asked.add(hello(members[OTHERS[1]], 5, "sum b"))
    [envelope] = asked.answer(ALICE, 6)
    check(own(members).shown_error(ALICE, envelope), ALICE, (1, "a"), (5, "b"), 6)


def test_no_party_makes_a_collector_show_what_counts_against_it(members: dict[str, Membership]) -> None:
    """Signed by its party: a hello of another request, for another receiver, or of another step."""
    aggregator, liar = members[AGGREGATOR], members[OTHERS[0]]
    context = liar.context(5, "sum b")
    own_hello = hello(liar, 5, "sum b")
    message = decode(own_hello.body, Hello, liar.name)

    def signed(step: str = HELLO, receiver: str = AGGREGATOR) -> Envelope:
        [made] = context.write(liar.identity, context.session_digest, step, (receiver,), message)
        return made

    for wrong in (
        hello(liar, 4, "sum b"),
        signed(receiver=OTHERS[3]),
        signed(step=SHARED_HELLO),
        replace(own_hello, run_id=bytes(32)),
        replace(own_hello, body=b"junk"),
    ):
        asked = AskedRequests(aggregator.identity, SUM_HELLO)
        asked.begin(aggregator.context(5), aggregator.parameters)
        for each in (wrong, *(hello(members[name], 5, "sum b") for name in OTHERS[1:3])):
            asked.add(each)
        [envelope] = asked.answer(ALICE, 6)
        check(own(members).shown_error(ALICE, envelope), ALICE, (1, "a"), (5, "b"), 6)


# Without a relay


class Meshes:
    """Parties of a session without an aggregator, all connected."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.members = {name: Membership.load(path, name) for name in names}
        self.lines: dict[str, Any] = {name: Mesh(member, ignore) for name, member in self.members.items()}
        self.ends: dict[str, list[Pipe]] = {name: [] for name in names}
        for one, two in itertools.combinations(names, 2):
            self._connect(one, two)

    def _connect(self, one: str, two: str) -> None:
        near, far = connect(one, two, 0.01)
        for name, end in ((one, near), (two, far)):
            self.lines[name]._welcome(end)
            self.ends[name].append(end)

    def start_anew(self, name: str) -> None:
        for end in self.ends[name]:
            end.abort()
        self.lines[name] = Mesh(self.members[name], ignore)
        for other in self.members.keys() - {name}:
            self._connect(other, name)

    async def ask(self, name: str, request: int, label: str, charge: Any = no_charge) -> Any:
        member = self.members[name]
        vector, _ = member.parameters.encoding.encode([1.0, 1.0], party=name)
        operation = f"average {label} {member.parameters.planned()}"
        try:
            outcome, _ = await self.lines[name].run(request, operation, vector, charge, label=label)
        except SmpcError as error:
            return error
        return len(outcome.survivors)

    def hello(self, name: str, request: int, label: str) -> Envelope:
        """Return a party's hello as it has signed it for all."""
        member = self.members[name]
        vector, _ = member.parameters.encoding.encode([1.0, 1.0], party=name)
        operation = f"average {label} {member.parameters.planned()}"
        run = self.lines[name]._party(member, request, operation, vector)
        made: Envelope = run.handle(Start())[0]
        return replace(made, receiver=member.aggregator)

    async def ask_all(self, names: Sequence[str], request: int, label: str) -> list[Any]:
        return await asyncio.gather(*(self.ask(name, request, label) for name in names))


def play_direct(tmp_path: Path, act: Callable[[Meshes], Awaitable[None]]) -> None:
    given = NOISY | {"topology": "direct"}
    made = create_local_session(tmp_path, NAMES[:6], given, protocol="gopa", timeouts=TIMEOUTS)

    async def main() -> None:
        meshes = Meshes(made, NAMES[:6])
        await act(meshes)
        for mesh in meshes.lines.values():
            mesh.connections.abort()

    run_virtually(main)


def test_without_a_relay_each_of_the_others_says_what_it_asks(tmp_path: Path) -> None:
    async def act(meshes: Meshes) -> None:
        others = NAMES[1:6]
        others_ask = asyncio.create_task(meshes.ask_all(others, 2, "round 2"))
        await asyncio.sleep(0.1)
        meshes.start_anew(ALICE)
        check(await meshes.ask(ALICE, 1, "round 1"), ALICE, (1, "round 1"), (2, "round 2"), 2)
        assert await meshes.ask(ALICE, 2, "round 2") == 6
        assert await others_ask == [6] * 5
        # It has begun, or another label was given.
        others_ask = asyncio.create_task(meshes.ask_all(others, 3, "round 3"))
        check(await meshes.ask(ALICE, 3, "round 4"), ALICE, (3, "round 4"), (3, "round 3"), 4)
        check(await meshes.ask(ALICE, 2, "round 4"), ALICE, (2, "round 4"), (4, None), 4)
        assert await others_ask == [5] * 5

    play_direct(tmp_path, act)


@pytest.mark.parametrize("code", [Code.OPERATION, Code.BEGUN])
def test_a_run_that_is_charged_is_no_other_request(tmp_path: Path, code: Code) -> None:
    """Whatever its coordinator says then, and however many have signed another label."""
    victim = OTHERS[0]

    async def act(meshes: Meshes) -> None:
        coordinator, line, charged = NAMES[coordinator_of(1, 6) - 1], meshes.lines[victim], list[bytes]()
        member = meshes.members[coordinator]
        context = member.context(1)

        async def charge(run_id: bytes, raised: Any = None) -> None:
            assert raised is None
            charged.append(run_id)
            for name in NAMES[3:6]:
                line._others_asked.hellos.forget(name)
                line._others_asked.hellos.add(meshes.hello(name, 1, "b"))
            blamed = code == Code.OPERATION
            abort = Abort(code, victim) if blamed else Abort(code, "", [(victim, code)])
            sent = context.write(member.identity, context.session_digest, ABORT, (victim,), abort)
            meshes.lines[coordinator].connections.send(1, sent)

        others = [name for name in NAMES[:6] if name != victim]
        error, _ = await asyncio.gather(meshes.ask(victim, 1, "a", charge), meshes.ask_all(others, 1, "a"))
        assert len(charged) == 1
        assert isinstance(error, PeerFault if code == Code.OPERATION else TimeoutFault), error
        assert error.code == code
        assert f"said by {coordinator}" in str(error)

    play_direct(tmp_path, act)


def test_one_party_moves_nobody_without_a_relay(tmp_path: Path) -> None:
    """Not the coordinator of the request either: more must say so than may lie."""

    async def act(meshes: Meshes) -> None:
        coordinator = NAMES[coordinator_of(1, 6) - 1]
        member = meshes.members[coordinator]
        assert (coordinator, needed_signers(member.parameters)) == (ALICE, 2)
        context = member.context(1)
        past = Abort(Code.PAST, "", [(OTHERS[0], Code.PAST)], "", 1000)
        sent = context.write(member.identity, context.session_digest, ABORT, (OTHERS[0],), past)
        meshes.lines[coordinator].connections.send(1, sent)
        error = await meshes.ask(OTHERS[0], 1, "a")
        assert isinstance(error, TimeoutFault)
        assert error.code != Code.PAST

    play_direct(tmp_path, act)
