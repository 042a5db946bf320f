"""Which NVML call says what? One small function a subject; each yields what the device answers, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...signals import hardware
from ...signals.metrics import AttributeValue, MetricSpec
from ...signals.structs import Frozen
from .library import Device, Nvml

_GPU = {"hw.type": "gpu"}
_CLOCKS = {0: "graphics", 1: "sm", 2: "memory", 3: "video"}
_TEMPERATURE_LIMITS = {0: "high.critical", 1: "high.degraded"}
# nvmlMemoryErrorType_t and nvmlMemoryLocation_t; since the driver was loaded (NVML_VOLATILE_ECC = 0).
_ECC_TYPES = {0: "corrected", 1: "uncorrected"}
_ECC_LOCATIONS = {2: "dram", 7: "sram"}
# nvmlPerfPolicyType_t; the last two are sums of others.
_POLICIES = {0: "power", 1: "thermal", 2: "sync_boost", 3: "board_limit", 4: "low_utilization", 5: "reliability"}
# Field ids: PCIe bytes, and KiB of data over all NVLinks (scope: all links).
_PCIE_TX, _PCIE_RX, _NVLINK_TX, _NVLINK_RX = 197, 198, 138, 139
_ALL_LINKS = 0xFFFFFFFF
_FIELDS = {
    _PCIE_TX: ("pcie", "transmit", 1, 0),
    _PCIE_RX: ("pcie", "receive", 1, 0),
    _NVLINK_TX: ("nvlink", "transmit", 1024, _ALL_LINKS),
    _NVLINK_RX: ("nvlink", "receive", 1024, _ALL_LINKS),
}
_UNSIGNED_LONG, _UNSIGNED_LONG_LONG, _UNSIGNED_INT = 2, 3, 1
_NOT_AVAILABLE = (1 << 64) - 1
_MAX_PROCESSES = 4_096


class Reading(Frozen):
    """A value as NVML gives it; a float metric's value is `value × scale`. Sums are since the driver's start."""

    metric: MetricSpec
    value: int
    attributes: Mapping[str, AttributeValue]
    scale: float = 1


def _utilization(nvml: Nvml, device: Device) -> Iterator[Reading]:
    if (rates := nvml.ask(device, "nvmlDeviceGetUtilizationRates")) is not None:
        yield Reading(hardware.UTILIZATION, rates.gpu, {"hw.gpu.task": "general"}, 0.01)
    for task in ("encoder", "decoder"):
        if (answer := nvml.ask(device, f"nvmlDeviceGet{task.capitalize()}Utilization")) is not None:
            yield Reading(hardware.UTILIZATION, answer[0], {"hw.gpu.task": task}, 0.01)


def _memory(nvml: Nvml, device: Device) -> Iterator[Reading]:
    # The first version counts what the driver reserves for itself as used.
    memory = nvml.ask(device, "nvmlDeviceGetMemoryInfo", nvml.api.nvmlMemory_v2) or nvml.ask(
        device, "nvmlDeviceGetMemoryInfo"
    )
    if memory is not None:
        yield Reading(hardware.MEMORY_LIMIT, memory.total, {})
        yield Reading(hardware.MEMORY_USAGE, memory.used, {})
        if memory.total:
            yield Reading(hardware.MEMORY_UTILIZATION, memory.used, {}, 1 / memory.total)


def _heat_and_power(nvml: Nvml, device: Device) -> Iterator[Reading]:
    names = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
    if (celsius := nvml.ask_first(device, names, 0)) is not None:
        yield Reading(hardware.TEMPERATURE, celsius, _GPU)
    for threshold, limit in _TEMPERATURE_LIMITS.items():
        if (celsius := nvml.ask(device, "nvmlDeviceGetTemperatureThreshold", threshold)) is not None:
            yield Reading(hardware.TEMPERATURE_LIMIT, celsius, {**_GPU, "hw.limit_type": limit})
    if (milliwatts := nvml.ask(device, "nvmlDeviceGetPowerUsage")) is not None:
        yield Reading(hardware.POWER, milliwatts, _GPU, 0.001)
    if (milliwatts := nvml.ask(device, "nvmlDeviceGetEnforcedPowerLimit")) is not None:
        yield Reading(hardware.POWER_LIMIT, milliwatts, {}, 0.001)
    if (millijoules := nvml.ask(device, "nvmlDeviceGetTotalEnergyConsumption")) is not None:
        yield Reading(hardware.ENERGY, millijoules, _GPU, 0.001)


def _clocks(nvml: Nvml, device: Device) -> Iterator[Reading]:
    for clock, name in _CLOCKS.items():
        if (megahertz := nvml.ask(device, "nvmlDeviceGetClockInfo", clock)) is not None:
            yield Reading(hardware.SPEED, megahertz * 1_000_000, {"gpu.nvml.clock": name})
        if (megahertz := nvml.ask(device, "nvmlDeviceGetMaxClockInfo", clock)) is not None:
            yield Reading(hardware.SPEED_LIMIT, megahertz * 1_000_000, {"gpu.nvml.clock": name})


def _throttling(nvml: Nvml, device: Device) -> Iterator[Reading]:
    names = ("nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons")
    supported = nvml.ask_first(device, names) or 0
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    if (active := nvml.ask_first(device, names)) is not None:
        for bit, reason in enumerate(hardware.CLOCK_EVENTS):
            if supported >> bit & 1:
                yield Reading(hardware.THROTTLED, active >> bit & 1, {"gpu.nvml.throttle.reason": reason})
    for policy, reason in _POLICIES.items():
        if (status := nvml.ask(device, "nvmlDeviceGetViolationStatus", policy)) is not None:
            yield Reading(hardware.THROTTLE_TIME, status.violationTime, {"gpu.nvml.throttle.reason": reason}, 1e-9)


def _errors(nvml: Nvml, device: Device) -> Iterator[Reading]:
    for kind, name in _ECC_TYPES.items():
        attrs = {**_GPU, "error.type": name}
        has_locations = False
        for location, where in _ECC_LOCATIONS.items():
            count = nvml.ask(device, "nvmlDeviceGetMemoryErrorCounter", kind, 0, location)
            if count is not None:
                has_locations = True
                yield Reading(hardware.ERRORS, count, {**attrs, "gpu.nvml.memory.location": where})
        # Older GPUs know the total alone; where both are known it would count every error twice.
        if not has_locations and (count := nvml.ask(device, "nvmlDeviceGetTotalEccErrors", kind, 0)) is not None:
            yield Reading(hardware.ERRORS, count, attrs)
    if (count := nvml.ask(device, "nvmlDeviceGetPcieReplayCounter")) is not None:
        yield Reading(hardware.ERRORS, count, {**_GPU, "error.type": "pcie_replay"})


def _links(nvml: Nvml, device: Device) -> Iterator[Reading]:
    if device.is_instance:
        return
    wanted = [f for f in _FIELDS if not nvml.refuses(device, f)]
    # With nothing to ask for NVML would call the question invalid.
    fields = tuple((f, _FIELDS[f][3]) for f in wanted)
    for answer in (nvml.ask(device, "nvmlDeviceGetFieldValues", fields) if fields else None) or ():
        link, direction, unit, _ = _FIELDS[answer.fieldId]
        if answer.nvmlReturn != nvml.api.NVML_SUCCESS:
            nvml.refuse(device, answer.nvmlReturn, answer.fieldId)
        elif (value := _field_value(answer)) is not None:
            attrs = {"gpu.nvml.link": link, "network.io.direction": direction}
            yield Reading(hardware.IO, value * unit, attrs)
    for field_id, counter, direction in ((_PCIE_TX, 0, "transmit"), (_PCIE_RX, 1, "receive")):
        if not nvml.refuses(device, field_id):
            continue
        # Takes 20 ms, so it is asked only where the GPU has no byte counters.
        if (kilobytes := nvml.ask(device, "nvmlDeviceGetPcieThroughput", counter)) is not None:
            attrs = {"gpu.nvml.link": "pcie", "network.io.direction": direction}
            yield Reading(hardware.IO_RATE, kilobytes * 1_000, attrs)


def _field_value(answer: Any) -> int | None:
    kind, value = answer.valueType, answer.value
    if kind == _UNSIGNED_LONG_LONG:
        return int(value.ullVal)
    if kind == _UNSIGNED_LONG:
        return int(value.ulVal)
    return int(value.uiVal) if kind == _UNSIGNED_INT else None


READINGS: tuple[Callable[[Nvml, Device], Iterator[Reading]], ...] = (
    _utilization,
    _memory,
    _heat_and_power,
    _clocks,
    _throttling,
    _errors,
    _links,
)


def process_bytes(nvml: Nvml, device: Device) -> dict[int, int]:
    """Return the GPU memory of each process on a device, clients of an MPS server among them."""
    found: dict[int, int] = {}
    for kind in ("Compute", "MPSCompute", "Graphics"):
        names = tuple(f"nvmlDeviceGet{kind}RunningProcesses{v}" for v in ("", "_v2"))
        for process in (nvml.ask_first(device, names) or ())[:_MAX_PROCESSES]:
            size = process.usedGpuMemory
            # One process may stand in more than one list, with the same memory.
            if size is not None and size != _NOT_AVAILABLE:
                found[process.pid] = max(size, found.get(process.pid, 0))
    return found


def pids_by_utilization(nvml: Nvml, device: Device, last_us: dict[str, int]) -> dict[int, float] | None:
    """Return each process's share of the SMs since the last call; None where the device cannot tell.

    `last_us` holds the driver's time of the last sample by UUID, and is brought up to date.
    """
    since = last_us.get(device.uuid, 0)
    samples = nvml.ask(device, "nvmlDeviceGetProcessUtilization", since)
    if samples is None and nvml.refuses(device, "nvmlDeviceGetProcessUtilization", since):
        return None
    shares: dict[int, list[int]] = {}
    for sample in (samples or ())[:_MAX_PROCESSES]:
        last_us[device.uuid] = max(last_us.get(device.uuid, 0), sample.timeStamp)
        if sample.smUtil <= 100:
            shares.setdefault(sample.pid, []).append(sample.smUtil)
    return {pid: sum(values) / len(values) / 100 for pid, values in shares.items()}
