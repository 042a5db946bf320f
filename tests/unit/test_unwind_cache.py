from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from otel_gpu.elf import ElfFile
from otel_gpu.unwind.apart import compile_apart
from otel_gpu.unwind.cache import TableCache
from otel_gpu.unwind.eh_frame import compile_table
from otel_gpu.unwind.rows import UnwindError, UnwindTable

PROGRAM = "/bin/sh"


def equal(a: UnwindTable, b: UnwindTable) -> bool:
    return np.array_equal(a.rows, b.rows) and (a.end_pc, a.functions, a.skipped) == (b.end_pc, b.functions, b.skipped)


def stored(cache: TableCache) -> Path:
    (path,) = cache.directory.iterdir()
    return path


@pytest.fixture
def cache(tmp_path: Path) -> TableCache:
    return TableCache(tmp_path / "tables")


def test_a_table_comes_back_as_it_was_compiled(cache: TableCache) -> None:
    with ElfFile(PROGRAM) as elf:
        assert cache.load(elf) is None
        first = cache.table(elf)
        again = cache.load(elf)

        assert again is not None
        assert equal(first, again)
        assert equal(first, compile_table(elf))
    assert cache.failures == 0
    assert [p.name for p in cache.directory.iterdir()] == [stored(cache).name]


@pytest.mark.parametrize("at", [0, 4, 20, 25, 60, -1])
def test_a_damaged_file_is_compiled_anew(cache: TableCache, at: int) -> None:
    with ElfFile(PROGRAM) as elf:
        good = cache.table(elf)
        raw = bytearray(stored(cache).read_bytes())
        raw[at] ^= 0xFF
        stored(cache).write_bytes(raw)

        assert cache.load(elf) is None
        assert cache.failures == 1
        assert equal(cache.table(elf), good)
        assert cache.load(elf) is not None


@pytest.mark.parametrize("size", [0, 10, 100])
def test_a_cut_file_is_compiled_anew(cache: TableCache, size: int) -> None:
    with ElfFile(PROGRAM) as elf:
        cache.table(elf)
        os.truncate(stored(cache), size)

        assert cache.load(elf) is None


def test_a_file_that_others_may_write_is_not_trusted(cache: TableCache) -> None:
    with ElfFile(PROGRAM) as elf:
        cache.table(elf)
        stored(cache).chmod(0o666)

        assert cache.load(elf) is None


def test_a_cache_that_cannot_be_written_is_counted_and_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = TableCache(tmp_path / "file" / "tables")

    with ElfFile(PROGRAM) as elf:
        assert cache.table(elf).functions > 10

    assert cache.failures > 0


def test_a_big_table_is_compiled_by_another_process(cache: TableCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_gpu.unwind.cache._BIG_SECTION", 0)
    with ElfFile(PROGRAM) as elf:
        expected = compile_table(elf)
        monkeypatch.setattr("otel_gpu.unwind.cache.compile_table", lambda _: pytest.fail("compiled in this process"))

        assert equal(cache.table(elf), expected)


def test_why_another_process_could_not_compile_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no ELF file")

    with pytest.raises(UnwindError, match=r"file: no unwinding table: .*not an ELF file"):
        compile_apart(str(file), tmp_path / "tables")
