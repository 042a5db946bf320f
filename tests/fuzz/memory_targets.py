"""What stands in strangers' memory: the driver's records, CPython's objects, device code."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from otel_gpu.errors import OtelGpuError
from otel_gpu.receivers.cuda.kernel_names.device_names import _Found, _search
from otel_gpu.receivers.cuda.kernel_names.driver_records import (
    confirmed,
    follow,
    is_path,
    led_to,
    might_be_supported,
    supported,
    texts,
)
from otel_gpu.receivers.cuda.kernel_names.kernel_strings import kernel_strings
from otel_gpu.receivers.cuda.kernel_names.memory_work import TextsRequest, _texts
from otel_gpu.receivers.cuda.kernel_names.stub_map import MAX_NAME
from otel_gpu.receivers.cuda.kernel_names.words import read_words
from otel_gpu.sandbox.memory import MemoryFault
from otel_gpu.stacks.cpython.code import CodeObjects, PythonFrame
from otel_gpu.stacks.cpython.layout import DEBUG_OFFSETS_SIZE, PythonLayout, TssKind, layout_for
from otel_gpu.stacks.cpython.process import locate
from otel_gpu.stacks.cpython.text import PythonBinary
from otel_gpu.stacks.cpython.thread_state import ThreadStateSlot

from .elf_targets import cubin, fatbin
from .target import Target

_BASE = 0x10000
_LAYOUTS: tuple[PythonLayout, ...] = tuple(layout_for((3, minor)) for minor in range(8, 13))


class _Memory:
    """Memory that holds an input at one place, and nothing elsewhere."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.reads = 0

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        piece = self._data[address - _BASE :][:size] if address >= _BASE else b""
        if len(piece) != size:
            raise MemoryFault("not there")
        return piece


def _driver_records(data: bytes) -> None:
    memory = _Memory(data)
    found = {handle: texts(memory, handle) for handle in range(_BASE, _BASE + min(len(data), 1024), 256)}
    for leads in found.values():
        assert len(leads) <= 64 * (2 + 2 * 16)
        for path, text in leads.items():
            assert is_path(path)
            assert 0 < len(text) <= MAX_NAME
            assert text.isascii()
            assert follow(memory, next(iter(found)), path) is None or True
    names = {text for leads in found.values() for text in leads.values()}
    might_be_supported(found)
    paths = supported(found, names) | confirmed(found, dict.fromkeys(found, "axpy"))
    led_to(memory, _BASE, paths)
    assert memory.reads < 200_000


def _device_memory(data: bytes) -> None:
    found = _Found()
    _search(data, found, _Memory(data), _BASE)
    assert all(len(name) <= MAX_NAME for name in found.names)


def _kernel_strings(data: bytes) -> None:
    def read(addresses: Sequence[int], end: int, longest: int) -> dict[int, bytes]:
        ask = TextsRequest(list(addresses), end, longest)
        return dict(zip(addresses, _texts(_Memory(data), ask), strict=True))  # type: ignore[arg-type]

    found = kernel_strings(read, (_BASE, _BASE + 4096), range(_BASE, _BASE + 256, 16), ("axpy", "scale"))
    assert set(found.values()) <= {"axpy", "scale"}


def _words(data: bytes) -> None:
    asked = np.sort(np.frombuffer(data[: len(data) // 2 // 8 * 8], np.uint64) % np.uint64(1 << 17)).astype(np.int64)
    assert len(read_words(_Memory(data), asked)) == len(asked)


def _code_objects(data: bytes) -> None:
    memory = _Memory(data)
    for layout in _LAYOUTS:
        codes = CodeObjects(memory, layout, budget_bytes=1 << 16)
        for code in (_BASE, _BASE + 256, _BASE):
            frame = codes.resolve(code, code + 300, owner=0)
            if isinstance(frame, PythonFrame):
                assert len(frame.qualname) <= 4 * 4096 + 1
                frame.qualname.encode()
                frame.filename.encode()


def _python_layout(data: bytes) -> None:
    minor = 13 + data[0] % 3 if data else 13
    raw = b"xdebugpy" + struct.pack("<Q", 3 << 24 | minor << 16 | 0xF0) + data[1:]
    raw = raw.ljust(DEBUG_OFFSETS_SIZE, b"\0")
    CodeObjects(_Memory(data * 8), layout_for((3, minor), raw)).resolve(_BASE, _BASE + 8)
    for kind in TssKind:
        slot = ThreadStateSlot(kind, 16)
        locate(PythonBinary((3, minor), 0, _BASE, ((0, 64),), slot, raw, 0, is_tail_call=False), 0, _Memory(data))


def _record(name: bytes) -> bytes:
    return (
        struct.pack("<8Q", 1, _BASE + 64, 3, 4, 5, 6, 7, 8)
        + struct.pack("<8Q", _BASE + 128, *range(7))
        + name.ljust(128, b"\0")
    )


def _code_object() -> bytes:
    """Return memory with something like a code object, its names and its table at the places of 3.11."""
    layout = layout_for((3, 11))
    raw = bytearray(1024)
    for offset, value in (
        (0, 5), (layout.code_filename, _BASE + 512), (layout.code_name, _BASE + 576), (layout.code_line_table, _BASE + 640),
        (512, 3), (528, 4), (544, 0x64), (576, 3), (592, 4), (608, 0x64), (640, 3), (656, 4), (672, 0x0A0A8080),
    ):  # fmt: skip
        struct.pack_into("<Q", raw, offset, value)
    struct.pack_into("<i", raw, layout.code_first_line, 10)
    return bytes(raw)


TARGETS = (
    Target("driver_records", _driver_records, lambda: [_record(b"axpy") * 4, _record(b"_Z5scalev")], (), 1024),
    Target("device_memory", _device_memory, lambda: [fatbin(), b"pad" + cubin(), b"\n.visible .entry k(\n"]),
    Target("kernel_strings", _kernel_strings, lambda: [b"axpy\0scale\0other"], (), 512),
    Target("words", _words, lambda: [bytes(range(256))], (), 1024),
    Target("code_objects", _code_objects, lambda: [_code_object()]),
    Target("python_layout", _python_layout, lambda: [bytes(1 + DEBUG_OFFSETS_SIZE)], (OtelGpuError,), 2048),
)
