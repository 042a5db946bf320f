"""How did a value go over time? Columns of a fixed width in rows of a fixed length, for the last minutes and for all that is kept.

All rows share their columns' times, so that sums over series are sums of arrays. What a point says of an interval is spread
over the columns of that interval: rates are right whatever the interval of whoever sends them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NS = 1_000_000_000
RECENT_S = 180
_BLOCK_ROWS = 256
_LONG_COLUMNS = 360

Column = npt.NDArray[np.float32]


class Window(NamedTuple):
    """Which columns are asked for."""

    tier: int
    first: int
    columns: int
    width_ns: int

    @property
    def times(self) -> list[float]:
        """Unix times, in seconds, of the columns' ends."""
        width = self.width_ns / NS
        return [(self.first + i + 1) * width for i in range(self.columns)]

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.columns * self.width_ns / NS


class Row(NamedTuple):
    """Where a row lies."""

    pool: int
    number: int


RATES, LEVELS = 0, 1
_FILL = (0.0, np.nan)


class Timelines:
    """Rows of rates, which are 0 where nothing was said, and of levels, which are not known there. Guarded by whoever owns it."""

    def __init__(self, keep_s: float, now_ns: int) -> None:
        long = max(1, int(keep_s * NS) // _LONG_COLUMNS)
        recent = min(RECENT_S, max(2, int(keep_s)))
        self._widths = (NS, max(long, NS))
        self._columns = (recent, max(2, -int(-keep_s * NS // self._widths[1])))
        self._heads = [now_ns // width for width in self._widths]
        self._blocks: tuple[list[tuple[Column, Column]], list[tuple[Column, Column]]] = ([], [])
        self._free: tuple[list[int], list[int]] = ([], [])

    def allocate(self, pool: int) -> Row:
        """Return a row in which nothing is said."""
        free, blocks = self._free[pool], self._blocks[pool]
        if not free:
            start = len(blocks) * _BLOCK_ROWS
            recent, long = (np.empty((_BLOCK_ROWS, n), np.float32) for n in self._columns)
            blocks.append((recent, long))
            free.extend(range(start + _BLOCK_ROWS - 1, start - 1, -1))
        row = Row(pool, free.pop())
        for tier in (0, 1):
            self._row(row, tier)[:] = _FILL[pool]
        return row

    def release(self, row: Row) -> None:
        """Let others have the row."""
        self._free[row.pool].append(row.number)

    def advance(self, now_ns: int) -> None:
        """Let time pass."""
        for tier, (width, columns) in enumerate(zip(self._widths, self._columns)):
            new = now_ns // width
            passed = new - self._heads[tier]
            if passed <= 0:
                continue
            spans = _slices(self._heads[tier] + 1, min(passed, columns), columns)
            for pool, blocks in enumerate(self._blocks):
                for block in blocks:
                    for span in spans:
                        block[tier][:, span] = _FILL[pool]
            self._heads[tier] = new

    def spread(self, row: Row, start_ns: int, end_ns: int, amount: float) -> None:
        """Add what happened between two times."""
        for tier, (width, columns) in enumerate(zip(self._widths, self._columns)):
            first, last = start_ns // width, max(start_ns, end_ns - 1) // width
            if first == last:
                self._change(row, tier, first, last, columns, amount, add=True)
                continue
            # The first and the last column are covered in part.
            each = amount / (end_ns - start_ns)
            self._change(row, tier, first, first, columns, each * ((first + 1) * width - start_ns), add=True)
            self._change(row, tier, first + 1, last - 1, columns, each * width, add=True)
            self._change(row, tier, last, last, columns, each * (end_ns - last * width), add=True)

    def hold(self, row: Row, start_ns: int, end_ns: int, level: float) -> None:
        """Say what was so between two times."""
        for tier, (width, columns) in enumerate(zip(self._widths, self._columns)):
            self._change(row, tier, start_ns // width, end_ns // width, columns, level, add=False)

    def window(self, seconds: float, until_ns: int) -> Window:
        """Return the columns of the last seconds, up to what was last said of them."""
        tier = 0 if seconds <= self._columns[0] else 1
        width, head = self._widths[tier], self._heads[tier]
        last = max(min(head, until_ns // width), head - self._columns[tier] + 2)
        count = max(1, min(self._columns[tier] - (head - last) - 1, round(seconds * NS / width)))
        return Window(tier, last - count, count, width)

    def read(self, row: Row, window: Window) -> Column:
        """Return a row's columns, amounts or levels."""
        columns = self._columns[window.tier]
        values = self._row(row, window.tier)
        return np.concatenate([values[s] for s in _slices(window.first, window.columns, columns)])

    def total(self, rows: Iterable[Row], window: Window) -> npt.NDArray[np.float64]:
        """Return the sum of rows of rates, column by column; levels, as which anybody may send anything, add nothing."""
        by_block: dict[int, list[int]] = {}
        for row in rows:
            if row.pool != RATES:
                continue
            by_block.setdefault(row.number // _BLOCK_ROWS, []).append(row.number % _BLOCK_ROWS)
        total = np.zeros(window.columns)
        spans = _slices(window.first, window.columns, self._columns[window.tier])
        for number, inside in by_block.items():
            values = self._blocks[RATES][number][window.tier]
            at = 0
            for span in spans:
                size = span.stop - span.start
                chosen = values[inside[0], span] if len(inside) == 1 else values[inside, span].sum(0, np.float64)
                total[at : at + size] += chosen
                at += size
        return total

    def _row(self, row: Row, tier: int) -> Column:
        values: Column = self._blocks[row.pool][row.number // _BLOCK_ROWS][tier][row.number % _BLOCK_ROWS]
        return values

    def _change(self, row: Row, tier: int, first: int, last: int, columns: int, value: float, *, add: bool) -> None:
        head = self._heads[tier]
        first, last = max(first, head - columns + 1), min(last, head)
        if first > last:
            return
        values = self._row(row, tier)
        for span in _slices(first, last - first + 1, columns):
            if add:
                values[span] += value
            else:
                values[span] = value


def _slices(first: int, count: int, columns: int) -> list[slice]:
    """Return where columns lie in a row whose end goes on at its beginning."""
    at = first % columns
    if at + count <= columns:
        return [slice(at, at + count)]
    return [slice(at, columns), slice(0, at + count - columns)]
