"""What an engine keeps that declares a `Policy`: a model in plain dictionaries and integers, written from that docstring alone.

It is told what the engine is told, call by call, and says which tokens of each prompt come from which tier. What it counts are pages of
tokens: such a page takes one page of the pool for each group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from harness.tier.protocol import Policy, Tier, TierHits


@dataclass
class Kept:
    """A page of tokens that a tier keeps. `used`: when last; `depth`: which page of its prompt; the rest counts who needs it."""

    used: int
    depth: int
    holders: int = 0
    copies: int = 0

    @property
    def idle(self) -> bool:
        """It may go."""
        return not self.holders and not self.copies


@dataclass
class Asked:
    """A request on its way. `keys` are those of its prompt's whole pages, `places` the pages of tokens that it holds while it runs."""

    handle: int
    prompt_tokens: int
    new_tokens: int
    keys: list[int]
    places: int
    computed: int = 0
    given: int = 0
    launched: bool = False
    shared: list[int] = field(default_factory=list)
    """Keys of the kept pages that it holds."""
    loads: list[Copy] = field(default_factory=list)
    """What it waits for: copies that it began, and those whose pages it hit while they were on their way."""
    confirmed: bool = False
    """A step of it was taken in: what it reused stands."""

    @property
    def own(self) -> int:
        """Pages that it holds and that are not kept."""
        return self.places - len(self.shared)


@dataclass(frozen=True)
class Copy:
    """Pages under way from one tier to the other, until the clock says `due`; a load at the latest until its request's step is taken in."""

    keys: tuple[int, ...]
    due: int
    load_of: Asked | None = None
    failed: bool = False


class Oracle:
    """One engine, from an empty cache on. `lags` are those of copies, in pumps; 0: a copy has landed by the end of the step."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.lags = {"store": 0, "load": 0}
        self._failing: set[str] = set()
        self.device: dict[int, Kept] = {}
        self.host: dict[int, Kept] = {}
        self.queue: list[Asked] = []
        self.running: list[Asked] = []
        self._spare = policy.device_pages // len(policy.groups)
        self._host_places = policy.host_pages // len(policy.groups)
        self._keys: dict[tuple[Hashable, tuple[int, ...]], int] = {}
        self._hits: dict[int, TierHits] = {}
        self._copies: list[Copy] = []
        self._written: set[int] = set()
        """Keys of the pages that are whole on the host."""
        self._clock = 0
        self._time = 0
        """Counts what uses pages, an admission, a chunk kept, an end: each is a time of its own."""

    def submit(self, handle: int, tokens: tuple[int, ...], new_tokens: int, identity: Hashable = None) -> None:
        """A request joins the queue. `tokens` are all that is prefilled, media included; `identity`: salt, adapter, version, media."""
        page = self.policy.page
        places = -(-(len(tokens) + new_tokens - 1) // page)
        self.queue.append(Asked(handle, len(tokens), new_tokens, self._keys_of(tokens, identity), places))

    def pump(self) -> None:
        """One step."""
        taken = [asked for asked in self.running if asked.launched]
        undone = [asked for asked in taken if any(copy.failed for copy in asked.loads)]
        for asked in taken:
            if asked not in undone:
                self._take_in(asked)
        for asked in reversed(undone):
            if not asked.confirmed:
                self._hits.pop(asked.handle)
            self._begin_again(asked)
        self._land(copy for copy in self._copies if copy.due <= self._clock or copy.load_of in taken)
        while self.queue and len(self.running) < self.policy.max_running and self._admits(self.queue[0]):
            self.running.append(self.queue.pop(0))
        for asked in self.running:
            asked.launched = True
        self._clock += 1

    def abort(self, handle: int) -> None:
        """The request is gone; what it has kept stays."""
        self.queue = [asked for asked in self.queue if asked.handle != handle]
        for asked in self.running:
            if asked.handle == handle:
                self._end(asked)
                break

    def retract(self, handle: int) -> None:
        """A running request waits before all others, and begins again. Its hits stay those of its first admission."""
        self._begin_again(next(asked for asked in self.running if asked.handle == handle))

    def fail_next(self, op: str) -> None:
        """The next `store` or `load` copies nothing, and is over by the step after."""
        self._failing.add(op)

    def quiesce(self) -> None:
        """Every write to the host has landed."""
        self._land(copy for copy in self._copies if copy.load_of is None or (copy.due <= self._clock and not copy.failed))

    def advance(self, ticks: int) -> None:
        """So many steps' time passes for copies under way."""
        self._clock += ticks
        self._land(copy for copy in self._copies if copy.due <= self._clock and not (copy.load_of and copy.failed))

    def drop_device(self) -> None:
        """What no request uses, nor a copy under way, goes from the device."""
        idle = [key for key, kept in self.device.items() if kept.idle]
        for key in idle:
            del self.device[key]
        self._spare += len(idle)

    def flush(self) -> None:
        """Nothing is kept any more. There is no request that is not done."""
        self._spare += len(self.device)
        self.device, self.host, self._copies, self._written = {}, {}, [], set()

    def hits(self, handle: int) -> TierHits | None:
        """Tokens of the request that came from each tier when it was first admitted; None before that."""
        return self._hits.get(handle)

    def done(self, handle: int) -> bool:
        """Whether it neither waits nor runs."""
        return all(asked.handle != handle for asked in [*self.queue, *self.running])

    def kept(self, tier: Tier, tokens: tuple[int, ...], identity: Hashable = None) -> tuple[int, ...]:
        """Which of the prompt's pages can be hit in this tier."""
        there = self.device.keys() if tier is Tier.DEVICE else self._written
        return tuple(index for index, key in enumerate(self._keys_of(tokens, identity)) if key in there)

    def _keys_of(self, tokens: tuple[int, ...], identity: Hashable) -> list[int]:
        """A number for each whole page: one for each identity and run of tokens from the start."""
        page, keys, before = self.policy.page, [], ("identity", identity)
        for start in range(0, len(tokens) - page + 1, page):
            key = self._keys.setdefault((before, tokens[start : start + page]), len(self._keys))
            keys.append(key)
            before = ("page", key)
        return keys

    def _now(self) -> int:
        self._time += 1
        return self._time

    def _admits(self, asked: Asked) -> bool:
        """Admit it, if it fits."""
        page, chunk = self.policy.page, self.policy.chunk
        run = 0
        while run < len(asked.keys) and (asked.keys[run] in self.device or asked.keys[run] in self._written):
            run += 1
        tokens = min(run * page, asked.prompt_tokens - 1) // chunk * chunk
        hit = asked.keys[: tokens // page]
        on_device = [key for key in hit if key in self.device]
        need = asked.places - len(on_device)
        idle = [key for key, kept in self.device.items() if kept.idle and key not in on_device]
        if self._spare + len(idle) < need:
            return False
        now = self._now()
        for key in self._oldest(self.device, idle, need - self._spare):
            del self.device[key]
            self._spare += 1
        self._spare -= need
        for depth, key in enumerate(hit):
            self.device.setdefault(key, Kept(now, depth)).holders += 1
        self._use(hit, now)
        asked.shared, asked.computed = list(hit), tokens
        asked.loads = [copy for copy in self._copies if copy.load_of and not set(copy.keys).isdisjoint(hit)]
        self._begin([key for key in hit if key not in on_device], "load", asked)
        self._hits.setdefault(asked.handle, TierHits(len(on_device) * page, (len(hit) - len(on_device)) * page))
        return True

    def _take_in(self, asked: Asked) -> None:
        """What its last step computed: a chunk, or a token."""
        asked.confirmed = True
        if asked.computed < asked.prompt_tokens:
            start, chunk = asked.computed, self.policy.chunk
            asked.computed = min(start + chunk, asked.prompt_tokens)
            if asked.computed % chunk == 0:
                self._keep(asked, range(start // self.policy.page, asked.computed // self.policy.page))
            asked.given = int(asked.computed == asked.prompt_tokens)
        else:
            asked.given += 1
        if asked.given == asked.new_tokens:
            self._end(asked)

    def _keep(self, asked: Asked, depths: Iterable[int]) -> None:
        """Its pages at these depths are kept on the device, and on their way to the host. A page that is kept already stays what it is."""
        now, fresh = self._now(), []
        for depth in depths:
            key = asked.keys[depth]
            if key not in self.device:
                self.device[key] = Kept(now, depth, holders=1)
                asked.shared.append(key)
                fresh.append(key)
        self._begin([key for key in fresh if self._host_place(key, now)], "store")

    def _host_place(self, key: int, now: int) -> bool:
        """Take a place on the host for a page of the device that has none there."""
        if key in self.host:
            self.host[key].used = now
            return False
        if len(self.host) >= self._host_places:
            gone = self._oldest(self.host, [other for other, kept in self.host.items() if kept.idle], 1)
            if not gone:
                return False
            del self.host[gone[0]]
            self._written.discard(gone[0])
        # For the copy, from now on, lest the next page of the chunk take its place.
        self.host[key] = Kept(now, self.device[key].depth, copies=1)
        return True

    def _begin(self, keys: list[int], op: str, load_of: Asked | None = None) -> None:
        """A copy of these pages begins; both ends stay until it is over."""
        if not keys:
            return
        for key in keys:
            self.device[key].copies += 1
            # The place that a store fills was taken before.
            self.host[key].copies += op == "load"
        failed = op in self._failing
        self._failing.discard(op)
        copy = Copy(tuple(keys), self._clock + (0 if failed else self.lags[op]), load_of, failed)
        self._copies.append(copy)
        if load_of is not None:
            load_of.loads.append(copy)

    def _land(self, over: Iterable[Copy]) -> None:
        """These copies are over. What one that failed was to bring is not there, and what a load could not read is gone."""
        for copy in list(over):
            self._copies.remove(copy)
            for key in copy.keys:
                self.device[key].copies -= 1
                self.host[key].copies -= 1
            if not copy.failed:
                self._written.update(copy.keys)
                continue
            for key in copy.keys:
                del self.host[key]
                self._written.discard(key)
                if copy.load_of is not None:
                    del self.device[key]
                    self._spare += 1

    def _use(self, keys: Iterable[int], now: int) -> None:
        """Both copies of each page."""
        for key in keys:
            for tier in (self.device, self.host):
                if key in tier:
                    tier[key].used = now

    def _begin_again(self, asked: Asked) -> None:
        """It lets go of all that it holds, and waits before all others."""
        self._end(asked)
        asked.computed, asked.given, asked.launched, asked.loads = 0, 0, False, []
        self.queue.insert(0, asked)

    def _end(self, asked: Asked) -> None:
        """It lets go of all that it holds."""
        self._use(asked.shared, self._now())
        for key in asked.shared:
            self.device[key].holders -= 1
        self._spare += asked.own
        asked.shared = []
        self.running.remove(asked)

    @staticmethod
    def _oldest(tier: dict[int, Kept], idle: Iterable[int], count: int) -> list[int]:
        """Which of these go first: those used longest ago, and of one time those farthest from the start."""
        return sorted(idle, key=lambda key: (tier[key].used, -tier[key].depth))[: max(0, count)]
