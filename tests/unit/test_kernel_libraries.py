"""The kernels of a library are read once and kept by its content, whatever else it borrows from another."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from otel_gpu.errors import ElfError
from otel_gpu.receivers.cuda.kernel_names import kernel_libraries
from otel_gpu.receivers.cuda.kernel_names.cache import SymbolCache
from otel_gpu.receivers.cuda.kernel_names.host_part import HostPart
from otel_gpu.receivers.cuda.kernel_names.kernel_libraries import KernelLibraries
from otel_gpu.receivers.cuda.kernel_names.launches import Module
from otel_gpu.receivers.cuda.kernel_names.stub_map import StubMap
from otel_gpu.receivers.cuda.kernel_names.stubs import read_stub_map
from otel_gpu.sandbox.batches import each
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.sandbox.files import FileId, MappedFile
from otel_gpu.sandbox.parsers import Parsers
from tests.unit.test_stubs import NAMES, build

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
BLOCK = 64 << 10


class Source:
    """A file in memory that can be written to while it is read."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.size = len(data)
        self.id = None

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.data[offset : offset + size])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Make a program that registers kernels, with a section of device code between its others."""
    made = build(tmp_path, ["-O2"])
    code = tmp_path / "code"
    code.write_bytes(bytes(range(1, 251)) * (4 * BLOCK // 250))
    subprocess.run(["objcopy", "--add-section", f".nv_fatbin={code}", made], check=True)
    return made


def module_of(path: Path) -> Module:
    status = path.stat()
    device = os.major(status.st_dev), os.minor(status.st_dev)
    file = MappedFile(os.getpid(), 0, 4096, 0, device, status.st_ino, os.fsencode(path))
    return Module(0, 4096, 0, path.name, None, (0, 4096), file, FileId.of(status))


def libraries(parsers: Parsers, directory: Path, said: list[str]) -> KernelLibraries:
    return KernelLibraries(parsers, SymbolCache(directory), lambda: said.append("read"))


def test_a_library_is_read_once_and_then_kept(program: Path, parsers: Parsers, tmp_path: Path) -> None:
    said: list[str] = []

    first = libraries(parsers, tmp_path / "cache", said).read(module_of(program))
    again = libraries(parsers, tmp_path / "cache", said).read(module_of(program))

    with ElfFile(program) as elf:
        assert first == again == read_stub_map(elf)
    assert set(first.names) == set(NAMES.values())
    assert said == ["read"]


def test_what_is_damaged_on_disk_is_read_again(program: Path, parsers: Parsers, tmp_path: Path) -> None:
    said: list[str] = []
    first = libraries(parsers, tmp_path / "cache", said).read(module_of(program))
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])

    assert libraries(parsers, tmp_path / "cache", said).read(module_of(program)) == first
    assert said == ["read", "read"]


def test_a_file_that_borrows_anothers_build_id_and_size_has_kernels_of_its_own(
    program: Path, parsers: Parsers, tmp_path: Path
) -> None:
    with ElfFile(program) as elf:
        constructors = elf.section(".init_array")
        id_, size = elf.build_id(), elf.size
    assert constructors is not None
    forged = tmp_path / "forged"
    data = bytearray(program.read_bytes())
    data[constructors.offset : constructors.offset + constructors.size] = bytes(constructors.size)
    at = data.index(b"_Z5firsti")
    data[at : at + 9] = b"_Z5liarsi"
    forged.write_bytes(data)
    with ElfFile(forged) as elf:
        assert (elf.build_id(), elf.size) == (id_, size)

    lies = libraries(parsers, tmp_path / "cache", []).read(module_of(forged))
    truth = libraries(parsers, tmp_path / "cache", []).read(module_of(program))

    assert "_Z5firsti" not in lies.names
    assert set(truth.names) == set(NAMES.values())


def test_device_code_is_neither_hashed_nor_read(program: Path) -> None:
    data = program.read_bytes()
    with ElfFile(program) as elf:
        section = elf.section(".nv_fatbin")
    assert section is not None
    other = bytearray(data)
    other[section.offset + 7] ^= 0xFF

    part, same = HostPart(Source(data), "a"), HostPart(Source(bytes(other)), "b")

    assert part.has_device_code
    assert part.name() == same.name()
    shown = data[: section.offset] + bytes(section.size) + data[section.offset + section.size :]
    assert part.read(0, len(data)) == same.read(0, len(data)) == shown
    for offset in (0, section.offset - 5, section.offset + 3, section.offset + section.size - 1, len(data) - 9):
        for size in (1, 9, BLOCK, 3 * BLOCK):
            assert part.read(offset, size) == shown[offset : offset + size]


def test_what_is_called_device_code_is_not_believed_either(program: Path) -> None:
    """A file whose code of the host is called device code has no kernels: nobody would notice an exchange there."""
    data = bytearray(program.read_bytes())
    (table,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    with ElfFile(program) as elf:
        number = next(n for n, s in enumerate(elf.sections) if s.name == ".nv_fatbin")
        strings = next(s for s in elf.sections if s.name == ".rodata")
    assert number < count
    struct.pack_into("<QQ", data, table + number * size + 24, strings.offset, strings.size)

    assert set(read_stub_map(ElfFile.of(HostPart(Source(bytes(data)), "x"), "x")).names) == set()


def test_a_file_that_is_changed_after_it_was_hashed_is_not_read(program: Path) -> None:
    source = Source(program.read_bytes())
    part = HostPart(source, "changed")
    part.name()
    part.read(0, 64)
    at = source.data.index(b"_Z5firsti")
    source.data[at] ^= 1

    with pytest.raises(ElfError, match="changed while it was read"):
        part.read(0, source.size)


def test_other_bytes_anywhere_else_give_another_name(program: Path) -> None:
    data = program.read_bytes()
    names = {HostPart(Source(data), "x").name()}
    with ElfFile(program) as elf:
        places = [s.offset for s in elf.sections if s.name in (".text", ".rodata", ".data")]
    for at in places:
        changed = bytearray(data)
        changed[at] ^= 1
        names.add(HostPart(Source(bytes(changed)), "x").name())

    assert len(names) == 1 + len(places) == 4


def test_a_file_too_large_to_be_hashed_has_no_name(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_gpu.receivers.cuda.kernel_names.host_part._MAX_BLOCKS", 0)

    assert HostPart(Source(program.read_bytes()), "x").name() == ""


def test_what_cannot_be_opened_or_is_no_library_stands_for_itself(
    program: Path, parsers: Parsers, tmp_path: Path
) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    gone = replace(module_of(program), name="gone").file
    assert gone is not None
    files = [module_of(text).file, MappedFile(1 << 22, 4096, 8192, 0, gone.device, 1, b"/nowhere/gone.so"), gone]
    known = libraries(parsers, tmp_path / "cache", [])

    found = {module.name: module for module in known.modules([f for f in files if f is not None])}

    assert set(found) == {"text.so", "gone.so", "program"}
    assert found["gone.so"].extent == (4096, 8192)
    assert not found["text.so"].has_kernels
    assert found["program"].stubs is None
    assert known.read(found["gone.so"]) == StubMap()
    assert known.unread == 1


def test_a_file_is_known_to_all_who_have_it_mapped_until_nobody_has(
    program: Path, parsers: Parsers, tmp_path: Path
) -> None:
    known = libraries(parsers, tmp_path / "cache", [])
    (module,) = known.modules([f for f in [module_of(program).file] if f is not None])
    stubs = known.read(module)

    (again,) = known.modules([module.file] if module.file else [])
    assert again.stubs is stubs
    known.keep_only([stubs])
    (again,) = known.modules([module.file] if module.file else [])
    assert again.stubs is stubs
    known.keep_only([])
    (again,) = known.modules([module.file] if module.file else [])
    assert again.stubs is None


@pytest.mark.parametrize(
    "damaged",
    [
        StubMap(("a",), b""),
        StubMap(("a", "b"), struct.pack("<qq", 2, 1)),
        StubMap((), b"", b"x" * 8),
        StubMap((), b"", b"", b"x" * 25),
    ],
)
def test_a_map_whose_columns_do_not_fit_is_not_sound(damaged: StubMap) -> None:
    assert not damaged.is_sound()
    assert StubMap.of({1: "a", 2: "b"}, ((5,), (1,)), ((9,), (10,), (2,))).is_sound()


def test_what_many_programs_have_mapped_is_opened_once(
    program: Path, parsers: Parsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(parsers: Parsers, work: object, files: Sequence[object], *rest: object) -> Iterator[object]:
        asked.append(len(files))
        return each(parsers, work, files, *rest)

    monkeypatch.setattr(kernel_libraries, "each", counted)
    found, mapped = libraries(parsers, tmp_path / "cache", []), module_of(program).file
    assert mapped is not None
    elsewhere = msgspec.structs.replace(mapped, pid=1, start=1 << 20, end=(1 << 20) + 4096)

    (first,), (second,) = (list(found.modules([file])) for file in (mapped, elsewhere))
    assert sum(asked) == 1
    assert first.id == second.id is not None
    assert (first.file, second.file) == (mapped, elsewhere)
    assert second.bias - first.bias == elsewhere.start - mapped.start
    monkeypatch.setattr(kernel_libraries, "_OUTLINE_S", 0.0)
    list(found.modules([mapped]))
    assert sum(asked) == 2
