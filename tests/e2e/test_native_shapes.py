"""Are native stacks what the program wrote down itself, however it was compiled, linked and stripped?"""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gpu.signals.profiles import Stack, is_truncated
from tests.e2e.native_builds import Build, lld, without_both, without_frame_header, without_sections
from tests.e2e.processes import Program
from tests.e2e.stack_truth import Address, Places, one_phase
from tests.e2e.trails import assert_equal

_CLANG = ("clang-14", "clang++-14")
WITH_TABLES = [
    Build("O2", link=("-Wl,-z,lazy",)),
    Build("O0", ("-O0",)),
    Build("Os", ("-Os",)),
    Build("O3", ("-O3", "-march=native")),
    Build("frame-pointers", ("-O2", "-fno-omit-frame-pointer")),
    Build("pushed-arguments", ("-O2", "-mno-accumulate-outgoing-args", "-mpush-args")),
    Build("control-flow-protection", ("-O2", "-fcf-protection=full"), ("-Wl,-z,lazy", "-Wl,-z,ibtplt")),
    Build("retpolines", ("-O2", "-mindirect-branch=thunk", "-mfunction-return=thunk", "-fcf-protection=none")),
    Build("link-time-optimisation", ("-O2", "-flto")),
    Build("no-pie", ("-O2", "-fno-pie"), ("-no-pie",)),
    Build("high-load-address", ("-O2", "-fno-pie"), ("-no-pie", "-Wl,-Ttext-segment=0x70000000")),
    Build("one-segment", link=("-Wl,-z,noseparate-code",)),
    Build("lld", link=lld()),
    Build("gold", link=("-fuse-ld=gold",)),
    Build("clang", compilers=_CLANG),
    Build("clang-lld", link=lld(), compilers=_CLANG),
    Build("clang-Os", ("-Os",), compilers=_CLANG),
    Build("stripped", link=("-s",)),
    Build("no-sections", change=without_sections),
    # C++ itself cannot throw without the header.
    Build("no-frame-header", change=without_frame_header, with_cxx=False),
    Build("no-frame-header-linked", link=("-Wl,--no-eh-frame-hdr",), with_cxx=False),
]
WITHOUT_TABLES = [
    Build("no-tables", ("-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"), with_cxx=False),
    Build(
        "no-tables-frame-pointers",
        ("-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-omit-frame-pointer"),
        with_cxx=False,
    ),
    Build("nothing-leads-to-tables", change=without_both, with_cxx=False),
    Build(
        "nothing-leads-to-tables-frame-pointers",
        ("-O2", "-fno-omit-frame-pointer"),
        change=without_both,
        with_cxx=False,
    ),
]


def _stacks(build: Build, directory: Path) -> tuple[dict[str, list[Address]], dict[str, Stack], Path]:
    program_file = build.make(directory)
    with Program([program_file], directory) as program:
        program.ready()
        said, stacks = one_phase(program)
        places = Places(program.pid)
        return {kernel: [places.of(a) for a in addresses] for kernel, addresses in said.items()}, stacks, program_file


_CUT = {
    # glibc 2.36 does not say that nothing called a coroutine's first function, and rows cannot say where the dynamic
    # linker, between a caller and what it calls late, has put the stack.
    "coroutine": "[truncated: a return address that leads to no code]",
    "late_binding": "[truncated: an unwinding rule that is not supported]",
}


def _problems(truth: dict[str, list[Address]], stacks: dict[str, Stack], program: Path, **how: bool) -> list[str]:
    assert stacks.keys() == truth.keys()
    problems = []
    for kernel, expected in truth.items():
        try:
            stack = stacks[kernel]
            if is_truncated(stack) and stack[-1].function == _CUT.get(kernel):
                assert_equal(expected, stack, str(program), may_be_cut=True)
            else:
                assert_equal(expected, stack, str(program), **how)
        except AssertionError as e:
            problems.append(f"{kernel}: {e}")
    return problems


@pytest.mark.parametrize("build", WITH_TABLES, ids=lambda b: b.name)
def test_every_stack_is_what_the_program_wrote_down(build: Build, tmp_path: Path) -> None:
    truth, stacks, program = _stacks(build, tmp_path)

    problems = _problems(truth, stacks, program)
    assert not problems, "\n\n".join(problems)


@pytest.mark.parametrize("build", WITHOUT_TABLES, ids=lambda b: b.name)
def test_without_tables_a_stack_is_cut_and_nothing_is_invented(build: Build, tmp_path: Path) -> None:
    truth, stacks, program = _stacks(build, tmp_path)

    problems = _problems(truth, stacks, program, may_be_cut=True)
    assert not problems, "\n\n".join(problems)
    if "frame-pointers" in build.name:
        assert not is_truncated(stacks["plain"]), stacks["plain"]
    else:
        assert all(is_truncated(stack) for stack in stacks.values())
