"""The archive of voices: what is unpacked, and what is refused with nothing written."""

import io
import tarfile

import pytest

from harness.duplex.engines import personaplex_archive
from harness.duplex.engines.personaplex_archive import unpack_voices


def member(name, content=b"", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname, info.mode = kind, len(content), link, 0o4777
    return info, content


def archive(path, *members):
    with tarfile.open(path, "w:gz") as opened:
        for info, content in members:
            opened.addfile(info, io.BytesIO(content))
    return path


VOICE = member("voices/a.pt", b"a voice")


def test_files_are_unpacked_into_the_folder_beside_the_archive(tmp_path):
    """Their bytes, and nothing of their modes."""
    folder = member("voices", kind=tarfile.DIRTYPE)
    found = unpack_voices(archive(tmp_path / "voices.tgz", folder, VOICE, member("voices/more/b.pt", b"another")))

    assert found == tmp_path / "voices"
    assert (found / "a.pt").read_bytes() == b"a voice"
    assert (found / "more" / "b.pt").read_bytes() == b"another"
    assert (found / "a.pt").stat().st_mode & 0o7000 == 0


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path):
    """As the engine leaves it."""
    (tmp_path / "voices").mkdir()
    (tmp_path / "voices" / "mine.pt").write_bytes(b"mine")

    unpack_voices(archive(tmp_path / "voices.tgz", VOICE))

    assert [path.name for path in (tmp_path / "voices").iterdir()] == ["mine.pt"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (member("/etc/cron.d/x", b"x"), "outside the folder"),
        (member("../x", b"x"), "outside the folder"),
        (member("voices/../../x", b"x"), "outside the folder"),
        (member("elsewhere/x.pt", b"x"), "outside the folder"),
        (member("voices/x", kind=tarfile.SYMTYPE, link="/etc"), "neither a file nor a folder"),
        (member("voices/x", kind=tarfile.LNKTYPE, link="voices/a.pt"), "neither a file nor a folder"),
        (member("voices/x", kind=tarfile.FIFOTYPE), "neither a file nor a folder"),
        (member("voices/x", kind=tarfile.CHRTYPE), "neither a file nor a folder"),
    ],
    ids=["absolute", "parent", "parent-inside", "elsewhere", "symlink", "hard-link", "fifo", "device"],
)
def test_a_member_that_reaches_out_is_refused_with_nothing_written(tmp_path, bad, said):
    """Also where it comes behind a good one."""
    home = tmp_path / "home"
    home.mkdir()
    path = archive(home / "voices.tgz", VOICE, bad)

    with pytest.raises(ValueError, match=said):
        unpack_voices(path)
    assert [item.name for item in tmp_path.rglob("*")] == ["home", "voices.tgz"]


def test_an_archive_that_unfolds_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    """By what its headers say, before a byte is written; at the limit it is not."""
    path = archive(tmp_path / "voices.tgz", VOICE, member("voices/b.pt", b"x" * 100))
    monkeypatch.setattr(personaplex_archive, "LIMIT", 106)
    with pytest.raises(ValueError, match="more than 106 bytes"):
        unpack_voices(path)

    monkeypatch.setattr(personaplex_archive, "LIMIT", 107)
    assert unpack_voices(path).is_dir()


def test_an_archive_without_voices_is_refused(tmp_path):
    """The engine would look into an empty folder for ever after."""
    with pytest.raises(ValueError, match="no file in the folder voices"):
        unpack_voices(archive(tmp_path / "voices.tgz"))
    assert not (tmp_path / "voices").exists()
