"""What is this kernel handle called? Names as the driver was asked for them, and as origins tell them.

A name is known when the program asked the driver for the kernel while we looked (cuModuleGetFunction,
cuLibraryGetKernel), or when the place that launched it gives it away. Else the handle is all there is, and
the answer says so: a name is never made up.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

_MAX_KERNELS = 200_000
"""Of one process; what is named beyond that stays a handle."""
_MAX_NAME = 4096
_CONTROL = {c: f"\\x{c:02x}" for c in (*range(32), 127)}

Program = tuple[int, int]
"""(tgid, incarnation)."""


@dataclass(slots=True)
class _Names:
    by_handle: OrderedDict[int, str] = field(default_factory=OrderedDict)
    modules: dict[int, set[int]] = field(default_factory=dict)
    aliases: dict[int, set[int]] = field(default_factory=dict)


class KernelBook:
    """The kernel names of the observed programs. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: dict[Program, _Names] = {}
        self.refused = 0
        """Names that were not kept, because a program has too many kernels."""

    def learn(self, program: Program, handle: int, name: str, module: int = 0) -> None:
        """Note a kernel's name."""
        with self._lock:
            names = self._programs.setdefault(program, _Names())
            if len(names.by_handle) >= _MAX_KERNELS and handle not in names.by_handle:
                self.refused += 1
                return
            names.by_handle[handle] = printable(name)
            if module:
                names.modules.setdefault(module, set()).add(handle)

    def alias(self, program: Program, handle: int, original: int) -> None:
        """Note that a handle stands for the same kernel as another."""
        with self._lock:
            names = self._programs.setdefault(program, _Names())
            if handle != original and original in names.by_handle and len(names.by_handle) < _MAX_KERNELS:
                names.by_handle[handle] = names.by_handle[original]
                names.aliases.setdefault(original, set()).add(handle)

    def unload(self, program: Program, module: int) -> None:
        """Forget which handles belong to a module that is gone: they may be given out again.

        The names stay until a handle is named anew, for launches that are still to be counted.
        """
        with self._lock:
            names = self._programs.get(program)
            if names is not None:
                names.modules.pop(module, None)

    def name(self, program: Program, handle: int) -> str | None:
        """Return a kernel's name, None where it is not known."""
        with self._lock:
            names = self._programs.get(program)
            return None if names is None else names.by_handle.get(handle)

    def forget(self, program: Program) -> None:
        """Drop a program that has ended."""
        with self._lock:
            self._programs.pop(program, None)


def printable(name: str) -> str:
    """Bound a name and escape what must not reach a terminal or a label."""
    if len(name) > _MAX_NAME:
        name = name[: _MAX_NAME - 1] + "…"
    return name.translate(_CONTROL)
