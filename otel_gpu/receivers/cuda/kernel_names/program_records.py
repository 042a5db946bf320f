"""Which kernels do a program's own records name, of those that nothing else did?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from .kernel_strings import kernel_strings
from .launches import Launch, Module, caller, held, stub_name
from .program_memory import ProgramMemory
from .programs import KnownProgram
from .records import told_by_records


def told_by_program(
    memory: ProgramMemory, known: KnownProgram, launches: Collection[Launch], originals: Mapping[int, int]
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
    found = _told_by_variables(known, callers, memory)
    places = memory.places({*possible, *known.told}, avoided=stacks)
    return found | told_by_records(places, known.told, possible, partial(stub_name, known.with_stubs()))


def _told_by_variables(known: KnownProgram, callers: Mapping[int, Module], memory: ProgramMemory) -> dict[int, str]:
    """Return what the libraries that launch unknown kernels say of them in their own variables."""
    found: dict[int, str] = {}
    for module in {m.extent: m for m in callers.values()}.values():
        if module.stubs is None or not module.has_kernels:
            continue
        wanted = {handle: None for handle, caller in callers.items() if caller.extent == module.extent}
        places = memory.places({*wanted, *known.told}, module.extent)
        words = {word for its in places.values() for place in its for word in place}
        names = kernel_strings(memory.texts, module.extent, words, module.stubs.names)
        found |= told_by_records(places, known.told, wanted, names.get)
    return found
