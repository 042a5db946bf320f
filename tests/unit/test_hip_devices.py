"""A HIP device has a UUID only where the process is seen at work on that GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.discovery import kfd
from otel_gpu.discovery.identification import Known
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.processors.hip_devices import HipDeviceNames
from otel_gpu.receivers.hip.devices import HipDeviceTable, visible_devices
from otel_gpu.receivers.hip.rows import PARALLEL
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.signals import cuda
from otel_gpu.signals.metrics import Measurement, Resource, attributes

UNIQUE = (0xA1B2C3D4E5F60718, 0x9000000000000001, 0)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A host's tree as amdkfd shows it: a CPU and three GPUs, the last without a unique id."""
    for node, unique in enumerate((None, *UNIQUE)):
        directory = tmp_path / "topology/nodes" / str(node)
        directory.mkdir(parents=True)
        (directory / "gpu_id").write_text(f"{0 if unique is None else 1000 + node}\n")
        simds = 0 if unique is None else 304
        (directory / "properties").write_text(
            f"cpu_cores_count {0 if simds else 8}\nsimd_count {simds}\ndrm_render_minor {127 + node}\n"
            f"unique_id {unique or 0}\nnum_xcc 8\n"
        )
    return tmp_path


def use(sysfs: Path, pid: int, *gpu_ids: int) -> None:
    for number, gpu_id in enumerate(gpu_ids):
        queue = sysfs / "proc" / str(pid) / "queues" / str(number)
        queue.mkdir(parents=True)
        (queue / "gpuid").write_text(f"{gpu_id}\n")


def test_gpus_are_read_in_their_order(sysfs: Path) -> None:
    found = kfd.gpus(sysfs)

    assert [(g.gpu_id, g.uuid, g.render_minor) for g in found] == [
        (1001, "a1b2c3d4e5f60718", 128),
        (1002, "9000000000000001", 129),
        (1003, None, 130),
    ]
    assert kfd.gpus(sysfs / "nowhere") == ()
    assert kfd.in_use(1, sysfs) == frozenset()


def test_what_is_no_tree_of_amdkfd_has_no_gpus(tmp_path: Path) -> None:
    node = tmp_path / "topology/nodes/0"
    node.mkdir(parents=True)
    (node / "properties").write_bytes(b"simd_count \xff\xfe\nunique_id -1\n\n x")
    (node / "gpu_id").write_text("many")
    (tmp_path / "topology/nodes/other").mkdir()

    assert kfd.gpus(tmp_path) == ()


@pytest.mark.parametrize(
    ("environment", "ordinals"),
    [
        ({}, [1001, 1002, 1003]),
        ({"HIP_VISIBLE_DEVICES": "1"}, [1002]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [1003, 1001]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, [1001]),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [1003]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-9000000000000001"}, [1002]),
        ({"HIP_VISIBLE_DEVICES": "0,7,1"}, [1001]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"HIP_VISIBLE_DEVICES": "1,1"}, []),
        ({"GPU_DEVICE_ORDINAL": "1"}, []),
    ],
)
def test_variables_choose_and_order_devices(environment: dict[str, str], ordinals: list[int], sysfs: Path) -> None:
    assert [g.gpu_id for g in visible_devices(kfd.gpus(sysfs), environment)] == ordinals


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    with Parsers(modules=("otel_gpu.discovery.process_info_work",)) as running:
        yield running


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"ROCR_VISIBLE_DEVICES": "1,0"},
    )
    child.stdout.readline()
    yield child
    child.communicate()


def test_a_measurement_gets_the_uuid_of_a_gpu_that_the_process_works_on(
    sysfs: Path, process: subprocess.Popen[bytes], parsers: Parsers
) -> None:
    use(sysfs, process.pid, 1002)
    table = ProcessTable({}, parsers)
    observed = table.observe(process.pid)
    devices = HipDeviceTable(table, parsers, sysfs)
    devices.observe(observed)
    metric = PARALLEL[cuda.KERNEL_LAUNCH_CALLS]

    def named(device: int | None, resource: Resource = observed.resource) -> object:
        measurement = Measurement(resource, metric, attributes({"hip.device.index": device}), 1)
        (found,) = HipDeviceNames(devices).metrics([measurement])
        known = dict(found.attributes)
        uuid = known.get("hip.device.uuid")
        assert known.get("hw.id") == (None if uuid is None else f"GPU-{uuid}")
        return uuid

    assert named(0) == "9000000000000001"
    assert named(1) is None  # visible, but the process has no queue there
    assert named(5) is None
    assert named(None) is None
    assert named(0, Resource(attributes({"service.name": "another"}))) is None
    devices.forget(observed.resource)
    table.close()


@pytest.mark.root
@pytest.mark.parametrize(
    ("devices", "uuids"),
    [
        (("renderD128", "renderD129"), {1: "9000000000000001"}),
        (("renderD129",), {0: "9000000000000001"}),
        (("renderD128",), {}),
        ((), {}),
    ],
)
def test_a_container_has_the_gpus_of_which_it_has_a_device_file(
    sysfs: Path, tmp_path: Path, parsers: Parsers, devices: tuple[str, ...], uuids: dict[int, str]
) -> None:
    (tmp_path / "root/dev/dri").mkdir(parents=True)
    for name in devices:
        os.mkfifo(tmp_path / "root/dev/dri" / name)  # which nobody opens
    program = "import os, sys; os.chroot(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-Sc", program, str(tmp_path / "root")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}) as child:
        child.stdout.readline()
        use(sysfs, child.pid, 1002)
        table = ProcessTable({}, parsers)
        process = table.observe(child.pid)
        resource = Resource(attributes({**dict(process.resource.attributes), "container.id": "c" * 64}))
        process.identity = Known(resource, process.environment)
        devices = HipDeviceTable(table, parsers, sysfs)

        assert devices.uuids(resource) == {}
        devices.observe(process)
        assert devices.uuids(resource) == uuids

        child.communicate()
    table.close()


def test_a_host_without_amd_gpus_is_said_to_have_none(tmp_path: Path, parsers: Parsers) -> None:
    assert HipDeviceTable(ProcessTable(), parsers, tmp_path).is_empty
    assert os.path.isdir(tmp_path)
