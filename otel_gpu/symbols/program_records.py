"""Which kernels do a program's own records name, of those that nothing else did?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from ..process.memory import ProcessMemory, memory_of
from .kernel_strings import KernelStrings
from .launches import Launch, Module, caller, held, stub_name
from .programs import KnownProgram
from .records import told_by_records
from .residents import allocated, find_places, variables


def told_by_program(
    pid: int, known: KnownProgram, launches: Collection[Launch], originals: Mapping[int, int]
) -> dict[int, str]:
    """Return names of launches' handles; `originals` are the handles that these stand for, or they themselves."""
    possible: dict[int, frozenset[str]] = {}
    callers: dict[int, Module] = {}
    for launch in launches:
        names = held(launch, known.modules)
        module = caller(launch, known.modules)
        for handle in (launch.handle, originals[launch.handle]):
            possible[handle] = possible.get(handle, names) & names
            if module is not None:
                callers[handle] = module
    stacks = {launch.sp for launch in launches}
    with memory_of(pid) as memory:
        found = _told_by_variables(known, callers, memory, pid)
    places = find_places(pid, {*possible, *known.told}, allocated(pid, stacks))
    return found | told_by_records(places, known.told, possible, partial(stub_name, known.with_stubs()))


def _told_by_variables(
    known: KnownProgram, callers: Mapping[int, Module], memory: ProcessMemory, pid: int
) -> dict[int, str]:
    """Return what the libraries that launch unknown kernels say of them in their own variables."""
    found: dict[int, str] = {}
    for module in {m.extent: m for m in callers.values()}.values():
        if module.stubs is None or not module.has_kernels:
            continue
        wanted = {handle: None for handle, caller in callers.items() if caller.extent == module.extent}
        places = find_places(pid, {*wanted, *known.told}, variables(pid, module.extent))
        names = KernelStrings(memory, module.extent, module.stubs.names)
        found |= told_by_records(places, known.told, wanted, names.at)
    return found
