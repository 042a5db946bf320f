"""One storm of calls, three sources: the program, the mock driver and what the agent exported."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import comparison, ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Truth

THREADS, LAUNCHES, ROUNDS, GRAPHS, ERRORS = 8, 250_000, 32, 11, 3


@dataclass(frozen=True)
class Storm:
    said: dict[str, object]
    truth: Truth
    everything: Metrics
    exported: Metrics
    """The series about the program."""


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Storm:
    directory: Path = tmp_path_factory.mktemp("storm")
    command = [ground.part("programs") / "launch_storm", "--gate"]
    for option, value in (("threads", THREADS), ("launches", LAUNCHES), ("memory", ROUNDS), ("graphs", GRAPHS)):
        command += [f"--{option}", str(value)]
    command += ["--errors", str(ERRORS)]
    with Program(command, directory, {"MOCKCUDA_DEVICES": "2"}) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), "--output", f"file:{directory / 'out'}"], directory) as agent:
            agent.wait_attached()
            said = program.run_phase(timeout=240)
            truth = program.finish()
            agent.stop()
    everything = read_metrics(directory / "out")
    return Storm(said, truth, everything, everything.of(truth.pid))


def test_the_two_sources_agree(storm: Storm) -> None:
    assert {k: n["launches"] for k, n in storm.said["kernels"].items()} == storm.truth.launches
    assert sum(storm.truth.launches.values()) == THREADS * LAUNCHES
    assert sum(c["bytes"] for c in storm.said["copies"]) == storm.truth.copied.sum


def test_every_launch_is_counted_with_its_kernel_and_dimensions(storm: Storm) -> None:
    comparison.assert_launches(storm.exported, storm.truth)


def test_graph_launches_are_counted_and_recorded_launches_are_not(storm: Storm) -> None:
    assert storm.exported.total(comparison.GRAPHS) == GRAPHS
    assert storm.exported.total(comparison.GRAPH_KERNELS) == storm.truth.graph_kernels == storm.said["graph_kernels"]
    assert storm.exported.total(comparison.LAUNCHES) == THREADS * LAUNCHES


def test_every_copy_is_counted_by_kind_and_size(storm: Storm) -> None:
    exported = {
        kind: (h.count, h.sum)
        for kind, h in storm.exported.histograms_by(comparison.COPIES, "cuda.memcpy.kind").items()
    }
    said: Counter[tuple[str, str]] = Counter()
    for copied in storm.said["copies"]:
        said[copied["kind"], "count"] += copied["count"]
        said[copied["kind"], "bytes"] += copied["bytes"]
    assert exported == {kind: (said[kind, "count"], said[kind, "bytes"]) for kind, _ in said}


def test_page_locked_copies_are_told_apart(storm: Storm) -> None:
    for kind in ("MemcpyHostToDevice", "MemcpyDeviceToHost"):
        of_kind = storm.exported.where(lambda s, kind=kind: s.attributes.get("cuda.memcpy.kind") == kind)
        by_type = of_kind.by(comparison.COPIES, "cuda.memory.host.type")
        said = {c["host"]: c["bytes"] for c in storm.said["copies"] if c["kind"] == kind}

        assert by_type["pinned"] == said["pinned"]
        # Memory that a process may have locked before the agent came is not called pageable.
        assert by_type["pageable"] + by_type["None"] == said["pageable"]


def test_every_memset_byte_is_counted(storm: Storm) -> None:
    assert storm.exported.total(comparison.MEMSETS) == storm.truth.memset_bytes == storm.said["memset"]["bytes"]


def test_every_byte_allocated_and_freed_is_counted_by_type(storm: Storm) -> None:
    comparison.assert_memory(storm.exported, storm.truth)
    assert +storm.exported.by(comparison.USAGE, "cuda.memory.type") == {}


def test_every_wait_is_counted_by_function(storm: Storm) -> None:
    said = storm.said["syncs"]
    exported = storm.exported.histograms_by(comparison.WAITS, "cuda.function")
    assert exported["cuStreamSynchronize"].count == said["cuStreamSynchronize"] + said["cuStreamSynchronize_ptsz"]
    assert exported["cuEventSynchronize"].count == said["cuEventSynchronize"]
    assert exported["cuCtxSynchronize"].count == said["cuCtxSynchronize"]
    assert all(h.sum > 0 for h in exported.values())


def test_errors_are_counted_by_function_and_code(storm: Storm) -> None:
    errors = {
        (s.attributes["cuda.function"], s.attributes["error.type"]): s.value
        for s in storm.exported.named(comparison.ERRORS).samples
    }
    assert errors == {
        ("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY"): ERRORS,
        ("cuMemFree", "CUDA_ERROR_INVALID_VALUE"): ERRORS,
    }


def test_nothing_is_lost(storm: Storm) -> None:
    comparison.assert_nothing_lost(storm.everything)


def test_every_series_says_which_process_it_is_about(storm: Storm) -> None:
    for sample in storm.exported.samples:
        assert sample.resource["service.name"] == "launch_storm"
        assert sample.resource["process.executable.name"] == "launch_storm"
        assert "host.name" in sample.resource
