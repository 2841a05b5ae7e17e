"""Adapter of TokenSpeed's scheduler (`tokenspeed-scheduler` 0.1.42): it decides, and the embedded server's network and pools do.

The C++ scheduler says which pages a request gets, which it hits, and what is copied where. It is stepped as its own event loop steps it:
what has come to pass is told, the next plan is asked for, and carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.tier.engines.tokenspeed_carrier import Carrier, Launched, Prompted
from harness.tier.engines.tokenspeed_options import ENGINE, Options
from harness.tier.engines.tokenspeed_plan import HELD, NULL, Kind, Plan, Planner
from harness.tier.protocol import Completion, Outcome, Policy, Request, TierHits
from harness.tier.reference.config import FULL, SLIDING, config_of
from harness.tier.reference.executor import Executor
from harness.tier.reference.network import Network
from harness.tier.reference.tokenizer import TierTokenizer


@dataclass
class _Served:
    """One request. `flying`: a forward of it is on its way."""

    request: Request
    tokens: list[int]
    prompt: int
    logits: list[torch.Tensor] = field(default_factory=list)
    hits: TierHits | None = None
    flying: bool = False

    @property
    def new(self) -> tuple[int, ...]:
        return tuple(self.tokens[self.prompt :])


class TokenSpeedScheduler:
    """`tier/tokenspeed-scheduler`."""

    lab = None
    policy: Policy | None = None
    adapters: Sequence[str] = ()
    versions: Sequence[str] = ()
    footprint = 2
    page_size: int | None = None
    """It goes on behind any prompt that it has seen, in the middle of a page too."""

    @staticmethod
    def available() -> str | None:
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> TokenSpeedScheduler:
        """ValueError for a wrong option."""
        return TokenSpeedScheduler(Options.parse(config.options), torch.device(config.device))

    def __init__(self, options: Options, device: torch.device) -> None:
        sizes = config_of(options.size, device)
        self._planner = Planner(options, {FULL: None, SLIDING: sizes.window})
        self.executor = Executor(Network(sizes, device), options.page, options.device_pages + NULL, self._planner.host_pages, device)
        self._carrier = Carrier(self.executor, options.page)
        self._page, self._text = options.page, TierTokenizer()
        self._served: dict[int, _Served] = {}
        self._results: dict[int, Completion] = {}
        self._launched: list[Launched] = []
        self._news: list[Any] = []
        self._closed, self._last = False, 0
        self.vocabulary = sizes.vocabulary
        # The sliding group lets go behind its window: a prompt takes pages for all its tokens once, and both groups have them.
        self.device_capacity: int | None = self.footprint * options.device_pages * options.page
        self.host_capacity: int | None = self.footprint * options.host_pages * options.page
        self._most = min(self._planner.most_tokens(), sizes.max_positions)
        self.max_prompt_tokens: int | None = self._most - 1

    def submit(self, request: Request) -> int:
        self._require_open()
        tokens = self._tokens(request)
        self._last += 1
        self._planner.submit(str(self._last), tokens, request.max_new_tokens)
        self._served[self._last] = _Served(request, list(tokens), len(tokens))
        return self._last

    def pump(self) -> None:
        self._require_open()
        self._take_in()
        self._hear_of_copies()
        self._launch(self._planner.plan())
        self.executor.tick()
        self._hear_of_copies()

    def result(self, handle: int) -> Completion | None:
        if handle in self._served:
            return None
        return self._results.pop(handle)

    def abort(self, handle: int) -> None:
        self._require_open()
        if handle in self._results:
            return
        served = self._served[handle]
        self._news.append(self._planner.aborted(str(handle)))
        self._end(handle, Outcome.ABORTED)
        # What is on its way still writes its pages: the scheduler hears of it once the step is taken in.
        if not served.flying:
            self._tell()

    def retract(self, handle: int) -> None:
        raise NotImplementedError(f"{ENGINE}: the scheduler retracts when pages run short (option retract_every), not when it is asked to")

    def quiesce(self, timeout: float) -> None:
        """Every copy is waited for; on the simulated streams of a CPU that takes no time at all."""
        self._require_open()
        self._take_in()
        self._hear_of_copies(wait=True)
        if not self._served:
            # Requests that have just ended are written back by the next plan.
            while (plan := self._planner.plan()).transfers:
                self._launch(plan)
                self._hear_of_copies(wait=True)

    def drop_device(self) -> None:
        self.quiesce(0)
        if not self._planner.clear(device_only=True):
            raise RuntimeError(f"{ENGINE}: the scheduler would not let go of what the device keeps")

    def flush(self) -> None:
        if self._served:
            raise RuntimeError(f"{ENGINE}: {len(self._served)} requests are not done")
        self.quiesce(0)
        if not self._planner.clear(device_only=False):
            raise RuntimeError(f"{ENGINE}: the scheduler would not forget what is kept")

    def usage(self) -> Mapping[str, int]:
        held = dict.fromkeys(HELD, 0) if self._closed else self._planner.held()
        return held | {"requests": len(self._served), "copies": 0 if self._closed else self._carrier.copies}

    def close(self) -> None:
        if not self._closed:
            self.executor.close()
            self._planner.close()
            self._served, self._launched = {}, []
        self._closed = True

    def _launch(self, plan: Plan) -> None:
        for name, why in plan.refused.items():
            self._end(int(name), Outcome.FAILED, why)
        loaded = {target for transfer in plan.transfers if transfer.kind is Kind.LOAD_BACK for target in transfer.targets()}
        prompted = {}
        for extent in plan.extents:
            served = self._served.get(int(extent.request))
            if served is None:
                continue
            served.flying = True
            if served.hits is None and extent.admitted is not None:
                served.hits = _hits(extent.admitted, extent.tables.values(), loaded, self._page)
            prompted[extent.request] = Prompted(served.tokens, served.prompt, served.request.want_logits)
        self._launched += self._carrier.carry(plan, prompted)

    def _take_in(self) -> None:
        """What the step before computed."""
        for launched in self._launched:
            taken = [block.take() for block in launched.blocks]
            handle = int(launched.extent.request)
            served = self._served.get(handle)
            if served is None:
                continue
            served.flying = False
            if not all(block.finite for block in taken):
                self._news.append(self._planner.aborted(str(handle)))
                self._end(handle, Outcome.FAILED, "its keys, values or logits are not finite")
                continue
            token = taken[-1].token if launched.extent.last else None
            self._news.append(self._planner.computed(launched.extent, token))
            if token is not None:
                self._hear(handle, served, token, taken[-1].logits)
        self._launched = []

    def _hear(self, handle: int, served: _Served, token: int, logits: torch.Tensor | None) -> None:
        served.tokens.append(token)
        if logits is not None:
            served.logits.append(logits)
        if len(served.new) == served.request.max_new_tokens:
            self._news.append(self._planner.finished(str(handle)))
            self._end(handle, Outcome.FINISHED)

    def _hear_of_copies(self, *, wait: bool = False) -> None:
        self._news += [self._planner.copied(transfer) for transfer in self._carrier.landed(wait=wait)]
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, []
        self._planner.advance(news)

    def _end(self, handle: int, outcome: Outcome, error: str | None = None) -> None:
        served = self._served.pop(handle)
        self._results[handle] = Completion(
            outcome,
            self._text.decode(served.new),
            served.new,
            served.prompt,
            None if served.hits is None else served.hits.total,
            served.hits,
            torch.stack(served.logits) if served.logits else None,
            error,
        )

    def _tokens(self, request: Request) -> Sequence[int]:
        """The prompt's. ValueError for what the engine cannot serve."""
        for name in ("salt", "adapter", "media", "model_version"):
            if getattr(request, name) is not None:
                raise ValueError(f"{ENGINE}: Request.{name}: the scheduler knows a request by its tokens alone, leave it None")
        tokens = self._text.encode(request.prompt) if isinstance(request.prompt, str) else request.prompt
        if not tokens:
            raise ValueError(f"{ENGINE}: the prompt is empty")
        if request.max_new_tokens < 1:
            raise ValueError(f"{ENGINE}: max_new_tokens = {request.max_new_tokens}: at least 1")
        if min(tokens) < 0 or max(tokens) >= self.vocabulary:
            raise ValueError(f"{ENGINE}: token ids are from 0 to {self.vocabulary - 1}")
        if self.max_prompt_tokens is not None and len(tokens) + request.max_new_tokens > self.max_prompt_tokens + 1:
            raise ValueError(
                f"{ENGINE}: {len(tokens)} tokens and {request.max_new_tokens} new ones: together at most {self.max_prompt_tokens + 1}"
            )
        return tokens

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"{ENGINE} is closed; build another one")


def _hits(admitted: int, tables: Any, loaded: set[int], page: int) -> TierHits:
    """Of the tokens that a request need not compute, those whose page of any group came from the host."""
    from_host = {index for table in tables for index, kept in enumerate(table) if kept in loaded}
    host = sum(min(page, admitted - index * page) for index in from_host if index * page < admitted)
    return TierHits(device=admitted - host, host=host)
