"""What comes back from children that read strangers' files, and from the disk."""

from __future__ import annotations

import socket
import struct
import zlib
from typing import Any

import msgspec
import numpy as np

from otel_gpu.bpf.abi.unwinding import UNWIND_ROW, RowKind
from otel_gpu.discovery.libraries import Class, LibraryKind
from otel_gpu.probes.planning import Plan
from otel_gpu.receivers.cuda.kernel_names.cache import SymbolCache
from otel_gpu.receivers.cuda.kernel_names.stub_map import StubMap
from otel_gpu.sandbox.confinement import Limits
from otel_gpu.sandbox.files import FileId
from otel_gpu.sandbox.mappings import Row, mapped_file
from otel_gpu.sandbox.parsers import Job, Parsers, WorkError
from otel_gpu.sandbox.work import FrameKind, Opened, frame
from otel_gpu.stacks.cpython.code import PythonFrame, Unresolved
from otel_gpu.stacks.symbols.function_index import FUNCTION, FunctionIndex
from otel_gpu.stacks.symbols.symbol_work import Answer, FileSymbols
from otel_gpu.stacks.unwind import cache as table_cache
from otel_gpu.stacks.unwind.file_tables import joined
from otel_gpu.stacks.unwind.shape import Shape
from otel_gpu.stacks.unwind.table_work import FileFrames, FoundPython, NamedFrames, Part

from .target import Target

_ANSWERS: tuple[Any, ...] = (
    Class, Shape, NamedFrames, list[Part], Answer, Plan, list[Row], FoundPython, list[PythonFrame | Unresolved],
)  # fmt: skip
_LIMITS = Limits(answer_s=0.01, answer_bytes=1 << 20)
_ADDRESSES = [0, 1, 0x1000, 1 << 32, (1 << 64) - 1]
_ROWS = np.array([(0, 8, RowKind.SP, 0), (16, 16, RowKind.SP, -2)], UNWIND_ROW).tobytes()


def _say(data: bytes, answer: Any) -> Job[Any]:
    """Return a job whose child says these bytes and is gone."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(data)
    return Job(Parsers(()), 0, ours, answer, _LIMITS)


def _child(data: bytes) -> None:
    kind = _ANSWERS[data[0] % len(_ANSWERS)] if data else Class
    with _say(data[1:], kind) as job:
        for answer in job.answers():
            _use(answer)


def _answer(data: bytes) -> None:
    """Read an answer that is framed as it should be."""
    kind = _ANSWERS[data[0] % len(_ANSWERS)] if data else Class
    said = frame(FrameKind.CONFINED, b"") + frame(FrameKind.ANSWER, data[1:]) + frame(FrameKind.DONE, b"")
    with _say(said, kind) as job:
        for answer in job.answers():
            _use(answer)


def _use(answer: Any) -> None:
    """Do with an answer what the agent does."""
    match answer:
        case Class():
            answer.library(FileId(1, 2, 3), "/library")
        case Shape():
            for offset in _ADDRESSES:
                answer.code_vaddr(offset)
            assert isinstance(answer.base, int)
        case NamedFrames():
            if answer.frames is not None:
                _use_frames(answer.frames)
        case Answer():
            if answer.symbols is not None:
                answer.symbols.index.find(_ADDRESSES)
        case [Part(), *_]:
            rows = joined(answer)
            assert rows.size <= 4 * len(answer) + sum(len(part.rows) for part in answer)
        case [tuple(), *_]:
            for row in answer:
                assert mapped_file(1, row).shown.isprintable()


def _use_frames(frames: FileFrames) -> None:
    table = frames.table
    if table is not None:
        np.append(table.rows, np.array([(table.end_pc, 0, RowKind.END, 0)], UNWIND_ROW))


class _Disk:
    """A directory in which every file has the same content."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, _name: str) -> memoryview:
        return memoryview(self._content)


def _symbol_cache(data: bytes) -> None:
    import zstandard

    payload = zstandard.ZstdCompressor(level=1).compress(data)
    head = struct.pack("<4sHHIQ", b"OGSC", 2, 0, zlib.crc32(payload), len(data))
    cache = SymbolCache()
    for content in (head + payload, data):
        cache._disk = _Disk(content)  # type: ignore[assignment]
        found = cache.read("0" * 16, "stubs", StubMap)
        if found is not None and found.is_sound():
            for stub in _ADDRESSES[:-1]:
                found.name_of(stub)
                found.names_used_at(stub)
            for at in range(len(found.handle_variables)):
                found.handle_name(at)


def _frames_cache(data: bytes) -> None:
    rows = data[: len(data) // 16 * 8]
    rest = data[len(rows) :]
    head = struct.pack("<4sHHIIQ", b"OGUW", 3, 0, zlib.crc32(rest, zlib.crc32(rows)), len(rest), len(rows))
    for content in (head + rows + rest, data):
        try:
            _use_frames(table_cache._decode(memoryview(content)))
        except (ValueError, struct.error, msgspec.MsgspecError):
            pass


def _spoken() -> list[bytes]:
    """Return what children say."""
    opened = msgspec.msgpack.encode(Opened(0, FileId(1, 2, 3), 5))
    begin = frame(FrameKind.STARTED, msgspec.msgpack.encode(7)) + frame(FrameKind.OPENED, opened)
    begin += frame(FrameKind.CONFINED, b"")
    end = frame(FrameKind.DONE, b"")
    spoken = [bytes([n]) + begin + frame(FrameKind.ANSWER, answer[1:]) + end for n, answer in enumerate(_answers())]
    return [*spoken, b"\0" + begin + frame(FrameKind.FAILED, b"\x82\xa5error\xa1x\xa6reason\xa1y")]


def _answers() -> list[bytes]:
    index = FunctionIndex(((0x1000, 0x2000),), b"\0\0\0\0\x10\0\0\0", np.zeros(2, FUNCTION).tobytes())
    symbols = FileSymbols("00" * 20, "00" * 16, (0x1000, 0x2000, 0), index, True, ("", 0))  # type: ignore[arg-type]
    values = [
        Class(LibraryKind.DRIVER, "00ff"), Shape(is_elf=True), NamedFrames("name", FileFrames(_ROWS, 32, 2)),
        [Part(0, 32, _ROWS), Part(16, 48, _ROWS)], Answer(symbols, ["name"]), Plan((), 0), [(1, 2, 3, 4, 5, 6, b"/file")],
        FoundPython(reason="none"), [PythonFrame("f", "f.py", 1, 1), Unresolved.GONE],
    ]  # fmt: skip
    return [bytes([n]) + msgspec.msgpack.encode(value) for n, value in enumerate(values)]


TARGETS = (
    Target("child", _child, _spoken, (WorkError,)),
    Target("answer", _answer, _answers, (WorkError,)),
    Target("symbol_cache", _symbol_cache, lambda: [msgspec.msgpack.encode(StubMap.of({1: "a", 2: "b"}, ((5,), (1,))))]),
    Target("frames_cache", _frames_cache, lambda: [_ROWS * 4 + msgspec.msgpack.encode(FileFrames(end_pc=32))]),
)
