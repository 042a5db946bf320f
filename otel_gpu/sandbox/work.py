"""What can be asked of a process without rights, and in which words do the two sides speak?

A piece of work is a function of files that are open and of an argument; it yields answers. Both sides import it, one to name it
and to read its answers, the other to do it. Frames on the socket between them are a head and a body in MessagePack,
checked against a type by whoever reads it: what comes back from work on a stranger's file is hostile input too.
"""

from __future__ import annotations

import enum
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from ..signals.structs import Frozen
from .files import File, FileId

A = TypeVar("A")
R = TypeVar("R")
Q = TypeVar("Q")

HEAD = struct.Struct("<IB")
"""Bytes of the body, kind of the frame."""
MAX_DESCRIPTORS = 200
"""With one message; the kernel takes 253."""


class FrameKind(enum.IntEnum):
    """What a frame says."""

    REQUEST = 1
    ASK = 2
    """A further question, to work that answers as long as it is asked."""
    STARTED = 3
    """The child's number: from here on what takes time is the work's own."""
    OPENED = 4
    CONFINED = 5
    """All files are open, or not, and all rights are given up: what follows is by work on strangers' files."""
    ANSWER = 6
    DONE = 7
    FAILED = 8


class Request(msgspec.Struct, frozen=True):
    """What a child is to do: the first frame it is sent."""

    work: str
    files: list[File]
    keep: bool
    """Hand the descriptors of the files back, too."""
    execute: bool
    """Map the files as code is mapped, so that the kernel shows there where probes are placed."""
    argument: bytes


GONE = frozenset({"FileNotFoundError", "ProcessLookupError"})
"""Classes of exceptions that say that a process, or a file, is not there any more."""


class Opened(msgspec.Struct, frozen=True):
    """What became of the file of this number: its identity and size, or why it is not open."""

    number: int
    id: FileId | None = None
    size: int = 0
    reason: str = ""
    error: str = ""
    """The name of the exception's class."""


class Failed(msgspec.Struct, frozen=True):
    """Why no more answers come."""

    error: str
    """The name of the exception's class."""
    reason: str


class OpenFile(Frozen):
    """A file as work gets it."""

    descriptor: int
    """-1 where it could not be opened."""
    id: FileId | None
    size: int
    path: str
    """As the stranger calls it, for messages."""
    reason: str = ""
    """Why it is not open, and the exception's class."""
    error: str = ""
    code: mmap.mmap | None = None
    """The file as a process that executes it has it, if that was asked for."""

    def read(self, offset: int, size: int) -> bytes:
        """Return what stands at an offset, less where the file ends; a process's ends with the process."""
        try:
            return os.pread(self.descriptor, size, offset)
        except ProcessLookupError:
            # The kernel says either, by how far the process has got with its end.
            return b""


class Work(Frozen, Generic[A, R]):
    """A function that is run by a process without rights: it yields answers until it is done."""

    function: Callable[[Sequence[OpenFile], A], Iterable[R]]
    argument: type[A]
    answer: type[R]

    @property
    def name(self) -> str:
        """Return where the other side finds it."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


class Service(Frozen, Generic[A, Q, R]):
    """A function that is run by a process without rights, and returns what answers questions as long as there are any."""

    function: Callable[[Sequence[OpenFile], A], Callable[[Q], R]]
    argument: type[A]
    question: type[Q]
    answer: type[R]

    @property
    def name(self) -> str:
        """Return where the other side finds it."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


def work(argument: type[A], answer: type[R]) -> Callable[[Callable[[Sequence[OpenFile], A], Iterable[R]]], Work[A, R]]:
    """Make a module's function a piece of work of the same name."""
    return lambda function: Work(function, argument, answer)


def service(
    argument: type[A], question: type[Q], answer: type[R]
) -> Callable[[Callable[[Sequence[OpenFile], A], Callable[[Q], R]]], Service[A, Q, R]]:
    """Make a module's function a service of the same name."""
    return lambda function: Service(function, argument, question, answer)


def frame(kind: FrameKind, body: bytes) -> bytes:
    """Return a frame as it is sent."""
    return HEAD.pack(len(body), kind) + body
