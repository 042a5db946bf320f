"""Where does a CPython have what copies and frees its contexts? Asked of the one that runs this."""

from __future__ import annotations

import contextvars
import ctypes
import os
from collections.abc import Iterator

import pytest

from otel_gpu.sandbox.memory import ProcessMemory
from otel_gpu.stacks.cpython.context_sites import method_of

_METHOD_OF_DESCRIPTOR = 40
"""`PyMethodDescrObject.d_method`, a `PyMethodDef`: Include/cpython/descrobject.h."""


@pytest.fixture
def memory() -> Iterator[ProcessMemory]:
    descriptor = os.open("/proc/self/mem", os.O_RDONLY)
    yield ProcessMemory(descriptor)
    os.close(descriptor)


@pytest.mark.parametrize("name", ["copy", "run", "items"])
def test_a_types_method_is_found_by_its_name(memory: ProcessMemory, name: str) -> None:
    method = ctypes.c_uint64.from_address(id(vars(contextvars.Context)[name]) + _METHOD_OF_DESCRIPTOR).value
    function = ctypes.c_uint64.from_address(method + 8).value

    assert method_of(memory, id(contextvars.Context), name) == function != 0


def test_what_is_no_method_or_no_type_has_no_address(memory: ProcessMemory) -> None:
    assert method_of(memory, id(contextvars.Context), "cop") == 0
    assert method_of(memory, 0, "copy") == 0
    assert method_of(memory, 1 << 60, "copy") == 0
    not_a_type = ctypes.create_string_buffer(b"\xff" * 512)
    assert method_of(memory, ctypes.addressof(not_a_type), "copy") == 0
