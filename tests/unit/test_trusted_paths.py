"""What a stranger has put where a file of ours is to lie is neither written through nor waited for."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_gpu.runtime.trusted_paths import UntrustedPathError, open_directory, open_file, replace_file
from tests.faults import failing

STRANGER = 12345
FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")


def opened(path: Path, **more: object) -> bool:
    """Say whether a directory is opened."""
    os.close(open_directory(path, **more))
    return True


@pytest.fixture
def directory(tmp_path: Path) -> int:
    descriptor = open_directory(tmp_path)
    yield descriptor
    os.close(descriptor)


def test_missing_directories_are_made_with_their_own_mode(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert opened(tmp_path / "a" / "b", make=0o755)
    finally:
        os.umask(before)

    assert [stat.S_IMODE((tmp_path / p).stat().st_mode) for p in ("a", "a/b")] == [0o755, 0o755]


def test_a_relative_path_begins_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").mkdir()

    assert opened(Path("a/./b/../../c"), make=0o755) is True
    assert (tmp_path / "a").is_dir()


@pytest.mark.parametrize("target", ["real", "../{name}/real", "{path}/real"])
def test_links_of_our_own_are_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(target.format(name=tmp_path.name, path=tmp_path))

    descriptor = open_directory(tmp_path / "link" / "below")

    assert os.path.samestat(os.fstat(descriptor), (tmp_path / "real" / "below").stat())
    os.close(descriptor)


def test_links_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(OSError, match="Too many levels"):
        open_directory(tmp_path / "a")


@as_root
def test_a_strangers_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    os.chown(tmp_path / "link", STRANGER, STRANGER, follow_symlinks=False)

    with pytest.raises(UntrustedPathError, match="link is a symbolic link of user 12345"):
        open_directory(tmp_path / "link" / "made", make=0o755)
    assert os.listdir(tmp_path / "real") == []


@as_root
def test_whoever_became_root_by_sudo_is_no_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    os.chown(tmp_path / "link", STRANGER, STRANGER, follow_symlinks=False)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))

    assert opened(tmp_path / "link")


@pytest.mark.parametrize("what", ["file", "fifo"])
def test_what_is_no_directory_is_said(tmp_path: Path, what: str) -> None:
    (tmp_path / "x").touch() if what == "file" else os.mkfifo(tmp_path / "x")

    with pytest.raises(NotADirectoryError):
        open_directory(tmp_path / "x", make=0o755)
    with pytest.raises(NotADirectoryError):
        open_directory(tmp_path / "x" / "y", make=0o755)


@as_root
@pytest.mark.parametrize(
    ("mode", "owner", "trusted"),
    [
        (0o755, 0, True),
        (0o700, 0, True),
        (0o1777, 0, True),
        (0o777, 0, False),
        (0o775, 0, False),
        (0o755, STRANGER, False),
        (0o1777, STRANGER, False),
    ],
)
def test_a_private_directory_lies_where_nobody_else_can_exchange_it(
    tmp_path: Path, mode: int, owner: int, trusted: bool
) -> None:
    above = tmp_path / "above"
    (above / "ours").mkdir(parents=True)
    above.chmod(mode)
    os.chown(above, owner, 0)

    for path in (above / "ours", above / "new" / "deep"):
        if trusted:
            assert opened(path, make=0o700, private=True)
        else:
            with pytest.raises(UntrustedPathError):
                open_directory(path, make=0o700, private=True)
            assert opened(path, make=0o700)


def test_a_private_directory_itself_is_nobody_elses_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)

    with pytest.raises(UntrustedPathError, match="others may write there"):
        open_directory(tmp_path, private=True)


def planted(tmp_path: Path) -> dict[str, Callable[[Path], object]]:
    victim = tmp_path / "victim"
    return {
        "a symbolic link": lambda p: p.symlink_to(victim),
        "a FIFO": os.mkfifo,
        "a directory": Path.mkdir,
        "no regular file": lambda p: os.mknod(p, stat.S_IFSOCK),
        "another name": lambda p: os.link(victim, p),
    }


@pytest.mark.parametrize("what", ["a symbolic link", "a FIFO", "a directory", "no regular file", "another name"])
def test_what_was_planted_in_the_place_of_a_file_is_refused(tmp_path: Path, directory: int, what: str) -> None:
    (tmp_path / "victim").write_text("precious")
    planted(tmp_path)[what](tmp_path / "x")

    with pytest.raises(UntrustedPathError, match=what):
        open_file("x", directory, FLAGS)
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("what", ["a symbolic link", "a FIFO"])
def test_what_is_planted_after_the_look_is_refused_too(
    tmp_path: Path, directory: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").write_text("precious")
    monkeypatch.setattr(
        "otel_gpu.runtime.trusted_paths.check_file", lambda name, _, owners: planted(tmp_path)[what](tmp_path / name)
    )

    with pytest.raises(UntrustedPathError):
        open_file("x", directory, os.O_WRONLY | os.O_CREAT)
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_fifo_that_somebody_reads_is_refused_too(tmp_path: Path, directory: int) -> None:
    os.mkfifo(tmp_path / "x")
    reader = os.open(tmp_path / "x", os.O_RDONLY | os.O_NONBLOCK)

    with pytest.raises(UntrustedPathError, match="a FIFO"):
        open_file("x", directory, os.O_WRONLY | os.O_CREAT)
    os.close(reader)


@as_root
def test_a_file_of_another_user_is_refused(tmp_path: Path, directory: int) -> None:
    (tmp_path / "x").touch()
    os.chown(tmp_path / "x", STRANGER, 0)

    with pytest.raises(UntrustedPathError, match="it belongs to user 12345"):
        open_file("x", directory, FLAGS)


@pytest.mark.parametrize("what", [None, "a symbolic link", "a FIFO", "another name"])
def test_a_replaced_file_takes_the_place_of_what_was_there(tmp_path: Path, directory: int, what: str | None) -> None:
    (tmp_path / "victim").write_text("precious")
    if what is not None:
        planted(tmp_path)[what](tmp_path / "x")

    replace_file("x", directory, (b"new", b" file"), mode=0o644)

    assert (tmp_path / "x").read_bytes() == b"new file"
    assert stat.S_IMODE((tmp_path / "x").lstat().st_mode) == 0o644
    assert (tmp_path / "victim").read_text() == "precious"


def test_whatever_fails_the_old_file_or_the_new_one_is_there(tmp_path: Path, directory: int) -> None:
    number = 0
    while True:
        (tmp_path / "x").write_bytes(b"old")
        with failing(number) as calls:
            try:
                replace_file("x", directory, (b"new", b" file"))
            except OSError:
                assert (tmp_path / "x").read_bytes() == b"old"
            else:
                break
        # What could not be removed is the one thing that may be left.
        assert len(os.listdir(tmp_path)) == 1 + (calls[-1] == "unlink" and len(calls) - 1 == number)
        number += 1

    assert (tmp_path / "x").read_bytes() == b"new file"
    assert number >= 5
