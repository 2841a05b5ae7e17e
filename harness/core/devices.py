"""Cards, hardware classes and the fingerprint of the machine.

Cards are read from the driver's `nvidia-smi`, not from CUDA: asking CUDA would start it, and a process must choose its cards before that.
"""

from __future__ import annotations

import csv
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from harness.core.names import unknown

GIB = 1024**3
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class CardClass:
    """A requirement, not a product name: a card of this compute capability, which kernels are built for, and at least this memory.

    `memory_gb` is in units of 10^9 bytes, as cards are sold.
    """

    compute_capability: tuple[int, int]
    memory_gb: int


CARD_CLASSES = {
    "L4": CardClass((8, 9), 24),
    "H100": CardClass((9, 0), 80),
    "H200": CardClass((9, 0), 141),
}


@dataclass(frozen=True)
class Card:
    """One visible card. `memory_mib` is what the driver reports; clocks are MHz as found; `uuid` is empty where the driver gives none."""

    index: int
    name: str
    compute_capability: tuple[int, int]
    memory_mib: int
    driver: str
    sm_clock: str
    memory_clock: str
    uuid: str

    def meets(self, card_class: str) -> bool:
        """Whether the card is of the class; the driver reports up to 7 % less memory than a card is sold with."""
        want = CARD_CLASSES[card_class]
        return self.compute_capability == want.compute_capability and self.memory_mib * 2**20 >= 0.93 * want.memory_gb * 1e9


_QUERY = "index,name,compute_cap,memory.total,driver_version,clocks.sm,clocks.mem,uuid"


@cache
def cards() -> tuple[Card, ...]:
    """The cards that this process may use: what the driver lists, cut to CUDA_VISIBLE_DEVICES as it stood when first asked."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ()
    query = [smi, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()  # a driver that does not answer runs nothing either
    found = parse_cards(asked.stdout) if asked.returncode == 0 else ()
    visible = os.environ.get(VISIBLE)
    return found if visible is None else named_by(visible, found)


def named_by(visible: str, found: Sequence[Card]) -> tuple[Card, ...]:
    """The cards of `found` that a value of CUDA_VISIBLE_DEVICES names, in the order of `found`.

    As CUDA reads it: indices, or UUIDs that may be cut short, up to the first entry that names no device, such as -1. Of the parts of
    cards in MIG mode only the number counts: the driver's listing does not hold them.
    """
    named: list[Card] = []
    for entry in (entry.strip() for entry in visible.split(",")):
        if entry.startswith("MIG-"):
            card = next((c for c in found if c not in named), None)
        else:
            card = next((c for c in found if entry == str(c.index) or (entry.startswith("GPU-") and c.uuid.startswith(entry))), None)
        if card is None:
            break
        named.append(card)
    return tuple(c for c in found if c in named)


def parse_cards(listing: str) -> tuple[Card, ...]:
    """Cards from `nvidia-smi`'s CSV listing of index, name, compute_cap, memory.total (MiB), driver_version, clocks.sm, clocks.mem, uuid.

    A number that the driver does not give (`[N/A]`, as for memory that is shared with the host) counts as 0, a UUID as empty.
    """
    found = []
    for row in csv.reader(listing.splitlines(), skipinitialspace=True):
        if len(row) == 8:
            major, _, minor = row[2].partition(".")
            uuid = row[7] if row[7].startswith("GPU-") else ""
            found.append(Card(_number(row[0]), row[1], (_number(major), _number(minor)), _number(row[3]), row[4], row[5], row[6], uuid))
    return tuple(found)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def shortage(platform_name: str | None, card_class: str | None, num_cards: int) -> str | None:
    """Why this machine cannot give `num_cards` cards of the class, or None."""
    if platform_name is None:
        return None
    if platform_name != "cuda":
        return unknown("platform", platform_name, ["cuda"])
    have = cards()
    if not have:
        return "no CUDA device (nvidia-smi lists none)"
    fit = [c for c in have if card_class is None or c.meets(card_class)]
    if len(fit) < num_cards:
        names = ", ".join(sorted({c.name for c in have}))
        return f"needs {num_cards} card(s) of class {card_class or 'any'}; {len(fit)} of {len(have)} here fit ({names})"
    return None


def fingerprint() -> dict[str, object]:
    """What the numbers of a run depend on: processor, cards, driver, CUDA libraries, package versions. Reads, and starts nothing."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        **_cpu_arithmetic(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1),
        "cards": [vars(c) | {"compute_capability": ".".join(map(str, c.compute_capability))} for c in cards()],
        "cuda": _cuda_versions(),
        "packages": _versions("torch", "numpy", "transformers", "huggingface_hub", "safetensors", "pytest", "pytest-xdist", "hypothesis"),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    except OSError:
        return platform.processor() or platform.machine()


def _cpu_arithmetic() -> dict[str, object]:
    """The threads that torch computes with, and the instruction set that its CPU kernels use."""
    import torch

    return {"threads": torch.get_num_threads(), "isa": torch.backends.cpu.get_cpu_capability()}


def _cuda_versions() -> dict[str, str]:
    """Versions of CUDA, cuBLAS and cuDNN as torch carries them; empty for a CPU build."""
    import torch

    if torch.version.cuda is None:
        return {}
    wheels = {d.metadata["Name"]: d.version for d in metadata.distributions() if (d.metadata["Name"] or "").startswith("nvidia-")}
    cublas = next((v for n, v in wheels.items() if n.startswith("nvidia-cublas")), "")
    return {"cuda": torch.version.cuda, "cudnn": str(torch.backends.cudnn.version()), "cublas": cublas}


def _versions(*names: str) -> dict[str, str]:
    return {name: v for name in names if (v := installed_version(name)) is not None}


def installed_version(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
