"""Does the message about a program that the kernel refuses hold the reason, however long the verifier's log is?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from otel_gpu.bpf import libbpf
from otel_gpu.bpf import object as bpf_object
from otel_gpu.bpf.object import BpfObject
from otel_gpu.errors import LoadError
from scripts.generate_abi import clang as find_clang

_SOURCE = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
char _license[] SEC("license") = "GPL";
SEC("uprobe") int refused(void *ctx) {
    asm volatile("r1 = 1; .rept %d; r1 += 1; .endr; r1 = *(u64 *)(r1 + 0)" ::: "r1");
    return 0;
}
"""


@pytest.mark.parametrize("instructions", [1, 20, 3000])
def test_the_reason_is_at_the_end_of_the_log(
    instructions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang = find_clang()
    assert clang
    compile_it = [
        clang,
        "-O2",
        "-g",
        "-target",
        "bpf",
        "-I/usr/include/x86_64-linux-gnu",
        "-I/usr/include/aarch64-linux-gnu",
    ]
    out = tmp_path / f"refused.{libbpf.machine()}.bpf.o"
    subprocess.run([*compile_it, "-xc", "-", "-c", "-o", out], input=_SOURCE % instructions, text=True, check=True)
    monkeypatch.setattr(bpf_object, "_OBJECTS", tmp_path)

    with BpfObject("refused") as refused, pytest.raises(LoadError) as raised:
        refused.load(attach_type=lambda _: None)

    log = raised.value.verifier_log
    assert "R1 invalid mem access 'scalar'" in log
    assert log.isprintable() or "\n" in log
    assert len(log) <= 1 << 16
    assert (log.count("r1 += 1") > 1000) == (instructions == 3000)
