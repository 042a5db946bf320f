"""What does binutils' readelf say about a file's call frame rules? The oracle for the `.eh_frame` compiler.

Run as a script with files or directories to sweep them: `python -m tests.readelf_frames /usr/lib`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from otel_gpu.bpf.abi.unwinding import RowKind
from otel_gpu.errors import OtelGpuError
from otel_gpu.sandbox.elf import EM_X86_64, PT_LOAD, ElfFile
from otel_gpu.stacks.eh_frame.rows import UnwindTable
from otel_gpu.stacks.eh_frame.tables import compile_table

_RECORD = re.compile(
    r"^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ (?:(CIE) \"(\w*)\"|FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+))"
)
_EXPRESSIONS = {RowKind.PLT, RowKind.DEREF_SP, RowKind.DEREF_FP, RowKind.UNSUPPORTED}


@dataclass(frozen=True, slots=True)
class Expected:
    """The rule readelf gives for [first, last] of link-time addresses."""

    first: int
    last: int
    kinds: frozenset[RowKind]
    cfa_offset: int | None
    rbp: int | None


def expectations(path: str) -> Iterator[Expected]:
    """Yield readelf's rules for a file."""
    command = ["readelf", "--debug-dump=frames-interp", "-W", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as readelf:
        assert readelf.stdout is not None
        signal_cies: set[str] = set()
        columns: list[str] = []
        rows: dict[int, dict[str, str]] = {}
        stop = 0
        signal = in_section = in_cie = False
        for line in readelf.stdout:
            if line.startswith("Contents of the "):
                in_section = ".eh_frame" in line
                continue
            record = _RECORD.match(line)
            if record or not line.strip():
                yield from _close(rows, stop, signal=signal)
                rows = {}
            if not record:
                fields = re.sub(r" \(\w+\)", "", line).split()
                if fields[:1] == ["LOC"]:
                    columns = fields[1:]
                elif fields and in_section and not in_cie and columns and re.fullmatch("[0-9a-f]{16}", fields[0]):
                    rows[int(fields[0], 16)] = dict(zip(columns, fields[1:], strict=True))
                continue
            columns = []
            in_cie = record[1] is not None
            if in_cie:
                if "S" in record[2]:
                    signal_cies.add(line.split()[0])
            else:
                signal, stop = record[3] in signal_cies, int(record[5], 16)
        yield from _close(rows, stop, signal=signal)


def _close(rows: dict[int, dict[str, str]], stop: int, *, signal: bool) -> Iterator[Expected]:
    starts = [pc for pc in sorted(rows) if pc < stop]
    for first, following in zip(starts, [*starts[1:], stop], strict=False):
        yield _expected(first, following - 1, rows[first], signal=signal)


def _expected(first: int, last: int, row: dict[str, str], *, signal: bool) -> Expected:
    def only(kind: RowKind, cfa_offset: int = 0, rbp: int | None = 0) -> Expected:
        return Expected(first, last, frozenset({kind}), cfa_offset, rbp)

    if signal:
        return only(RowKind.SIGNAL)
    if row.get("ra") == "u":
        return only(RowKind.OUTERMOST)
    if row.get("ra") != "c-8" or row.get("rsp", "u") != "u":
        return only(RowKind.UNSUPPORTED)
    saved = row.get("rbp", "u")
    rbp: int | None
    if saved in ("u", "s"):
        rbp = 0
    elif saved == "exp":
        # Ours where it can be so; after the epilogue it is over, whatever the rule says.
        rbp = 0
    elif (match := re.fullmatch(r"c-(\d+)", saved)) and int(match[1]) % 8 == 0 and int(match[1]) <= 1024:
        rbp = -int(match[1]) // 8
    else:
        return only(RowKind.UNSUPPORTED)
    if row["CFA"] == "exp" or (saved == "exp" and not row["CFA"].startswith("rsp")):
        return Expected(first, last, frozenset(_EXPRESSIONS), None, None)
    register, offset = re.fullmatch(r"(\w+)([+-]\d+)", row["CFA"]).groups()  # type: ignore[union-attr]
    if register == "rsp" and int(offset) >= 32768:
        words = int(offset) // 8
        if words >= 65536:
            return only(RowKind.UNSUPPORTED)
        return only(RowKind.SP_LARGE, words - 65536 if words >= 32768 else words, rbp)
    if register not in ("rsp", "rbp") or int(offset) >= 32768:
        return only(RowKind.UNSUPPORTED)
    return only(RowKind.SP if register == "rsp" else RowKind.FP, int(offset), rbp)


def compare(elf: ElfFile, table: UnwindTable) -> tuple[int, list[str]]:
    """Compare a table with readelf at the first and last address of each of its rules."""
    base = min(s.vaddr for s in elf.segments if s.type == PT_LOAD)
    expected = list(expectations(elf.path))
    wrong: list[str] = []
    for ends in ("first", "last"):
        at = np.array([getattr(e, ends) - base for e in expected], np.int64)
        found = table.rows[np.searchsorted(table.rows["pc"], at, side="right") - 1]
        for e, kind, offset, rbp in zip(
            expected,
            found["kind"].tolist(),
            found["cfa_offset"].tolist(),
            found["fp_offset"].tolist(),
            strict=True,
        ):
            if (
                kind not in e.kinds
                or (e.cfa_offset is not None and offset != e.cfa_offset)
                or (e.rbp is not None and rbp != e.rbp)
            ):
                wrong.append(f"{getattr(e, ends):#x}: {RowKind(kind).name} {offset} {rbp}, readelf: {e}")
    return len(expected), wrong


def _sweep(paths: list[str]) -> int:
    files = rules = differences = refused = 0
    seen: set[tuple[int, int]] = set()
    for top in paths:
        for path in [Path(top)] if os.path.isfile(top) else Path(top).rglob("*"):
            try:
                status = path.stat()
                if path.is_symlink() or not path.is_file() or (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                with path.open("rb") as f:
                    if f.read(4) != b"\x7fELF":
                        continue
                with ElfFile(path) as elf:
                    if elf.machine != EM_X86_64 or elf.type not in (2, 3):
                        continue
                    table = compile_table(elf)
                    if not table.rows.size:
                        continue
                    number, wrong = compare(elf, table)
            except (OtelGpuError, OSError) as e:
                refused += 1
                print(f"refused: {e}")
                continue
            files, rules, differences = files + 1, rules + number, differences + len(wrong)
            if wrong or table.skipped:
                print(f"{path}: {number} rules, {len(wrong)} differ, skipped {table.skipped}", *wrong[:3], sep="\n  ")
    print(f"{files} files, {rules} rules, {differences} differ; {refused} files refused")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(_sweep(sys.argv[1:]))
