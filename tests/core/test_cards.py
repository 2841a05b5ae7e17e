"""Cards: what the driver's listing says, which class a card meets, and what a machine lacks."""

import json
import os
import stat

import pytest

from harness.core import devices
from harness.core.devices import CARD_CLASSES, Card, cards, fingerprint, installed_version, parse_cards, shortage

H100 = "0, NVIDIA H100 80GB HBM3, 9.0, 81559, 550.54.15, 345, 2619, GPU-8f1d4c8e-6a0b-4b7e-9a43-2e7c1f1f0a11"
H200 = "1, NVIDIA H200, 9.0, 143771, 570.86.10, 345, 3201, GPU-1a2b3c4d-0000-4000-8000-000000000001"
L4 = "2, NVIDIA L4, 8.9, 23034, 535.183.01, 210, 405, GPU-2b3c4d5e-0000-4000-8000-000000000002"
A100 = "3, NVIDIA A100-SXM4-80GB, 8.0, 81920, 535.104.05, 210, 1593, GPU-3c4d5e6f-0000-4000-8000-000000000003"
H100_PCIE = "0, NVIDIA H100 PCIe, 9.0, 81559, 535.104.05, 345, 1593, GPU-4d5e6f70-0000-4000-8000-000000000004"
MIG = "0, NVIDIA H100 80GB HBM3, 9.0, 81559, 550.54.15, [N/A], [N/A], GPU-4d5e6f70-0000-4000-8000-000000000004"
GB10 = "0, NVIDIA GB10, 12.1, [N/A], 580.95.05, 208, [N/A], [N/A]"
B200 = "0, NVIDIA B200, 10.0, 183359, 570.86.10, 120, 3996, GPU-4d5e6f70-0000-4000-8000-000000000004"


def one(line):
    (card,) = parse_cards(line)
    return card


def test_a_listing_is_parsed():
    """One card a line, in order, memory in MiB."""
    listing = "\n".join([H100, H200, L4, A100]) + "\n"

    assert [(c.index, c.name, c.compute_capability, c.memory_mib) for c in parse_cards(listing)] == [
        (0, "NVIDIA H100 80GB HBM3", (9, 0), 81559),
        (1, "NVIDIA H200", (9, 0), 143771),
        (2, "NVIDIA L4", (8, 9), 23034),
        (3, "NVIDIA A100-SXM4-80GB", (8, 0), 81920),
    ]
    assert one(H100) == Card(
        0, "NVIDIA H100 80GB HBM3", (9, 0), 81559, "550.54.15", "345", "2619", "GPU-8f1d4c8e-6a0b-4b7e-9a43-2e7c1f1f0a11"
    )


def test_clocks_are_kept_as_found():
    """A card in MIG mode gives none."""
    assert (one(MIG).sm_clock, one(MIG).memory_clock, one(MIG).memory_mib) == ("[N/A]", "[N/A]", 81559)


def test_memory_that_the_driver_does_not_give():
    """A card that shares the host's memory is listed, and meets no class."""
    card = one(GB10)

    assert (card.name, card.memory_mib, card.compute_capability) == ("NVIDIA GB10", 0, (12, 1))
    assert card.uuid == ""
    assert not any(card.meets(name) for name in CARD_CLASSES)


@pytest.mark.parametrize("capability", ["[N/A]", "[Not Supported]", ""])
def test_a_capability_that_the_driver_does_not_give(capability):
    """An old driver knows none; the card meets no class."""
    card = one(H100.replace("9.0", capability))

    assert card.compute_capability == (0, 0)
    assert not any(card.meets(name) for name in CARD_CLASSES)


@pytest.mark.parametrize(
    "listing", ["", "\n", "No devices were found\n", "NVIDIA-SMI has failed because it couldn't communicate with the driver.\n"]
)
def test_what_is_no_listing(listing):
    """Words of the driver's are no card."""
    assert parse_cards(listing) == ()


@pytest.mark.parametrize(
    ("line", "classes"),
    [
        (H100, ["H100"]),
        (H100_PCIE, ["H100"]),
        (MIG, ["H100"]),
        (H200, ["H100", "H200"]),
        (L4, ["L4"]),
        ("0, NVIDIA L40S, 8.9, 46068, 550.54.15, 210, 405, GPU-4d5e6f70", ["L4"]),
        ("0, NVIDIA GH200 480GB, 9.0, 97871, 550.54.15, 345, 2619, GPU-4d5e6f70", ["H100"]),
        (A100, []),
        (B200, []),
        ("0, NVIDIA A10G, 8.6, 23028, 535.183.01, 210, 405, GPU-4d5e6f70", []),
        ("0, NVIDIA GeForce RTX 4060, 8.9, 8188, 550.54.15, 210, 405, GPU-4d5e6f70", []),
    ],
    ids=lambda p: p.split(",")[1] if isinstance(p, str) else str(p),
)
def test_the_classes_that_a_card_meets(line, classes):
    """Compute capability and memory decide, not the name: an H200 is as good as an H100."""
    assert [name for name in ("L4", "H100", "H200") if one(line).meets(name)] == classes


@pytest.mark.parametrize(("memory_mib", "meets"), [(70953, False), (70954, True)])
def test_a_card_reports_less_than_it_is_sold_with(memory_mib, meets):
    """Up to 7 % less, in units of 2^20 against 10^9."""
    assert one(H100.replace("81559", str(memory_mib))).meets("H100") is meets


@pytest.fixture
def machine(monkeypatch):
    """A machine whose driver lists these cards."""
    return lambda *lines: monkeypatch.setattr(devices, "cards", lambda: parse_cards("\n".join(lines)))


@pytest.mark.parametrize(
    ("lines", "asked", "text"),
    [
        ([], (None, None, 0), None),
        ([], ("cuda", "H100", 1), "no CUDA device (nvidia-smi lists none)"),
        ([H100], ("cuda", "H100", 1), None),
        ([H100], ("cuda", None, 1), None),
        ([H100], ("cuda", "H100", 2), "needs 2 card(s) of class H100; 1 of 1 here fit (NVIDIA H100 80GB HBM3)"),
        ([H200, H200], ("cuda", "H100", 2), None),
        ([L4, A100, L4], ("cuda", "H100", 1), "needs 1 card(s) of class H100; 0 of 3 here fit (NVIDIA A100-SXM4-80GB, NVIDIA L4)"),
        ([L4, A100], ("cuda", None, 4), "needs 4 card(s) of class any; 2 of 2 here fit (NVIDIA A100-SXM4-80GB, NVIDIA L4)"),
        ([H100], ("rocm", "H100", 1), "unknown platform 'rocm'; there are: cuda"),
    ],
    ids=str,
)
def test_shortage(machine, lines, asked, text):
    """None where the machine has what is asked for; else what it has."""
    machine(*lines)

    assert shortage(*asked) == text


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """An `nvidia-smi` on PATH that says what it is told to, and keeps its arguments."""

    def install(script):
        smi = tmp_path / "nvidia-smi"
        smi.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{script}\n')
        smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
        return tmp_path / "asked"

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cards.cache_clear()
    yield install
    cards.cache_clear()


ALL = f"printf '%s\\n' '{H100}' '{H200}' '{L4}' '{A100}'"


def test_cards_asks_the_driver_once(driver):
    """In the fields and units that are parsed."""
    asked = driver(ALL)

    assert [c.index for c in cards()] == [0, 1, 2, 3]
    assert asked.read_text().split() == [
        "--query-gpu=index,name,compute_cap,memory.total,driver_version,clocks.sm,clocks.mem,uuid",
        "--format=csv,noheader,nounits",
    ]
    driver("exit 1")
    assert len(cards()) == 4


@pytest.mark.parametrize("script", ["echo 'NVIDIA-SMI has failed'; exit 9", f"{ALL}; exit 9", "echo 'No devices were found'"])
def test_a_driver_that_fails_has_no_cards(driver, script):
    """Whatever it prints."""
    driver(script)

    assert cards() == ()


def test_no_driver(tmp_path, monkeypatch):
    """No `nvidia-smi` on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    cards.cache_clear()

    assert cards() == ()
    cards.cache_clear()


def test_a_driver_that_does_not_answer(driver, monkeypatch):
    """One that cannot be started or that hangs has no cards."""
    driver(ALL)
    (run, raised) = devices.subprocess.run, []

    def hang(*args, **kwargs):
        raised.append(kwargs["timeout"])
        raise devices.subprocess.TimeoutExpired("nvidia-smi", kwargs["timeout"])

    monkeypatch.setattr(devices.subprocess, "run", hang)
    assert (cards(), raised) == ((), [30])
    monkeypatch.setattr(devices.subprocess, "run", run)
    cards.cache_clear()
    monkeypatch.setattr(devices.shutil, "which", lambda _name: "/no/such/nvidia-smi")
    assert cards() == ()


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        ("0", [0]),
        ("2,0", [0, 2]),
        (" 1 , 3 ", [1, 3]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,-1,1", [0]),
        ("7", []),
        ("1,7,2", [1]),
        ("GPU-8f1d4c8e-6a0b-4b7e-9a43-2e7c1f1f0a11", [0]),
        ("GPU-1a2b3c4d,GPU-8f1d4c8e", [0, 1]),
        ("GPU-2b3c4d5e,0", [0, 2]),
        ("GPU-ffffffff,0", []),
        ("MIG-GPU-8f1d4c8e/1/0", [0]),
        ("MIG-1,MIG-2", [0, 1]),
    ],
)
def test_visible_devices(driver, monkeypatch, visible, indices):
    """Cut as CUDA cuts it: up to the first entry that names no device, UUIDs cut short included."""
    driver(ALL)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert [c.index for c in cards()] == indices


def test_the_fingerprint(driver):
    """All that a run's numbers depend on, as JSON; the cards are those of the driver."""
    driver(ALL)

    found = json.loads(json.dumps(fingerprint()))
    assert set(found) == {"python", "system", "cpu", "cores", "threads", "isa", "memory_gib", "cards", "cuda", "packages"}
    assert found["cards"][1] == {
        "index": 1,
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "memory_mib": 143771,
        "driver": "570.86.10",
        "sm_clock": "345",
        "memory_clock": "3201",
        "uuid": "GPU-1a2b3c4d-0000-4000-8000-000000000001",
    }
    assert found["cpu"]
    assert found["cores"] >= 1
    assert found["memory_gib"] > 0
    assert found["packages"]["torch"] == installed_version("torch")


def test_installed_version():
    """None for what is not installed."""
    assert installed_version("pytest") == pytest.__version__
    assert installed_version("no-such-package") is None
