"""Which kernel does a launch's own stack speak for? The registers and words of a thread that calls the driver."""

from __future__ import annotations

import struct

from ....discovery.program_id import ProgramId
from ....sandbox.files import FileId, MappedFile
from ....signals.structs import Frozen
from .stub_map import StubMap

_MAX_FRAMES = 24


class Launch(Frozen):
    """A launch of a kernel that is not known: the calling thread's registers and the top of its stack."""

    program: ProgramId
    handle: int
    ip: int
    sp: int
    fp: int
    saved: tuple[int, ...]
    stack: bytes


class Module(Frozen):
    """A mapped file, and the kernels that it registers."""

    start: int
    end: int
    bias: int
    name: str
    stubs: StubMap | None
    """None where they are still to be read, which takes long."""
    extent: tuple[int, int]
    """Where the whole file is mapped, its variables too."""
    file: MappedFile | None = None
    """By which it can be opened."""
    id: FileId | None = None
    """Which file it is; None where it could not be opened."""

    @property
    def has_kernels(self) -> bool:
        """Whether it has kernels, as far as is known."""
        return self.stubs is not None and bool(self.stubs.stubs)


def told_by_stack(launch: Launch, modules: list[Module]) -> str | None:
    """Return the one name that the launching thread's stack speaks for, None where it is not one.

    The driver's and the runtime's frames keep frame pointers. Outwards from the launch, the first function that
    mentions stubs is the caller; if it mentions several, the stub is among those still on the stack below it. Only the
    library that launches is asked: whoever calls cuBLAS may launch a kernel of its own, too.
    """
    words = _words(launch)
    launcher: Module | None = None
    for end, address in _frames(launch, words):
        module = module_at(modules, address)
        if module is None or not (module.stubs is None or module.has_kernels):
            continue
        if module.extent != (launcher := launcher or module).extent or module.stubs is None:
            break
        names = module.stubs.names_used_at(address - module.bias)
        if len(names) == 1:
            return next(iter(names))
        if names:
            below = words[: max((end - launch.sp) // 8, 0)]
            return _only(names & _stubs_among((*launch.saved, *below), modules))
    return None


def unread_launcher(launch: Launch, modules: list[Module]) -> Module | None:
    """Return the library that launches, if its kernels are still to be read before its stack can be asked."""
    for _, address in _frames(launch, _words(launch)):
        module = module_at(modules, address)
        if module is not None and (module.stubs is None or module.has_kernels):
            return module if module.stubs is None else None
    return None


def _words(launch: Launch) -> tuple[int, ...]:
    return struct.unpack(f"<{len(launch.stack) // 8}Q", launch.stack)


def _frames(launch: Launch, words: tuple[int, ...]) -> list[tuple[int, int]]:
    """Follow frame pointers from the launch through the copied stack: (where the frame ends, return address)."""
    found = [(launch.sp, words[0])]
    fp = launch.fp
    for _ in range(_MAX_FRAMES):
        at = (fp - launch.sp) // 8
        if fp % 8 or not 0 <= at < len(words) - 1:
            break
        found.append((fp + 16, words[at + 1]))
        if words[at] <= fp:
            break
        fp = words[at]
    return found


def held(launch: Launch, modules: list[Module]) -> frozenset[str]:
    """Return the kernels whose stubs stand in the launching thread's registers or on its stack."""
    return _stubs_among((*launch.saved, *_words(launch)), modules)


def _stubs_among(words: tuple[int, ...], modules: list[Module]) -> frozenset[str]:
    names = (stub_name(modules, word) for word in words)
    return frozenset(name for name in names if name is not None)


def stub_name(modules: list[Module], word: int) -> str | None:
    """Return the kernel whose stub is at an address of the process."""
    module = module_at(modules, word)
    return None if module is None or module.stubs is None else module.stubs.name_of(word - module.bias)


def caller(launch: Launch, modules: list[Module]) -> Module | None:
    """Return the module that called the driver."""
    (first,) = struct.unpack_from("<Q", launch.stack)
    return module_at(modules, first)


def launching_file(launch: Launch, modules: list[Module]) -> str | None:
    """Return the file that a launch comes from: where the driver was called by code of no file, the next one outwards."""
    for _, address in _frames(launch, _words(launch)):
        if (module := module_at(modules, address)) is not None:
            return module.name
    return None


def _only(names: frozenset[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None


def module_at(modules: list[Module], address: int) -> Module | None:
    """Return the module that is mapped at an address."""
    for module in modules:
        if module.start <= address < module.end:
            return module
    return None
