"""The oracle of a policy: each sentence of the Policy docstring as an example, beside the example that is wrong by one thing."""

import pytest

from harness.tier.oracle import Oracle
from harness.tier.protocol import Group, Policy, Tier

PAGE, CHUNK = 4, 8
GROUPS = (Group("sliding", 8), Group("full", None))


def oracle(device=40, host=40, running=4, groups=GROUPS):
    """Of so many pages of tokens in each tier; a chunk is two pages."""
    return Oracle(Policy(PAGE, CHUNK, len(groups) * device, len(groups) * host, groups, running))


def prompt(letters):
    """A page for each letter; a dot is one token more."""
    return tuple(token for place, letter in enumerate(letters) for token in ([ord(letter)] * PAGE if letter != "." else [-1 - place]))


def ask(model, letters, new=1, identity=None):
    """Run one request to its end, with its write-backs; the pages that came from the device and from the host."""
    ask.handle += 1
    handle = ask.handle
    model.submit(handle, prompt(letters), new, identity)
    while not model.done(handle):
        model.pump()
    model.quiesce()
    return pages(model, handle)


ask.handle = 0


def pages(model, handle):
    hits = model.hits(handle)
    return None if hits is None else (hits.device // PAGE, hits.host // PAGE)


def kept(model, letters, tier=Tier.DEVICE, identity=None):
    return model.kept(tier, prompt(letters), identity)


@pytest.mark.parametrize(
    ("first", "second", "hit"),
    [
        ("abcd.", "abcd.", 4),
        ("abcd.", "abce.", 2),
        ("abcd.", "abdc.", 2),
        ("abcd.", "cdab.", 0),
        ("abcd.", "cd.", 0),
        ("abcd.", "xbcd.", 0),
        ("abcd.", "ab.", 2),
    ],
)
def test_key_is_chained(first, second, hit):
    """A page is kept under the key of the page before and its tokens."""
    model = oracle()
    ask(model, first)

    assert ask(model, second) == (hit, 0)


def test_key_holds_the_identity():
    model = oracle()
    ask(model, "abcd.", identity="mine")

    assert ask(model, "abcd.", identity="other") == (0, 0)
    assert ask(model, "abcd.", identity="mine") == (4, 0)
    model.drop_device()
    assert ask(model, "abcd.", identity="third") == (0, 0)
    assert ask(model, "abcd.", identity="mine") == (0, 4)


def test_page_for_each_group():
    """A page of tokens takes one page of the pool for each group, in either tier."""
    for groups, fits in ((GROUPS[:1], True), (GROUPS, False)):
        model = Oracle(Policy(PAGE, CHUNK, 8, 4, groups, 1))
        model.submit(1, prompt("abcdef."), 1)
        model.pump()
        assert (pages(model, 1) is not None) == fits

    for groups, on_host in ((GROUPS[:1], (0, 1, 2, 3)), (GROUPS, (0, 1))):
        model = Oracle(Policy(PAGE, CHUNK, 40, 4, groups, 1))
        model.lags["store"] = 100  # else what is written first has landed, and goes for the next
        ask(model, "abcd.")
        assert kept(model, "abcd.", Tier.HOST) == on_host


def test_no_host_tier():
    for host, on_host in ((0, ()), (40, (0, 1, 2, 3))):
        model = oracle(host=host)
        ask(model, "abcd.")
        assert kept(model, "abcd.", Tier.HOST) == on_host
        model.drop_device()
        assert ask(model, "abcd.") == (0, len(on_host))


def test_tiers_do_not_lend():
    for host in (0, 40):
        model = oracle(device=4, host=host)
        model.submit(1, prompt("abcd."), 1)
        model.pump()
        assert pages(model, 1) is None


def test_takes_in_before_it_admits():
    """What the step before computed is kept when a request is admitted, and not what is launched in the same step."""
    model = oracle()
    model.submit(1, prompt("abcd."), 1)
    model.pump()
    model.submit(2, prompt("abcd."), 1)
    model.pump()
    assert pages(model, 2) == (2, 0)

    model = oracle()
    for handle in (1, 2):
        model.submit(handle, prompt("abcd."), 1)
    model.pump()
    assert pages(model, 2) == (0, 0)


@pytest.mark.parametrize(
    ("letters", "new", "steps"),
    [(".", 1, 1), ("ab", 1, 1), ("ab.", 1, 2), ("abcd", 1, 2), ("abc", 1, 2), ("abcd.", 1, 3), ("abcd.", 3, 5), (".", 4, 4)],
)
def test_steps(letters, new, steps):
    """A chunk a step up to its next multiple or the end of the prompt, which gives the first new token; then a token a step."""
    model = oracle()
    model.submit(1, prompt(letters), new)
    taken = 0
    while not model.done(1):
        model.pump()
        taken += 1

    assert taken == steps + 1  # the last is taken in by the step after


def test_warm_takes_the_steps_that_are_left():
    model = oracle()
    ask(model, "abcd.")
    model.submit(1, prompt("abcdef."), 1)
    model.pump()
    model.pump()
    assert not model.done(1)
    model.pump()
    assert model.done(1)


def test_whole_chunks_of_the_prompt_are_kept():
    """And neither a page of a chunk that is not whole, nor what was decoded."""
    model = oracle()
    ask(model, "abc.")
    assert kept(model, "abc.") == kept(model, "abc.", Tier.HOST) == (0, 1)
    ask(model, "abcd.", new=8)
    assert kept(model, "abcd.") == (0, 1, 2, 3)
    ask(model, "ab...", new=9)
    assert kept(model, "abcd.") == (0, 1, 2, 3)


def test_chunk_is_kept_when_it_is_taken_in():
    model = oracle()
    model.submit(1, prompt("abcd."), 1)
    seen = []
    for _ in range(3):
        model.pump()
        seen.append(kept(model, "abcd."))
    assert seen == [(), (0, 1), (0, 1, 2, 3)]


def test_write_begins_when_the_chunk_is_kept():
    model = oracle()
    model.lags["store"] = 2
    model.submit(1, prompt("abcd."), 9)
    seen = []
    for _ in range(6):
        model.pump()
        seen.append(kept(model, "abcd.", Tier.HOST))
    assert seen == [(), (), (), (0, 1), (0, 1, 2, 3), (0, 1, 2, 3)]


def test_order_and_most_running():
    for running, admitted in ((1, [1]), (2, [1, 2]), (3, [1, 2, 3])):
        model = oracle(running=running)
        for handle in (1, 2, 3):
            model.submit(handle, prompt("ab."), 1)
        model.pump()
        assert [handle for handle in (1, 2, 3) if pages(model, handle) is not None] == admitted


def test_one_that_does_not_fit_is_waited_for():
    model = oracle(device=8)
    for handle, letters in ((1, "abcd."), (2, "efgh."), (3, "ij.")):
        model.submit(handle, prompt(letters), 1)
    model.pump()
    assert [pages(model, handle) is not None for handle in (1, 2, 3)] == [True, False, False]

    model = oracle(device=8)
    for handle, letters in ((1, "abcd."), (3, "ij.")):
        model.submit(handle, prompt(letters), 1)
    model.pump()
    assert pages(model, 3) is not None


@pytest.mark.parametrize(("letters", "hit"), [("abcd", 2), ("abcd.", 4), ("abcde", 4), ("abc.", 2), ("ab", 0), ("a", 0), ("ab.", 2)])
def test_hit_ends_at_a_chunk_before_the_last_token(letters, hit):
    model = oracle()
    ask(model, "abcdef.")

    assert ask(model, letters) == (hit, 0)


def test_hit_may_go_from_tier_to_tier():
    """Each page of the run is on the device or on the host; a page that is on neither ends it."""
    model = oracle()
    ask(model, "abcdef.")
    model.drop_device()
    ask(model, "ab.")
    assert ask(model, "abcdef.") == (2, 4)

    model = oracle(host=0)
    ask(model, "abcdef.")
    model.drop_device()
    ask(model, "ab.")
    assert ask(model, "abcdef.") == (2, 0)


def test_holds_places_for_all_but_the_last_token():
    for new, fits in ((5, True), (6, False)):
        model = oracle(device=4)
        model.submit(1, prompt("abc"), new)
        model.pump()
        assert (pages(model, 1) is not None) == fits


def test_shares_what_it_hits_on_the_device():
    for second, fits in (("abcd..", True), ("efgh..", False)):
        model = oracle(device=8)
        model.submit(1, prompt("abcd."), 9)
        for _ in range(4):
            model.pump()
        model.submit(2, prompt(second), 1)
        model.pump()
        assert (pages(model, 2) is not None) == fits


def test_two_of_one_prompt_at_once_hold_places_of_their_own():
    """The second finds nothing kept; what it computes is kept already, and its own pages are free when it ends."""
    for device, together in ((10, True), (9, False)):
        model = oracle(device=device)
        for handle in (1, 2):
            model.submit(handle, prompt("abcd."), 1)
        model.pump()
        assert (pages(model, 2) is not None) == together
    model = oracle(device=10)
    for handle in (1, 2):
        model.submit(handle, prompt("abcd."), 1)
    while not (model.done(1) and model.done(2)):
        model.pump()
    assert kept(model, "abcd.") == (0, 1, 2, 3)
    model.submit(3, prompt("efghi."), 1)
    model.pump()
    assert pages(model, 3) is not None
    assert kept(model, "abcd.") == (0, 1, 2, 3)


def test_host_pages_are_kept_on_the_device_again():
    model = oracle()
    ask(model, "abcd.")
    model.drop_device()
    assert kept(model, "abcd.") == ()
    assert ask(model, "abcd.") == (0, 4)
    assert kept(model, "abcd.") == (0, 1, 2, 3)
    assert ask(model, "abcd.") == (4, 0)


def test_what_a_request_uses_does_not_go():
    model = oracle(device=6, host=0)
    model.submit(1, prompt("ab."), 9)
    model.submit(2, prompt("cdefg"), 1)
    while not model.done(1):
        assert pages(model, 2) is None
        model.pump()
    assert pages(model, 2) == (0, 0)
    assert kept(model, "ab.") == (0,)


def test_what_a_copy_reads_does_not_go():
    for landed, left in ((False, (0, 1)), (True, ())):
        model = oracle()
        model.lags["store"] = 100
        model.submit(1, prompt("ab."), 1)
        while not model.done(1):
            model.pump()
        if landed:
            model.quiesce()
        model.drop_device()
        assert kept(model, "ab.") == left


def test_the_page_used_longest_ago_goes_first():
    """And of those used at one time, the one farthest from the start."""
    model = oracle(device=9, host=0)
    ask(model, "abcd.")
    ask(model, "efgh.")
    ask(model, "ij")
    assert kept(model, "abcd.") == (0, 1, 2)
    assert kept(model, "efgh.") == (0, 1, 2, 3)

    model = oracle(device=9, host=0)
    ask(model, "abcd.")
    ask(model, "efgh.")
    ask(model, "abcd.")
    ask(model, "ij")
    assert kept(model, "abcd.") == (0, 1, 2, 3)


def test_no_more_goes_than_is_needed():
    for letters, left in (("ij", 3), ("i", 4), ("ijk", 2)):
        model = oracle(device=9, host=0)
        ask(model, "abcd.")
        ask(model, "efgh.")
        ask(model, letters)
        assert len(kept(model, "abcd.")) == left


def test_an_end_is_a_use():
    """A page is used when a request that holds it ends: the one that was admitted first and ends last goes last."""
    for long, gone in ((9, "efgh."), (1, "abcd.")):
        model = oracle(device=14, host=0)
        model.submit(1, prompt("abcd."), long)
        model.submit(2, prompt("efgh."), 1)
        while not (model.done(1) and model.done(2)):
            model.pump()
        ask(model, "ijklmn")
        ask(model, "op.")
        assert len(kept(model, gone)) < 4
        assert len(kept(model, "abcd." if gone == "efgh." else "efgh.")) == 4


def test_pages_on_the_host_go_by_the_same_rule():
    model = oracle(host=6)
    ask(model, "abcd.")
    ask(model, "efgh.")
    assert kept(model, "abcd.", Tier.HOST) == (0, 1)
    assert kept(model, "efgh.", Tier.HOST) == (0, 1, 2, 3)


def test_a_hit_on_the_device_uses_the_host_copy():
    for hits, left in ((True, 4), (False, 0)):
        model = oracle(host=8)
        ask(model, "abcd.")
        ask(model, "efgh.")
        if hits:
            assert ask(model, "abcd.") == (4, 0)
        ask(model, "ijkl.")
        assert len(kept(model, "abcd.", Tier.HOST)) == left


def test_a_page_without_a_place_on_the_host_is_not_written():
    """All that is there is being written itself."""
    for lag, on_host in ((100, (0, 1)), (0, (2, 3))):
        model = oracle(host=2)
        model.lags["store"] = lag
        ask(model, "abcd.")
        assert kept(model, "abcd.", Tier.HOST) == on_host


def test_a_page_on_the_host_is_not_written_again():
    model = oracle(host=8)
    ask(model, "abcd.")
    model.drop_device()
    ask(model, "ab")
    assert kept(model, "abcd.", Tier.HOST) == (0, 1, 2, 3)


def test_abort_frees_and_keeps():
    """The places are free at once; chunks that were taken in stay, what is in flight is lost."""
    model = oracle(device=6)
    model.submit(1, prompt("abcd."), 4)
    model.pump()
    model.pump()
    model.submit(2, prompt("wxyz."), 1)
    model.pump()
    assert pages(model, 2) is None
    model.abort(1)
    assert model.done(1)
    assert kept(model, "abcd.") == (0, 1, 2, 3)
    model.pump()
    assert pages(model, 2) == (0, 0)

    model = oracle()
    model.submit(1, prompt("abcd."), 1)
    model.pump()
    model.abort(1)
    model.pump()
    assert kept(model, "abcd.") == ()


def test_retracted_goes_first_and_counts_once():
    model = oracle(running=1)
    model.submit(1, prompt("abcd."), 4)
    model.submit(2, prompt("efgh."), 1)
    model.pump()
    model.pump()
    model.retract(1)
    model.pump()
    assert pages(model, 2) is None
    assert pages(model, 1) == (0, 0)
    while not model.done(2):
        model.pump()
    assert model.done(1)
    assert ask(model, "abcd.") == (4, 0)


def test_flush_forgets_both_tiers():
    model = oracle()
    ask(model, "abcd.")
    model.flush()
    assert kept(model, "abcd.") == kept(model, "abcd.", Tier.HOST) == ()
    assert ask(model, "abcd.") == (0, 0)


def test_a_failed_write_is_not_kept():
    for fails, on_host in ((True, (2, 3)), (False, (0, 1, 2, 3))):
        model = oracle()
        if fails:
            model.fail_next("store")
        ask(model, "abcd.")
        assert kept(model, "abcd.", Tier.HOST) == on_host
        assert kept(model, "abcd.") == (0, 1, 2, 3)


def test_a_failed_load_undoes_the_admission():
    """Its pages are kept in neither tier any more; the request comes before all others, and reports what it hits then."""
    for fails, hit in ((True, (2, 0)), (False, (2, 2))):
        model = oracle(running=1)
        ask(model, "abcd.")
        model.drop_device()
        ask(model, "ab.")
        if fails:
            model.fail_next("load")
        model.submit(1, prompt("abcd."), 1)
        model.submit(2, prompt("xy."), 1)
        model.pump()
        assert pages(model, 1) == (2, 2)
        model.pump()
        assert pages(model, 1) == hit
        while not model.done(1):
            assert pages(model, 2) is None
            model.pump()


def test_a_failed_load_undoes_those_that_share_it():
    for fails, hit in ((True, (0, 0)), (False, (4, 0))):
        model = oracle()
        ask(model, "abcd.")
        model.drop_device()
        if fails:
            model.fail_next("load")
        for handle in (1, 2):
            model.submit(handle, prompt("abcd."), 2)
        model.pump()
        assert [pages(model, handle) for handle in (1, 2)] == [(0, 4), (4, 0)]
        model.pump()
        assert pages(model, 2) == hit
        while not (model.done(1) and model.done(2)):
            model.pump()
        assert ask(model, "abcd.") == (4, 0)


def test_time_passes_for_copies():
    for ticks, on_host in ((4, (0, 1)), (1, ())):
        model = oracle()
        model.lags["store"] = 5
        model.submit(1, prompt("ab."), 9)
        model.pump()
        model.pump()
        model.advance(ticks)
        assert kept(model, "ab.", Tier.HOST) == on_host
