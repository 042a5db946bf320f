"""Functions that hand messages on are found in whatever library exports them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from otel_gpu.discovery.libraries import LibraryKind, class_of
from otel_gpu.probes.messages import MESSAGE_HOOKS, plan_messages
from otel_gpu.probes.sites import SiteRules
from otel_gpu.sandbox.elf import ElfFile


def build(directory: Path, *names: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not there to make a library")
    source = directory / "source.c"
    source.write_text("".join(f"int {name}(void *a) {{ return a != 0; }}\n" for name in names))
    library = directory / "library-5f3a.so.5"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    return library


def test_a_library_is_told_by_what_it_exports(tmp_path: Path) -> None:
    library = build(tmp_path, "zmq_ctx_new", *(hook.symbol for hook in MESSAGE_HOOKS))

    with ElfFile(library) as elf:
        assert class_of(elf, library.name).kind is LibraryKind.MESSAGES
        planned = list(plan_messages(elf, SiteRules.here("fast", allow_single_step=True)))

    assert [(p.symbol, p.program, p.return_program) for p in planned] == [
        (hook.symbol, hook.program, hook.return_program) for hook in MESSAGE_HOOKS
    ]
    assert all(p.placeable for p in planned)


def test_what_is_not_exported_is_left_out(tmp_path: Path) -> None:
    library = build(tmp_path, "zmq_ctx_new", "zmq_msg_send", "zmq_msg_recv")

    with ElfFile(library) as elf:
        assert [p.symbol for p in plan_messages(elf, SiteRules.here("fast", allow_single_step=True))] == [
            "zmq_msg_send",
            "zmq_msg_recv",
        ]


def test_it_is_of_no_interest_by_itself() -> None:
    assert LibraryKind.MESSAGES.is_secondary
    assert LibraryKind.TORCH.is_secondary
    assert not LibraryKind.DRIVER.is_secondary
