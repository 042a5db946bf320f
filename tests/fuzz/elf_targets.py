"""Files that strangers made: ELF and what is read from it."""

from __future__ import annotations

import lzma
import struct
from collections.abc import Sequence
from pathlib import Path

from otel_gpu.discovery.libraries import LibraryKind, class_of, exports
from otel_gpu.errors import ElfError, OtelGpuError
from otel_gpu.probes.attach import plan
from otel_gpu.probes.planning import PlanRequest, hooks_of
from otel_gpu.probes.sites import SiteRules, find_site
from otel_gpu.probes.torch import plan_torch, torch_hooks
from otel_gpu.receivers.cuda.kernel_names.fatbin import MAX_KERNELS, FatbinError, decompress, kernels_of_image
from otel_gpu.receivers.cuda.kernel_names.hip_kernels import kernel_of, symbols_at
from otel_gpu.receivers.cuda.kernel_names.stub_map import MAX_NAME
from otel_gpu.receivers.cuda.kernel_names.stubs import read_stub_map
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.signals.profiles import PROFILE_TYPES
from otel_gpu.stacks.cpython.layout import DEBUG_OFFSETS_SIZE
from otel_gpu.stacks.cpython.text import analyse_python
from otel_gpu.stacks.eh_frame.cfa_expression import is_at_rbp, recognise
from otel_gpu.stacks.eh_frame.index import FrameIndex
from otel_gpu.stacks.eh_frame.pointers import keeps_frame_pointers
from otel_gpu.stacks.eh_frame.records import FrameSection
from otel_gpu.stacks.eh_frame.rows import UnwindTable
from otel_gpu.stacks.eh_frame.tables import compile_table
from otel_gpu.stacks.symbols.build_id import build_id
from otel_gpu.stacks.symbols.debuglink import belongs, candidates, read_link
from otel_gpu.stacks.symbols.function_index import NamePlace
from otel_gpu.stacks.symbols.native import NativeSymbols
from otel_gpu.stacks.unwind.table_work import name_of, parts, read_frames, shape_of

from .elf_images import AARCH64, CUBIN, DYNSYM, STRTAB, SYMTAB, X86_64, Piece, dynamic, image, offsets, symbol_table
from .target import Target

_SEEDS = Path(__file__).parent / "seeds"
_LEAF = bytes([0x0C, 7, 8, 0x90, 1])
_FUNCTION, _OBJECT = 0x12, 0x11
_CODE = bytes.fromhex("554889e5415741564155415453c9c3f30f1efa488d3d00000000e800000000c3")
_VERSION_311 = (0x030B07F0).to_bytes(4, "little")


class _Open:
    """A file as work gets it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size, self.id, self.descriptor, self.path = len(data), None, 0, "file"

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


def _files() -> list[bytes]:
    """Return whole files."""
    return [path.read_bytes() for path in sorted(_SEEDS.glob("*.elf"))] + [
        everything(), python(), cubin(), image([]), image([Piece(".text", _CODE)], AARCH64)]  # fmt: skip


def frames(programs: Sequence[bytes], code: int = 0x100, at: int = 0) -> bytes:
    """Return an .eh_frame at an address that describes functions of 32 bytes each."""
    cie = struct.pack("<IB", 0, 1) + b"zR\0" + bytes([1, 0x78, 16, 1, 0x1B]) + _LEAF
    out = struct.pack("<I", len(cie)) + cie
    for number, program in enumerate(programs):
        place = len(out)
        body = struct.pack("<IiIB", place + 4, code + 32 * number - (at + place + 8), 32, 0) + program
        out += struct.pack("<I", len(body)) + body
    return out + bytes(4)


_PROGRAMS = (
    b"",
    bytes([0x41, 0x0E, 16, 0x86, 2, 0x43, 0x0D, 6, 0x60, 0x0C, 7, 8, 0xC6]),
    bytes([0x41, 0x0E, 16, 0x0A, 0x41, 0x0E, 24, 0x0A, 0x41, 0x0E, 32, 0x41, 0x0B, 0x41, 0x0B]),
    bytes([0x02, 0x80, 0x0E, 16, 0x03, 0x00, 0x01, 0x0E, 24, 0x04, 0x00, 0x10, 0, 0, 0x0E, 32]),
    bytes([0x0F, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0]),
    bytes([0x0F, 11, 0x77, 8, 0x80, 0, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22]),
)


def everything() -> bytes:
    """Return a file with all sections that are looked at."""
    symbols = [("cuInit", 0x200, 16, _FUNCTION), ("cuLaunchKernel", 0x210, 16, _FUNCTION), ("_Z4axpyPf", 0x220, 16, 2)]
    symtab, strtab = symbol_table([*symbols, ("entry", 0x230, 0, 0x10), ("data", 0x240, 8, _OBJECT)])
    dynsym, dynstr = symbol_table(symbols)
    packed = lzma.compress(image([Piece(".symtab", symtab, SYMTAB, ".strtab"), Piece(".strtab", strtab, STRTAB)]))
    note = struct.pack("<III4s", 4, 20, 3, b"GNU\0") + bytes(range(20))
    pieces = [
        Piece(".note.gnu.build-id", note), Piece(".text", _CODE * 8), Piece(".eh_frame_hdr", b""), Piece(".eh_frame", b""),
        Piece(".symtab", symtab, SYMTAB, ".strtab"), Piece(".strtab", strtab, STRTAB), Piece(".dynsym", dynsym, DYNSYM,
        ".dynstr"), Piece(".dynstr", dynstr, STRTAB), Piece(".gnu_debuglink", b"it.debug\0\0\0\0\1\2\3\4"),
        Piece(".gnu_debugdata", packed), Piece(".nv_fatbin", fatbin()), Piece(".hash", struct.pack("<IIIII", 1, 4, 1, 2, 3)),
        Piece(".dynamic", b""),
    ]  # fmt: skip
    for _ in range(2):  # what is put in for the first time moves what comes behind it
        at = dict(zip((p.name for p in pieces), offsets(pieces), strict=False))
        filled = {
            ".eh_frame": frames(_PROGRAMS, at[".text"], at[".eh_frame"]),
            ".eh_frame_hdr": struct.pack("<BBBBiI", 1, 0x1B, 3, 0x3B, at[".eh_frame"] - at[".eh_frame_hdr"] - 4, 2)
            + struct.pack("<4i", *(at[".text"] - at[".eh_frame_hdr"] + n for n in (0, 20, 32, 60))),
            ".dynamic": dynamic({5: at[".dynstr"], 6: at[".dynsym"], 4: at[".hash"]}),
        }
        pieces = [Piece(p.name, filled.get(p.name, p.data), p.type, p.link) for p in pieces]
    return image(pieces)


def python(table: str = ".dynsym") -> bytes:
    """Return a file that looks like a CPython, with its symbols in a table, or in none."""
    runtime = b"xdebugpy" + struct.pack("<Q", 0x030D00F0) + bytes(DEBUG_OFFSETS_SIZE) if not table else bytes(64)
    pieces = [
        Piece(".text", _CODE * 64), Piece(".data", _VERSION_311 + bytes(64)), Piece(".eh_frame", b""),
        Piece(".PyRuntime", runtime), Piece(".rodata", b"Python import machinery not initialized"),
    ]  # fmt: skip
    at = offsets(pieces)
    names = [("_PyRuntime", at[3], 64, _OBJECT), ("_PyEval_EvalFrameDefault", at[0], 1024, _FUNCTION)]
    names += [("PyGILState_GetThisThreadState", at[0] + 1024, 32, _FUNCTION), ("Py_Version", at[1], 4, _OBJECT)]
    names += [("Py_GetVersion", at[0], 64, _FUNCTION)]
    symbols, strings = symbol_table([*names, ("PyCode_Type", at[1] + 16, 8, _OBJECT)])
    pieces[2] = Piece(".eh_frame", frames(_PROGRAMS, at[0], at[2]))
    if table:
        pieces += [Piece(table, symbols, DYNSYM if table == ".dynsym" else SYMTAB, ".strings")]
        pieces += [Piece(".strings", strings, STRTAB)]
    return image(pieces)


def cubin() -> bytes:
    """Return a file of device code."""
    names = (".text._Z4axpyPf", ".nv.constant0._Z4axpyPf", ".text.helper")
    return image([Piece(name, bytes(16)) for name in names], CUBIN, 2)


def fatbin(stored: bytes = b".visible .entry _Z4axpyPf(\n)", raw: int = 0) -> bytes:
    """Return device code in its container."""
    padded = stored + bytes(-len(stored) % 8)
    entry = struct.pack("<HHIQI8xI8xQQQ", 1, 0x101, 64, len(padded), len(stored), 90, 0, 0, raw) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


def _elf(data: bytes) -> None:
    elf = ElfFile.from_bytes(data)
    assert len(elf.segments) <= len(data) // 56
    assert len(elf.sections) <= len(data) // 64
    for table in (".dynsym", ".symtab"):
        for number, symbol in enumerate(elf.symbols(table)):
            assert len(symbol.name) <= 4096
            assert number <= len(data) // 24
    identity = elf.build_id()
    assert identity is None or 0 < len(identity) <= 128
    for segment in elf.segments[:4]:
        assert elf.to_offset(elf.to_vaddr(segment.offset)) >= 0
        elf.code_vaddr(segment.offset)


def _class(data: bytes) -> None:
    elf = ElfFile.from_bytes(data)
    class_of(elf, "libcuda.so.1")
    exports(elf, ("cuInit", "first"))
    shape = shape_of(elf)
    for offset in (0, 4096):
        shape.code_vaddr(offset)


def _assert_table(table: UnwindTable, size: int) -> None:
    # A byte of the section makes a row at most, and every function one more where it ends.
    assert table.rows.size <= 2 * size + 8
    assert table.end_pc >= 0
    pcs = table.rows["pc"]
    # Where a function ends and an entry point begins there are two rows, of which the later one holds.
    assert (pcs[1:] >= pcs[:-1]).all()


def _eh_frame(data: bytes) -> None:
    pieces = [Piece(".text", _CODE * 32), Piece(".eh_frame", data)]
    _assert_table(compile_table(ElfFile.from_bytes(image(pieces))), len(data))


def _eh_frame_program(data: bytes) -> None:
    pieces = [Piece(".text", _CODE * 32), Piece(".eh_frame", b"")]
    at = offsets(pieces)
    written = frames(data.split(b"\xff\xff", 16), at[0], at[1])
    pieces[1] = Piece(".eh_frame", written)
    _assert_table(compile_table(ElfFile.from_bytes(image(pieces))), len(written))


def _frame_parts(data: bytes) -> None:
    elf = ElfFile.from_bytes(data)
    FrameIndex.of(elf, FrameSection.of(elf))
    compile_around = parts.function([_Open(data)], None)  # type: ignore[list-item]
    for part in compile_around([0x200, 0, 0x1000]):
        assert len(part.rows) <= 16 * len(data)


def _cfa_expression(data: bytes) -> None:
    recognise(data)
    is_at_rbp(data)


def _file_frames(data: bytes) -> None:
    elf = ElfFile.from_bytes(data, "libpython3.11.so.1.0")
    assert len(name_of(elf)) == 40
    found = read_frames(elf)
    assert len(found.rows) <= 16 * len(data) + 64
    if found.table is not None:
        _assert_table(found.table, len(data))
    keeps_frame_pointers(elf)


def _python_text(data: bytes) -> None:
    found = analyse_python(ElfFile.from_bytes(data, "python3"))
    if found is not None:
        assert all(start < stop for start, stop in found.eval_ranges)
        found.layout()


def _native_symbols(data: bytes) -> None:
    elf = ElfFile.from_bytes(data)
    native = NativeSymbols(elf, elf)
    index = native.index()
    assert len(index) <= 2 * len(data)
    native.has_own_table()
    found = index.find([0, 0x100, 0x210, 0x1000, 1 << 40, (1 << 64) - 1])
    for place in [f.name for f in found if f is not None] + [NamePlace(t, 1) for t in range(-1, 6)]:
        assert len(native.name(place)) <= 4096


def _debug_link(data: bytes) -> None:
    elf = ElfFile.from_bytes(data)
    ids, link = build_id(elf), read_link(elf)
    for candidate in candidates(b"/opt/lib/library.so", ids.gnu or "", link):
        assert b".." not in candidate.path.split(b"/")
        assert len(candidate.path) < 8192
    belongs(elf, ids.gnu or "", link)


def _fatbin(data: bytes) -> None:
    code = kernels_of_image(data, 1 << 20)
    assert len(code.kernels) <= min(MAX_KERNELS, (1 << 20) + len(data))
    assert all(len(name) <= MAX_NAME for name in code.kernels)
    assert code.entries <= len(data) + 1


def _decompress(data: bytes) -> None:
    raw_size = int.from_bytes(data[:2], "little")
    assert len(decompress(data[2:], raw_size)) <= raw_size


def _stubs(data: bytes) -> None:
    found = read_stub_map(ElfFile.from_bytes(data))
    assert len(found) <= len(data)
    assert all(len(name) <= MAX_NAME and name.isprintable() for name in found.names)
    for stub in [*found.stubs, 0]:
        found.name_of(stub)
        found.names_used_at(stub + 1)
    for at in range(len(found.handle_variables)):
        found.handle_name(at)


def _stubs_arm64(data: bytes) -> None:
    _stubs(data[:18] + struct.pack("<H", AARCH64) + data[20:])


def _hip_symbols(data: bytes) -> None:
    elf = ElfFile.from_bytes(data)
    for name in symbols_at(elf, (0x200, 0x210, 0x220)).values():
        assert len(kernel_of(name)) <= 8192


def _probe_plan(data: bytes) -> None:
    elf = ElfFile.from_bytes(data)
    for kind in (LibraryKind.DRIVER, LibraryKind.HIP):
        for probe in plan(elf, hooks_of(PlanRequest("counts", SiteRules(), kind)), SiteRules()):
            assert probe.offset is None or 0 <= probe.offset < len(data)
    for probe in plan_torch(elf, "libtorch_cpu.so", torch_hooks(PROFILE_TYPES.values()), SiteRules()):
        assert probe.offset is None or 0 <= probe.offset < len(data)


def _probe_site(data: bytes) -> None:
    for machine in (X86_64, AARCH64):
        site = find_site(data, 0x1000, machine, fast_nops=bool(data and data[0] & 1))
        assert 0 <= site.offset <= len(data)


_READ = (ElfError, struct.error)
TARGETS = (
    Target("elf", _elf, _files, (ElfError,), 8192),
    Target("elf_class", _class, _files, _READ, 8192),
    Target("eh_frame", _eh_frame, lambda: [frames(_PROGRAMS, 0xC0, 0x4C0), frames([])], (OtelGpuError,)),
    Target("eh_frame_program", _eh_frame_program, lambda: [b"\xff\xff".join(_PROGRAMS), *_PROGRAMS], (OtelGpuError,), 512),
    Target("frame_parts", _frame_parts, _files, (OtelGpuError,), 8192),
    Target("cfa_expression", _cfa_expression, lambda: [b"\x76\x78\x06", b"\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"], (), 64),
    Target("file_frames", _file_frames, _files, (OtelGpuError,), 8192),
    Target(
        "python_text",
        _python_text,
        lambda: [python(), python(".symtab"), python(""), everything()],
        (OtelGpuError,),
        8192,
    ),
    Target("native_symbols", _native_symbols, _files, _READ, 8192),
    Target("debug_link", _debug_link, _files, _READ, 8192),
    Target("fatbin", _fatbin, lambda: [fatbin(), fatbin(cubin()), cubin(), b".entry one() .entry two()"]),
    Target("decompress", _decompress, lambda: [b"\x40\0\x1fa\1\0\x22aaaaaa", b"\x10\0\x28\xb5\x2f\xfd\x20\x10\x45\0\0\x10aa\1\0"], (FatbinError,), 512),
    Target("stubs", _stubs, _files, (ElfError,), 8192),
    Target("stubs_arm64", _stubs_arm64, _files, (ElfError,), 8192),
    Target("hip_symbols", _hip_symbols, _files, (ElfError,), 8192),
    Target("probe_plan", _probe_plan, _files, (OtelGpuError,), 8192),
    Target("probe_site", _probe_site, lambda: [_CODE, bytes.fromhex("5f2403d5fd7bbfa9fd030091c0035fd6")], (), 256),
)  # fmt: skip
