"""The adapter of PersonaPlex, as far as it goes without the engine: options, gating, when it can run."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from harness.core.clock import SystemClock
from harness.core.registry import Registry, builtin_specs
from harness.core.spec import EngineConfig
from harness.core.verdict import Unavailable
from harness.duplex.engines import personaplex, personaplex_load
from harness.duplex.engines.personaplex import PersonaPlex


def build(device="cpu", **options):
    return PersonaPlex.build(EngineConfig("cpu", device, options, 0), SystemClock())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"speed": "9"}, r"unknown options \['speed'\]"),
        ({"weights": "mine"}, "option weights = 'mine': write hub or synthetic"),
        ({"size": "8b"}, "option size = '8b': write auto, tiny, 7b"),
        ({"weights": "hub", "size": "tiny"}, "the published weights are 7b"),
        ({"batch": "0"}, "option batch = '0'"),
        ({"batch": "-2"}, "option batch = '-2'"),
        ({"batch": "four"}, "option batch = 'four'"),
        ({"batch": "²"}, "option batch = '²'"),
        ({"sdpa": "cudnn"}, "option sdpa = 'cudnn'"),
    ],
)
def test_wrong_options_are_refused(options, said):
    """Before anything is imported or built."""
    with pytest.raises(ValueError, match=said):
        build(**options)


@pytest.mark.parametrize(
    ("weights", "size", "device", "expected"),
    [
        ("synthetic", "auto", "cpu", "tiny"),
        ("synthetic", "auto", "cuda", "7b"),
        ("synthetic", "tiny", "cuda", "tiny"),
        ("hub", "auto", "cpu", "7b"),
        ("hub", "7b", "cuda", "7b"),
    ],
)
def test_the_size_follows_the_device_and_the_weights(weights, size, device, expected):
    """Unless it is said."""
    assert personaplex._size(weights, size, device) == expected


def test_the_description_has_the_options_of_the_adapter():
    """With the same defaults: engines.toml is what a run goes by."""
    spec = Registry(builtin_specs()).specs["duplex/personaplex"]

    assert {name: option.default for name, option in spec.options.items()} == personaplex.DEFAULTS


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for the installed packages: only where their files lie is looked at. Returns a maker of vllm_omni's folder."""

    def install(name, *files):
        (tmp_path / name).mkdir()
        for file in ("__init__.py", *files):
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text("raise ImportError('available() is cheap')")

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in [name for name in sys.modules if name.partition(".")[0] in ("vllm", "vllm_omni")]:
        monkeypatch.delitem(sys.modules, name)
    return install


def test_a_release_that_moved_the_model_is_told(package):
    """It needs both packages, and the file of the engine; it imports neither."""
    assert PersonaPlex.available() == "vllm_omni and vllm not installed; see ci/engines/vllm-omni.txt"
    package("vllm")
    assert PersonaPlex.available() == "vllm_omni not installed; see ci/engines/vllm-omni.txt"
    package("vllm_omni")
    assert "0.28.0 has it" in PersonaPlex.available()


def test_a_release_that_has_the_engine_is_available(package):
    """The twin."""
    package("vllm")
    package("vllm_omni", personaplex.RUNTIME)

    assert PersonaPlex.available() is None


class GatedRepoError(Exception):
    """Named as the hub's own."""


@pytest.fixture
def hub(monkeypatch):
    """A hub that answers every download with an error: the network is not a test's to need. Returns what sets the error."""
    module = ModuleType("huggingface_hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    # The engine's own configuration, which names the repository, is not installed here.
    monkeypatch.setattr(personaplex_load, "_config", lambda *_: SimpleNamespace(hf_repo="nvidia/personaplex-7b-v1"))

    def answers(error):
        def download(*_):
            raise error

        module.hf_hub_download = download

    return answers


@pytest.mark.parametrize(
    "refusal", [GatedRepoError("ask for access"), OSError("401 Client Error"), OSError("403 Forbidden")], ids=["type", "401", "403"]
)
def test_refused_weights_are_unavailable(hub, refusal):
    """The three ways of being refused that the seed check knows."""
    hub(refusal)
    with pytest.raises(Unavailable, match="no access to nvidia/personaplex-7b-v1"):
        build(weights="hub")


def test_any_other_failure_to_load_is_a_failure(hub):
    """No network is one."""
    hub(ConnectionError("no route to host"))
    with pytest.raises(ConnectionError, match="no route to host"):
        build(weights="hub")


def test_the_hubs_files_are_those_of_a_directory_for_the_time_being(tmp_path):
    """By name, whatever the repository; one that the directory lacks is told; and the hub's own download is back, after an error too."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    own = huggingface_hub.hf_hub_download
    (tmp_path / "voices.tgz").touch()

    with personaplex_load._served(tmp_path):
        assert huggingface_hub.hf_hub_download("nvidia/personaplex-7b-v1", "voices.tgz") == str(tmp_path / "voices.tgz")
        with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
            huggingface_hub.hf_hub_download("nvidia/personaplex-7b-v1", "model.safetensors")
    assert huggingface_hub.hf_hub_download is own

    with pytest.raises(ZeroDivisionError), personaplex_load._served(tmp_path):
        raise ZeroDivisionError
    assert huggingface_hub.hf_hub_download is own


def test_a_load_may_end_without_an_accelerator():
    """`torch.accelerator.empty_cache()` raises on a machine that has none, but not during the load."""
    own = torch.accelerator.empty_cache

    with personaplex_load._without_accelerator():
        torch.accelerator.empty_cache()

    assert torch.accelerator.empty_cache is own
