"""Do observers read of a program what its OpenTelemetry SDK says of itself, in every thread and task, exactly?"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_gpu.context.library import PATH
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.sandbox.elf_thread_locals import STT_TLS, find_exported

_ROOT = Path(__file__).parent.parent.parent
_PROGRAM = _ROOT / "tests" / "programs" / "publishing.py"
_SID = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "otel-gpu" / "sid"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
DEADLINE_S = 60

pytestmark = pytest.mark.skipif(not PATH.exists(), reason="the library is not made: run `make setup`")


def _newest(minor: int) -> list[str]:
    """Return a CPython of the unstable root, run on that root's libraries."""
    python = _SID / f"usr/bin/python3.{minor}"
    if not python.exists():
        pytest.skip("no Debian unstable root: run tests/ground/sid.sh once")
    return [str(_SID / "lib64/ld-linux-x86-64.so.2"), "--library-path", str(_SID / _LIBRARIES), str(python)]


@contextmanager
def publishing(python: Sequence[str], *arguments: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run the program, and give its pid and what it says."""
    packages = os.pathsep.join([str(_ROOT), *(p for p in sys.path if p.endswith("site-packages"))])
    environment = {**os.environ, "PYTHONPATH": packages, "PYTHONWARNINGS": "ignore"}
    if python[0] != sys.executable:
        environment["PYTHONHOME"] = str(_SID / "usr")
    command = [*python, str(_PROGRAM), *arguments]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        yield program.pid, json.loads(program.stdout.readline())
        program.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize("minor", [14, 15])
def test_every_thread_and_task_has_its_own_span_at_every_moment(minor: int) -> None:
    with publishing(_newest(minor)) as (_, said):
        pass

    outcomes = {way.rpartition("/")[2] for way in said["said"]}
    ways = {way.partition("/")[0] for way in said["said"]}
    assert said["threads"]
    assert outcomes == {"right"}
    assert ways == {"main", "thread", "copied", "task", "child", "to_thread", "call_soon", "executor", "loop"}
    assert sum(said["said"].values()) > 1_000


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this CPython tells of switches")
def test_threads_have_no_span_where_cpython_does_not_tell_of_switches() -> None:
    with publishing([sys.executable]) as (_, said):
        pass

    assert not said["threads"]
    assert "3.14" in said["reason"]
    assert not [way for way in said["said"] if way.endswith("/wrong")]


def test_the_process_says_what_its_provider_says_and_a_forked_child_too() -> None:
    with publishing([sys.executable], "wait") as (pid, said):
        contexts = [_read(of) for of in (pid, said["child"])]

    for resource in contexts:
        found = {pair.key: pair.value for pair in resource.attributes}
        assert found["service.name"].string_value == "publisher"
        assert found["service.instance.id"].string_value == "number-7"
        assert found["a.number"].int_value == 7
        assert [v.string_value for v in found["a.list"].array_value.values] == ["x", "y"]


def test_the_variable_is_one_that_observers_find() -> None:
    with ElfFile(PATH) as library:
        found = find_exported(library, "otel_thread_ctx_v1")

    assert found is not None
    assert found[1].type == STT_TLS


def _read(pid: int) -> Resource:
    """Read the one process context of a process, as OTEP 4719 says."""
    (line,) = (line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "OTEL_CTX" in line)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(int(line.partition("-")[0], 16))
        signature, version, size, published_ns, at = struct.unpack("<8sIIQQ", memory.read(32))
        memory.seek(at)
        payload = memory.read(size)
    assert (signature, version) == (b"OTEL_CTX", 2)
    assert published_ns > 0
    # A field's length is one byte or two here; whatever follows the resource is left.
    assert payload[0] == 0x0A
    length, first = (payload[1], 2) if payload[1] < 0x80 else (payload[1] & 0x7F | payload[2] << 7, 3)
    return Resource.FromString(payload[first : first + length])
