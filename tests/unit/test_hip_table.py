"""Does the table of HIP say what the programs in ebpf/ need?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_gpu.bpf.abi.cookies import FLAG_INNER
from otel_gpu.bpf.abi.rows import KIND_HIP, CopyKind, Family, MemoryType
from otel_gpu.probes.hip import HIP
from otel_gpu.probes.hook import Hook, argument_location
from otel_gpu.probes.table import DRIVER, FUNCTIONS, function_number
from otel_gpu.sandbox.elf import EM_AARCH64, EM_X86_64

SOURCE = "".join(path.read_text() for path in sorted((Path(__file__).parents[2] / "ebpf" / "cuda").glob("*.bpf.c")))
PROGRAMS = set(re.findall(r"^int (\w+)\(struct pt_regs", SOURCE, re.MULTILINE))
PROGRAMS |= {
    f"copy_{shape}{form}" for shape in re.findall(r"COPY_PROGRAMS\((\w+)\)\n", SOURCE) for form in ("", "_async")
}
BY_NAME = {hook.name: hook for hook in HIP}


@pytest.mark.parametrize("hook", HIP, ids=lambda hook: hook.name)
class TestEveryRow:
    def test_is_marked_as_of_hip(self, hook: Hook) -> None:
        assert hook.cookie(0, per_thread=False) >> 16 & KIND_HIP

    def test_has_a_kind_that_its_family_knows(self, hook: Hook) -> None:
        kind = hook.kind & ~KIND_HIP
        if hook.family is Family.COPY:
            assert kind in set(CopyKind)
        elif hook.family is Family.ALLOC:
            assert kind in set(MemoryType)

    def test_names_programs_that_there_are(self, hook: Hook) -> None:
        assert {hook.program, hook.return_program} - {None} <= PROGRAMS

    def test_shares_its_number_only_with_functions_of_hip(self, hook: Hook) -> None:
        name = FUNCTIONS[function_number(hook)]
        assert name == (hook.counts_as or hook.name)
        assert name.startswith("hip")


def test_functions_of_cuda_keep_a_cookie_without_the_mark() -> None:
    assert not any(hook.cookie(0, per_thread=False) >> 16 & KIND_HIP for hook in DRIVER)


def test_function_numbers_fit_the_cookie() -> None:
    assert len(FUNCTIONS) < 1 << 16


def test_a_dim3_takes_two_places() -> None:
    launch = BY_NAME["hipLaunchKernel"]

    assert launch.parameters == ("function", "grid", "grid.z", "block", "block.z", "args", "shared", "stream")
    assert argument_location(launch.position("stream"), EM_X86_64) == "[sp+16]"
    assert argument_location(launch.position("stream"), EM_AARCH64) == "x7"


def test_a_copy_kind_that_is_an_argument_stands_in_the_cookie() -> None:
    cookie = BY_NAME["hipMemcpy2DAsync"].cookie(7, per_thread=False)

    assert [cookie >> shift & 15 for shift in (56, 40, 44, 36, 48, 32)] == [6, 4, 5, 2, 0, 7]


def test_functions_of_the_per_thread_default_stream_say_so() -> None:
    assert dict(BY_NAME["hipMemcpyAsync"].symbols()) == {"hipMemcpyAsync": False, "hipMemcpyAsync_spt": True}


@pytest.mark.parametrize("outer", [hook for hook in HIP if hook.program == "copy_outer"], ids=lambda hook: hook.name)
def test_an_outer_copy_meets_an_inner_one_that_looks_for_it(outer: Hook) -> None:
    assert outer.counts_as is not None
    assert BY_NAME[outer.counts_as].flags & FLAG_INNER
