"""The kernels of a process are those that its device code says are kernels, in memory or in its compilers' files."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_gpu.errors import ProcessGoneError
from otel_gpu.receivers.cuda.kernel_names import device_names as module
from otel_gpu.receivers.cuda.kernel_names.compiler_caches import kernels_in_caches
from otel_gpu.receivers.cuda.kernel_names.device_names import names_in_memory
from otel_gpu.sandbox.parsers import Parsers
from tests.process_memory import memory_files

USER = 12_345
"""Who owns nothing here."""
PTX = ".version 8.0\n.target sm_90\n.visible .entry {0}(.param .u64 {0}_param_0)\n{{ ret; }}\n.func {0}_helper() {{ ret; }}\n"


def cubin(*kernels: str, machine: int = 190) -> bytes:
    """Return an ELF file for the GPU with sections as ptxas names them."""
    names = ["", ".shstrtab", ".text.a_device_function"]
    names += [f"{prefix}{kernel}" for kernel in kernels for prefix in (".text.", ".nv.info.", ".nv.constant0.")]
    strings = b"\0".join(name.encode() for name in names) + b"\0"
    table = 64 + len(strings)
    sections = [struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    sections.append(struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, 64, len(strings), 0, 0, 1, 0))
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, table, 0, 64, 0, 0, 64, len(sections), 1)
    return head + strings + b"".join(sections)


def holding(data: bytes, environment: dict[str, str] | None, user: int | None) -> subprocess.Popen[bytes]:
    """Start a process that has these bytes in its memory."""
    code = "import sys; data = bytearray(sys.stdin.buffer.read()); print(flush=True); import time; time.sleep(60)"
    process = subprocess.Popen(
        ["/usr/bin/python3" if user is not None else sys.executable, "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment or {},
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
    )
    process.stdin.write(data)
    process.stdin.close()
    process.stdout.readline()
    return process


@contextmanager
def process_with(data: bytes, environment: dict[str, str] | None = None, user: int | None = None) -> Iterator[int]:
    process = holding(data, environment, user)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def names_in(data: bytes) -> frozenset[str]:
    with process_with(data) as pid, memory_files(pid) as files:
        return names_in_memory(files)


def test_ptx_in_memory_has_kernels() -> None:
    names = names_in(PTX.format("_Z5scalePf").encode())

    assert "_Z5scalePf" in names
    assert not {"_Z5scalePf_param_0", "_Z5scalePf_helper"} & names


def test_a_cubin_in_memory_has_kernels() -> None:
    names = names_in(b"x" * 5000 + cubin("first_kernel", "second_kernel"))

    assert {"first_kernel", "second_kernel"} <= names
    assert "a_device_function" not in names
    assert not any(name.startswith(".") for name in names)


def test_an_elf_file_for_the_host_has_none() -> None:
    assert "first_kernel" not in names_in(cubin("first_kernel", machine=62))


def test_compilers_caches_have_kernels(tmp_path: Path, parsers: Parsers) -> None:
    own, elsewhere = tmp_path / "cupy", tmp_path / "home"
    (elsewhere / ".triton/cache/AB12").mkdir(parents=True)
    own.mkdir()
    # CuPy writes a digest before the code.
    (own / "x.cubin").write_bytes(b"0123456789abcdef0123456789abcdef" + cubin("cupy_add"))
    (elsewhere / ".triton/cache/AB12/k.cubin").write_bytes(cubin("triton_poi_fused"))
    (tmp_path / "secret.cubin").write_bytes(cubin("not_ours"))
    (own / "link").symlink_to(tmp_path / "secret.cubin")
    os.mkfifo(own / "pipe")

    with process_with(b"", {"CUPY_CACHE_DIR": str(own), "HOME": str(elsewhere)}) as pid:
        names = kernels_in_caches(parsers, pid)

    assert {"cupy_add", "triton_poi_fused"} <= names
    assert "not_ours" not in names


@pytest.mark.root
def test_a_compilers_cache_is_read_with_the_rights_of_the_process_that_names_it(
    tmp_path: Path, parsers: Parsers
) -> None:
    for directory in (tmp_path, *tmp_path.parents[:-2]):
        directory.chmod(directory.stat().st_mode | 0o055)
    places = {"open": 0o755, "secret": 0o700, "its_own": 0o700}
    for name, mode in places.items():
        place = tmp_path / name
        place.mkdir()
        (place / "kernel.cubin").write_bytes(cubin(f"kernel_in_{name}"))
        place.chmod(mode)
    hidden = tmp_path / "open" / "hidden.cubin"
    hidden.write_bytes(cubin("kernel_in_a_file_of_root"))
    hidden.chmod(0o600)
    (tmp_path / "open" / "link").symlink_to(tmp_path / "secret")
    for path in (tmp_path / "its_own", tmp_path / "its_own" / "kernel.cubin"):
        os.chown(path, USER, USER)
    environment = {
        "TRITON_CACHE_DIR": str(tmp_path / "secret"),
        "CUPY_CACHE_DIR": str(tmp_path / "open"),
        "TRITON_HOME": str(tmp_path / "open" / ".." / "its_own"),
        "CUDA_CACHE_PATH": "/root",
    }

    with process_with(b"", environment, user=USER) as pid:
        assert kernels_in_caches(parsers, pid) == {"kernel_in_open", "kernel_in_its_own"}
    with process_with(b"", environment) as pid:
        assert "kernel_in_secret" in kernels_in_caches(parsers, pid)


@pytest.mark.root
def test_a_cache_without_end_is_looked_at_for_a_while(tmp_path: Path, parsers: Parsers) -> None:
    deep = tmp_path / "/".join("abcdefghij")
    deep.mkdir(parents=True)
    (deep / "kernel.cubin").write_bytes(cubin("too_deep"))
    (tmp_path / "a" / "around").symlink_to(tmp_path)
    (tmp_path / "a" / "kernel.cubin").write_bytes(cubin("near"))
    with (tmp_path / "a" / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)

    with process_with(b"", {"TRITON_CACHE_DIR": str(tmp_path)}) as pid:
        assert kernels_in_caches(parsers, pid) == {"near"}


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_SECONDS", 0.0)

    assert names_in(PTX.format("a_kernel").encode()) == frozenset()


@pytest.mark.parametrize("cut", [20, 64, 80, 200])
def test_a_broken_image_names_nothing(cut: int) -> None:
    assert "only_kernel" not in names_in(cubin("only_kernel")[:cut] + bytes(4096))


def test_a_process_that_is_gone_is_said_to_be() -> None:
    with memory_files(1 << 22) as files, pytest.raises(ProcessGoneError):
        names_in_memory(files)


def test_a_process_that_is_gone_has_no_caches(parsers: Parsers) -> None:
    assert kernels_in_caches(parsers, 1 << 22) == frozenset()
