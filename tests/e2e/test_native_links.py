"""Are stacks on the CPU whole in programs that are linked in other ways: static, without a C library, packed?"""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import CPU, Stack, is_truncated
from tests.e2e.native_builds import BARE, Build, lld, without_both, without_sections
from tests.e2e.processes import Program
from tests.e2e.samples import record_samples, stacks_of
from tests.e2e.stack_truth import Address, Places

_MUSL = ("musl-gcc", "musl-gcc")
_NO_TABLES = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
_NO_LIBRARY = ("-nostdlib", "-static", "-no-pie")
WHOLE = [
    Build("static", link=("-static",), with_cxx=False),
    Build("static-pie", ("-O2", "-fPIE"), ("-static-pie",), with_cxx=False),
    Build("static-stripped", link=("-static", "-s"), with_cxx=False),
    Build("static-no-sections", link=("-static", "-Wl,--eh-frame-hdr"), with_cxx=False, change=without_sections),
    Build("static-lld", link=("-static", *lld()), with_cxx=False),
    Build("no-library", ("-O2", "-fno-stack-protector"), _NO_LIBRARY, with_cxx=False, source=BARE),
    Build(
        "no-library-frame-pointers",
        ("-O2", "-fno-stack-protector", "-fno-omit-frame-pointer", *_NO_TABLES),
        _NO_LIBRARY,
        with_cxx=False,
        source=BARE,
    ),
]
CUT = [
    # Built without tables by its maintainers: stacks end at its first function.
    Build("musl", link=("-static",), compilers=_MUSL, with_cxx=False),
    Build("musl-dynamic", compilers=_MUSL, with_cxx=False),
    Build(
        "no-library-no-tables",
        ("-O2", "-fno-stack-protector", "-fomit-frame-pointer", *_NO_TABLES),
        _NO_LIBRARY,
        with_cxx=False,
        source=BARE,
    ),
    # Static programs have no header of their tables unless the linker is told to make one.
    Build("static-nothing-leads-to-tables", link=("-static",), with_cxx=False, change=without_both),
    Build("packed", link=("-static",), with_cxx=False, packed=True),
]
_SPIN_S = 300


def _stacks(build: Build, directory: Path) -> tuple[list[Address], list[Stack]]:
    program_file = build.make(directory)
    with Program([program_file, "spin", str(_SPIN_S)], directory) as program:
        said = program.event("spinning")["stack"]
        with Recording(program.pid, (CPU,)) as recorder:
            profiles = record_samples(recorder, 60)
        places = Places(program.pid)
        assert isinstance(said, list)
        return [places.of(a) for a in said], stacks_of(profiles)


def _assert_equal(truth: list[Address], stack: Stack, *, may_be_cut: bool = False) -> None:
    """Compare frames from the caller of the loop on; 0 stands for frames of a library that is part of the program."""
    is_cut = is_truncated(stack)
    assert may_be_cut or not is_cut, stack[-1].function
    at = [(f.mapping.path, f.address) for f in stack if f.mapping is not None]
    first = next((i for i, (path, address) in enumerate(at) if (path, address + 1) == truth[0]), None)
    assert first is not None, f"the loop's caller is missing: {stack}"
    assert first <= 4, f"more than the loop and what it calls: {stack}"
    rest = at[first:]
    gap = False
    for path, address in truth:
        if not address:
            gap = True
            continue
        while gap and rest and not _is_at(rest[0], path, address):
            rest.pop(0)
        if is_cut and not rest:
            return
        assert rest, f"{path}+{address:#x} is missing: {stack}"
        assert _is_at(rest[0], path, address), f"{path}+{address:#x} is missing; next captured: {rest[0]}"
        rest.pop(0)
        gap = False
    assert len(rest) <= 3, f"not in the truth: {rest}"


def _is_at(frame: Address, path: str, address: int) -> bool:
    # A call's frame is at the call; the frame that a signal interrupted is where it stood.
    return frame in ((path, address - 1), (path, address))


@pytest.mark.parametrize("build", WHOLE, ids=lambda b: b.name)
def test_every_stack_reaches_the_programs_start(build: Build, tmp_path: Path) -> None:
    truth, stacks = _stacks(build, tmp_path)

    assert stacks
    for stack in stacks:
        _assert_equal(truth, stack)


@pytest.mark.parametrize("build", CUT, ids=lambda b: b.name)
def test_what_cannot_be_walked_is_cut_and_nothing_is_invented(build: Build, tmp_path: Path) -> None:
    truth, stacks = _stacks(build, tmp_path)

    assert stacks
    for stack in stacks:
        assert is_truncated(stack)
        if len(stack) > 4:
            _assert_equal(truth, stack, may_be_cut=True)
