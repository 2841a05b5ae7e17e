"""The driver, on the embedded engine: what it gives, and that it never waits for ever."""

import pytest

from harness.core.clock import VirtualClock
from harness.core.spec import EngineConfig
from harness.tier.driver import SLACK, finish, generate, steps_of
from harness.tier.engines.reference import ReferenceTier
from harness.tier.protocol import Outcome, Request


@pytest.fixture
def server():
    built = ReferenceTier.build(EngineConfig("cpu", "cpu", {}, 0), VirtualClock())
    yield built
    built.close()


REQUESTS = [Request((1,) * 40, 2), Request("a text", 3), Request((1,) * 40, 4)]


@pytest.mark.parametrize("together", [False, True])
def test_completions_come_in_the_order_of_the_requests(server, together):
    given = generate(server, REQUESTS, together=together)

    assert [(each.outcome, len(each.token_ids)) for each in given] == [(Outcome.FINISHED, 2), (Outcome.FINISHED, 3), (Outcome.FINISHED, 4)]
    # One after the other, the third finds what the first left; at once, it was admitted with it.
    assert given[2].cached_tokens == (0 if together else 32)


def test_engine_that_works_by_itself_has_a_deadline_in_seconds(server):
    assert len(generate(server, REQUESTS, stepped=False)) == 3

    handle = server.submit(REQUESTS[0])
    with pytest.raises(TimeoutError, match=rf"after 0 s .*\[{handle}\]"):
        finish(server.pump, server.result, [handle], steps=None, seconds=0)


def test_what_is_not_done_is_named(server):
    first, second = server.submit(Request((1,), 1)), server.submit(Request((1,), 9))

    with pytest.raises(TimeoutError, match=rf"after 3 steps these requests are not done: \[{second}\]"):
        finish(server.pump, server.result, [first, second], steps=3)


def test_steps_are_enough_one_after_the_other():
    assert steps_of(REQUESTS) == SLACK + 40 + 2 + 6 + 3 + 40 + 4
