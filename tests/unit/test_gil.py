"""Who holds the GIL is told only where the interpreter's memory fits together."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.errors import OtelGpuError
from otel_gpu.sandbox.memory import MemoryFault
from otel_gpu.stacks.cpython.gil import holders
from otel_gpu.stacks.cpython.gil_place import gil_place
from otel_gpu.stacks.cpython.layout import layout_for
from otel_gpu.stacks.cpython.process import PythonProcess

_RUNTIME, _INTERPRETER, _STATE, _GIL, _PTHREAD = 0x1000, 0x8000, 0x20000, 0x30000, 0x40000
_LAYOUT = layout_for((3, 12))
_PYTHON = PythonProcess(_LAYOUT, (), 0, 0, 0, _RUNTIME + _LAYOUT.runtime_interpreters, 0, gil_place(12, None))


class Sparse:
    """Memory of words."""

    def __init__(self, words: dict[int, int]) -> None:
        self._words = words

    def read(self, address: int, size: int) -> bytes:
        if address % 8 or not any(address in range(base, base + 0x1000) for base in _PAGES):
            raise MemoryFault(f"{address:#x}")
        return b"".join(struct.pack("<Q", self._words.get(address + i, 0)) for i in range(0, size, 8))[:size]


_PAGES = (_RUNTIME, _INTERPRETER, _STATE, _GIL, _PTHREAD)


def _words(locked: int = 1) -> dict[int, int]:
    assert _PYTHON.gil is not None
    return {
        _PYTHON.interpreters: _INTERPRETER,
        _INTERPRETER + _PYTHON.gil.pointer: _GIL,
        _GIL + 8: _STATE,
        _GIL + 16: locked & 0xFFFFFFFF,
        _STATE + _LAYOUT.tstate_interp: _INTERPRETER,
        _STATE + _LAYOUT.tstate_thread_id: _PTHREAD,
        _STATE + _LAYOUT.tstate_native_id: 70,
        _PTHREAD: _PTHREAD,
        _PTHREAD + 16: _PTHREAD,
        _PTHREAD + 0x2D0: 71,
    }


def test_the_thread_is_the_one_that_the_c_library_names() -> None:
    assert holders(Sparse(_words()), _PYTHON) == [71]


def test_without_the_c_library_it_is_the_one_that_the_interpreter_names() -> None:
    assert holders(Sparse(_words() | {_PTHREAD + 16: 5}), _PYTHON) == [70]


def test_nobody_holds_what_is_free_or_was_never_made() -> None:
    assert holders(Sparse(_words(locked=0)), _PYTHON) == []
    assert holders(Sparse(_words(locked=-1)), _PYTHON) == []


def test_what_is_no_state_of_the_interpreters_holds_nothing() -> None:
    assert holders(Sparse(_words() | {_STATE + _LAYOUT.tstate_interp: 0x9000}), _PYTHON) == []


@given(st.dictionaries(st.sampled_from(sorted(_words())), st.sampled_from([0, 1, *_PAGES, 2**64 - 8, 2**63])))
def test_forged_memory_is_read_to_an_end(forged: dict[int, int]) -> None:
    try:
        assert len(holders(Sparse(_words() | forged), _PYTHON)) <= 256
    except OtelGpuError:
        pass


@given(st.integers(13, 15), st.binary(max_size=200))
def test_a_place_that_debug_offsets_forge_is_bounded(minor: int, raw: bytes) -> None:
    place = gil_place(minor, raw)
    assert place is None or (0 <= place.last_holder < 1 << 16 and 0 <= place.pointer <= 1 << 24)


def test_a_version_that_is_not_known_has_no_place() -> None:
    assert gil_place(16, None) is None
    assert gil_place(14, None) is None
