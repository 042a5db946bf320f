"""Is what a process publishes of itself read as it was meant, whatever a stranger puts there?"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_gpu.discovery.identification import Identification
from otel_gpu.discovery.process_context_work import (
    READING_CONTEXT,
    ProcessContext,
    decode_context,
    read_process_context,
)
from otel_gpu.discovery.process_contexts import ProcessContexts
from otel_gpu.discovery.process_info import ProcessInfo
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.discovery.resource_variables import Cut, own_attributes
from otel_gpu.sandbox.memory import MemoryFiles
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.signals.metrics import Resource as OurResource
from otel_gpu.signals.protobuf_fields import field
from tests.unit.test_context import publishing
from tests.waiting import until

PLACES = """
import ctypes, mmap, os, struct, sys
header, payload = (bytes.fromhex(a) for a in sys.argv[1:3])
text = ctypes.create_string_buffer(payload, len(payload) or 1)
file = os.memfd_create("OTEL_CTX")
os.ftruncate(file, 4096)
memory = mmap.mmap(file, 4096)
memory[:24] = header
memory[24:32] = struct.pack("<Q", ctypes.addressof(text))
print(flush=True)
sys.stdin.read()
"""
VALUES = st.one_of(
    st.text(max_size=8), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.none()
)
NAMES = st.from_regex(r"[A-Za-z][a-z.]{0,8}", fullmatch=True)


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    modules = ("otel_gpu.discovery.process_info_work", "otel_gpu.discovery.process_context_work")
    with Parsers(modules=modules) as running:
        yield running


def encoded(attributes: dict[str, object]) -> bytes:
    """Write a Resource, None as a list."""
    message = Resource()
    for key, value in attributes.items():
        target = message.attributes.add(key=key).value
        match value:
            case str():
                target.string_value = value
            case bool():
                target.bool_value = value
            case int():
                target.int_value = value
            case float():
                target.double_value = value
            case _:
                target.array_value.values.add(string_value="of several")
    return message.SerializeToString()


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_both_forms_of_the_payload_say_the_same(attributes: dict[str, object]) -> None:
    resource = encoded(attributes)
    context = field(b"\x0a", resource) + field(b"\x12", b"\x0a\x01k")
    meant = {k.encode(): v.encode() if isinstance(v, str) else v for k, v in attributes.items()}

    assert dict(decode_context(resource)) == meant
    assert dict(decode_context(context)) == meant


@given(st.binary(max_size=200))
def test_any_bytes_are_attributes_or_refused(payload: bytes) -> None:
    try:
        found = decode_context(payload)
    except ValueError:
        return

    assert sum(len(key) for key, _ in found) <= len(payload)


@contextmanager
def placed(header: bytes, payload: bytes) -> Iterator[int]:
    """Run a process that has this in a mapping of the name."""
    command = [sys.executable, "-S", "-c", PLACES, header.hex(), payload.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def read(parsers: Parsers, pid: int) -> ProcessContext:
    return next(iter(parsers.run(read_process_context, MemoryFiles.of(pid), None, limits=READING_CONTEXT)))


SAID = encoded({"service.name": "x"})


@pytest.mark.parametrize(
    ("header", "is_there"),
    [
        ((b"OTEL_CTX", 2, len(SAID), 1), True),
        ((b"OTEL_CTX", 2, len(SAID), 0), False),
        ((b"OTEL_CTX", 3, len(SAID), 1), False),
        ((b"OTEL_CT?", 2, len(SAID), 1), False),
        ((b"OTEL_CTX", 2, 0xFFFFFFFF, 1), False),
        ((b"OTEL_CTX", 2, len(SAID) - 1, 1), False),
    ],
    ids=["whole", "being written", "later version", "no signature", "too large", "cut"],
)
def test_only_what_is_whole_is_read(parsers: Parsers, header: tuple[bytes, int, int, int], is_there: bool) -> None:
    with placed(struct.pack("<8sIIQ", *header), SAID) as pid:
        found = read(parsers, pid)

    assert found == (ProcessContext(True, [(b"service.name", b"x")]) if is_there else ProcessContext())


def test_what_a_program_publishes_becomes_its_resource(parsers: Parsers) -> None:
    processes = ProcessTable({}, parsers)
    try:
        with publishing([sys.executable], "wait") as (pid, said):
            found = []
            for of in (pid, int(said["child"])):
                process = processes.observe(of)
                wait_published(process.identity)
                found.append(dict(process.resource.attributes))
    finally:
        processes.close()

    for attributes in found:
        assert attributes["service.name"] == "publisher"
        assert attributes["a.number"] == 7
    assert [a["service.instance.id"] for a in found] == ["number-7", f"number-7/{said['child']}"]
    assert [a["process.pid"] for a in found] == [pid, said["child"]]


def wait_published(identity: object) -> None:
    deadline = time.monotonic() + 60
    while not identity.published:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_published_is_a_strangers_word() -> None:
    published = [
        (b"service.name", b"unknown_service:python"),
        (b"telemetry.sdk.name", b"opentelemetry"),
        (b"process.pid", 1),
        (b"host.name", b"another"),
        (b"deployment.environment.name", b"x" * 1_000),
        (b"team", b"b"),
        (b"a list", None),
        (b"not.a.number", float("nan")),
    ]
    variables = {"OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "team=a"}

    own = own_attributes(variables, {"process.pid": 7, "host.name": "here"}, published)

    kept = dict(own.attributes)
    assert {k: v for k, v in kept.items() if len(str(v)) < 10} == {"service.name": "mine", "team": "b"}
    assert len(str(kept["deployment.environment.name"])) <= 256
    assert dict(own.cuts) == {Cut.RESERVED: 2, Cut.MALFORMED: 2, Cut.SHORTENED: 1}


def test_a_process_that_ended_before_it_was_known_is_looked_at_no_more() -> None:
    with Parsers() as parsers:
        contexts = ProcessContexts(parsers)
        try:
            with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
                contexts.follow(child.pid, Identification(ProcessInfo(child.pid), lambda _: OurResource(())))
                assert contexts._followed
            until(lambda: not contexts._followed, "an ended process is still looked at")
        finally:
            contexts.close()
