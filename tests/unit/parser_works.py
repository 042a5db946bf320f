"""Work for children without rights that tests/unit/test_parsers.py has done."""

from __future__ import annotations

# What is attempted must be there to be attempted: nothing can be imported any more.
import ctypes
import mmap
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence

from otel_gpu.sandbox.work import OpenFile, service, work

IMPORTED = (ctypes, mmap, resource, socket, time)


@work(int, bytes)
def head(files: Sequence[OpenFile], size: int) -> Iterator[bytes]:
    for file in files:
        if file.path.startswith("descriptor"):
            yield b"descriptor"
        else:
            yield file.read(0, size) if file.descriptor >= 0 else file.reason.encode()


@work(str, str)
def attempt(_files: Sequence[OpenFile], code: str) -> Iterator[str]:
    if code.startswith("x"):
        yield code
        return
    try:
        if code.startswith("while"):
            exec(code)
        yield str(eval(code))
    except OSError as e:
        yield f"{type(e).__name__}: {e.errno}"
    except ValueError as e:  # what setrlimit makes of EPERM
        yield f"PermissionError: {1 if 'not allowed' in str(e) else e}"


@work(int, list[int])
def descriptors(_files: Sequence[OpenFile], most: int) -> Iterator[list[int]]:
    found = []
    for number in range(most):
        try:
            os.lseek(number, 0, os.SEEK_CUR)
        except OSError as e:
            if e.errno == 9:
                continue
        found.append(number)
    yield found


@work(int, int)
def allocate(_files: Sequence[OpenFile], size: int) -> Iterator[int]:
    yield len(bytearray(size))


@work(str, int)
def cut(files: Sequence[OpenFile], _: str) -> Iterator[int]:
    while files[0].code is not None and files[0].code[5000]:
        pass
    yield 1


@work(str, bytes)
def some(files: Sequence[OpenFile], _: str) -> Iterator[bytes]:
    for file in files:
        if file.descriptor < 0:
            continue
        match file.read(0, 10):
            case b"fault":
                ctypes.string_at(0)
            case b"loop":
                while True:
                    pass
            case b"raise":
                raise ValueError(file.path)
            case content:
                yield content


@work(str, int)
def liar(_files: Sequence[OpenFile], _: str) -> Iterator[int]:
    yield "no number"  # type: ignore[misc]


@service(int, int, int)
def add(_files: Sequence[OpenFile], number: int) -> Callable[[int], int]:
    return lambda question: question + number


@service(int, int, int)
def pid(_files: Sequence[OpenFile], _: int) -> Callable[[int], int]:
    return lambda _question: os.getpid()
