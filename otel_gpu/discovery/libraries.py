"""What is this file to us? A CUDA driver, a CUDA or HIP runtime, a program with a static runtime, or nothing.

Files are told by what they export, through the hash table that the dynamic linker itself uses, so that a
renamed copy is recognised and a library of thousands of symbols costs a few reads.
"""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Iterable, Iterator, Sequence

from ..errors import ElfError
from ..sandbox.confinement import Limits
from ..sandbox.elf import SHT_NOBITS, ElfFile
from ..sandbox.files import FileId
from ..sandbox.work import OpenFile, work
from ..signals.structs import Frozen
from .forwarding import forwards

_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH, _DT_HASH = 5, 6, 0x6FFFFEF5, 4
_MAX_CHAIN = 512


class LibraryKind(enum.Enum):
    """What a file is to us."""

    DRIVER = "CUDA driver"
    RUNTIME = "CUDA runtime"
    STATIC_RUNTIME = "static CUDA runtime"
    HIP = "HIP runtime"
    TORCH = "PyTorch"
    """Of interest in processes that have one of the others, as the next one."""
    MESSAGES = "ZeroMQ"
    NCCL = "NCCL"
    """Without device code, as RCCL and programs that hold a copy of its host part; with it, it is a static runtime."""

    @property
    def is_secondary(self) -> bool:
        """Whether it is of no interest by itself."""
        return self in (LibraryKind.TORCH, LibraryKind.MESSAGES)


_EXPORTS = (
    (LibraryKind.DRIVER, ("cuInit", "cuLaunchKernel", "cuCtxSynchronize")),
    (LibraryKind.RUNTIME, ("cudaLaunchKernel", "cudaMalloc")),
    (LibraryKind.HIP, ("hipLaunchKernel", "hipModuleLaunchKernel", "hipMalloc")),
    (LibraryKind.MESSAGES, ("zmq_msg_send", "zmq_msg_recv", "zmq_ctx_new")),
)
_EXECUTES = {LibraryKind.DRIVER: "libcuda.so", LibraryKind.HIP: "libamdhip64.so"}
"""What is called so executes what it is asked; what only forwards to it is none of our business."""
NCCL_NAMES = ("ncclCommInitRank", "ncclAllReduce", "ncclCommDestroy")
"""What a file that has NCCL in it defines, whatever its version."""
_MAY_HOLD_NCCL = (None, LibraryKind.NCCL, LibraryKind.RUNTIME, LibraryKind.STATIC_RUNTIME)
_MOST_NAMES, _PART = 256 << 20, 4 << 20
_TORCH = frozenset({"libtorch_cpu.so", "libc10_cuda.so"})
"""The files of PyTorch's that have functions to probe (probes/torch.py), which no other library is called by."""
_FATBIN_SECTIONS = (".nv_fatbin", ".nvFatBinSegment", "__nv_relfatbin")

CLASSIFICATION = Limits(answer_s=1.0, cpu_s=5, memory_bytes=256 << 20, answer_bytes=1 << 20)


class Library(Frozen):
    """A file of interest."""

    id: FileId
    kind: LibraryKind
    path: str
    """As the process that showed it to us sees it."""
    build_id: str | None
    holds_nccl: bool = False
    """Whether NCCL, or RCCL, is in it."""


class Class(Frozen):
    """What a file is, by its content."""

    kind: LibraryKind | None
    build_id: str | None = None
    holds_nccl: bool = False

    def library(self, found: FileId, path: str) -> Library | None:
        """Return the file as a library; None for one of no interest."""
        return None if self.kind is None else Library(found, self.kind, path, self.build_id, self.holds_nccl)


@work(type(None), Class)
def classify(files: Sequence[OpenFile], _: None) -> Iterator[Class]:
    """Yield what each file is: nothing, for what is no ELF file."""
    for file in files:
        if file.descriptor >= 0:
            try:
                yield class_of(ElfFile.of(file, file.path), os.path.basename(file.path))
            except (ElfError, struct.error):
                yield Class(None)


def class_of(elf: ElfFile, name: str = "") -> Class:
    """Return what an ELF file is; `name` is its own, without the directories."""
    kind = LibraryKind.TORCH if name in _TORCH else _kind(elf, name)
    holds_nccl = kind in _MAY_HOLD_NCCL and _holds_nccl(elf)
    if kind is None and holds_nccl:
        kind = LibraryKind.NCCL
    return Class(kind, None if kind is None else elf.build_id(), holds_nccl)


def _kind(elf: ElfFile, name: str) -> LibraryKind | None:
    for kind, names in _EXPORTS:
        if exports(elf, names) and not (kind in _EXECUTES and forwards(elf, name, _EXECUTES[kind])):
            return kind
    if any(elf.section(name) is not None for name in _FATBIN_SECTIONS):
        return LibraryKind.STATIC_RUNTIME
    return None


def _holds_nccl(elf: ElfFile) -> bool:
    if exports(elf, NCCL_NAMES):
        return True
    # A copy in a program or a larger library need not be exported.
    if not names_symbol(elf, ".symtab", NCCL_NAMES[0]):
        return False
    return set(NCCL_NAMES) <= {symbol.name for symbol in elf.symbols(".symtab")}


def exports(elf: ElfFile, names: Iterable[str]) -> bool:
    """Say whether a file defines all of these dynamic symbols, by its GNU or System V hash table."""
    dynamic = dict(elf.dynamic())
    if not {_DT_STRTAB, _DT_SYMTAB} <= dynamic.keys():
        return False
    if _DT_GNU_HASH in dynamic:
        return all(_gnu_lookup(elf, dynamic, name.encode()) for name in names)
    if _DT_HASH in dynamic:
        return all(_sysv_lookup(elf, dynamic, name.encode()) for name in names)
    return False


def names_symbol(elf: ElfFile, table: str, name: str) -> bool:
    """Say whether a symbol of a table, defined or not, may have this name: quickly, for most files have none such."""
    section = elf.section(table)
    if section is None or section.type == SHT_NOBITS or section.link >= len(elf.sections):
        return False
    strings = elf.sections[section.link]
    wanted = name.encode() + b"\0"
    size = min(strings.size, _MOST_NAMES)
    return any(
        wanted in elf.peek(strings.offset + at, min(_PART + len(wanted), size - at)) for at in range(0, size, _PART)
    )


def _is(elf: ElfFile, dynamic: dict[int, int], index: int, name: bytes) -> bool:
    at, _info, _other, section, _value, _size = struct.unpack(
        "<IBBHQQ", elf.read_vaddr(dynamic[_DT_SYMTAB] + 24 * index, 24)
    )
    return section != 0 and elf.read_vaddr(dynamic[_DT_STRTAB] + at, len(name) + 1) == name + b"\0"


def _gnu_lookup(elf: ElfFile, dynamic: dict[int, int], name: bytes) -> bool:
    table = dynamic[_DT_GNU_HASH]
    buckets, first, bloom, shift = struct.unpack("<IIII", elf.read_vaddr(table, 16))
    if not buckets or not bloom:
        return False
    value = 5381
    for c in name:
        value = (value * 33 + c) & 0xFFFFFFFF
    (word,) = struct.unpack("<Q", elf.read_vaddr(table + 16 + 8 * (value // 64 % bloom), 8))
    if not word >> value % 64 & word >> (value >> shift) % 64 & 1:
        return False
    base = table + 16 + 8 * bloom
    (index,) = struct.unpack("<I", elf.read_vaddr(base + 4 * (value % buckets), 4))
    if index < first:
        return False
    for _ in range(_MAX_CHAIN):
        (entry,) = struct.unpack("<I", elf.read_vaddr(base + 4 * buckets + 4 * (index - first), 4))
        if entry | 1 == value | 1 and _is(elf, dynamic, index, name):
            return True
        if entry & 1:
            return False
        index += 1
    return False


def _sysv_lookup(elf: ElfFile, dynamic: dict[int, int], name: bytes) -> bool:
    table = dynamic[_DT_HASH]
    buckets, chains = struct.unpack("<II", elf.read_vaddr(table, 8))
    if not buckets:
        return False
    value = 0
    for c in name:
        value = (value << 4) + c
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    (index,) = struct.unpack("<I", elf.read_vaddr(table + 8 + 4 * (value % buckets), 4))
    for _ in range(_MAX_CHAIN):
        if not 0 < index < chains:
            return False
        if _is(elf, dynamic, index, name):
            return True
        (index,) = struct.unpack("<I", elf.read_vaddr(table + 8 + 4 * (buckets + index), 4))
    return False
