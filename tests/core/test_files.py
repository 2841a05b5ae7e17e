"""Committed files are written whole or not at all."""

import pytest

from harness.core.files import write_whole


def test_a_file_is_written(tmp_path):
    path = tmp_path / "counts.toml"
    write_whole(path, "a = 1\n")

    assert path.read_bytes() == b"a = 1\n"
    assert (path.stat().st_mode & 0o777, [p.name for p in tmp_path.iterdir()]) == (0o644, ["counts.toml"])


def test_a_file_keeps_its_mode(tmp_path):
    path = tmp_path / "counts.toml"
    path.write_text("a = 1\n")
    path.chmod(0o600)
    write_whole(path, "a = 2\n")

    assert (path.read_text(), path.stat().st_mode & 0o777) == ("a = 2\n", 0o600)


def test_a_write_that_breaks_off_leaves_the_old_file(tmp_path):
    path = tmp_path / "counts.toml"
    path.write_text("a = 1\n")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "a = 2\n\ud800")

    assert (path.read_text(), list(tmp_path.iterdir())) == ("a = 1\n", [path])
