"""How does this kernel place our programs? By multi links, by perf events, or by one copy of a program a site."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..errors import AttachError, UnsupportedKernelError
from ..runtime.privileges import perform
from .features import load_program, probe
from .function_types import FunctionTypes
from .link_mode import LinkMode, usable_mode
from .links import BPF_TRACE_UPROBE_MULTI, Link, Placement, attach_multi, attach_perf
from .object import BpfObject

_LOAD_IMM64 = 0x18
_COOKIE_PLACEHOLDER = 0x0C00C1E0C00C1E0C
"""Stands in the programs where kernels below 5.15 need the cookie as a number (ebpf/lib/arguments.bpf.h)."""


class ObjectLinker:
    """Places the programs of one loaded object."""

    def __init__(self, bpf_object: BpfObject, mode: LinkMode = "auto") -> None:
        """Choose how, as `usable_mode` does."""
        self.mode: LinkMode = usable_mode(mode, probe())
        self._object = bpf_object
        self._programs: dict[str, int] = {}
        self._known_types: dict[str, FunctionTypes | None] = {}
        """Of programs of which copies were loaded."""

    def need_loops(self, what: str) -> None:
        """UnsupportedKernelError where the programs of `what` cannot be placed, because they use bpf_loop."""
        if self.mode == "copies":
            raise UnsupportedKernelError(
                f"{what} cannot be had where each probe is a copy of its program, which has no bpf_loop; leave "
                "receivers.cuda.link at auto"
            )

    @property
    def descriptors_per_site(self) -> int:
        """How many descriptors a site takes; 0 where all sites of a program take one together."""
        return {"multi": 0, "perf": 2}.get(self.mode, 1)

    def attach_type(self, _program: str) -> int | None:
        """Return the attach type to load a program with."""
        return BPF_TRACE_UPROBE_MULTI if self.mode == "multi" else None

    def place(self, program: str, path: str, sites: Sequence[Placement], *, at_return: bool, pid: int = 0) -> Link:
        """Place a program on the sites of one file, in one process or in all; AttachError when the kernel refuses one."""
        if not self._programs:
            self._programs = self._object.programs()
        if self.mode == "multi":
            return attach_multi(self._programs[program], path, sites, at_return=at_return, pid=pid)
        return perform(self._place_each, program, path, sites, at_return, pid)

    def _place_each(self, program: str, path: str, sites: Sequence[Placement], at_return: bool, pid: int) -> Links:
        links = Links()
        try:
            for site in sites:
                links.add(self._place_one(program, path, site, at_return, pid))
        except BaseException:
            links.close()
            raise
        return links

    def _place_one(self, program: str, path: str, site: Placement, at_return: bool, pid: int) -> Link:
        if self.mode == "perf":
            return attach_perf(self._programs[program], path, site, at_return=at_return, cookies=True, pid=pid)
        try:
            instructions = with_cookie(self._object.instructions(program), site.cookie)
            fd = load_program(instructions, name=program.encode(), types=self._types(program))
        except OSError as e:
            raise AttachError(f"cannot probe {path} at offset {site.offset:#x}: {program}: {e.strerror}") from e
        try:
            return attach_perf(fd, path, site, at_return=at_return, cookies=False, pid=pid)
        finally:
            os.close(fd)

    def _types(self, program: str) -> FunctionTypes | None:
        if program not in self._known_types:
            self._known_types[program] = self._object.types(program)
        return self._known_types[program]


class Links(Link):
    """Several links that live and end together."""

    def __init__(self) -> None:
        super().__init__(())
        self._links: list[Link] = []

    def add(self, link: Link) -> None:
        self._links.append(link)

    def close(self) -> None:
        while self._links:
            self._links.pop().close()


def with_cookie(instructions: bytes, cookie: int) -> bytes:
    """Put a cookie in place of the placeholder, which is one 64-bit load of two instructions."""
    code = bytearray(instructions)
    low, high = _COOKIE_PLACEHOLDER & 0xFFFFFFFF, _COOKIE_PLACEHOLDER >> 32
    for at in range(0, len(code) - 8, 8):
        if (
            code[at] == _LOAD_IMM64
            and int.from_bytes(code[at + 4 : at + 8], "little") == low
            and int.from_bytes(code[at + 12 : at + 16], "little") == high
        ):
            code[at + 4 : at + 8] = (cookie & 0xFFFFFFFF).to_bytes(4, "little")
            code[at + 12 : at + 16] = (cookie >> 32).to_bytes(4, "little")
    return bytes(code)
