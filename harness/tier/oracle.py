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
    loading: list[int] = field(default_factory=list)
    """Keys of those that are on their way from the host."""

    @property
    def own(self) -> int:
        """Pages that it holds and that are not kept."""
        return self.places - len(self.shared)


class Oracle:
    """One engine, from an empty cache on. `lag` is that of copies, in pumps: 0 is one that has landed when the pump returns."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.lags = {"store": 0, "load": 0}
        self.device: dict[int, Kept] = {}
        self.host: dict[int, Kept] = {}
        self.queue: list[Asked] = []
        self.running: list[Asked] = []
        self._spare = policy.device_pages // len(policy.groups)
        self._host_places = policy.host_pages // len(policy.groups)
        self._keys: dict[tuple[Hashable, tuple[int, ...]], int] = {}
        self._hits: dict[int, TierHits] = {}
        self._stores: list[tuple[int, list[int]]] = []
        """The pump at which each lands, and the keys of its pages."""
        self._landed: set[int] = set()
        self._pumps = 0
        """Steps begun so far: what is used in one step, or between two, is used at one time."""

    def submit(self, handle: int, tokens: tuple[int, ...], new_tokens: int, identity: Hashable = None) -> None:
        """A request joins the queue. `tokens` are all that is prefilled, those of its media too; `identity`: salt, adapter, version, media."""
        page = self.policy.page
        places = -(-(len(tokens) + new_tokens - 1) // page)
        self.queue.append(Asked(handle, len(tokens), new_tokens, self._keys_of(tokens, identity), places))

    def pump(self) -> None:
        """One step."""
        self._land(self._pumps)
        for asked in list(self.running):
            if asked.launched:
                self._take_in(asked)
        while self.queue and len(self.running) < self.policy.max_running and self._admits(self.queue[0]):
            self.running.append(self.queue.pop(0))
        for asked in self.running:
            asked.launched = True
        self._pumps += 1

    def abort(self, handle: int) -> None:
        """The request is gone; what it has kept stays."""
        self.queue = [asked for asked in self.queue if asked.handle != handle]
        for asked in self.running:
            if asked.handle == handle:
                self._end(asked)
                break

    def retract(self, handle: int) -> None:
        """A running request waits before all others, and begins again. Its hits stay those of its first admission."""
        asked = next(asked for asked in self.running if asked.handle == handle)
        self._end(asked)
        asked.computed, asked.given, asked.launched = 0, 0, False
        self.queue.insert(0, asked)

    def quiesce(self) -> None:
        """Every write to the host has landed."""
        self._land(None)

    def drop_device(self) -> None:
        """What no request uses, nor a copy under way, goes from the device."""
        idle = [key for key, kept in self.device.items() if kept.idle]
        for key in idle:
            del self.device[key]
        self._spare += len(idle)

    def flush(self) -> None:
        """Nothing is kept any more."""
        self._spare += len(self.device)
        self.device, self.host, self._stores, self._landed = {}, {}, [], set()

    def hits(self, handle: int) -> TierHits | None:
        """Tokens of the request that came from each tier when it was first admitted; None before that."""
        return self._hits.get(handle)

    def done(self, handle: int) -> bool:
        """Whether it neither waits nor runs."""
        return all(asked.handle != handle for asked in [*self.queue, *self.running])

    def kept(self, tier: Tier, tokens: tuple[int, ...], identity: Hashable = None) -> tuple[int, ...]:
        """Which of the prompt's pages can be hit in this tier."""
        there = self.device.keys() if tier is Tier.DEVICE else self._landed
        return tuple(index for index, key in enumerate(self._keys_of(tokens, identity)) if key in there)

    def _keys_of(self, tokens: tuple[int, ...], identity: Hashable) -> list[int]:
        """A number for each whole page: one for each identity and run of tokens from the start."""
        page, keys, before = self.policy.page, [], ("identity", identity)
        for start in range(0, len(tokens) - page + 1, page):
            key = self._keys.setdefault((before, tokens[start : start + page]), len(self._keys))
            keys.append(key)
            before = ("page", key)
        return keys

    def _admits(self, asked: Asked) -> bool:
        """Admit it, if it fits."""
        page, chunk = self.policy.page, self.policy.chunk
        run = 0
        while run < len(asked.keys) and (asked.keys[run] in self.device or asked.keys[run] in self._landed):
            run += 1
        tokens = min(run * page, asked.prompt_tokens - 1) // chunk * chunk
        hit = asked.keys[: tokens // page]
        on_device = [key for key in hit if key in self.device]
        need = asked.places - len(on_device)
        idle = [key for key, kept in self.device.items() if kept.idle and key not in on_device]
        if self._spare + len(idle) < need:
            return False
        now = self._pumps
        for key in self._oldest(self.device, idle, need - self._spare):
            del self.device[key]
            self._spare += 1
        self._spare -= need
        for depth, key in enumerate(hit):
            self.device.setdefault(key, Kept(now, depth)).holders += 1
            for tier in (self.device, self.host):
                if key in tier:
                    tier[key].used = now
        asked.shared, asked.computed = list(hit), tokens
        asked.loading = [key for key in hit if key not in on_device]
        for key in asked.loading:
            self.host[key].copies += 1
        if not self.lags["load"]:
            self._loaded(asked)
        self._hits.setdefault(asked.handle, TierHits(len(on_device) * page, (len(hit) - len(on_device)) * page))
        return True

    def _take_in(self, asked: Asked) -> None:
        """What its last step computed: a chunk, or a token."""
        self._loaded(asked)
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
        now, fresh = self._pumps, []
        for depth in depths:
            key = asked.keys[depth]
            if key not in self.device:
                self.device[key] = Kept(now, depth, holders=1)
                asked.shared.append(key)
                fresh.append(key)
        written = [key for key in fresh if self._host_place(key, now)]
        if written:
            for key in written:
                self.device[key].copies += 1
            self._stores.append((self._pumps + self.lags["store"], written))
            self._land(self._pumps)

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
            self._landed.discard(gone[0])
        self.host[key] = Kept(now, self.device[key].depth, copies=1)
        return True

    def _land(self, pump: int | None) -> None:
        """Stores that are due at this pump, or all, have landed."""
        due = [store for store in self._stores if pump is None or store[0] <= pump]
        self._stores = [store for store in self._stores if store not in due]
        for key in (key for _, keys in due for key in keys):
            self.device[key].copies -= 1
            self.host[key].copies -= 1
            self._landed.add(key)

    def _loaded(self, asked: Asked) -> None:
        for key in asked.loading:
            self.host[key].copies -= 1
        asked.loading = []

    def _end(self, asked: Asked) -> None:
        """It lets go of all that it holds."""
        self._loaded(asked)
        now = self._pumps
        for key in asked.shared:
            self.device[key].holders -= 1
            self.device[key].used = now
        self._spare += asked.own
        asked.shared = []
        self.running.remove(asked)

    @staticmethod
    def _oldest(tier: dict[int, Kept], idle: Iterable[int], count: int) -> list[int]:
        """Which of these go first: those used longest ago, of one time those farthest from the start, of those what was kept first."""
        return sorted(idle, key=lambda key: (tier[key].used, -tier[key].depth))[: max(0, count)]
