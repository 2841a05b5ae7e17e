"""The adapter of a KV transfer manager and of the connector under it: signatures, value types, shapes, units, errors.

A sender stage hands a request's paged KV cache to a receiver stage. The receiver may fetch it in the background
(prefetch) before the request runs. Times are seconds; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import torch

from harness.core.lab import Lab


class ReceiveRole(str, Enum):
    """How one rank of the receiver stage comes by the KV cache."""

    LOCAL = "local"
    """Pulls its own shard."""
    LEADER = "leader"
    """Pulls, then distributes to the followers of its group."""
    FOLLOWER = "follower"
    """Is given the payload by its leader; pulls nothing."""


class KVOrder(str, Enum):
    """How one block of a KV cache is laid out."""

    NHD = "nhd"
    """[block_size, heads, head_dim]"""
    HND = "hnd"
    """[heads, block_size, head_dim]"""


class EntryPoint(str, Enum):
    """From which configuration a manager is made."""

    DIFFUSION = "diffusion"
    AUTOREGRESSIVE = "autoregressive"


@dataclass(frozen=True)
class Topology:
    """Where one rank stands in its stage's parallel groups. Sizes are at least 1, ranks count from 0."""

    world_size: int = 1
    rank: int = 0
    source_tp: int = 1
    target_tp: int = 1
    tp_rank: int = 0
    cfg_size: int = 1
    cfg_rank: int = 0
    sp_size: int = 1
    sp_rank: int = 0


@dataclass(frozen=True)
class Endpoint:
    """Where a sender listens."""

    host: str
    port: int


@dataclass(frozen=True)
class KVLayout:
    """The shape of one rank's KV cache, a `LayerKV` a layer.

    `packed`: one tensor [2, blocks, *block], keys first; else a pair [blocks, *block], keys and values. *block is as `order` says.
    `heads` are those that this rank holds; `total_heads` those of the model, where ranks hold copies (None: each head lies on one rank).
    Rank r of a tensor-parallel group of n holds heads r * heads to (r + 1) * heads; with more ranks than heads, head r * total_heads // n.
    """

    layers: int
    block_size: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    packed: bool = True
    order: KVOrder = KVOrder.NHD
    total_heads: int | None = None

    @property
    def block_shape(self) -> tuple[int, int, int]:
        """Of one block, in its order."""
        rows = (self.block_size, self.heads) if self.order is KVOrder.NHD else (self.heads, self.block_size)
        return (*rows, self.head_dim)


LayerKV = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""One layer of a paged KV cache, packed or split; see `KVLayout`."""


@dataclass(frozen=True)
class Pages:
    """Where a receiver wants a request's cache: the block table `block_ids` of its own paged cache `kv`, a `LayerKV` a layer."""

    kv: Sequence[LayerKV]
    block_ids: Sequence[int]


@dataclass(frozen=True)
class TransferConfig:
    """What a stage's configuration says of KV transfer.

    `async_prefetch` is the opt-in as written there: True, False, None, or absent (`"absent"`). `connector_options` is what a user puts
    beside it for the connector; it must survive, and decides nothing. `companion`: the stage also collects CFG companion payloads.
    `own_endpoint`: the sender that this manager asks where a call names none; of a sender, where its rank 0 listens.
    `min_free_device`: the share of a device's memory that must be free for a prefetch to it; below, none is submitted.
    """

    layout: KVLayout
    entry: EntryPoint = EntryPoint.DIFFUSION
    async_prefetch: bool | str | None = True
    companion: bool = False
    connector_options: Mapping[str, Any] = field(default_factory=dict)
    sends: bool = False
    receives: bool = True
    from_stage: str = "0"
    to_stage: str = "1"
    receive_timeout: float = 1.0
    own_endpoint: Endpoint | None = None
    min_free_device: float = 0.0


class Outcome(str, Enum):
    """How a consume or a receive ended."""

    HIT = "hit"
    MISS = "miss"
    FAILED = "failed"


@dataclass(frozen=True)
class KVPayload:
    """A delivered KV cache: per layer one tensor [tokens, heads, head_dim]; None where the engine gave no layer."""

    keys: tuple[torch.Tensor | None, ...]
    values: tuple[torch.Tensor | None, ...]


@dataclass(frozen=True)
class Delivery:
    """What a request was given. `size` is the bytes carried, `valid_tokens` the rows that hold KV, both 0 unless HIT.

    Rows begin at the first token that was not skipped; they are counted, and no payload is given, where they were put into pages.
    `metadata` holds at least `seq_len` on a HIT; `reason` says why on FAILED; `native` is the engine's own object, for `apply`.
    """

    outcome: Outcome
    payload: KVPayload | None = None
    size: int = 0
    valid_tokens: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    native: Any = None


class CompletionOutcome(str, Enum):
    """How a started transfer ended."""

    DONE = "done"
    MISSED = "missed"
    FAILED = "failed"
    ABORTED = "aborted"


@dataclass(frozen=True)
class Completion:
    """The end of one started transfer. `generation` counts the uses of one request id from 0."""

    request_id: str
    generation: int
    outcome: CompletionOutcome


Buffer = bytes | bytearray | memoryview | torch.Tensor
"""What a connector carries: bytes, or a contiguous one-dimensional uint8 tensor."""


class Connector(Protocol):
    """Carries bytes from stage to stage under a key. Calls come from several threads.

    `handle` names the sender where the caller knows it: an `Endpoint`, or what `put` returned. Bad input is a ValueError, a transport that
    fails a `ConnectionError` or `TimeoutError` that says what happened, a payload that arrives damaged a `PayloadError`-like exception:
    never wrong bytes.
    """

    address: str
    """Joins another process to this connector: see `ConnectorEngine.connector`."""
    endpoint: Endpoint | None
    """Where it listens; None for a connector that finds payloads by key alone."""
    carries_device_memory: bool
    """Whether a payload put as a CUDA tensor is got as one, on the same card, without a visit to the host."""

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer, readers: int = 1) -> tuple[bool, int, Any]:
        """Publish `data`, all at once, for `readers` readers; returns (ok, bytes carried, a handle for `get` or None).

        A second put under a key takes the place of the first.
        """
        ...

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        """(data, bytes) if published, else None; never waits for a sender. The data is the caller's to read for as long as it holds it."""
        ...

    def done(self, from_stage: str, to_stage: str, key: str, handle: Any = None, reader: str = "") -> None:
        """One reader is done; the last one frees the payload. Nothing happens where nothing is held.

        `reader` says who: saying it twice of one payload counts once. Without a name each call counts.
        """
        ...

    def discard(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        """Free what is held under the key, whoever still wants it; nothing happens where nothing is held."""
        ...

    def holds(self, from_stage: str, to_stage: str, key: str) -> bool:
        """Whether a payload that was put here, in this process, is still held."""
        ...

    def usage(self) -> Mapping[str, int]:
        """`segments` (payloads held) and `bytes`, of this connector's own puts."""
        ...

    def close(self) -> None:
        """Free everything put here; what a reader still holds stays readable. May be called twice.

        After it nothing put here is held or found: `holds` is False, `usage` counts nothing, a `get` of it here gives None.
        """
        ...


class TransferManager(Protocol):
    """One side of a stage boundary, on one rank."""

    prefetch_enabled: bool
    role: ReceiveRole
    layout: KVLayout
    endpoint: Endpoint | None
    """The manager's own sender endpoint, for receives that name none."""
    connector_options: Mapping[str, Any]
    """The connector configuration as the manager holds it."""

    listens_at: Endpoint | None
    """Where this rank's sender listens: the stage's endpoint, moved by the rank (capability RANK_PORTS)."""

    def send(
        self,
        request_id: str,
        kv: Sequence[LayerKV],
        block_ids: Sequence[int],
        seq_len: int,
        *,
        readers: int = 1,
        lease: float | None = None,
    ) -> None:
        """Hand over the first `seq_len` tokens of the blocks, in block-table order.

        `kv`: `layout.layers` layers as `layout` says, left as they are; their blocks may be reused on return. Blocks that hold fewer than
        `seq_len` tokens are sent whole. `readers` receive it (capability READERS); after `lease` seconds nobody does, and nothing is held
        for it any more (capability LEASE). A request that cannot be sent raises. So does an id that is still live.
        """
        ...

    def start_prefetch(self, request_id: str, endpoint: Endpoint | None, device: torch.device | None = None, skip_tokens: int = 0) -> None:
        """Begin to fetch in the background; returns at once. Nothing is submitted without an endpoint, while off, or on a follower.

        A prefetch that is dropped, for room, by a stop or by a close, may take its payload with it, or leave it to be fetched again.

        `skip_tokens` as in `receive`.
        """
        ...

    def stop_prefetch(self) -> None:
        """Drop every prefetch and end the worker; later starts submit nothing."""
        ...

    def consume(self, request_id: str) -> Delivery:
        """Take the request's prefetched cache, waiting for one under way; MISS if none was started or nothing came.

        After FAILED the payload is still there: the request may be fetched again.
        """
        ...

    def receive(
        self, request_id: str, endpoint: Endpoint | None, timeout: float, *, into: Pages | None = None, skip_tokens: int = 0
    ) -> Delivery:
        """Fetch in the foreground, waiting up to `timeout` seconds for the sender; MISS after that.

        A request has one transfer: with capability ABORT a receive takes the place of its prefetch.

        `skip_tokens`: the receiver has the first tokens already, and is given those behind them (capability SKIP_TOKENS). `into`: token t
        goes to block `into.block_ids[t // block_size]`, row `t % block_size`, whatever was skipped; nothing else in there changes, and
        nothing at all unless it is a HIT (capability INTO).
        """
        ...

    def receive_branches(self, branches: Mapping[str, str], endpoint: Endpoint | None, timeout: float) -> Mapping[str, Delivery]:
        """Fetch the payloads of one request's guidance branches: branch name to the request id it was sent under (capability CFG_BRANCHES).

        Each branch ends for itself; all of them share the one `timeout`.
        """
        ...

    def distribute(self, request_id: str, deliveries: Sequence[Delivery] = ()) -> Delivery:
        """Give every rank of the stage its payload: a collective call over torch.distributed (capability DISTRIBUTE).

        The leader passes what it fetched: one delivery for all, or one for each rank of its CFG group; followers pass none, and are given
        the leader's outcome and payload. A rank that is LOCAL passes its own and is given it back.
        """
        ...

    def apply(self, delivery: Delivery) -> KVPayload:
        """Attach a HIT to its request as the engine does; returns the request's `past_key_values`."""
        ...

    def abort(self, request_id: str) -> None:
        """The request is gone (capability ABORT).

        On the receiver its transfer is not begun, or its result is dropped, and the sender holds nothing for this reader any more. On the
        sender nobody is given it any more, and nothing is held for it.
        """
        ...

    def reject(self, request_id: str, endpoint: Endpoint | None = None) -> None:
        """The receiver will not take the request: its sender is told, and holds nothing for this reader any more (capability REJECT)."""
        ...

    def completions(self) -> list[Completion]:
        """The transfers that ended since the last call: each submitted prefetch and each receive, once (capability COMPLETIONS)."""
        ...

    def usage(self) -> Mapping[str, int]:
        """`futures` (tracked prefetches), `workers` (live background workers) and whatever else the engine holds. Also after `close`."""
        ...

    def close(self) -> None:
        """End all background work. May be called twice. What it has sent stays at the connector: closing discards nothing."""
        ...


class TransferEngine(Protocol):
    """What an adapter's `build` makes: deploys managers of one engine. `lab` is None where the engine offers none."""

    lab: Lab | None

    def deploy(self, topology: Topology | None, connector: Connector, config: TransferConfig) -> TransferManager:
        """One manager over `connector`. `topology` None: the parallel state was never initialised."""
        ...

    def connector(self, address: str | None = None) -> Connector:
        """A connector of the kind that this engine was built to run over, as `ConnectorEngine.connector` makes it."""
        ...

    def usage(self) -> Mapping[str, int]:
        """`managers` not closed yet."""
        ...

    def close(self) -> None:
        """Close what is still deployed. May be called twice."""
        ...


class ConnectorEngine(Protocol):
    """What the adapter of a `connector/...` builds. `lab` is None where the engine offers none."""

    lab: Lab | None

    def connector(self, address: str | None = None) -> Connector:
        """A new connector, empty: of a transport of its own, or of the one that `address`, another's, names (capability PROCESSES)."""
        ...

    def usage(self) -> Mapping[str, int]: ...

    def close(self) -> None: ...
