"""Is there room between our programs and what kernels are ready to verify? Each kernel's verifier counts differently."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_gpu.bpf.object import BpfObject

_SOURCES = sorted(path.name.removesuffix(".bpf.c") for path in (Path(__file__).parents[2] / "ebpf").glob("*.bpf.c"))
INSTRUCTIONS = 250_000
"""Verifiers give up after a million; that of Linux 7.2 has needed several times as many as that of 6.18."""


@pytest.mark.parametrize("name", [*_SOURCES, "cuda_before_5_17", "nccl_before_5_17"])
def test_the_verifier_is_far_from_giving_up(name: str) -> None:
    with BpfObject(name) as programs:
        programs.load(attach_type=lambda _: None)
        verified = {
            program: int(re.findall(r"verified_insns:\s*(\d+)", Path(f"/proc/self/fdinfo/{fd}").read_text())[0])
            for program, fd in programs.programs().items()
        }

    assert {program: n for program, n in verified.items() if n > INSTRUCTIONS} == {}
