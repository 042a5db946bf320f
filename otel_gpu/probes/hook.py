"""What is probed about one function: its prototype, its programs, and the parameters that matter?

Where a parameter lies follows from its position alone, by the platform's calling convention
(`argument_location`): every parameter is an integer or a pointer of at most 8 bytes, or a `dim3`, which is passed
as two of them. A larger structure by value takes a position on arm64 only, where it is a pointer to a copy.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from ..bpf.abi.cookies import ARGUMENT_NONE, FLAG_PER_THREAD
from ..bpf.abi.rows import Family
from ..sandbox.elf import EM_AARCH64, EM_X86_64
from .cookies import cookie

_MACHINE = EM_AARCH64 if platform.machine() == "aarch64" else EM_X86_64
_BY_VALUE = ("hipPitchedPtr ", "hipExtent ", "hipIpcMemHandle_t ", "CUipcMemHandle ")
_X86_64_REGISTERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_AARCH64_REGISTERS = tuple(f"x{n}" for n in range(8))


@dataclass(frozen=True)
class Hook:
    """One probed function: prototype, programs, and the parameters that matter, by name."""

    prototype: str
    """The C declaration without its return type, which is always an int-sized code."""
    family: Family | None
    """What is counted; None for calls that only inform."""
    program: str
    return_program: str | None = None
    kind: int = 0
    stream: str | None = None
    host: str | None = None
    """The parameter that points to host memory."""
    size: str | None = None
    """The parameter that holds a size, or points to the struct or array that does."""
    size2: str | None = None
    kind_at: str | None = None
    """The parameter that is the copy's kind; `host` and `out` are then where from and where to."""
    out: str | None = None
    """The parameter with the address, or with where the address will be written."""
    shift: int = 0
    flags: int = 0
    variants: tuple[str, ...] = ("",)
    """Suffixes under which the function is exported with the same parameters."""
    counts_as: str | None = None
    """The function under whose name and number it counts, where that is another one."""
    parameters: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", positions(self.prototype, _MACHINE))

    @cached_property
    def name(self) -> str:
        """The function's name without variant suffixes."""
        return self.prototype[: self.prototype.index("(")]

    def symbols(self) -> Iterator[tuple[str, bool]]:
        """Yield every exported name, and whether its stream 0 is the calling thread's own."""
        for suffix in self.variants:
            yield self.name + suffix, suffix.endswith(("_ptsz", "_ptds", "_spt"))

    def position(self, parameter: str | None) -> int:
        """Return the number of a parameter, from 0; ARGUMENT_NONE for None."""
        return ARGUMENT_NONE if parameter is None else self.parameters.index(parameter)

    def cookie(self, function: int, *, per_thread: bool) -> int:
        """Return the attach cookie for the function numbered `function`."""
        return cookie(
            function,
            kind=self.kind,
            flags=self.flags | (FLAG_PER_THREAD if per_thread else 0),
            stream=self.position(self.stream),
            host=self.position(self.host),
            size=self.position(self.size),
            size2=self.position(self.size2),
            out=self.position(self.out),
            shift=self.shift,
            kind_at=self.position(self.kind_at),
        )


def positions(prototype: str, machine: int) -> tuple[str, ...]:
    """Return what takes the positions of integer arguments: parameters, and the parts of small structures."""
    inside = prototype[prototype.index("(") + 1 : prototype.rindex(")")]
    names: list[str] = []
    for parameter in filter(None, map(str.strip, inside.split(","))):
        if machine == EM_X86_64 and is_by_value(parameter):
            continue
        name = re.split(r"[\s*]+", parameter)[-1]
        names += (name, f"{name}.z") if parameter.startswith("dim3 ") else (name,)
    return tuple(names)


def is_by_value(parameter: str) -> bool:
    """Say whether a parameter is a structure that no register holds."""
    return parameter.startswith(_BY_VALUE) and "*" not in parameter


def argument_location(position: int, machine: int) -> str:
    """Say where integer argument `position` lies at a function's entry: a register, or `[sp+n]`."""
    registers, first = {EM_X86_64: (_X86_64_REGISTERS, 8), EM_AARCH64: (_AARCH64_REGISTERS, 0)}[machine]
    if position < len(registers):
        return registers[position]
    return f"[sp+{first + 8 * (position - len(registers))}]"


class HasPrograms(Protocol):
    """What places a program at a function's entry, and maybe one at its return."""

    @property
    def program(self) -> str: ...

    @property
    def return_program(self) -> str | None: ...


def programs_of(hooks: Iterable[HasPrograms]) -> set[str]:
    """Return the programs that hooks place."""
    return {program for hook in hooks for program in (hook.program, hook.return_program) if program}
