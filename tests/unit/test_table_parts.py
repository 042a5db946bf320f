"""Do parts of a file's table say what the whole table says?"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from otel_gpu.bpf.abi.unwinding import UNWIND_ROW, RowKind
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.sandbox.work import OpenFile
from otel_gpu.stacks.eh_frame.tables import compile_table
from otel_gpu.stacks.unwind.table_work import Part, parts

_NOTHING = (0, RowKind.END, 0)
_PADDING = 16
"""Bytes behind the last function, of which a whole table says what the function says."""


@contextmanager
def _opened(path: str) -> Iterator[OpenFile]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield OpenFile(descriptor, None, os.fstat(descriptor).st_size, path)
    finally:
        os.close(descriptor)


def _mapped(word: str) -> str:
    """Return a library of this very process."""
    with open("/proc/self/maps") as maps:
        return next((line.split()[-1] for line in maps if word in line), "") or pytest.skip(f"no {word} is mapped here")


def _rules(rows: np.ndarray, places: np.ndarray) -> list[tuple[int, ...]]:
    """Return what rows say at places, without where they begin; a hole and no row are the same."""
    found = []
    for number in np.searchsorted(rows["pc"], places, side="right") - 1:
        row = rows[number] if number >= 0 else np.zeros(1, UNWIND_ROW)[0]
        found.append(_NOTHING if row["kind"] == RowKind.END else tuple(row.tolist()[1:]))
    return found


def _assert_like_whole(part: Part, whole: np.ndarray) -> None:
    mine = np.frombuffer(part.rows, UNWIND_ROW)
    edges = np.concatenate([mine["pc"], whole["pc"]])
    places = np.unique(np.concatenate([edges, edges - 1, [part.begin, part.end - 1]]).astype(np.int64))
    places = places[(places >= part.begin) & (places < part.end)]
    differing = [
        int(place)
        for place, ours, all_ in zip(places, _rules(mine, places), _rules(whole, places), strict=True)
        if ours != all_ and (ours != _NOTHING or part.end - place >= _PADDING)
    ]
    assert differing == []


@pytest.mark.parametrize("library", ["libc.so", "libstdc++", "_multiarray_umath"])
@pytest.mark.parametrize("count", [1, 40, 4_000])
def test_parts_say_what_the_whole_table_says(library: str, count: int) -> None:
    path = _mapped(library)
    with _opened(path) as file:
        table = compile_table(ElfFile.of(file, path))
        whole = np.append(table.rows, np.array([(table.end_pc, 0, RowKind.END, 0)], UNWIND_ROW))
        functions = whole[whole["kind"] != RowKind.END]["pc"].astype(np.int64)
        addresses = np.random.default_rng(count).choice(functions, count).tolist()

        found = parts.function([file], None)(addresses)

    assert all(before.end <= after.begin for before, after in itertools.pairwise(found))
    assert all(any(part.begin <= address < part.end for part in found) for address in addresses)
    for part in found:
        _assert_like_whole(part, whole)
