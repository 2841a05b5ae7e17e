"""What an engine can be asked for: the vocabulary, degrees of support, and `@requires`.

An engine declares every capability of its kind in engines.toml (a third party: in its adapter's `spec`). A claim without `@requires`
is core: every engine of the kind owes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from packaging.version import InvalidVersion, Version

Test = TypeVar("Test", bound=Callable[..., Any])


class Support(str, Enum):
    """How far an engine offers a capability."""

    FULL = "full"
    """Offered: the claims that ask for it are judged."""
    SINCE = "since"
    """Offered from the version given; older ones are UNSUPPORTED."""
    NOT_YET = "not_yet"
    """Meant to come: the claims run and must fail (KNOWN); one that passes fails the run, so that the declaration is raised."""
    NEVER = "never"
    """Outside what the engine promises: UNSUPPORTED, with the reason."""


class Transfer(str, Enum):
    """Capabilities of a KV transfer manager (`transfer/...`)."""

    PREFETCH_DEPTH = "prefetch_depth"
    """How many prefetches may be outstanding: `value`. A start, and a consume, keep the request's own prefetch and
    those of the `value - 1` others that started last, and drop the rest: at 1 that of any other request."""
    ABORT = "abort"
    """`abort(request_id)` ends a request's transfer, queued or under way, and its sender lets go of it; also where the sender aborts."""
    COMPLETIONS = "completions"
    """`completions()` reports the end of each started transfer, once."""
    FAILURE_REASONS = "failure_reasons"
    """A failed transfer is told apart from a miss, with a reason."""
    INTEGRITY = "integrity"
    """Changed bytes inside a payload of the right length are noticed."""
    LAB = "lab"
    """The engine offers a `Lab`: lag and failures inside it, on a virtual clock."""
    SPLIT_KV = "split_kv"
    """Keys and values may lie in a tensor each, instead of one packed tensor."""
    HND = "hnd"
    """Heads may stand before tokens inside a block."""
    FP8 = "fp8"
    """KV caches of float8_e4m3fn and float8_e5m2 are carried."""
    HEAD_SLICING = "head_slicing"
    """Heads are split or joined where sender and receiver differ in tensor parallelism."""
    REPLICATED_HEADS = "replicated_heads"
    """The same where a stage has more tensor-parallel ranks than the model has KV heads, so that ranks hold copies."""
    RANK_PORTS = "rank_ports"
    """Ranks of one host listen at endpoints of their own, and are asked there."""
    CFG_BRANCHES = "cfg_branches"
    """The payloads of several guidance branches of one request are fetched together."""
    DISTRIBUTE = "distribute"
    """A leader gives what it fetched to the followers of its group, over torch.distributed."""
    READERS = "readers"
    """A payload may have several readers; it is held until the last one has it."""
    LEASE = "lease"
    """A payload may be sent for a time, after which its sender holds nothing and nobody is given it."""
    REJECT = "reject"
    """A receiver can turn a request down, and its sender lets go of it."""
    SKIP_TOKENS = "skip_tokens"
    """A receiver that has the first tokens already can ask for the others."""
    INTO = "into"
    """A payload can be received into the pages of the receiver's own cache."""
    DEVICE_TO_DEVICE = "device_to_device"
    """Between stages on one card, over a connector that carries device memory, a payload does not visit the host."""
    PROCESSES = "processes"
    """Sender and receiver may be two processes, over the connector that the engine was built with."""
    MEMORY_FLOOR = "memory_floor"
    """No prefetch goes to a device of which less than a configured share is free."""


class ConnectorCap(str, Enum):
    """Capabilities of a connector (`connector/...`)."""

    MANY_READS = "many_reads"
    """A payload can be got several times until it is discarded."""
    READERS = "readers"
    """A payload put for several readers is held until as many are done with it."""
    PROCESSES = "processes"
    """Another process can join by address, and get what was put here."""
    INTEGRITY = "integrity"
    """Bytes that changed under way, or in memory, are noticed."""
    ENDPOINTS = "endpoints"
    """It listens at an endpoint, and gets from the one that a handle names; its option `deadline` says how many seconds a call may take."""
    LIMIT = "limit"
    """Its option `limit` says how many bytes a payload may have."""
    LAB = "lab"
    """The engine offers a `Lab` with the operation `store`: the copy of a payload, before it is published.

    With INTEGRITY it has `damage` too: `fail_next` changes one bit of the payload that is put next, after its checksum was made.
    """


class Duplex(str, Enum):
    """Capabilities of a full-duplex speech batcher (`duplex/...`)."""

    EXACT_REPLAY = "exact_replay"
    """A recycled slot gives the bits of a fresh one: nothing of a session depends on the tick at which it joined."""
    PREFILL = "prefill"
    """A session begins with a system prompt that is replayed over ticks."""
    PERSONA = "persona"
    """A session may have a persona of its own."""
    PERSONA_NAMES = "persona_names"
    """Not every text is a persona: an unknown one is refused."""
    VOICE = "voice"
    """A session may have a voice of its own; an unknown one is refused."""
    SEED = "seed"
    """A session may be sampled, with draws that come from its own seed alone."""
    ADMISSION = "admission"
    """Slots can be free: sessions are admitted to them, and leave."""
    PAUSE = "pause"
    """A tick may leave a slot out; it goes on later as if that tick had not been."""
    FINISH = "finish"
    """The end of a caller's input is told, and what is still to be said is given."""
    CANCEL = "cancel"
    """A session can be dropped at once."""
    VALID_SAMPLES = "valid_samples"
    """The last frame of a caller's input may be short."""
    SLOT_ERRORS = "slot_errors"
    """An error of one session ends that session alone, and its frame says why."""
    TEXT = "text"
    """Frames carry pieces of text."""
    TOKENS = "tokens"
    """Frames carry the tokens of each stream."""
    KNOWN_ANSWERS = "known_answers"
    """The weights are known to answer the recordings that the engine names, with the texts that it names."""
    BATCH_PARITY = "batch_parity"
    """A session gives the same at every batch size (option `batch`), in the class that the engine states."""
    GRAPHS = "graphs"
    """Ticks are replayed from captured CUDA graphs (option `graphs`)."""
    BUDGET = "budget"
    """A tick keeps the time of the audio in it, at full size on the card that the profile names."""
    LAB = "lab"
    """The engine offers a `Lab`: its rows can be moved and poisoned, its decisions computed anew."""


class TierCap(str, Enum):
    """Capabilities of a tiered prefix-cache LLM server (`tier/...`)."""

    CACHED_TOKENS = "cached_tokens"
    """A completion says how many prompt tokens came from a cache."""
    TIER_HITS = "tier_hits"
    """A completion says which tier they came from."""
    TOKEN_IDS = "token_ids"
    """A completion carries the new tokens, and a prompt may be given as tokens."""
    LOGITS = "logits"
    """A completion carries the logits of its new tokens, where it is asked to."""
    EXACT_RESTORE = "exact_restore"
    """A warm request gives the cold one's bits: token ids, and logits where the engine gives any."""
    HOST_TIER = "host_tier"
    """Pages that leave the device come back from the host; the option `host=on|off` says whether there is such a tier."""
    CAPACITY = "capacity"
    """`device_capacity` is known."""
    SIZES = "sizes"
    """Its options `device_pages` and `host_pages` say how many pages each tier has, `max_running` how many requests run at once."""
    POLICY = "policy"
    """The engine declares its `Policy`: it owes each count that follows from it."""
    STEPPED = "stepped"
    """The engine works only inside `pump`, a step a call, so that an event can be placed between two of them."""
    BATCH = "batch"
    """Several requests run at once."""
    SALT = "salt"
    """A request may carry a salt that keeps its pages apart."""
    ADAPTER = "adapter"
    """A request may name an adapter of the model."""
    MEDIA = "media"
    """A request may carry an image."""
    MODEL_VERSION = "model_version"
    """A request may name the version of the weights."""
    ABORT = "abort"
    """A request can be ended before it is done."""
    RETRACT = "retract"
    """A running request can lose its pages and go on later."""
    DROP_DEVICE = "drop_device"
    """What the device keeps can be let go while the host tier keeps its own."""
    FLUSH = "flush"
    """All that is kept can be forgotten."""
    HTTP = "http"
    """The engine is a server that is asked over HTTP, at its `url`, as OpenAI's completions are."""
    API_KEY = "api_key"
    """Its server asks for the `api_key` that the engine names."""
    LAB = "lab"
    """The engine offers a `TierLab`: lag and failures of copies, a look at pages, keys that collide."""


VOCABULARY: dict[str, type[Enum]] = {"duplex": Duplex, "transfer": Transfer, "connector": ConnectorCap, "tier": TierCap}
"""Kind to the enum of its capabilities. An engine declares each member; one left out is an error."""


@dataclass(frozen=True)
class Declared:
    """One engine's declaration of one capability."""

    support: Support
    reason: str = ""
    since: str = ""
    value: int | None = None

    @classmethod
    def parse(cls, where: str, raw: object) -> Declared:
        """Read `"full"` or `{support=, reason=, since=, value=}`; `where` names the entry in the error."""
        table = {"support": raw} if isinstance(raw, str) else raw
        if not isinstance(table, Mapping) or "support" not in table:
            raise ValueError(f'{where}: write "full" or a table with support = full | since | not_yet | never')
        unknown = set(table) - {"support", "reason", "since", "value"}
        if unknown:
            raise ValueError(f"{where}: unknown keys {sorted(unknown)}")
        try:
            support = Support(table["support"])
        except ValueError:
            raise ValueError(f"{where}: support = {table['support']!r}; use full, since, not_yet or never") from None
        declared = cls(support, table.get("reason", ""), table.get("since", ""), table.get("value"))
        if not isinstance(declared.reason, str) or not isinstance(declared.since, str) or not isinstance(declared.value, int | None):
            # A version without quotes is a number: 0.30 would be read as 0.3.
            raise ValueError(f"{where}: reason and since are texts in quotes, value is an integer")
        if support in (Support.NOT_YET, Support.NEVER) and not declared.reason.strip():
            raise ValueError(f"{where}: support = {support.value} needs a reason")
        if support is Support.SINCE:
            try:
                Version(declared.since)
            except InvalidVersion:
                raise ValueError(f"{where}: support = since needs since = a version, got {declared.since!r}") from None
        return declared

    def refusal(self, version: str | None) -> str | None:
        """Why a claim that asks for this is UNSUPPORTED on an engine of this version, or None."""
        if self.support is Support.NEVER:
            return self.reason
        if self.support is Support.SINCE and version is not None and Version(version) < Version(self.since):
            return f"since {self.since}; this is {version}"
        return None


def parse_capabilities(engine: str, kind: str, raw: Mapping[str, object]) -> dict[str, Declared]:
    """Read an engine's whole table; raises ValueError for one undeclared, unknown or malformed."""
    names = [member.value for member in VOCABULARY[kind]]
    unknown = sorted(set(raw) - set(names))
    if unknown:
        raise ValueError(f"{engine}: unknown capabilities {unknown}; those of kind {kind} are {names}")
    missing = [name for name in names if name not in raw]
    if missing:
        raise ValueError(f"{engine}: undeclared capabilities {missing}; declare each as full, since, not_yet or never")
    return {name: Declared.parse(f"{engine}: capabilities.{name}", raw[name]) for name in names}


@dataclass(frozen=True)
class Requirement:
    """What one test asks of an engine: a capability and, where it counts something, the number."""

    capability: str
    value: int | None = None


def requires(capability: Enum, *, value: int | None = None) -> Callable[[Test], Test]:
    """Judge the test only on engines that declare `capability` (with exactly `value`, where given)."""

    def mark(test: Test) -> Test:
        asked = getattr(test, "assay_requires", ())
        # Decorators apply from the bottom up; the first one written comes first.
        test.assay_requires = (Requirement(capability.value, value), *asked)  # type: ignore[attr-defined]
        return test

    return mark
