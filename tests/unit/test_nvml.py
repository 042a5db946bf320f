"""What the mock of NVIDIA's management library says must come out, and nothing that it does not say."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_gpu.receivers.nvml.library import NvmlMissingError, NvmlUnavailableError
from otel_gpu.receivers.nvml.receiver import NvmlReceiver
from otel_gpu.receivers.nvml.worker import NvmlWorker
from otel_gpu.service import telemetry
from otel_gpu.signals import hardware
from otel_gpu.signals.metrics import Instrument, Measurement, Resource, SeriesStore, attributes
from tests.waiting import until

STANDIN = Path(__file__).parent.parent / "standins" / "cuda"
LIBRARY = STANDIN / "libnvidia-ml.so.1"
HOST = Resource(attributes({"host.name": "h"}))
MAGIC = 0x4D4F434B43554441
GIB = 1 << 30


@pytest.fixture(scope="module")
def library() -> str:
    source = STANDIN / "nvml.c"
    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < source.stat().st_mtime:
        if shutil.which("make") is None or shutil.which("gcc") is None:
            pytest.skip(
                "the mock of libnvidia-ml.so.1 is not built, and there is no compiler: run tests/ground/setup.sh"
            )
        subprocess.run(["make", "-s", "-C", STANDIN, LIBRARY.name], check=True)
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    return str(LIBRARY)


class Knobs:
    """The mock's control file and the state files of mock CUDA processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.values: dict[str, object] = {}

    def set(self, **values: object) -> None:
        self.values.update(values)
        text = "".join(f"MOCKNVML_{name.upper()}={value}\n" for name, value in self.values.items())
        (self.directory / "new").write_text(text)
        os.replace(self.directory / "new", self.directory / "control")

    def process(self, pid: int, used: dict[int, int], busy_ns: int = 0) -> None:
        per_device = [used.get(n, 0) for n in range(16)]
        mask = sum(1 << n for n in used)
        state = struct.pack("<3Q16Q16Q", MAGIC, pid, mask, *per_device, *[busy_ns] * 16)
        (self.directory / f"mockcuda-{pid}").write_bytes(state)

    def end(self, pid: int) -> None:
        (self.directory / f"mockcuda-{pid}").unlink()


@pytest.fixture
def knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Knobs:
    knobs = Knobs(tmp_path)
    knobs.set()
    # Closing takes as long as one wait for events.
    monkeypatch.setattr("otel_gpu.receivers.nvml.events._WAIT_MS", 10)
    monkeypatch.setenv("MOCKNVML_CONTROL", str(tmp_path / "control"))
    monkeypatch.setenv("MOCKCUDA_STATE", str(tmp_path))
    return knobs


def opened(library: str, process_resource: Callable[[int], Resource | None] = lambda _pid: None) -> NvmlReceiver:
    receiver = NvmlReceiver(HOST, library=library, process_resource=process_resource)
    receiver.open()
    return receiver


@pytest.fixture
def receiver(library: str, knobs: Knobs) -> Iterator[NvmlReceiver]:
    receiver = opened(library)
    yield receiver
    receiver.close()


def values(measurements: list[Measurement], metric: str, **wanted: object) -> list[object]:
    """Return the values of a metric, of the series whose attributes are those wanted (`_` for `.`)."""
    found = []
    for m in measurements:
        known = {name.replace(".", "_"): value for name, value in m.attributes}
        if m.metric.name == metric and all(known.get(name) == value for name, value in wanted.items()):
            found.append(m.value)
    return found


def test_a_host_without_the_library_has_a_receiver_that_says_why() -> None:
    receiver = NvmlReceiver(HOST, library="/nonexistent/libnvidia-ml.so.1")

    with pytest.raises(NvmlMissingError, match="hardware metrics need NVIDIA's driver"):
        receiver.open()
    assert receiver.collect() == []
    assert receiver.process_memory() == {}
    receiver.close()


def test_each_gpu_is_named_as_dcgm_names_it(library: str, knobs: Knobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCKCUDA_DEVICES", "2")
    receiver = opened(library)

    temperatures = [m for m in receiver.collect() if m.metric is hardware.TEMPERATURE]

    assert [dict(m.attributes) for m in temperatures] == [
        {
            "hw.id": f"GPU-5e1fca6d-0b6c-4a11-9d20-483230306d0{n}",
            "hw.type": "gpu",
            "hw.name": f"nvidia{n}",
            "hw.model": "NVIDIA H200 (mock)",
            "hw.vendor": "NVIDIA",
            "hw.driver_version": "580.00.mock",
            "hw.serial_number": f"16500000000{n}",
        }
        for n in range(2)
    ]
    assert all(m.resource is HOST for m in temperatures)
    assert [(g.index, g.uuid, g.pci_bus_id) for g in receiver.gpus()] == [
        (n, f"GPU-5e1fca6d-0b6c-4a11-9d20-483230306d0{n}", f"00000000:1{n}:00.0") for n in range(2)
    ]
    receiver.close()


def test_what_a_gpu_is_at_is_told_in_base_units(receiver: NvmlReceiver, knobs: Knobs) -> None:
    knobs.process(os.getpid(), {0: 4 * GIB})

    found = receiver.collect()

    assert values(found, "hw.gpu.utilization", hw_gpu_task="general") == [0.0]
    assert values(found, "hw.gpu.memory.limit") == [16 * GIB]
    assert values(found, "hw.gpu.memory.usage") == [4 * GIB]
    assert values(found, "hw.gpu.memory.utilization") == [0.25]
    assert values(found, "hw.temperature") == [35]
    assert values(found, "hw.temperature.limit", hw_limit_type="high.critical") == [92]
    assert values(found, "hw.power") == [75.0]
    assert values(found, "gpu.nvml.power.limit") == [700.0]
    assert values(found, "gpu.nvml.speed", gpu_nvml_clock="memory") == [3_201_000_000]
    assert values(found, "hw.status", hw_state="ok") == [1]


def test_levels_flow_as_changes(receiver: NvmlReceiver, knobs: Knobs) -> None:
    store = SeriesStore()
    for used in (4 * GIB, 9 * GIB, GIB):
        knobs.process(os.getpid(), {0: used})
        store.fold(receiver.collect(), 1)

        (held,) = [s.value for r in store for s in r.series.values() if s.metric is hardware.MEMORY_USAGE]
        assert held == used


@pytest.mark.parametrize(
    ("knob", "before", "after", "metric", "attrs", "added"),
    [
        ("energy", 5_000, 12_500, "hw.energy", {}, 7.5),
        ("ecc_corrected", 3, 10, "hw.errors", {"error_type": "corrected", "gpu_nvml_memory_location": "dram"}, 7),
        ("ecc_uncorrected", 1, 2, "hw.errors", {"error_type": "uncorrected", "gpu_nvml_memory_location": "dram"}, 1),
        ("pcie_replays", 0, 4, "hw.errors", {"error_type": "pcie_replay"}, 4),
        ("pcie_tx", 10**12, 10**12 + 9, "hw.gpu.io", {"gpu_nvml_link": "pcie", "network_io_direction": "transmit"}, 9),
        ("pcie_rx", 0, 1 << 40, "hw.gpu.io", {"gpu_nvml_link": "pcie", "network_io_direction": "receive"}, 1 << 40),
        ("nvlink_tx", 5, 7, "hw.gpu.io", {"gpu_nvml_link": "nvlink", "network_io_direction": "transmit"}, 2048),
        ("nvlink_rx", 5, 6, "hw.gpu.io", {"gpu_nvml_link": "nvlink", "network_io_direction": "receive"}, 1024),
        ("power_violation", 10**9, 4 * 10**9, "gpu.nvml.throttle.time", {"gpu_nvml_throttle_reason": "power"}, 3.0),
        ("thermal_violation", 0, 10**9, "gpu.nvml.throttle.time", {"gpu_nvml_throttle_reason": "thermal"}, 1.0),
    ],
)
def test_counters_count_from_the_first_look_and_survive_a_reset(
    receiver: NvmlReceiver,
    knobs: Knobs,
    knob: str,
    before: int,
    after: int,
    metric: str,
    attrs: dict[str, object],
    added: float,
) -> None:
    knobs.set(**{knob: before})
    assert values(receiver.collect(), metric, **attrs) == [0]

    knobs.set(**{knob: after})
    assert values(receiver.collect(), metric, **attrs) == [pytest.approx(added)]

    # A reset of the GPU begins at 0 again; what was counted since then is all that is known.
    knobs.set(**{knob: 0})
    assert values(receiver.collect(), metric, **attrs) == [0]


def test_without_byte_counters_pcie_is_a_sampled_rate_under_another_name(receiver: NvmlReceiver, knobs: Knobs) -> None:
    knobs.set(pcie_rate=250)
    receiver.collect()

    found = receiver.collect()

    assert values(found, "hw.gpu.io") == []
    assert values(found, "gpu.nvml.io.rate", network_io_direction="receive") == [250_000]


def test_each_reason_for_low_clocks_is_told(receiver: NvmlReceiver, knobs: Knobs) -> None:
    knobs.set(throttle=0x4 | 0x40)

    found = [m for m in receiver.collect() if m.metric is hardware.THROTTLED]

    active = {dict(m.attributes)["gpu.nvml.throttle.reason"]: m.value for m in found}
    assert len(active) == 9
    assert {reason for reason, value in active.items() if value} == {"sw_power_cap", "hw_thermal"}


def test_an_xid_is_counted_once_and_kept_in_the_history(receiver: NvmlReceiver, knobs: Knobs) -> None:
    receiver.collect()
    knobs.set(xids="0:79,0:31,0:79")
    until(lambda: len(receiver.xid_history()) == 3)

    found = receiver.collect()

    assert values(found, "hw.errors", error_type="xid", gpu_nvml_xid=79) == [2]
    assert values(found, "hw.errors", error_type="xid", gpu_nvml_xid=31) == [1]
    assert values(receiver.collect(), "hw.errors", error_type="xid", gpu_nvml_xid=79) == [0]
    (first, *_) = receiver.xid_history()
    assert (first.xid, first.uuid, first.gpu_instance) == (79, receiver.gpus()[0].uuid, None)
    assert abs(first.time_ns - time.time_ns()) < 60e9


def test_events_before_the_agent_started_are_not_its_own(library: str, knobs: Knobs) -> None:
    knobs.set(xids="0:13")
    receiver = opened(library)
    knobs.set(xids="0:13,0:14")
    until(receiver.xid_history)

    assert [e.xid for e in receiver.xid_history()] == [14]
    receiver.close()


def test_what_a_gpu_does_not_support_is_left_out_and_not_asked_again(library: str, knobs: Knobs) -> None:
    knobs.set(unsupported="nvmlDeviceGetPowerUsage,nvmlDeviceGetTotalEnergyConsumption,nvmlDeviceGetUtilizationRates")
    receiver = opened(library)
    first = receiver.collect()
    knobs.set(unsupported="")

    second = receiver.collect()

    for found in (first, second):
        assert not values(found, "hw.power") + values(found, "hw.energy")
        assert not values(found, "hw.gpu.utilization", hw_gpu_task="general")
        assert values(found, "hw.gpu.memory.limit")
    assert [reading.value for reading in receiver.readings()] == [0]
    receiver.close()


def test_calls_that_fail_are_counted(receiver: NvmlReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml")

    def fail(_handle: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", fail)

    assert not values(receiver.collect(), "hw.power")
    [reading] = receiver.readings()
    assert (reading.value, reading.attributes) == (1, {"otel_gpu.event": "nvml_calls_failed"})

    lost = [r.value for r in receiver.readings()]
    receiver.close()
    receiver.open()
    assert [r.value for r in receiver.readings()] == lost


def test_an_older_driver_is_asked_by_the_older_names(library: str, knobs: Knobs) -> None:
    newer = ("TemperatureV", "CurrentClocksEventReasons", "SupportedClocksEventReasons", "MemoryInfo_v2")
    knobs.set(unsupported=",".join(f"nvmlDeviceGet{name}" for name in newer), throttle=4)
    receiver = opened(library)

    found = receiver.collect()

    assert values(found, "hw.temperature") == [35]
    assert values(found, "gpu.nvml.throttle.active", gpu_nvml_throttle_reason="sw_power_cap") == [1]
    assert values(found, "hw.gpu.memory.limit") == [16 * GIB]
    receiver.close()


def test_older_gpus_tell_the_total_of_ecc_errors(library: str, knobs: Knobs) -> None:
    knobs.set(unsupported="nvmlDeviceGetMemoryErrorCounter", ecc_corrected=1)
    receiver = opened(library)
    receiver.collect()
    knobs.set(ecc_corrected=6)

    assert values(receiver.collect(), "hw.errors", error_type="corrected") == [5]
    receiver.close()


def test_a_lost_gpu_says_so_and_comes_back(receiver: NvmlReceiver, knobs: Knobs) -> None:
    store = SeriesStore()

    def states() -> dict[object, object]:
        store.fold(receiver.collect(), 1)
        series = [s for r in store for s in r.series.values() if s.metric is hardware.STATUS]
        return {dict(s.attributes)["hw.state"]: s.value for s in series}

    assert states() == {"ok": 1, "degraded": 0, "failed": 0}
    knobs.set(lost=1)
    assert states() == {"ok": 0, "degraded": 0, "failed": 1}
    knobs.set(lost=0)
    assert states() == {"ok": 1, "degraded": 0, "failed": 0}


def test_the_memory_of_each_process_is_told(library: str, knobs: Knobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCKCUDA_DEVICES", "2")
    receiver = opened(library)
    knobs.process(os.getpid(), {0: GIB, 1: 2 * GIB})
    knobs.process(os.getppid(), {1: 3 * GIB})

    first, second = (g.uuid for g in receiver.gpus())
    assert receiver.process_memory() == {
        (first, os.getpid()): GIB,
        (second, os.getpid()): 2 * GIB,
        (second, os.getppid()): 3 * GIB,
    }
    receiver.close()


def test_an_observed_process_carries_its_share_and_gives_it_back(library: str, knobs: Knobs) -> None:
    own = Resource(attributes({"process.pid": os.getpid()}))
    receiver = opened(library, process_resource=lambda pid: own if pid == os.getpid() else None)
    store = SeriesStore()

    def series() -> dict[str, object]:
        store.fold(receiver.collect(), 1)
        return {s.metric.name: s.value for r in store if r.resource is own for s in r.series.values()}

    knobs.process(os.getpid(), {0: GIB}, busy_ns=0)
    knobs.process(os.getppid(), {0: GIB})
    assert series()["gpu.nvml.process.memory.usage"] == GIB
    # All the time since then, and more, so that the mock says 100 % however long the test took.
    knobs.process(os.getpid(), {0: 2 * GIB}, busy_ns=10**15)
    assert series() == {"gpu.nvml.process.memory.usage": 2 * GIB, "gpu.nvml.process.utilization": 1.0}
    knobs.end(os.getpid())
    assert series()["gpu.nvml.process.memory.usage"] == 0
    receiver.close()


def test_nothing_is_told_of_a_process_that_has_ended(library: str, knobs: Knobs) -> None:
    observed = {os.getpid(): Resource(attributes({"process.pid": os.getpid()}))}
    receiver = opened(library, process_resource=observed.get)
    knobs.process(os.getpid(), {0: GIB})
    receiver.collect()
    observed.clear()
    knobs.end(os.getpid())

    assert values(receiver.collect(), "gpu.nvml.process.memory.usage") == []
    receiver.close()


def test_mig_instances_have_series_and_processes_of_their_own(library: str, knobs: Knobs) -> None:
    knobs.set(mig=2)
    receiver = opened(library)
    knobs.process(os.getpid(), {0: GIB})

    found = receiver.collect()

    (gpu,) = receiver.gpus()
    instances = [i.uuid for i in gpu.instances]
    assert [i[:4] for i in instances] == ["MIG-", "MIG-"]
    assert values(found, "hw.gpu.memory.usage", hw_id=instances[0], hw_parent=gpu.uuid) == [GIB]
    assert values(found, "hw.gpu.memory.limit", hw_id=instances[1]) == [16 * GIB // 7]
    assert values(found, "hw.power", hw_id=instances[0]) == []
    assert len(values(found, "hw.power")) == 1
    assert receiver.process_memory() == {(instances[0], os.getpid()): GIB}
    assert [reading.value for reading in receiver.readings()] == [0]
    receiver.close()


def test_a_destroyed_mig_instance_takes_its_levels_back(
    library: str, knobs: Knobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs.set(mig=1)
    receiver = opened(library)
    store = SeriesStore()
    store.fold(receiver.collect(), 1)
    monkeypatch.setattr("otel_gpu.receivers.nvml.receiver._LOOK_AGAIN_NS", 0)
    knobs.set(mig=0)

    store.fold(receiver.collect(), 1)

    series = [s for r in store for s in r.series.values() if s.metric is hardware.MEMORY_LIMIT]
    assert sorted(s.value for s in series) == [0, 16 * GIB]
    receiver.close()


def test_every_measurement_is_declared_with_its_attributes(library: str, knobs: Knobs) -> None:
    knobs.set(pcie_tx=1, pcie_rx=1, nvlink_tx=1, nvlink_rx=1, xids="")
    own = Resource(attributes({"process.pid": os.getpid()}))
    receiver = opened(library, process_resource=lambda _: own)
    knobs.process(os.getpid(), {0: GIB})
    knobs.set(xids="0:31")
    until(receiver.xid_history)

    found = receiver.collect() + receiver.collect()

    for m in found:
        assert m.metric in hardware.SPECS
        assert {name for name, _ in m.attributes} <= set(m.metric.attributes) <= set(telemetry.ATTRIBUTES)
        assert isinstance(m.value, float if m.metric.floating else int), m
    # The sampled rate is told only by GPUs without byte counters.
    assert {m.metric for m in found} == set(hardware.SPECS) - {hardware.IO_RATE}
    assert all(m.value >= 0 for m in found if m.metric.instrument is Instrument.COUNTER)
    receiver.close()


def test_closing_twice_and_collecting_after_it_are_harmless(receiver: NvmlReceiver) -> None:
    receiver.close()
    receiver.close()

    assert receiver.collect() == []


class Asked:
    """A worker, and the store that its measurements end in."""

    def __init__(self, library: str) -> None:
        self.worker = NvmlWorker(NvmlReceiver(HOST, library=library), lambda _gpus, _in_use: None)
        self.store = SeriesStore()

    def now(self) -> dict[str, set[object]]:
        """Return what is exported, by metric."""
        self.worker.prepare()
        self.store.fold(self.worker.collect(), 1)
        found: dict[str, set[object]] = {}
        for series in (s for r in self.store for s in r.series.values()):
            found.setdefault(series.metric.name, set()).add(series.value)
        return found

    def troubles(self) -> list[str]:
        return [h.trouble for h in self.worker.health() if not h.is_good]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_gpu.receivers.nvml.worker._FIRST_RETRY_S", 0.01)
    monkeypatch.setattr("otel_gpu.receivers.nvml.worker._LONGEST_RETRY_S", 0.05)


@pytest.mark.usefixtures("soon")
def test_a_library_that_comes_later_is_found(library: str, knobs: Knobs, tmp_path: Path) -> None:
    asked = Asked(str(tmp_path / "libnvidia-ml.so.1"))

    assert asked.now() == {}
    assert asked.troubles() == []
    shutil.copy(library, tmp_path)
    until(lambda: asked.now().get("hw.temperature") == {35})
    asked.worker.close()


@pytest.mark.usefixtures("soon")
def test_nvml_that_does_not_start_at_first_is_asked_again(library: str, knobs: Knobs) -> None:
    knobs.set(answers=9)
    asked = Asked(library)

    until(asked.troubles)
    assert asked.now() == {}
    assert "does not start" in asked.troubles()[0]
    knobs.set(answers=0)
    until(lambda: asked.now().get("hw.temperature") == {35})
    assert asked.troubles() == []
    asked.worker.close()


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("answer", [1, 9, 18, 999])
def test_nothing_old_is_told_while_nvml_answers_errors(library: str, knobs: Knobs, answer: int) -> None:
    asked = Asked(library)
    knobs.set(energy=1_000, pcie_replays=3)
    before = asked.now()
    assert {"hw.temperature", "hw.gpu.memory.usage", "hw.energy", "hw.status"} <= before.keys()
    assert asked.now() == before

    knobs.set(answers=answer, energy=5_000)
    assert asked.now() == {}
    until(asked.troubles)

    knobs.set(answers=0)
    until(lambda: asked.now().keys() == before.keys())
    # A counter goes on where it stood, and has what came meanwhile; a level is what it is now.
    assert asked.now()["hw.energy"] == {4.0}
    assert asked.now()["hw.gpu.memory.usage"] == before["hw.gpu.memory.usage"]
    assert asked.troubles() == []
    asked.worker.close()


def test_what_a_device_answers_no_more_falls_silent_alone(library: str, knobs: Knobs) -> None:
    asked = Asked(library)
    before = asked.now()

    knobs.set(unsupported="nvmlDeviceGetPowerUsage")

    assert before.keys() - asked.now().keys() == {"hw.power"}
    asked.worker.close()


def test_nothing_old_is_told_while_nvml_hangs(library: str, knobs: Knobs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(library)
    assert "hw.temperature" in asked.now()
    hangs = threading.Event()
    monkeypatch.setattr("otel_gpu.receivers.nvml.worker._ANSWER_S", 0.05)
    monkeypatch.setattr("otel_gpu.receivers.nvml.library.Nvml.count", lambda _self: hangs.wait(60) and 1)

    assert asked.now() == {}
    assert asked.now() == {}
    hangs.set()
    until(lambda: "hw.temperature" in asked.now())
    asked.worker.close()


def test_a_driver_that_answers_nothing_is_said(receiver: NvmlReceiver, knobs: Knobs) -> None:
    knobs.set(answers=999)

    with pytest.raises(NvmlUnavailableError, match="answers no more"):
        receiver.collect()
