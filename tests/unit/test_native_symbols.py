from __future__ import annotations

import hashlib
import lzma
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.stacks.symbols.build_id import build_id, htlhash
from otel_gpu.stacks.symbols.debuglink import Candidate, DebugLink, belongs, candidates, read_link
from otel_gpu.stacks.symbols.native import NativeSymbols

CODE, CODE_SIZE = 0x1000, 0x1000
LOCAL, GLOBAL, WEAK = 0x00, 0x10, 0x20
NOTYPE, OBJECT, FUNC, IFUNC = 0, 1, 2, 10
ID = bytes(range(20))

Entry = tuple[str, int, int, int]
"""Name, address, size, type | binding."""


def note(build: bytes) -> bytes:
    return struct.pack("<III4s", 4, len(build), 3, b"GNU\0") + build


def image(
    symtab: Sequence[Entry] = (),
    dynsym: Sequence[Entry] = (),
    *,
    build: bytes = b"",
    link: bytes = b"",
    debugdata: bytes = b"",
) -> bytes:
    """Make an ELF file of one code segment with these symbol tables."""
    contents: list[tuple[str, int, bytes, int]] = []
    for name, kind, entries in ((".symtab", 2, symtab), (".dynsym", 11, dynsym)):
        strings, table = b"\0", bytes(24)
        for symbol, value, size, info in entries:
            table += struct.pack("<IBBHQQ", len(strings), info, 0, 1, value, size)
            strings += symbol.encode() + b"\0"
        if entries:
            contents += [(name, kind, table, len(contents) + 2), (".strtab", 3, strings, 0)]
    contents += [(".gnu_debuglink", 1, link, 0)] if link else []
    contents += [(".gnu_debugdata", 1, debugdata, 0)] if debugdata else []
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in contents) + b".shstrtab\0"
    contents.append((".shstrtab", 3, names, 0))
    notes = note(build) if build else b""
    at = 64 + 2 * 56
    headers, body, name_at = bytes(64), notes, 1
    position = at + 64 * (len(contents) + 1)
    for name, kind, data, section_link in contents:
        offset = position + len(body)
        headers += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, offset, len(data), section_link, 0, 1, 24)
        name_at += len(name) + 1
        body += data
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, at, 0, 64, 56, 2, 64, len(contents) + 1, len(contents)
    )
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, CODE, CODE, 0, CODE_SIZE, 1)
    segments += struct.pack("<IIQQQQQQ", 4, 4, position, 0, 0, len(notes), len(notes), 1)
    return header + segments + headers + body


class Functions:
    """What a file and the one with its symbols say together: (name, offset) by address."""

    def __init__(self, elf: ElfFile, debug: ElfFile | None = None) -> None:
        self._native = NativeSymbols(elf, debug)
        self.index = self._native.index()
        self.failures = self.index.failures

    def resolve_all(self, addresses: Iterable[int]) -> list[tuple[str, int] | None]:
        found = self.index.find(addresses)
        return [None if f is None else (self._native.name(f.name), f.offset) for f in found]

    def resolve(self, address: int) -> tuple[str, int] | None:
        return self.resolve_all([address])[0]

    def __len__(self) -> int:
        return len(self.index)


def symbols(symtab: Sequence[Entry] = (), dynsym: Sequence[Entry] = ()) -> Functions:
    return Functions(ElfFile.from_bytes(image(symtab, dynsym)))


def test_an_address_gets_its_functions_name_and_offset() -> None:
    found = symbols([("main", CODE, 0x20, FUNC | GLOBAL), ("helper", CODE + 0x20, 0x10, FUNC | LOCAL)])

    assert found.resolve_all([CODE, CODE + 0x1F, CODE + 0x20, CODE + 0x2F]) == [
        ("main", 0),
        ("main", 0x1F),
        ("helper", 0),
        ("helper", 0xF),
    ]


def test_an_address_between_functions_has_no_name() -> None:
    found = symbols([("first", CODE + 8, 8, FUNC | GLOBAL), ("second", CODE + 0x20, 8, FUNC | GLOBAL)])

    assert found.resolve_all([CODE, CODE + 0x10, CODE + 0x28, 0, 2**64 - 1]) == [None] * 5


def test_a_symbol_without_size_reaches_to_the_next() -> None:
    found = symbols([("entry", CODE, 0, FUNC | GLOBAL), ("next", CODE + 0x40, 8, FUNC | GLOBAL)])

    assert found.resolve(CODE + 0x3F) == ("entry", 0x3F)


def test_a_function_around_another_is_found_behind_it() -> None:
    found = symbols([("outer", CODE, 0x100, FUNC | GLOBAL), ("inner", CODE + 0x10, 8, FUNC | LOCAL)])

    assert found.resolve(CODE + 0x14) == ("inner", 4)
    assert found.resolve(CODE + 0x80) == ("outer", 0x80)


def test_the_global_name_of_an_address_wins_over_its_aliases() -> None:
    found = symbols(
        [
            ("local", CODE, 8, FUNC | LOCAL),
            ("weak", CODE, 8, FUNC | WEAK),
            ("public", CODE, 8, FUNC | GLOBAL),
            ("label", CODE, 0, NOTYPE | GLOBAL),
        ]
    )

    assert found.resolve(CODE) == ("public", 0)


def test_labels_count_only_where_no_function_is() -> None:
    found = symbols(
        [
            ("function", CODE, 0x40, FUNC | LOCAL),
            ("inside", CODE + 0x10, 0, NOTYPE | GLOBAL),
            ("_start", CODE + 0x80, 0, NOTYPE | GLOBAL),
            (".Llocal", CODE + 0x90, 0, NOTYPE | LOCAL),
            ("data", 0x9000, 0, NOTYPE | GLOBAL),
            ("object", CODE + 0x98, 8, OBJECT | GLOBAL),
        ]
    )

    assert found.resolve_all([CODE + 0x11, CODE + 0x9C, 0x9000]) == [("function", 0x11), ("_start", 0x1C), None]


def test_both_tables_are_read_and_versions_cut_off() -> None:
    found = symbols([("a", CODE, 8, FUNC | LOCAL)], [("b@@V_1", CODE + 8, 8, IFUNC | GLOBAL)])

    assert found.resolve_all([CODE, CODE + 8]) == [("a", 0), ("b", 0)]
    assert len(found) == 2


def test_split_off_symbols_are_used() -> None:
    split = ElfFile.from_bytes(image([("hidden", CODE + 0x10, 8, FUNC | LOCAL)], build=ID))
    stripped = ElfFile.from_bytes(image([], [("shown", CODE, 8, FUNC | GLOBAL)], build=ID))

    found = Functions(stripped, split)

    assert found.resolve_all([CODE, CODE + 0x10]) == [("shown", 0), ("hidden", 0)]


def test_split_off_symbols_are_looked_for_where_debuggers_do() -> None:
    found = list(candidates(b"/opt/lib/x.so", ID.hex(), DebugLink("x.debug", 7), roots=[b"/debug"]))

    by_id = b"/debug/.build-id/00/0102030405060708090a0b0c0d0e0f10111213.debug"
    assert found == [
        Candidate(by_id, in_process=False),
        Candidate(by_id, in_process=True),
        Candidate(b"/opt/lib/x.debug", in_process=True),
        Candidate(b"/opt/lib/.debug/x.debug", in_process=True),
        Candidate(b"/debug/opt/lib/x.debug", in_process=False),
        Candidate(b"/debug/opt/lib/x.debug", in_process=True),
    ]


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "", "a/b", "a\0b"])
def test_a_name_or_build_id_that_is_none_leads_nowhere(name: str) -> None:
    assert list(candidates(b"/lib/x.so", f"../{ID.hex()}", DebugLink(name, 7))) == []


def test_a_debug_file_of_another_build_does_not_belong() -> None:
    split = ElfFile.from_bytes(image([("hidden", CODE, 8, FUNC | LOCAL)], build=ID))

    assert belongs(split, ID.hex(), DebugLink())
    assert not belongs(split, ID[::-1].hex(), DebugLink())
    assert not belongs(split, "", DebugLink())


def test_a_debug_link_belongs_by_its_checksum() -> None:
    raw = image([("hidden", CODE, 8, FUNC | LOCAL)])
    link = b"program.debug\0\0\0" + struct.pack("<I", zlib.crc32(raw))

    found = read_link(ElfFile.from_bytes(image(link=link)))

    assert found == DebugLink("program.debug", zlib.crc32(raw))
    assert belongs(ElfFile.from_bytes(raw), "", found)
    assert not belongs(ElfFile.from_bytes(raw), "", DebugLink("program.debug", 1))


@pytest.mark.parametrize("name", [b"../../etc/passwd", b"..", b"", b"no end"])
def test_a_debug_link_that_is_no_name_is_not_followed(name: bytes) -> None:
    link = (name + b"\0").ljust(len(name) + 4 & ~3, b"\0") + bytes(4) if name != b"no end" else b"x" * 12

    assert read_link(ElfFile.from_bytes(image(link=link))) == DebugLink()


def test_compressed_symbols_are_used() -> None:
    inner = image([("packed", CODE + 0x10, 8, FUNC | LOCAL)])

    found = Functions(ElfFile.from_bytes(image(debugdata=lzma.compress(inner))))

    assert found.resolve(CODE + 0x11) == ("packed", 1)
    assert found.failures == []


@pytest.mark.parametrize("data", [b"no xz", lzma.compress(b"no ELF file"), lzma.compress(bytes(1000))[:20]])
def test_damaged_compressed_symbols_are_reported_and_the_rest_is_used(data: bytes) -> None:
    raw = image([], [("shown", CODE, 8, FUNC | GLOBAL)], debugdata=data)

    found = Functions(ElfFile.from_bytes(raw))

    assert found.resolve(CODE) == ("shown", 0)
    assert len(found.failures) == 1


def test_a_bomb_of_compressed_symbols_is_refused() -> None:
    found = Functions(ElfFile.from_bytes(image(debugdata=lzma.compress(bytes(65 << 20), preset=0))))

    assert found.resolve(CODE) is None
    assert "holds more than" in found.failures[0]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_files_never_break_the_lookup(data: st.DataObject) -> None:
    good = image([("main", CODE, 8, FUNC | GLOBAL)], [("b", CODE + 8, 8, FUNC | GLOBAL)], link=b"x.debug\0\1\2\3\4")
    # The file header's own damage is ElfFile's business.
    at = data.draw(st.integers(64 + 2 * 56, len(good) - 1))
    damaged = good[:at] + data.draw(st.binary(min_size=1, max_size=16)) + good[at + data.draw(st.integers(0, 16)) :]
    found = Functions(ElfFile.from_bytes(damaged))

    for symbol in found.resolve_all([CODE, CODE + 9, 0, 2**64 - 1]):
        assert symbol is None or len(symbol[0]) <= 4096


def test_a_file_without_symbols_names_nothing() -> None:
    found = symbols()

    assert len(found) == 0
    assert found.resolve_all([CODE, CODE + 1]) == [None, None]


def test_the_names_of_a_real_library_are_those_that_nm_gives() -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm: install binutils")
    with open("/proc/self/maps") as maps:
        path = next((line.split()[-1] for line in maps if "/libc.so" in line or "/libc-2." in line), None)
    if path is None:
        pytest.skip("this Python runs without glibc")
    listing = subprocess.run(["nm", "-D", "--defined-only", "-S", path], capture_output=True, text=True, check=True)
    expected: dict[int, set[str]] = {}
    for fields in (line.split() for line in listing.stdout.splitlines()):
        if len(fields) == 4 and fields[2] in "TtWi" and int(fields[1], 16):
            expected.setdefault(int(fields[0], 16), set()).add(fields[3].partition("@")[0])

    with ElfFile(path) as elf:
        resolved = Functions(elf).resolve_all(expected)

    assert len(expected) > 1000
    wrong = [(a, s) for (a, names), s in zip(expected.items(), resolved) if s is None or s[0] not in names]
    assert wrong == []


def test_the_htlhash_is_that_of_the_specification(tmp_path: Path) -> None:
    raw = image(build=ID).ljust(10_000, b"x")
    path = tmp_path / "file"
    path.write_bytes(raw)

    with ElfFile(path) as elf:
        ids = build_id(elf)

    assert ids.gnu == ID.hex()
    assert ids.htlhash == hashlib.sha256(raw[:4096] + raw[-4096:] + struct.pack(">Q", 10_000)).hexdigest()[:32]


def test_the_htlhash_of_a_small_file_takes_its_bytes_twice() -> None:
    raw = image()

    assert len(raw) < 4096
    expected = hashlib.sha256(raw + raw + struct.pack(">Q", len(raw))).hexdigest()[:32]
    assert htlhash(ElfFile.from_bytes(raw)) == expected


def test_code_far_from_the_files_first_is_no_functions() -> None:
    found = symbols(
        [("first", CODE, 8, FUNC | GLOBAL), ("outside", CODE + (1 << 33), 8, FUNC | GLOBAL), ("before", 8, 8, FUNC)]
    )

    assert len(found) == 1
    assert found.resolve_all([CODE + 4, CODE + (1 << 32), CODE + (1 << 33), 8]) == [("first", 4), None, None, None]
