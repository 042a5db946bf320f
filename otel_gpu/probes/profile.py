"""Where are stacks taken, and by which program? The same functions as the counts', with other programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from ..bpf.abi.samples import Submitted
from ..discovery.libraries import LibraryKind
from ..signals.profiles import (
    CPU,
    GPU_ALLOC_SPACE,
    GPU_COPY,
    GPU_LAUNCHES,
    GPU_MEMORY_VIEWS,
    GPU_WAIT,
    OFF_CPU,
    ProfileType,
    shows_gpu_time,
)
from .hook import Hook, programs_of
from .table import TABLES
from .torch import torch_hooks

LAUNCH, WAIT, COPY, ALLOC, FREE = "launch", "wait", "copy", "alloc", "free"

CPU_PROGRAM = "profile_cpu"
"""On the CPUs' timers,"""
CPU_OF_REQUESTS_PROGRAM = "profile_cpu_of_requests"
"""or where requests are followed."""

OFF_CPU_PROGRAMS = ("profile_switch", "profile_wakeup")
"""On the scheduler's tracepoints, not in a library."""

RELEASE_PROGRAM = "release_entries"
"""Run by the agent."""

END_PROGRAMS = ("profile_thread_ends", "profile_program_begins")
"""On the tracepoints of exit and exec."""

SUBMISSION_PROGRAMS = {
    Submitted.FIRST: "profile_submitted_first",
    Submitted.SECOND: "profile_submitted_second",
    Submitted.OTHER: "profile_submitted_other",
}
"""They go on where the programs that count have counted a submission."""

_PROGRAMS = {
    # program of the table: (what is sampled, its programs here)
    "launch_kernel": (LAUNCH, "profile_launch", None),
    "launch_kernel_ex": (LAUNCH, "profile_launch", None),
    "launch_dim3": (LAUNCH, "profile_launch", None),
    "launch_threads": (LAUNCH, "profile_launch", None),
    "launch_graph": (LAUNCH, "profile_launch", None),
    "copy_linear": (COPY, "profile_copy_linear", "profile_copy_done"),
    "copy_2d": (COPY, "profile_copy_2d", "profile_copy_done"),
    "copy_3d": (COPY, "profile_copy_3d", "profile_copy_done"),
    "copy_parms": (COPY, "profile_copy_parms", "profile_copy_done"),
    "copy_outer": (COPY, "profile_copy_outer", "profile_copy_outer_done"),
    "copy_linear_async": (COPY, "profile_copy_linear_async", None),
    "copy_2d_async": (COPY, "profile_copy_2d_async", None),
    "copy_3d_async": (COPY, "profile_copy_3d_async", None),
    "copy_parms_async": (COPY, "profile_copy_parms_async", None),
    "wait": (WAIT, "profile_wait", "profile_wait_done"),
    "alloc": (ALLOC, "profile_alloc", "profile_alloc_done"),
    "alloc_extent": (ALLOC, "profile_alloc_extent", "profile_alloc_done"),
    "release": (FREE, "profile_free", "profile_free_done"),
    "handle_call": (FREE, "profile_free", "profile_free_done"),
}
_NEEDED: dict[str, frozenset[str]] = {
    GPU_LAUNCHES.name: frozenset({LAUNCH}),
    GPU_WAIT.name: frozenset({WAIT, COPY}),
    GPU_COPY.name: frozenset({COPY}),
    GPU_ALLOC_SPACE.name: frozenset({ALLOC}),
    **{view.name: frozenset({ALLOC, FREE}) for view in GPU_MEMORY_VIEWS},
}


_RELEASES = frozenset({"cuMemRelease", "hipMemRelease"})


def hooks_for(types: Iterable[ProfileType], kind: LibraryKind) -> Iterator[Hook]:
    """Yield the hooks that profiles of these types need in a library of this kind."""
    needed = frozenset[str]().union(*(_NEEDED.get(t.name, frozenset()) for t in types))
    for hook in TABLES.get(kind, ()):
        sampled, program, return_program = _PROGRAMS.get(hook.program, (None, "", None))
        if sampled not in needed or (hook.program == "handle_call" and hook.name not in _RELEASES):
            continue
        changes: dict[str, object] = {"program": program, "return_program": return_program}
        if sampled == LAUNCH:
            changes["out"] = "exec" if "exec" in hook.parameters else "function"
        yield dataclasses.replace(hook, **changes)  # type: ignore[arg-type]


def programs_for(types: Sequence[ProfileType], *, follows_requests: bool = False) -> set[str]:
    """Return the programs that profiles of these types need, in libraries and elsewhere."""
    names = {t.name for t in types}
    needed = programs_of(hook for kind in TABLES for hook in hooks_for(types, kind)) | programs_of(torch_hooks(types))
    needed |= {*END_PROGRAMS, RELEASE_PROGRAM}
    if CPU.name in names:
        needed.add(CPU_OF_REQUESTS_PROGRAM if follows_requests else CPU_PROGRAM)
    if OFF_CPU.name in names:
        needed |= {*OFF_CPU_PROGRAMS}
    if shows_gpu_time(types):
        needed |= {*SUBMISSION_PROGRAMS.values()}
    return needed
