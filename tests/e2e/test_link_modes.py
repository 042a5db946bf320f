"""What is said where the asked way of placing probes and a receiver do not go together?"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from otel_gpu.bpf.features import load_program
from otel_gpu.bpf.libbpf import machine
from otel_gpu.bpf.linker import with_cookie
from otel_gpu.bpf.object import BpfObject
from otel_gpu.components.counting.shared import REQUEST_TABLES
from otel_gpu.config.model import Config, Discovery
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.receivers.cuda.loading import CudaPrograms
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.service.agent import Agent

OBJECTS = Path(__file__).parents[2] / "otel_gpu" / "bpf" / "objects"


@pytest.mark.parametrize(("signal", "what"), [("profiles", "stacks"), ("traces", "requests")])
def test_what_needs_loops_is_left_out_and_said_where_probes_are_copies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signal: str, what: str
) -> None:
    config = Config(
        receivers={"cuda": CudaSettings(link="copies")},
        exporters={"file": FileSettings(str(tmp_path / "out"))},
        discovery=Discovery(pids=(os.getpid(),)),
    ).with_signal(signal)

    with Agent(config):
        said = [message for message in caplog.messages if "leave receivers.cuda.link at auto" in message]

    assert len(said) == 1
    assert f"{what} cannot be had where each probe is a copy" in said[0]


def test_nothing_is_charged_to_requests_where_they_cannot_be_had() -> None:
    programs = CudaPrograms(map_entries=64, link="copies", follows_requests=True)
    try:
        rows = {name: programs.object.map(name).max_entries for name in REQUEST_TABLES}
    finally:
        programs.close()

    assert rows == dict.fromkeys(REQUEST_TABLES, 1)


@pytest.mark.parametrize("name", ["cuda_before_5_17", "nccl_before_5_17", "rdma"])
def test_a_copy_of_a_program_is_verified_as_the_program_is(name: str) -> None:
    with ElfFile(OBJECTS / f"{name}.{machine()}.bpf.o") as elf:
        sections = {symbol.name: elf.sections[symbol.section].name for symbol in elf.symbols(".symtab")}
    with BpfObject(name) as bpf:
        bpf.load(attach_type=lambda _: None)
        programs = {n: fd for n, fd in bpf.programs().items() if sections[n] in {"uprobe", "uretprobe"}}
        assert len(programs) > 20
        for program, fd in programs.items():
            copy = load_program(with_cookie(bpf.instructions(program), 1), types=bpf.types(program))
            try:
                assert verified(copy) <= 2 * verified(fd), program
            finally:
                os.close(copy)


def verified(program: int) -> int:
    """Return how many instructions the kernel looked at."""
    found = re.search(r"verified_insns:\s+(\d+)", Path(f"/proc/self/fdinfo/{program}").read_text())
    assert found is not None
    return int(found[1])
