"""Is what lies on disk whole, bounded, and only believed where nobody else could have put it there?"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from otel_gpu.disk_cache import DiskCache, UntrustedFileError, default_directory


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", 1000)


def names(cache: DiskCache) -> set[str]:
    return {p.name for p in cache.directory.iterdir()}


def test_what_was_put_comes_back(cache: DiskCache) -> None:
    cache.put("a", (b"one", b"two"))

    with cache.open("a") as content:
        assert content[:] == b"onetwo"
    assert names(cache) == {"a"}
    assert cache.directory.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_may_write_is_not_trusted(cache: DiskCache, mode: int) -> None:
    cache.put("a", (b"x",))
    (cache.directory / "a").chmod(mode)

    with pytest.raises(UntrustedFileError):
        cache.open("a")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_another_user_is_not_trusted(cache: DiskCache) -> None:
    cache.put("a", (b"x",))
    os.chown(cache.directory / "a", 12345, 0)

    with pytest.raises(UntrustedFileError):
        cache.open("a")


def test_an_empty_file_is_none(cache: DiskCache) -> None:
    cache.put("a", ())

    with pytest.raises(ValueError, match="empty"):
        cache.open("a")


def test_what_was_used_longest_ago_goes_first(cache: DiskCache) -> None:
    for age, name in enumerate(("new", "middle", "old"), 1):
        cache.put(name, (bytes(300),))
        os.utime(cache.directory / name, (time.time() - age * 1000,) * 2)
    cache.open("old").close()

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
                    with mine.open(f"{(number + 1) % 4}-{turn % 3}") as content:
                        assert content[:] == bytes([(number + 1) % 4]) * 200
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


def test_the_directory_follows_the_users_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert default_directory("unwind") == Path("/elsewhere/otel-gpu/unwind")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_directory("unwind") == Path("/var/cache/otel-gpu/unwind")
