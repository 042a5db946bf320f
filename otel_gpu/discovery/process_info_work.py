"""With which arguments and variables was a process started? Read by a child: they lie in that process's own memory.

What a process has put behind these addresses may never answer: pages of a userfaultfd, or of a file system of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ..sandbox.confinement import Limits
from ..sandbox.files import RefusedFileError
from ..sandbox.work import OpenFile, work

READING = Limits(answer_s=1.0, cpu_s=2, memory_bytes=64 << 20, answer_bytes=4 << 20)

_MAX_COMMAND = 64 << 10
"""Bytes; the program, and the script of an interpreter, stand in front."""
_MAX_ENVIRONMENT = 1 << 20
_PIECE = 64 << 10


class Strings(msgspec.Struct, frozen=True):
    """The strings of one of the two."""

    strings: list[bytes]
    error: str = ""
    """The name of the exception's class, where there may be more."""


@work(list[bytes], Strings)
def read_start(files: Sequence[OpenFile], names: list[bytes]) -> Iterator[Strings]:
    """Yield of each process what stands in its `cmdline`, and then, of its `environ`, the variables of these names."""
    wanted = tuple(name + b"=" for name in names)
    for command, environment in zip(files[::2], files[1::2]):
        arguments, error = _strings(command, _MAX_COMMAND)
        yield Strings(arguments, error)
        entries, error = _strings(environment, _MAX_ENVIRONMENT)
        yield Strings([entry for entry in entries if entry.startswith(wanted)], error)


@work(type(None), bool)
def are_there(files: Sequence[OpenFile], _: None) -> Iterator[bool]:
    """Yield of each file whether there is one of its name, whatever it is."""
    for file in files:
        yield file.error in ("", RefusedFileError.__name__)


def _strings(file: OpenFile, limit: int) -> tuple[list[bytes], str]:
    """Return the strings that are complete, and why there may be more."""
    if file.descriptor < 0:
        return [], file.error
    data, error = bytearray(), ""
    try:
        while len(data) < limit and (piece := file.read(len(data), min(_PIECE, limit - len(data)))):
            data += piece
    except OSError as e:
        error = type(e).__name__
    return bytes(data).split(b"\0")[:-1], error
