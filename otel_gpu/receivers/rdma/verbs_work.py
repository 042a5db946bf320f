"""Where do programs go that see a process's RDMA? Worked out by a child, from its libraries and its memory.

Functions of libibverbs are exported. Those of a provider are found in its table of operations, as it stands in the file, in
what a process said when it opened a device, or in its memory. What a process says is a claim: a program goes only where a
function begins, by the file's own frame descriptions or symbols, and in that process alone.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ...bpf.abi.rdma import RdmaOperation
from ...errors import ElfError, OtelGpuError
from ...probes.prologue import Cost
from ...probes.sites import SiteRules, site_for_symbol
from ...sandbox.confinement import Limits
from ...sandbox.elf import STT_FUNC, ElfFile, Symbol
from ...sandbox.memory import MemoryFault, MemoryFiles
from ...sandbox.work import OpenFile, work
from ...signals.structs import Frozen
from ...stacks.eh_frame.index import FrameIndex
from ...stacks.eh_frame.records import FrameSection
from .verbs_tables import MOST_ADDRESS, index_of, operations

LOOKING = Limits(answer_s=20.0, cpu_s=30, memory_bytes=1 << 30, answer_bytes=4 << 20)

POLL, POST_SEND, POST_RECV = "poll_cq", "post_send", "post_recv"
_LIBRARY: dict[str, tuple[str, str | None, int]] = {
    "ibv_open_device": ("device_opened", None, 0),
    "ibv_create_qp": ("create_qp", "create_qp_done", 0),
    "ibv_cmd_create_qp": ("command_create_qp", "command_create_qp_done", 1),
    "ibv_cmd_create_qp_ex": ("command_create_qp", "command_create_qp_done", 0),
    "ibv_cmd_create_qp_ex2": ("command_create_qp", "command_create_qp_done", 0),
    "ibv_modify_qp": ("modify_qp", "modify_qp_done", 0),
    "ibv_destroy_qp": ("destroy_qp", "destroy_qp_done", 0),
    "ibv_reg_mr": ("register_mr", "register_mr_done", 0),
    "ibv_reg_mr_iova": ("register_mr", "register_mr_done", 0),
    "ibv_reg_mr_iova2": ("register_mr", "register_mr_done", 0),
    "ibv_reg_dmabuf_mr": ("register_mr", "register_mr_done", 0),
    "ibv_dereg_mr": ("deregister_mr", "deregister_mr_done", 0),
    "ibv_cmd_create_cq_ex": ("command_create_cq", "command_create_cq_done", 0),
    "ibv_destroy_cq": ("destroy_cq", None, 0),
    "ibv_get_async_event": ("get_event", "get_event_done", 0),
}
"""Exported functions: the programs at entry and return, and the cookie. Of `ibv_open_device` the return alone."""
_DIRECT = frozenset({"mlx5dv_init_obj", "mlx5dv_devx_alloc_uar", "mlx4dv_init_obj", "efadv_query_qp_wqs"})
"""Functions that providers export, without which nobody works past libibverbs: they give a queue's memory, or a doorbell
(rdma-core's providers/mlx5/mlx5dv.h, mlx4/mlx4dv.h, efa/efadv.h)."""
AT_RETURN_ONLY = frozenset({"device_opened"})
_OF_PART, _OF_INLINE, _OF_PARTS = 0, 1, 2
"""Where a function of a queue pair says how much data there are: `LENGTH_OF_PART` and so on in ebpf/rdma/extended.bpf.c."""
_POSTS = {
    0: RdmaOperation.COMPARE_SWAP,
    1: RdmaOperation.FETCH_ADD,
    2: RdmaOperation.OTHER,
    3: RdmaOperation.OTHER,
    4: RdmaOperation.READ,
    5: RdmaOperation.WRITE,
    6: RdmaOperation.WRITE_IMM,
    7: RdmaOperation.SEND,
    8: RdmaOperation.SEND_IMM,
    9: RdmaOperation.OTHER,
    10: RdmaOperation.OTHER,
}
_DATA = {13: _OF_INLINE, 14: _OF_PARTS, 15: _OF_PART, 16: _OF_PARTS}
EXTENDED: dict[int, tuple[str, int]] = {
    **{place: ("extended_post", operation.value) for place, operation in _POSTS.items()},
    **{place: ("extended_data", lengths) for place, lengths in _DATA.items()},
}
"""Functions of a queue pair by their place from wr_atomic_cmp_swp on: the program, and the operation or the form of lengths."""
POLLING = {
    POLL: "poll_cq_done",
    "start_poll": "start_poll_done",
    "next_poll": "next_poll_done",
    "end_poll": None,
    "read_completion": "read_completion_done",
}
"""What asks for completions, and reads them: programs at entry and return."""
QUEUE: dict[int, tuple[str, int]] = {
    0: ("start_poll", 0),
    1: ("next_poll", 0),
    2: ("end_poll", 0),
    3: ("read_completion", 0),
    5: ("read_completion", 1),
    7: ("read_completion", 2),
}
"""Functions of a completion queue by their place from start_poll on: the program, and what is read (`enum verbs_reading`)."""
_POLL_AT, _SEND_AT, _RECV_AT = 11, 25, 26
"""Of the words of ibv_context.ops."""
_MOST_PIECE, _MOST_MEMORY = 64 << 20, 512 << 20
_MOST_CONTEXTS = 256


class VerbsImage(Frozen):
    """A file that a process has mapped executable."""

    start: int
    end: int
    offset: int
    path: bytes
    is_library: bool
    """libibverbs itself."""
    is_provider: bool


class Claim(Frozen):
    """What a process says is a function of a provider."""

    program: str
    cookie: int
    address: int


class VerbsRequest(Frozen):
    """What is looked at: images in the order of the files behind the three that show the memory."""

    rules: SiteRules
    images: tuple[VerbsImage, ...]
    claims: tuple[Claim, ...]
    scan: bool
    """Look for devices that the process has open already."""
    version: int = 0
    """Of rdma-core, by the name of libibverbs; 0 where it is not known."""


class VerbsSite(Frozen):
    """Where a program goes."""

    image: int
    program: str
    return_program: str | None
    cookie: int
    offset: int


class VerbsAnswer(Frozen):
    """What is known of a process."""

    sites: tuple[VerbsSite, ...]
    refused: tuple[tuple[str, int], ...]
    """What was not placed, by reason."""


@work(VerbsRequest, VerbsAnswer)
def look_for_verbs(files: Sequence[OpenFile], request: VerbsRequest) -> Iterator[VerbsAnswer]:
    """Yield where the programs go in one process: its memory's files, then its images."""
    shown, opened = files[:3], files[3:]
    refused: Counter[str] = Counter()
    images: list[_Image] = []
    for number, (file, image) in enumerate(zip(opened, request.images, strict=True)):
        if file.descriptor >= 0:
            try:
                images.append(_Image(number, image, ElfFile.of(file, file.path), request.rules, refused))
            except (OtelGpuError, struct.error, ValueError):
                refused["a file that cannot be read"] += 1
        else:
            refused["a file that cannot be opened"] += 1
    sites: list[VerbsSite] = []
    for one in images:
        try:
            if one.image.is_library:
                sites += one.exported()
            elif one.image.is_provider:
                sites += one.direct()
                sites += one.tables(request.version)
        except (OtelGpuError, struct.error, ValueError):
            refused["a file that cannot be read"] += 1
    claims = list(request.claims)
    if request.scan:
        try:
            claims += _Scan(MemoryFiles.opened(shown), images).claims()
        except OtelGpuError:
            refused["memory that cannot be read"] += 1
    for claim in dict.fromkeys(claims):
        owner = next((i for i in images if i.image.start <= claim.address < i.image.end), None)
        if owner is None:
            refused["a function in no file that is known"] += 1
        elif not owner.image.is_library:
            sites += owner.claimed(claim)
    yield VerbsAnswer(tuple(dict.fromkeys(sites)), tuple(refused.items()))


class _Image:
    """One mapped file."""

    def __init__(self, number: int, image: VerbsImage, elf: ElfFile, rules: SiteRules, refused: Counter[str]) -> None:
        self.number, self.image = number, image
        self._elf, self._rules, self._refused = elf, rules, refused
        self._bias = image.start - elf.code_vaddr(image.offset)
        self._starts: npt.NDArray[np.int64] | None = None

    def exported(self) -> Iterator[VerbsSite]:
        """Yield the sites of libibverbs' own functions, of the version that programs are linked with."""
        taken = set()
        for symbol in self._elf.default_exports():
            if symbol.name in _LIBRARY and symbol.value not in taken:
                taken.add(symbol.value)
                program, at_return, cookie = _LIBRARY[symbol.name]
                yield from self._site(program, at_return, cookie, symbol)

    def direct(self) -> Iterator[VerbsSite]:
        """Yield the sites of a provider's functions for work past libibverbs."""
        for symbol in self._elf.default_exports():
            if symbol.name in _DIRECT:
                yield from self._site("go_direct", None, 0, symbol)

    def tables(self, version: int) -> Iterator[VerbsSite]:
        """Yield the sites of a provider's functions, by its tables."""
        if (index := index_of(version or None, self.image.path)) is None:
            self._refused["a provider of an unknown version"] += 1
            return
        for table in operations(self._elf, index):
            for program, vaddr in ((POLL, table.poll_cq), (POST_SEND, table.post_send), (POST_RECV, table.post_recv)):
                if vaddr:
                    yield from self._function(program, 0, vaddr)

    def claimed(self, claim: Claim) -> Iterator[VerbsSite]:
        """Yield the site of a function that the process says is one."""
        yield from self._function(claim.program, claim.cookie, claim.address - self._bias)

    def _function(self, program: str, cookie: int, vaddr: int) -> Iterator[VerbsSite]:
        starts = self._function_starts()
        at = int(np.searchsorted(starts, vaddr)) if 0 <= vaddr < MOST_ADDRESS else starts.size
        if at >= starts.size or starts[at] != vaddr:
            self._refused["an address where no function begins"] += 1
            return
        size = int(starts[at + 1]) - vaddr if at + 1 < starts.size else 0
        symbol = Symbol(f"{program}@{vaddr:#x}", vaddr, size, STT_FUNC, is_global=False)
        yield from self._site(program, POLLING.get(program), cookie, symbol)

    def _site(self, program: str, at_return: str | None, cookie: int, symbol: Symbol) -> Iterator[VerbsSite]:
        site = site_for_symbol(self._elf, symbol, self._rules)
        if site.cost is Cost.NONE:
            self._refused["an instruction that cannot be probed"] += 1
            return
        try:
            offset = self._elf.to_offset(symbol.value + site.offset)
        except ElfError:
            self._refused["an address where no function begins"] += 1
            return
        yield VerbsSite(self.number, program, at_return, cookie, offset)

    def _function_starts(self) -> npt.NDArray[np.int64]:
        if self._starts is None:
            self._starts = self._read_starts()
        return self._starts

    def _read_starts(self) -> npt.NDArray[np.int64]:
        try:
            index = FrameIndex.of(self._elf, FrameSection.of(self._elf))
        except OtelGpuError:
            index = None
        found = [] if index is None else [index.starts]
        for table in (".dynsym", ".symtab"):
            values = [s.value for s in self._elf.symbols(table) if s.type == STT_FUNC and s.value < MOST_ADDRESS]
            found.append(np.array(values, np.int64))
        return np.unique(np.concatenate(found))

    def code(self) -> tuple[int, int]:
        """Return the addresses between which its code is mapped."""
        return self.image.start, self.image.end


class _Scan:
    """A process's memory, looked through for devices that it has open: each has its table of operations in it."""

    def __init__(self, shown: MemoryFiles, images: Sequence[_Image]) -> None:
        self._shown = shown
        self._code = [i.code() for i in images if i.image.is_provider]
        self._libraries = [i.code() for i in images if i.image.is_library]

    def claims(self) -> list[Claim]:
        """Return what the tables of open devices say are functions."""
        found: list[Claim] = []
        contexts: list[int] = []
        pieces = list(self._pieces())
        for address, words in pieces:
            is_code = self._in(words, self._code)
            last = len(words) - _RECV_AT
            if last <= 1:
                continue
            mine = is_code[_POLL_AT : _POLL_AT + last] & is_code[_SEND_AT : _SEND_AT + last]
            mine &= is_code[_RECV_AT : _RECV_AT + last]
            for at in np.flatnonzero(mine[1:])[:_MOST_CONTEXTS].tolist():
                first = at + 1
                if self._is_device(int(words[first - 1])) and len(contexts) < _MOST_CONTEXTS:
                    contexts.append(address + 8 * (first - 1))
                    found += (
                        Claim(POLL, 0, int(words[first + _POLL_AT])),
                        Claim(POST_SEND, 0, int(words[first + _SEND_AT])),
                        Claim(POST_RECV, 0, int(words[first + _RECV_AT])),
                    )
        for _, words in pieces if contexts else ():
            found += self._of_pairs(words, contexts)
            found += self._of_queues(words, contexts)
        return list(dict.fromkeys(found))

    def _of_pairs(self, words: npt.NDArray[np.uint64], contexts: Sequence[int]) -> Iterator[Claim]:
        """Yield the functions of queue pairs that have their own: those of their beginning and end are a provider's."""
        first, begin, end = 184 // 8, 320 // 8, 328 // 8
        if len(words) <= end:
            return
        is_code = self._in(words, self._code)
        last = len(words) - end
        mine = np.isin(words[:last], np.array(contexts, np.uint64)) & is_code[begin : begin + last]
        mine &= is_code[end : end + last]
        for at in np.flatnonzero(mine)[:_MOST_CONTEXTS].tolist():
            for place, (program, cookie) in EXTENDED.items():
                if is_code[at + first + place]:
                    yield Claim(program, cookie, int(words[at + first + place]))

    def _of_queues(self, words: npt.NDArray[np.uint64], contexts: Sequence[int]) -> Iterator[Claim]:
        """Yield the functions of completion queues that have their own: the first four are a provider's."""
        first, always = 144 // 8, 4
        last = len(words) - first - max(QUEUE)
        if last <= 0:
            return
        is_code = self._in(words, self._code)
        mine = np.isin(words[:last], np.array(contexts, np.uint64))
        for place in range(always):
            mine &= is_code[first + place : first + place + last]
        for at in np.flatnonzero(mine)[:_MOST_CONTEXTS].tolist():
            for place, (program, cookie) in QUEUE.items():
                if is_code[at + first + place]:
                    yield Claim(program, cookie, int(words[at + first + place]))

    def _pieces(self) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
        left = _MOST_MEMORY
        for mapping in self._shown.mappings():
            size = (mapping.end - mapping.start) // 8 * 8
            is_data = mapping.permissions.startswith(b"rw") and mapping.is_private
            if not is_data or mapping.name not in (b"", b"[heap]") or size > min(_MOST_PIECE, left):
                continue
            left -= size
            try:
                yield mapping.start, np.frombuffer(self._shown.memory.read(mapping.start, size), np.uint64)
            except MemoryFault:
                continue

    def _is_device(self, address: int) -> bool:
        try:
            name = self._shown.memory.read(address + 24, 64).split(b"\0", 1)[0]
        except MemoryFault:
            return False
        return 0 < len(name) < 64 and all(32 < c < 127 for c in name)

    @staticmethod
    def _in(words: npt.NDArray[np.uint64], ranges: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
        inside = np.zeros(len(words), bool)
        for start, end in ranges:
            inside |= (words >= np.uint64(start)) & (words < np.uint64(end))
        return inside


def is_library(path: bytes) -> bool:
    """Tell whether a mapped file is libibverbs, by its name."""
    return os.path.basename(path).startswith(b"libibverbs.so")


def is_provider(path: bytes) -> bool:
    """Tell whether a mapped file is a provider, by its name: those that are not, are told when a device is opened."""
    name = os.path.basename(path)
    return b"-rdmav" in name or name.startswith(
        (b"libmlx5.so", b"libmlx4.so", b"libefa.so", b"libhns.so", b"libmana.so")
    )
