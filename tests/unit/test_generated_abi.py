"""Is otel_gpu/bpf/abi/ what the headers of ebpf/abi/ say, for every machine, and do records read as they were written?"""

from __future__ import annotations

import importlib
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from otel_gpu.bpf.abi import nccl, programs, requests, rows, samples, stacks, unwinding
from otel_gpu.bpf.records import names_before, offset_of, struct_of
from otel_gpu.receivers.cuda import program_totals
from otel_gpu.receivers.nccl import names
from otel_gpu.receivers.profiles import remainders
from otel_gpu.stacks.cpython.layout import PythonLayout
from scripts import generate_abi

_MODULES = Path(rows.__file__).parent


@pytest.fixture(scope="module")
def headers() -> list[generate_abi.Header]:
    if generate_abi.clang() is None:
        pytest.skip("clang is not installed")
    return generate_abi.headers()


def test_the_modules_are_as_generated_from_the_headers(headers: list[generate_abi.Header]) -> None:
    assert len(headers) > 10
    assert generate_abi.differences(generate_abi.written()) == [], "run `make generate`"


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of ebpf/, which the generator reads in place of the tree's."""
    shutil.copytree(generate_abi._SOURCES, tmp_path / "ebpf")
    monkeypatch.setattr(generate_abi, "_SOURCES", tmp_path / "ebpf")
    return tmp_path / "ebpf" / "abi"


@pytest.mark.parametrize(
    ("header", "before", "after", "expected"),
    [
        ("rows", "	u8 bucket_b;\n", "	u8 bucket_c;\n", '("bucket_c", "u1")'),
        ("rows", "#define ORDINALS 64", "#define ORDINALS 32", "ORDINALS = 32"),
        ("programs", "	LOSS_RANGES_FULL,	 /*", "	LOSS_NEW, LOSS_RANGES_FULL,	 /*", "RANGES_FULL = 23"),
        ("programs", "	u32 captures;", "	u32 more[2]; u32 captures;", '("more", "<u4", (2,))'),
        ("unwinding", "	s16 cfa_offset;", "	u16 cfa_offset;", '("cfa_offset", "<u2")'),
    ],
)
def test_what_a_header_says_is_in_its_module(
    headers: list[generate_abi.Header], changed: Path, header: str, before: str, after: str, expected: str
) -> None:
    path = changed / f"{header}.h"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))

    assert expected in generate_abi.written()[f"{header}.py"]
    assert expected not in (_MODULES / f"{header}.py").read_text()


@pytest.mark.parametrize(
    ("declared", "error"),
    [
        ("struct gap {\n\tu8 a;\n\tu64 b;\n};", "a gap before b"),
        ("struct tail {\n\tu64 a;\n\tu8 b;\n};", "7 bytes behind its last field"),
        ("enum unsaid {\n\tUNSAID_A,\n\tUNSAID_B,\n};", "has no comment"),
        ("#define ROW_KEY 1", "ROW_KEY in Python"),
        ("struct pointer {\n\tvoid *a;\n};", "a field of type"),
    ],
)
def test_what_python_cannot_say_is_refused(
    headers: list[generate_abi.Header], changed: Path, declared: str, error: str
) -> None:
    (changed / "zzz.h").write_text(f'/* SPDX */\n/* A thing. */\n#include "abi/types.h"\n{declared}\n')

    with pytest.raises(generate_abi.HeaderError, match=error):
        generate_abi.written()


def test_both_machines_have_the_same_records(headers: list[generate_abi.Header], tmp_path: Path) -> None:
    """The objects of both are compiled for one target, with other registers."""
    source = tmp_path / "sizes.c"
    checks = [
        f'_Static_assert(sizeof(struct {d.name}) == {getattr(generated, d.name.upper()).itemsize}, "{d.name}");'
        for h in headers
        for generated in [importlib.import_module(f"otel_gpu.bpf.abi.{h.name}")]
        for d in h.declarations
        if d.kind == "struct"
    ]
    source.write_text("".join(f'#include "abi/{h.name}.h"\n' for h in headers) + "\n".join(checks))

    assert len(checks) > 40
    for target in ("x86_64-linux-gnu", "aarch64-linux-gnu", "bpf"):
        command = [
            generate_abi.clang(),
            f"--target={target}",
            f"-I{generate_abi._SOURCES}",
            "-fsyntax-only",
            "-Wno-everything",
            source,
        ]
        subprocess.run([str(part) for part in command], check=True)


def test_what_python_derives_fits_the_kernels_numbers() -> None:
    assert len(program_totals._TOTALS) == programs.TOTAL_COUNT
    assert [program_totals._TOTALS[total][0].name for total in programs.Total] == [
        total.name for total in programs.Total
    ]
    assert len(remainders._SAMPLED_TYPES) == samples.SAMPLED_TYPES
    assert len(names.DATATYPES) == nccl.NCCL_DATATYPES
    assert len(names.REDUCTIONS) == nccl.NCCL_CUSTOM_REDUCTION + 1
    assert [name for name in unwinding.PY_LAYOUT.names or () if name != "pad"] == list(PythonLayout.__struct_fields__)
    assert max(*rows.CopyKind, *rows.MemoryType) < rows.KIND_HIP


def test_a_record_reads_as_numpy_reads_it() -> None:
    record = np.zeros(1, requests.REQUEST)
    record["id"], record["owned"]["copies"], record["peer_port"] = 7, [[1, 2, 3]], 443
    record["peer"] = np.arange(16)
    reader = struct_of(requests.REQUEST, "id", "owned", "peer", "peer_port")

    number, *owned, port, peer = reader.unpack_from(record.tobytes())

    assert (number, owned, port, peer) == (7, [0, 0, 1, 2, 3, 0, 0, 0, 0], 443, bytes(range(16)))
    assert reader.size == offset_of(requests.REQUEST, "peer") + 16


def test_a_reader_of_the_fields_before_one_ends_where_that_begins() -> None:
    head = struct_of(stacks.STACK_SAMPLE, *names_before(stacks.STACK_SAMPLE, "frame"), as_bytes=("trace", "span"))

    assert head.size == offset_of(stacks.STACK_SAMPLE, "frame")
    assert [type(value) for value in head.unpack(bytes(head.size))].count(bytes) == 2


def test_a_reader_may_be_longer_than_its_fields() -> None:
    assert struct_of(rows.ROW_KEY, "tgid", size=24).size == rows.ROW_KEY.itemsize
    assert struct_of(rows.ROW).format == struct.Struct("<QQQ").format
