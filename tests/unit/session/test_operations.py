"""What a request is for, where parties ask for different things."""

from __future__ import annotations

from smpc_dp.session.connection_pool import SMALL_MESSAGE, InboundEvent
from smpc_dp.session.operations import HELLOS, MAX_HELD, Operations, is_hello
from smpc_dp.wire.envelope import Envelope

SUM, STATISTIC, _ = HELLOS


def hello(peer: str, step: str) -> InboundEvent:
    return InboundEvent(peer, 1, Envelope(b"", step, peer, "hub", b"", b""))


def test_more_than_half_decide_whoever_was_first() -> None:
    operations = Operations(5, ())
    operations.hold(hello("a", SUM))
    for peer in ("b", "c"):
        operations.hold(hello(peer, STATISTIC))
        assert not operations.is_clear({"a", "b", "c", "d", "e"})
    operations.hold(hello("d", STATISTIC))
    assert operations.is_clear({"a", "b", "c", "d", "e"})
    step, held = operations.settle()
    assert step == STATISTIC
    assert [inbound.peer for inbound in held] == ["a", "b", "c", "d"]


def test_of_two_that_as_many_ask_for_the_first_one() -> None:
    operations = Operations(4, ())
    for peer, step in (("a", SUM), ("b", STATISTIC)):
        operations.hold(hello(peer, step))
    assert operations.is_clear({"a", "b"})
    assert operations.settle()[0] == SUM


def test_who_is_excluded_or_lost_does_not_count() -> None:
    operations = Operations(3, {"a"})
    for inbound in (hello("a", SUM), hello("b", SUM), InboundEvent("b"), hello("c", STATISTIC)):
        operations.hold(inbound)
    assert is_hello(hello("a", SUM))
    assert not is_hello(InboundEvent("b"))
    assert operations.settle()[0] == STATISTIC


def test_nobody_fills_the_memory_with_hellos() -> None:
    operations = Operations(3, ())
    for _ in range(100):
        operations.hold(hello("a", SUM))
    assert len(operations.settle()[1]) == MAX_HELD


def test_what_is_too_large_for_a_hello_is_not_held() -> None:
    """A session of large vectors takes large messages: a few parties could fill the memory with them."""
    operations = Operations(3, ())
    operations.hold(InboundEvent("a", 1, Envelope(b"", SUM, "a", "hub", b"x" * (1 << 20), b"")))
    ((held,),) = (operations.settle()[1],)
    assert held.envelope is not None
    assert len(held.envelope.body) <= SMALL_MESSAGE


def test_who_has_asked_again_after_a_loss_is_held_where_it_came_last() -> None:
    operations = Operations(3, ())
    for inbound in (hello("a", STATISTIC), hello("b", SUM), InboundEvent("a"), hello("a", SUM)):
        operations.hold(inbound)
    assert operations.heard == {"a", "b"}
    assert [(one.peer, one.envelope is None) for one in operations.settle()[1]] == [
        ("b", False),
        ("a", False),
    ]
    operations.forget("b")
    assert operations.heard == {"a"}
    assert not operations.is_clear({"a", "b"})
    assert operations.is_clear({"a"})
