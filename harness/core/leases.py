"""Leases of cards: a process takes its cards once, before CUDA starts, for its life; no other process of Assay's is given the same.

A card is leased by a lock on a file that is named by its UUID, as the driver tells it, so that CUDA_VISIBLE_DEVICES renumbers nothing.
Waiting processes queue: only the first of them takes cards, all that it needs or none, so that two that need several cannot block each
other, and one that needs four is not passed for ever by those that need one. `harness.core.locks` says what a lock outlives, and what not.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.devices import VISIBLE, Card, cards
from harness.core.locks import PAUSE, FileLock, Queue, is_held

DEADLINE = 900.0
"""Seconds that a process waits for its cards, unless told otherwise: half of what pytest gives one test."""
ORDER = "CUDA_DEVICE_ORDER"
_NOT_INITIALIZED = 3
"""CUDA_ERROR_NOT_INITIALIZED of the driver's interface."""


class LeaseError(RuntimeError):
    """The cards cannot be leased; the text says why, and what to change."""


@dataclass(frozen=True)
class Lease:
    """Cards of this process, in the driver's order. Ends with the process, or with `release`."""

    cards: tuple[Card, ...]
    _locks: tuple[FileLock, ...] = field(default=(), repr=False, compare=False)
    _before: dict[str, str | None] = field(default_factory=dict, repr=False, compare=False)

    def release(self) -> None:
        """Give the cards back, and the environment its values: for a process that lives on and has not used them."""
        for lock in self._locks:
            lock.close()
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        self._before.clear()


def common_folder() -> Path:
    """Where the locks of this user's processes lie. Not under TMPDIR or HOME: one differs between processes, the other is shared by hosts."""
    return Path(f"/tmp/assay-cards-{os.getuid()}")


def take(num_cards: int, classes: Collection[str] = (), *, deadline: float = DEADLINE, folder: Path | None = None) -> Lease:
    """Lease `num_cards` of the cards that this process may use, each of all `classes`; from now on CUDA sees these alone.

    Waits for those that hold or asked before, `deadline` seconds at most. LeaseError where CUDA runs in this process already, where the
    cards do not exist, where the folder is not ours, and after the deadline, saying who holds what.
    """
    refuse_if_started()
    if any(entry.strip().startswith("MIG-") for entry in os.environ.get(VISIBLE, "").split(",")):
        raise LeaseError(f"{VISIBLE}={os.environ[VISIBLE]}: leases are of whole cards; name these by index or UUID, without MIG")
    candidates = [card for card in cards() if all(card.meets(card_class) for card_class in classes)]
    if len(candidates) < num_cards:
        raise LeaseError(_lacking(num_cards, classes, len(candidates)))
    folder = _ours(folder or common_folder())
    until = time.monotonic() + deadline
    try:
        with Queue(folder / "queue").place(_told(num_cards), until) as place:
            while place.before() or not (locks := _all_or_none(folder, candidates, num_cards)):
                if time.monotonic() > until:
                    told = "; ".join(_holders(folder, candidates, place.before()))
                    raise LeaseError(f"waited {deadline:g} s for {num_cards} card(s): {told}")
                time.sleep(PAUSE)
    except TimeoutError as shut:
        raise LeaseError(f"waited {deadline:g} s to queue for cards: {shut}") from None
    taken = tuple(card for card in candidates if card in locks)
    return Lease(taken, tuple(locks.values()), _show_only(taken))


def _lacking(num_cards: int, classes: Collection[str], fit: int) -> str:
    asked = f"one process needs {num_cards} card(s)" + (f", each of class {' and '.join(sorted(classes))}" if classes else "")
    hint = "; run classes apart, with -m, or with -n, where each worker leases its own" if len(classes) > 1 else ""
    return f"{asked}; {fit} of {len(cards())} here fit{hint}"


def refuse_if_started() -> None:
    """LeaseError where CUDA has read its environment: what is set now, it would not see."""
    torch = sys.modules.get("torch")
    if (torch is not None and torch.cuda.is_initialized()) or _driver_started():
        raise LeaseError("CUDA runs in this process already, so it cannot be given cards; lease them before anything asks CUDA for devices")


def _driver_started() -> bool:
    """Whether something initialised the driver's library here, as `torch.cuda.is_available` does too. Asks, and starts nothing."""
    try:
        # The library where it is loaded already; it is not loaded for the question.
        driver: Any = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALIZED


def _ours(folder: Path) -> Path:
    """The folder, made if need be. It stands where anybody could have made it first."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
        raise LeaseError(f"{folder} is not a folder of this user's; remove it")
    return folder


def _all_or_none(folder: Path, candidates: Sequence[Card], num_cards: int) -> dict[Card, FileLock]:
    """Locks of the first `num_cards` cards that are free; none of any where they are fewer."""
    locks: dict[Card, FileLock] = {}
    for card in candidates:
        lock = FileLock(_file_of(folder, card))
        if lock.try_lock():
            locks[card] = lock
        else:
            lock.close()
        if len(locks) == num_cards:
            for held in locks.values():
                held.write(_told(num_cards))
            return locks
    for lock in locks.values():
        lock.close()
    return {}


def _file_of(folder: Path, card: Card) -> Path:
    """A card without a UUID goes by its index: the driver's own, which no environment changes."""
    return folder / (card.uuid if card.uuid.replace("-", "").isalnum() else f"index-{card.index}")


def _told(num_cards: int) -> str:
    """What the files of a process's locks say of it."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "cards": num_cards, "since": now})


def _holders(folder: Path, candidates: Sequence[Card], ahead: Sequence[str]) -> list[str]:
    """Who holds each card that is not free, and who waits before us."""
    lines = []
    for card in candidates:
        path = _file_of(folder, card)
        if is_held(path):
            lines.append(f"card {card.index} is held by {_who(path.read_text(encoding='utf-8', errors='replace'))}")
    return [*lines, *(f"{_who(text)} waits before this process" for text in ahead)]


def _who(text: str) -> str:
    try:
        told = json.loads(text)
        pid, num_cards, since = int(told["pid"]), int(told["cards"]), datetime.datetime.fromisoformat(told["since"])
    except (ValueError, KeyError, TypeError):
        return "a process that does not say who it is"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return f"a process that pid {pid} started before it ended"
    return f"pid {pid} ({num_cards} card(s), since {since:%Y-%m-%d %H:%M:%S} UTC)"


def _show_only(taken: Sequence[Card]) -> dict[str, str | None]:
    """Have CUDA see these cards alone, by UUID, or by index in the driver's order where one has none. Returns what stood there before."""
    by_uuid = all(card.uuid for card in taken)
    wanted = {VISIBLE: ",".join(card.uuid if by_uuid else str(card.index) for card in taken)}
    if not by_uuid:
        wanted[ORDER] = "PCI_BUS_ID"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    return before
