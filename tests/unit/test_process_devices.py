"""What a process asked the driver goes before its variables, and nothing is told that may be wrong."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_gpu.discovery.gpus import Gpu, ProcessDevices
from otel_gpu.discovery.process_devices import DeviceTable
from otel_gpu.discovery.processes import Process, ProcessTable
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.signals.metrics import Resource

DIGITS = "0123456789abcdef0123456789abcdef"
A = Gpu(0, "GPU-01234567-89ab-cdef-0123-456789abcdef", "H200")
B = Gpu(1, "GPU-bbbb", "H200")
PARTS = (Gpu(0, "MIG-1111", "H200 MIG"), Gpu(0, "MIG-2222", "H200 MIG"))
PARTED = Gpu(0, A.uuid, "H200", instances=PARTS)

Start = Callable[..., Process]


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    with Parsers(modules=("otel_gpu.discovery.process_info_work",)) as running:
        yield running


@pytest.fixture
def table(parsers: Parsers) -> Iterator[ProcessTable]:
    made = ProcessTable({}, parsers)
    yield made
    made.close()


@pytest.fixture
def start(table: ProcessTable) -> Iterator[Start]:
    running = []

    def start(*, late: bool = False, **environment: str) -> Process:
        command = [sys.executable, "-Sc", "import sys; print(flush=True); sys.stdin.read()"]
        child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running.append(child)
        # Between its fork and the end of its exec a child has no environment that could be read.
        child.stdout.readline()
        return table.observe(child.pid, late=late)

    yield start
    for child in running:
        child.communicate()


def test_what_a_process_asked_the_driver_goes_before_its_variables(table: ProcessTable, start: Start) -> None:
    process = start(CUDA_VISIBLE_DEVICES="1,0")
    devices = DeviceTable(table, lambda _: {0: DIGITS})
    devices.learn((A, B), ())

    assert devices.devices(process.resource) == ProcessDevices({0: A, 1: A}, told=frozenset({0}))


def test_without_nvml_a_uuid_has_no_model(table: ProcessTable, start: Start) -> None:
    process = start()

    found = DeviceTable(table, lambda _: {3: DIGITS}).devices(process.resource)

    assert found == ProcessDevices({3: Gpu(-1, A.uuid, "")}, told=frozenset({3}))


def test_variables_say_the_order_and_the_only_device(table: ProcessTable, start: Start) -> None:
    two, one = start(CUDA_VISIBLE_DEVICES="1,0"), start(CUDA_VISIBLE_DEVICES="1")
    devices = DeviceTable(table, lambda _: {})
    devices.learn((A, B), ())

    assert devices.devices(two.resource) == ProcessDevices({0: B, 1: A})
    assert devices.devices(one.resource) == ProcessDevices({0: B}, only=(0, B))


def test_a_process_that_was_there_before_is_on_the_gpu_where_nvml_finds_it(table: ProcessTable, start: Start) -> None:
    late, early, spread = start(late=True), start(), start(late=True)
    devices = DeviceTable(table, lambda _: {})
    devices.learn((A, B), {(B.uuid, late.pid), (B.uuid, early.pid), (A.uuid, spread.pid), (B.uuid, spread.pid)})

    assert devices.devices(late.resource) == ProcessDevices({0: A, 1: B}, only=(1, B), in_use=(B,))
    assert devices.devices(early.resource) == ProcessDevices({0: A, 1: B}, in_use=(B,))
    assert devices.devices(spread.resource) == ProcessDevices({0: A, 1: B}, in_use=(A, B))


def test_variables_that_nvml_contradicts_are_not_believed(table: ProcessTable, start: Start) -> None:
    process = start(late=True, CUDA_VISIBLE_DEVICES="0")
    devices = DeviceTable(table, lambda _: {})
    devices.learn((A, B), {(B.uuid, process.pid)})

    assert devices.devices(process.resource) == ProcessDevices({}, only=(None, B), in_use=(B,))


@pytest.mark.parametrize(("variable", "expected"), [("MIG-2222", PARTS[1]), ("x", PARTED)])
def test_a_program_told_of_the_whole_gpu_is_on_the_instance_it_sees(
    table: ProcessTable, start: Start, variable: str, expected: Gpu
) -> None:
    process = start(CUDA_VISIBLE_DEVICES=variable)
    devices = DeviceTable(table, lambda _: {0: DIGITS})
    devices.learn((PARTED,), ())

    found = devices.devices(process.resource)

    assert found is not None
    assert found.by_ordinal == {0: expected}


def test_the_environment_is_read_while_the_process_is_there(table: ProcessTable, start: Start) -> None:
    process = start(CUDA_VISIBLE_DEVICES="1")
    devices = DeviceTable(table, lambda _: {})
    devices.learn((A, B), ())
    assert process.environment == {"CUDA_VISIBLE_DEVICES": "1"}
    os.kill(process.pid, signal.SIGKILL)
    table.exited(process.pid)

    assert devices.devices(process.resource) == ProcessDevices({0: B}, only=(0, B))
    assert devices.resource(process.pid) is None


def test_nothing_is_told_of_whom_nobody_observes(table: ProcessTable, start: Start) -> None:
    process = start()
    devices = DeviceTable(table, lambda _: {})
    devices.learn((A,), ())
    assert devices.resource(process.pid) == process.resource
    table.exited(process.pid)
    table.forget(process)

    assert devices.devices(process.resource) is None
    assert devices.resource(1) is None


def test_the_other_processes_of_a_host_make_no_answer_slower(
    table: ProcessTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    above_all = int(Path("/proc/sys/kernel/pid_max").read_text())
    resources = [table.observe(above_all + n).resource for n in range(100)]
    devices, compared, equal = DeviceTable(table, lambda _: {}), itertools.count(), Resource.__eq__

    def compare(one: Resource, other: object) -> bool:
        next(compared)
        return equal(one, other)

    monkeypatch.setattr(Resource, "__eq__", compare)
    for resource in resources:
        devices.devices(resource)

    assert next(compared) <= 10 * len(resources)
