"""Where are PyTorch's backward pass and its tensors seen? Functions of its libraries, and the returns out of them.

The functions throw, so a return is seen at the function's own `ret` instructions (`returns.py`); a call that an
exception ends is not seen to return.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from os.path import basename

import numpy as np

from ..sandbox.elf import SHT_NOBITS, STT_FUNC, ElfFile, Symbol
from ..signals.profiles import TENSOR_ALLOC_SPACE, TENSOR_INUSE_SPACE, ProfileType
from ..signals.structs import Frozen
from .attach import PlannedProbe
from .cookies import BACKWARD_FUNCTION, TENSOR_FUNCTION, cookie
from .returns import ways_out
from .sites import Cost, SiteRules, site_for_symbol

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_MAX_MATCHES = 16


class TorchHook(Frozen):
    """One function of PyTorch: its mangled name, and the programs at its entry and its returns."""

    library: str
    symbol: bytes
    """A regular expression; what is mangled differs a little from version to version."""
    program: str
    return_program: str | None
    cookie: int


_BACKWARD = (
    TorchHook(
        "libtorch_cpu.so",
        rb"_ZN5torch8autograd6Engine7executeERKSt6vector\w+",
        "profile_backward",
        "profile_backward_done",
        cookie(BACKWARD_FUNCTION),
    ),
)
_ALLOCATOR = rb"_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator"
_TENSORS = (
    # malloc(this, void** out, device, size_t size, stream): allocate() and raw_alloc() come through here.
    TorchHook(
        "libc10_cuda.so",
        _ALLOCATOR + rb"6mallocEPPv[ai]mP11CUstream_st",
        "profile_tensor",
        "profile_tensor_made",
        cookie(TENSOR_FUNCTION, size=3, out=1),
    ),
    # free(this, void*), and local_raw_delete(void*), into which it is inlined.
    TorchHook(
        "libc10_cuda.so",
        _ALLOCATOR + rb"4freeEPv",
        "profile_tensor_free",
        None,
        cookie(TENSOR_FUNCTION, out=1),
    ),
    TorchHook(
        "libc10_cuda.so",
        rb"_ZN3c104cuda20CUDACachingAllocator6NativeL?16local_raw_deleteEPv",
        "profile_tensor_free",
        None,
        cookie(TENSOR_FUNCTION, out=0),
    ),
)


def torch_hooks(types: Iterable[ProfileType]) -> tuple[TorchHook, ...]:
    """Return what profiles of these types need of PyTorch: whatever they show can be part of a backward pass."""
    names = {t.name for t in types}
    return (*_BACKWARD, *(_TENSORS if names & {TENSOR_ALLOC_SPACE.name, TENSOR_INUSE_SPACE.name} else ()))


def plan_torch(elf: ElfFile, name: str, hooks: Iterable[TorchHook], rules: SiteRules) -> list[PlannedProbe]:
    """Resolve the functions of one library; what cannot be probed has a reason."""
    probes: list[PlannedProbe] = []
    for hook in hooks:
        if hook.library != basename(name):
            continue
        found = list(_matching(elf, hook.symbol))
        if not found:
            what = hook.symbol.decode()
            reason = f"{basename(name)} has no symbol for it: it is stripped, or of another version of PyTorch"
            probes.append(PlannedProbe(what, hook.program, None, None, "", 0, Cost.NONE, hook.cookie, reason))
        for symbol in found:
            probes += _plan(elf, symbol, hook, rules)
    return probes


def _plan(elf: ElfFile, symbol: Symbol, hook: TorchHook, rules: SiteRules) -> Iterator[PlannedProbe]:
    site = site_for_symbol(elf, symbol, rules)
    returns = list(ways_out(elf, symbol).returns) if hook.return_program and rules.allow_single_step else []
    reason = site.reason
    if hook.return_program and not returns:
        reason = "no return instruction in it can be probed"
    if site.cost is Cost.NONE or (hook.return_program and not returns):
        yield PlannedProbe(symbol.name, hook.program, None, None, "", 0, Cost.NONE, hook.cookie, reason)
        return
    if hook.return_program:
        # Returns before entries: an entry without its return would leave a call waiting for ever.
        for address in returns:
            yield PlannedProbe(
                symbol.name,
                hook.return_program,
                None,
                elf.to_offset(address),
                "ret",
                address - symbol.value,
                Cost.SINGLE_STEPPED,
                hook.cookie,
            )
    offset = elf.to_offset(symbol.value + site.offset)
    yield PlannedProbe(
        symbol.name, hook.program, None, offset, site.instruction, site.offset, site.cost, hook.cookie, reason
    )


def _matching(elf: ElfFile, pattern: bytes) -> Iterator[Symbol]:
    """Yield the functions whose whole name matches, without a look at the hundred thousands of others."""
    whole = re.compile(rb"\0(" + pattern + rb")(?=\0)")
    seen: set[int] = set()
    for name in (".dynsym", ".symtab"):
        section = elf.section(name)
        if section is None or section.type == SHT_NOBITS or section.link >= len(elf.sections):
            continue
        strings = elf.section_data(elf.sections[section.link])
        data = elf.section_data(section)
        table = np.frombuffer(data, _SYMBOL, count=len(data) // _SYMBOL.itemsize)
        for match in islice(whole.finditer(strings), _MAX_MATCHES):
            for row in table[(table["name"] == match.start(1)) & (table["section"] != 0)]:
                _name, info, _other, index, value, size = row.tolist()
                if value not in seen and info & 15 == STT_FUNC:
                    seen.add(value)
                    yield Symbol(match[1].decode(), value, size, info & 15, info >> 4 != 0, index)
        if seen:
            # .symtab holds the same again, and its strings can take a hundred megabytes.
            return
