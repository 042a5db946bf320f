"""Does the kernel hold the unwinding tables that are needed, when it cannot hold all of a process?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.bpf.object import BpfObject
from otel_gpu.elf import ElfFile
from otel_gpu.unwind.address_space import Region, regions
from otel_gpu.unwind.cache import TableCache
from otel_gpu.unwind.loader import UnwindLoader
from tests.e2e import ground
from tests.e2e.processes import Program

SETTLES_S = 30


class _Every:
    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _loader(rows: int, cache: TableCache) -> tuple[BpfObject, UnwindLoader]:
    maps = BpfObject("profile")
    maps.configure_map("unwind_rows", max_entries=rows)
    maps.load(attach_type=lambda _: None, skip=_Every())
    names = ("unwind_rows", "unwind_mappings", "unwind_processes")
    return maps, UnwindLoader(*map(maps.map, names), cache)


def _largest(pid: int, cache: TableCache) -> tuple[Region, int]:
    found = []
    for region in regions(pid):
        if region.file is not None:
            with ElfFile(region.path) as elf:
                found.append((region.end - region.start, region, len(cache.table(elf).rows)))
    _, region, rows = max(found, key=lambda f: f[0])
    return region, rows


@pytest.mark.parametrize("missing_rows", [0, 5_000])
def test_a_table_that_a_stack_needs_takes_the_place_of_others(missing_rows: int, tmp_path: Path) -> None:
    cache = TableCache(tmp_path / "tables")
    with Program(["python3", ground.PROGRAMS / "busy.py", "1"], tmp_path) as program:
        program.ready()
        largest, rows = _largest(program.pid, cache)
        maps, loader = _loader(rows + 1 - missing_rows, cache)
        with maps:
            loader.watch(program.pid)
            assert loader.settle(SETTLES_S)
            unmet = loader.problems()
            process = loader.process(program.pid)
            assert process is not None
            assert loader.is_crowded()
            assert "table_rows" in unmet[str(largest.file)]

            process.met.add(largest)
            time.sleep(0.3)
            loader.look_again(program.pid)
            assert loader.settle(SETTLES_S)

            # Nothing is dropped in vain.
            assert (str(largest.file) in loader.problems()) == (missing_rows > 0)
            assert (loader.problems() == unmet) == (missing_rows > 0)
            loader.close()
