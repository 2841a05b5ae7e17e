"""What `assay doctor` shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.text import Text

from harness.core import determinism, devices
from harness.core.doctor.checkup import Checkup, examine, here
from harness.core.doctor.repeat import Repeat
from harness.core.spec import RegistryError
from harness.tables import print_table, table

GIB = 1 << 30


def run(device: str) -> Checkup:
    """Examine `device`, or all for "all", under the determinism policy of every run. RegistryError for a device that is not here."""
    determinism.set_environment(determinism.Policy())  # before CUDA starts
    determinism.apply(determinism.Policy(), 0)
    found = here()
    picked = [d for d in found if device in ("all", d.type)]
    if not picked:
        raise RegistryError(f"--device {device}: there is {', '.join(d.type for d in found)} here")
    return examine(picked)


def show(found: Checkup) -> None:
    """The tables."""
    machine = table("Machine", "what", "here")
    for what, value in _machine(devices.fingerprint()):
        machine.add_row(what, Text(value))
    print_table(machine)
    shown = table("\nWhat repeats itself bit for bit", "device", "operation", "way", "repeats", "a row's bits, by batch size")
    for repeat in found.repeats:
        shown.add_row(repeat.device, repeat.operation, repeat.way, _repeats(repeat), _rows(repeat))
    print_table(shown)
    shown = table("\nCopies", "device", "copy", "MiB", "GiB/s")
    for rate in found.copies:
        shown.add_row(rate.device, rate.copy, str(rate.size >> 20), f"{rate.rate / GIB:.1f}")
    for device, rate in found.bandwidth.items():
        shown.add_row(device, "memory bandwidth, read and written", "", f"{rate / GIB:.1f}")
    print_table(shown)
    for device, why in found.failed.items():
        print(f"could not ask {device}: {why}")


def _machine(fingerprint: dict[str, Any]) -> Iterable[tuple[str, str]]:
    yield "CPU", f"{fingerprint['cpu']}, {fingerprint['cores']} cores, {fingerprint['threads']} threads, {fingerprint['isa']}"
    yield "memory", f"{fingerprint['memory_gib']} GiB"
    for card in fingerprint["cards"]:
        yield f"card {card['index']}", f"{card['name']}, {card['memory_mib']} MiB, driver {card['driver']}"
    for name, version in {**fingerprint["cuda"], **fingerprint["packages"]}.items():
        if name in ("cuda", "cublas", "cudnn", "torch"):
            yield name, version
    yield "policy", ", ".join(f"{name} {value}" for name, value in determinism.in_force().items() if name != "attention_backends")


def _repeats(repeat: Repeat) -> Text:
    if repeat.missing:
        return Text(f"not here: {repeat.missing}", style="dim")
    if not repeat.differs:
        return Text("yes", style="green")
    return Text("no: " + ", ".join(f"batch {b} from step {s}" for b, s in repeat.differs.items()), style="bold red")


def _rows(repeat: Repeat) -> str:
    """Batch sizes that give a row the same bits stand together."""
    if len(repeat.rows) <= 1:
        return "the same for all" if repeat.rows else ""
    return " | ".join(" ".join(map(str, sizes)) for sizes in repeat.rows)
