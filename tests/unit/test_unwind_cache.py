from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.stacks.unwind.cache import TableCache
from otel_gpu.stacks.unwind.table_work import FileFrames, name_of, read_frames

PROGRAM = "/bin/sh"
NAME = "a" * 40


@pytest.fixture(scope="module")
def frames() -> FileFrames:
    with ElfFile(PROGRAM) as elf:
        return read_frames(elf)


@pytest.fixture
def cache(tmp_path: Path) -> TableCache:
    return TableCache(tmp_path / "tables")


def stored(cache: TableCache) -> Path:
    (path,) = cache.directory.iterdir()
    return path


def test_frames_come_back_as_they_were_stored(cache: TableCache, frames: FileFrames) -> None:
    assert cache.load(NAME) is None
    assert cache.names() == frozenset()

    cache.store(NAME, frames)

    assert cache.load(NAME) == frames
    assert frames.functions > 10
    assert cache.names() == {NAME}
    assert cache.failures == 0


@pytest.mark.parametrize("at", [0, 4, 8, 12, 60, -1])
def test_a_damaged_file_is_not_used(cache: TableCache, frames: FileFrames, at: int) -> None:
    cache.store(NAME, frames)
    raw = bytearray(stored(cache).read_bytes())
    raw[at] ^= 0xFF
    stored(cache).write_bytes(raw)

    assert cache.load(NAME) is None
    assert cache.failures == 1
    cache.store(NAME, frames)
    assert cache.load(NAME) == frames


@pytest.mark.parametrize("size", [0, 10, 100])
def test_a_cut_file_is_not_used(cache: TableCache, frames: FileFrames, size: int) -> None:
    cache.store(NAME, frames)
    os.truncate(stored(cache), size)

    assert cache.load(NAME) is None


def test_a_file_that_others_may_write_is_not_trusted(cache: TableCache, frames: FileFrames) -> None:
    cache.store(NAME, frames)
    stored(cache).chmod(0o666)

    assert cache.load(NAME) is None


def test_a_cache_that_cannot_be_written_is_counted(tmp_path: Path, frames: FileFrames) -> None:
    (tmp_path / "file").write_text("")
    cache = TableCache(tmp_path / "file" / "tables")

    cache.store(NAME, frames)

    assert cache.failures > 0
    assert cache.names() == frozenset()


def test_the_name_depends_on_everything_that_a_table_is_made_of(tmp_path: Path) -> None:
    with ElfFile(PROGRAM) as elf:
        section = elf.section(".eh_frame")
        code = elf.section(".text")
        assert section is not None
        assert code is not None
        name = name_of(elf)
    raw = Path(PROGRAM).read_bytes()
    names = {name}
    for at in (section.offset + section.size // 2, code.offset, code.offset + code.size - 1):
        changed = bytearray(raw)
        changed[at] ^= 1
        (tmp_path / "changed").write_bytes(changed)
        with ElfFile(tmp_path / "changed") as elf:
            assert elf.build_id()
            names.add(name_of(elf))

    assert len(names) == 4
