"""Is what lies on disk whole, bounded, and only believed where nobody else could have put it there?"""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from otel_gpu.runtime.disk_cache import DiskCache, default_directory
from otel_gpu.runtime.trusted_paths import UntrustedPathError
from tests.faults import failing


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", 1000)


def names(cache: DiskCache) -> set[str]:
    return {p.name for p in cache.directory.iterdir()}


def test_what_was_put_comes_back(cache: DiskCache) -> None:
    cache.put("a", (b"one", b"two"))

    assert cache.read("a") == b"onetwo"
    assert names(cache) == {"a"}
    assert cache.directory.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_may_write_is_not_trusted(cache: DiskCache, mode: int) -> None:
    cache.put("a", (b"x",))
    (cache.directory / "a").chmod(mode)

    with pytest.raises(UntrustedPathError):
        cache.read("a")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_another_user_is_not_trusted(cache: DiskCache) -> None:
    cache.put("a", (b"x",))
    os.chown(cache.directory / "a", 12345, 0)

    with pytest.raises(UntrustedPathError):
        cache.read("a")


def test_an_empty_file_is_none(cache: DiskCache) -> None:
    cache.put("a", ())

    with pytest.raises(ValueError, match="empty"):
        cache.read("a")


def test_what_was_used_longest_ago_goes_first(cache: DiskCache) -> None:
    for age, name in enumerate(("new", "middle", "old"), 1):
        cache.put(name, (bytes(300),))
        os.utime(cache.directory / name, (time.time() - age * 1000,) * 2)
    cache.read("old")

    cache.put("newest", (bytes(400),))

    assert names(cache) == {"old", "new", "newest"}


def test_what_was_just_put_stays_however_large(cache: DiskCache) -> None:
    cache.put("small", (bytes(10),))

    cache.put("large", (bytes(5000),))

    assert names(cache) == {"large"}


def test_what_a_crash_left_behind_goes_like_the_rest(cache: DiskCache) -> None:
    cache.put("a", (bytes(10),))
    left = cache.directory / ".abc.new"
    left.write_bytes(bytes(990))
    os.utime(left, (1, 1))

    cache.put("b", (bytes(10),))

    assert names(cache) == {"a", "b"}


def test_a_write_that_fails_leaves_nothing(cache: DiskCache) -> None:
    cache.put("a", (b"x",))
    (cache.directory / "b").mkdir()

    with pytest.raises(IsADirectoryError):
        cache.put("b", (b"x",))

    assert names(cache) == {"a", "b"}


def test_agents_that_share_a_directory_do_not_disturb_each_other(cache: DiskCache) -> None:
    problems: list[BaseException] = []

    def work(number: int) -> None:
        mine = DiskCache(cache.directory, 1000)
        try:
            for turn in range(50):
                mine.put(f"{number}-{turn % 3}", (bytes([number]) * 200,))
                try:
                    assert mine.read(f"{(number + 1) % 4}-{turn % 3}") == bytes([(number + 1) % 4]) * 200
                except FileNotFoundError:
                    pass
        except BaseException as e:  # noqa: BLE001 - shown below
            problems.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert problems == []
    assert sum(p.stat().st_size for p in cache.directory.iterdir()) <= 1000


@pytest.mark.parametrize("kind", ["link", "FIFO", "socket", "name", "directory"])
def test_what_was_planted_is_neither_read_nor_waited_for_and_gives_way(cache: DiskCache, kind: str) -> None:
    cache.put("b", (b"of another",))
    path = cache.directory / "a"
    plant = {
        "link": lambda: path.symlink_to("b"),
        "FIFO": lambda: os.mkfifo(path),
        "socket": lambda: os.mknod(path, stat.S_IFSOCK),
        "name": lambda: os.link(cache.directory / "b", path),
        "directory": path.mkdir,
    }
    plant[kind]()

    with pytest.raises(UntrustedPathError):
        cache.read("a")
    if kind != "directory":
        cache.put("a", (b"worked out again",))
        assert cache.read("a") == b"worked out again"
        assert cache.read("b") == b"of another"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
@pytest.mark.parametrize(("owner", "mode"), [(12345, 0o700), (0, 0o777), (0, 0o770), (12345, 0o1777)])
@pytest.mark.parametrize("above", [False, True])
def test_where_somebody_else_could_exchange_it_there_is_no_cache_and_that_is_said_once(
    tmp_path: Path, owner: int, mode: int, above: bool, caplog: pytest.LogCaptureFixture
) -> None:
    base = tmp_path / "base"
    kinds = [DiskCache(base / kind, 1000) for kind in ("symbols", "unwind")]
    for cache in kinds:
        cache.put("a", (b"x",))
    changed = base if above else tmp_path
    os.chown(changed, owner, 0)
    changed.chmod(mode)

    for _ in range(3):
        for cache in kinds:
            cache.put("b", (b"x",))
            with pytest.raises(FileNotFoundError):
                cache.read("a")

    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert f"nothing is kept in {base}: " in caplog.text
    assert not list(base.glob("*/b"))


def test_a_link_that_is_ours_may_lead_to_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("elsewhere")
    cache = DiskCache(tmp_path / "link" / "symbols", 1000)

    cache.put("a", (b"x",))

    assert cache.read("a") == b"x"
    assert (tmp_path / "elsewhere" / "symbols" / "a").exists()


def test_a_file_that_becomes_shorter_while_it_is_read_is_refused(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("a", (bytes(100_000),))
    read = os.preadv

    def cut(file: int, buffers: list[memoryview], at: int) -> int:
        os.truncate(cache.directory / "a", 50_000)
        return read(file, [buffers[0][:10_000]], at)

    monkeypatch.setattr(os, "preadv", cut)

    with pytest.raises(ValueError, match="became shorter"):
        cache.read("a")


def test_a_file_that_is_cut_off_after_it_was_read_stays_as_it_was(cache: DiskCache) -> None:
    cache.put("a", (b"x" * 100_000,))
    content = cache.read("a")

    os.truncate(cache.directory / "a", 0)

    assert content == b"x" * 100_000  # mapped it would be a SIGBUS


def test_a_size_that_is_not_believable_is_not_read(cache: DiskCache) -> None:
    cache.put("a", (b"x",))
    os.truncate(cache.directory / "a", 8 << 40)

    with pytest.raises(ValueError, match="not believable"):
        cache.read("a")


def test_whatever_fails_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    number = failures = 0
    while True:
        cache = DiskCache(tmp_path / str(number) / "cache", 1000)
        with failing(number) as calls:
            for name, content in (("a", b"old"), ("b", bytes(900)), ("a", b"new"), ("c", bytes(600))):
                try:
                    cache.put(name, (content[:2], content[2:]))
                except OSError:
                    failures += 1
            for name in ("a", "b", "c"):
                try:
                    cache.read(name)
                except OSError:
                    failures += 1
        cache.put("d", (b"afterwards",))
        assert cache.read("d") == b"afterwards", calls[number]
        for name, whole in (("a", (b"old", b"new")), ("b", (bytes(900),)), ("c", (bytes(600),))):
            if name in names(cache):
                assert cache.read(name) in whole, calls[number]
        if number >= len(calls):
            break
        number += 1

    assert failures > 60
    assert number > 80


def test_the_directory_follows_the_users_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert default_directory("unwind") == Path("/elsewhere/otel-gpu/unwind")
    for nowhere in ("", "relative/to/whom"):
        monkeypatch.setenv("XDG_CACHE_HOME", nowhere)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert default_directory("unwind") == Path("/var/cache/otel-gpu/unwind")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setenv("HOME", "/home/me")
        assert default_directory("unwind") == Path("/home/me/.cache/otel-gpu/unwind")
        monkeypatch.setenv("HOME", "")
        assert default_directory("unwind").is_absolute()
