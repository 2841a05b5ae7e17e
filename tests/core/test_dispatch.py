"""Which worker runs what, played through by hand and in drawn runs: every unit once, no card twice, none idle beside one that waits."""

import heapq
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.dispatch import BOOT_SECONDS, Dispatcher, Unit, Word, units_of


def unit(name, cards=0, seconds=1.0):
    return Unit(name, (name,), cards, seconds)


class Play:
    """A run in which a unit takes its seconds and a worker that is told to end is gone at once."""

    def __init__(self, units, cards, workers, rule=Dispatcher):
        self.dispatcher = rule(units, cards, range(workers))
        self.cards, self.now, self.ran, self.running, self.last_start = cards, 0.0, [], [], 0.0
        self.idle = list(range(workers))

    def run(self):
        """Until nothing runs any more."""
        while self.serve() and self.running:
            self.now, worker, done = heapq.heappop(self.running)
            self.ran.append(done)
            self.idle.append(worker)
        return self

    def serve(self):
        """Give every idle worker work, until nothing changes."""
        changed = True
        while changed:
            changed = False
            for worker in list(self.idle):
                word = self.dispatcher.next(worker, idle=True)
                if word is Word.HOLD:
                    continue
                changed = True
                self.idle.remove(worker)
                if word is Word.END:
                    self.dispatcher.gone(worker)
                else:
                    assert not word.cards or self.dispatcher.leased[worker] >= word.cards
                    self.last_start = self.now
                    heapq.heappush(self.running, (self.now + word.seconds, worker, word.name))
            assert sum(self.dispatcher.leased.values()) <= self.cards
        return True


UNITS = st.lists(st.tuples(st.sampled_from([0, 1, 1, 2, 4, 8]), st.integers(1, 9)), max_size=25)


def made(drawn):
    return [unit(f"u{number}", cards, float(seconds)) for number, (cards, seconds) in enumerate(drawn)]


@settings(max_examples=200, deadline=None)
@given(UNITS, st.sampled_from([1, 2, 4, 8]), st.integers(1, 12))
def test_every_unit_runs_once(drawn, cards, workers):
    """However few cards and workers there are; what needs more cards than there are is left out here."""
    units = [u for u in made(drawn) if u.cards <= cards]
    play = Play(units, cards, workers)
    play.run()

    assert sorted(play.ran) == sorted(u.name for u in units)


@settings(max_examples=200, deadline=None)
@given(UNITS)
def test_no_card_idles_while_a_unit_waits(drawn):
    """With workers enough: until the last unit starts all cards work, so it starts within their whole work by all of them."""
    units = [u for u in made(drawn) if u.cards]

    assert Play(units, 8, 40).run().last_start <= work(units) / 8


def work(units):
    """Seconds of cards."""
    return sum(u.cards * u.seconds for u in units)


class Ascending(Dispatcher):
    """A wrong rule: the smallest numbers first."""

    def __init__(self, units, cards, workers):
        super().__init__(units, cards, workers)
        self.waiting.sort(key=lambda u: u.cards or 99)


def test_the_bound_sees_a_wrong_rule():
    """The twin: an eight that waits for a one, beside seven idle cards, starts too late."""
    units = [unit("one", 1, 9.0), unit("eight", 8, 1.0)]

    assert Play(units, 8, 8).run().last_start <= work(units) / 8 < Play(units, 8, 8, Ascending).run().last_start


def test_the_largest_go_first_and_small_ones_fill_up():
    dispatcher = Dispatcher([unit("a", 1), unit("b", 4), unit("c", 2), unit("d")], 8, "wxyz")

    assert [getattr(dispatcher.next(w, idle=True), "name", None) for w in "wxyz"] == ["b", "c", "a", "d"]
    assert dispatcher.free == 1


def test_one_that_waits_for_cards_holds():
    """It is given nothing else meanwhile, and the cards once their worker is gone."""
    dispatcher = Dispatcher([unit("a", 4), unit("b", 2), unit("c")], 4, "wx")

    assert dispatcher.next("w", idle=True).name == "a"
    assert dispatcher.next("x", idle=True) is Word.HOLD
    assert dispatcher.next("w", idle=True) is Word.END
    assert dispatcher.next("x", idle=True) is Word.HOLD
    dispatcher.gone("w")
    assert dispatcher.next("x", idle=True).name == "b"


def test_one_that_is_not_idle_is_never_told_to_hold():
    dispatcher = Dispatcher([unit("a", 4), unit("b", 2)], 4, "wx")
    dispatcher.next("w", idle=True)

    assert dispatcher.next("x", idle=False) is Word.END
    assert dispatcher.next("w", idle=False).name == "b"


def test_what_a_crash_left_is_done_by_who_comes():
    dispatcher = Dispatcher([unit("a", 2)], 2, "w")
    left = dispatcher.next("w", idle=True)
    dispatcher.gone("w", [left])
    dispatcher.came("x")

    assert dispatcher.next("x", idle=True) == left
    assert dispatcher.leased == {"x": 2}


def test_more_cards_than_there_are():
    """Such a unit is handed out: the worker's lease says what is lacking."""
    assert Dispatcher([unit("a", 4)], 2, "w").next("w", idle=True).name == "a"


GROUP = Unit("g", tuple("abcdefgh"), 2)


def test_a_group_is_split_over_the_cards_there_are():
    """In parts of equal time, each with every test once, in the written order; eight cards give four workers of two."""
    parts = units_of([GROUP], dict.fromkeys("abcdefgh", 100.0), 8, 8)

    assert sorted(t for part in parts for t in part.tests) == list("abcdefgh")
    assert [(p.cards, p.seconds, list(p.tests) == sorted(p.tests)) for p in parts] == [(2, 200.0, True)] * 4
    assert sorted(p.name for p in parts) == [f"g #{n}" for n in range(1, 5)]


@pytest.mark.parametrize(
    ("seconds", "cards", "workers", "parts"),
    [
        (1.0, 8, 8, 1),  # eight seconds are not worth a second boot
        (BOOT_SECONDS, 8, 8, 4),
        (100.0, 2, 8, 1),
        (100.0, 8, 2, 2),
        (0.0, 8, 8, 4),  # nobody says what takes how long: by count
    ],
)
def test_a_group_is_split_where_that_pays(seconds, cards, workers, parts):
    assert len(units_of([GROUP], dict.fromkeys("abcdefgh", seconds), cards, workers)) == parts


def test_a_group_without_cards_stays_whole():
    """One worker a boot, as ever."""
    group = replace(GROUP, cards=0)

    assert units_of([group], dict.fromkeys("abcdefgh", 100.0), 8, 8) == [group]
