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
    """The shape of one stage's KV cache: `layers` tensors of [2, blocks, block_size, heads, head_dim], keys first."""

    layers: int
    block_size: int
    heads: int
    head_dim: int
    dtype: torch.dtype


@dataclass(frozen=True)
class TransferConfig:
    """What a stage's configuration says of KV transfer.

    `async_prefetch` is the opt-in as written there: True, False, None, or absent (`"absent"`). `connector_options` is what a user puts
    beside it for the connector; it must survive, and decides nothing. `companion`: the stage also collects CFG companion payloads.
    `own_endpoint`: the sender that this manager asks where a call names none.
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
    """Carries bytes from stage to stage under a key. Calls come from several threads."""

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer) -> tuple[bool, int, Any]:
        """Publish `data`; returns (ok, bytes carried, a handle for `get` or None)."""
        ...

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        """(data, bytes) if published, else None; never waits. `handle` names the sender, where the caller knows it."""
        ...

    def discard(self, from_stage: str, to_stage: str, key: str) -> None:
        """Free what is held under the key; nothing happens where nothing is held."""
        ...

    def usage(self) -> Mapping[str, int]:
        """`segments` (payloads held) and `bytes`."""
        ...

    def close(self) -> None: ...


class TransferManager(Protocol):
    """One side of a stage boundary, on one rank."""

    prefetch_enabled: bool
    role: ReceiveRole
    layout: KVLayout
    endpoint: Endpoint | None
    """The manager's own sender endpoint, for receives that name none."""
    connector_options: Mapping[str, Any]
    """The connector configuration as the manager holds it."""

    def send(self, request_id: str, kv: Sequence[torch.Tensor], block_ids: Sequence[int], seq_len: int) -> None:
        """Hand over the first `seq_len` tokens of the blocks, in block-table order.

        `kv`: `layout.layers` tensors [2, blocks, block_size, heads, head_dim], left as they are; their blocks may be reused on return.
        Blocks that hold fewer than `seq_len` tokens are sent whole.
        """
        ...

    def start_prefetch(self, request_id: str, endpoint: Endpoint | None, device: torch.device | None = None) -> None:
        """Begin to fetch in the background; returns at once. Nothing is submitted without an endpoint, while off, or on a follower."""
        ...

    def stop_prefetch(self) -> None:
        """Drop every prefetch and end the worker; later starts submit nothing."""
        ...

    def consume(self, request_id: str) -> Delivery:
        """Take the request's prefetched cache, waiting for one under way; MISS if none was started or nothing came."""
        ...

    def receive(self, request_id: str, endpoint: Endpoint | None, timeout: float) -> Delivery:
        """Fetch in the foreground, waiting up to `timeout` seconds for the sender; MISS after that."""
        ...

    def apply(self, delivery: Delivery) -> KVPayload:
        """Attach a HIT to its request as the engine does; returns the request's `past_key_values`."""
        ...

    def abort(self, request_id: str) -> None:
        """The request is gone: its transfer is not begun, or its result is dropped (capability ABORT)."""
        ...

    def completions(self) -> list[Completion]:
        """The transfers that ended since the last call: each submitted prefetch and each receive, once (capability COMPLETIONS)."""
        ...

    def usage(self) -> Mapping[str, int]:
        """`futures` (tracked prefetches), `workers` (live background workers) and whatever else the engine holds. Also after `close`."""
        ...

    def close(self) -> None:
        """End all background work. May be called twice."""
        ...


class TransferEngine(Protocol):
    """What an adapter's `build` makes: deploys managers of one engine. `lab` is None where the engine offers none."""

    lab: Lab | None

    def deploy(self, topology: Topology | None, connector: Connector, config: TransferConfig) -> TransferManager:
        """One manager over `connector`. `topology` None: the parallel state was never initialised."""
        ...

    def connector(self) -> Connector:
        """A new connector of the kind that this engine was built to run over, empty."""
        ...

    def usage(self) -> Mapping[str, int]:
        """`managers` not closed yet."""
        ...

    def close(self) -> None:
        """Close what is still deployed. May be called twice."""
        ...


class ConnectorEngine(Protocol):
    """What the adapter of a `connector/...` builds."""

    def connector(self) -> Connector:
        """A new, empty connector."""
        ...

    def usage(self) -> Mapping[str, int]: ...

    def close(self) -> None: ...
