"""Which line of a PyTorch program launches what? Stacks of real training on the mock driver, against its own truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import (
    GPU_ALLOC_SPACE,
    GPU_INUSE_SPACE,
    GPU_LAUNCHES,
    TENSOR_ALLOC_SPACE,
    TENSOR_INUSE_SPACE,
    FrameKind,
    Profile,
    Sample,
    is_truncated,
)
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.truth import Truth

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]
STARTS_S, TABLES_S = 300, 600
"""PyTorch is gigabytes of files, read for the first time by the program and by the agent."""
EVERY_STACK = 100_000
TYPES = (GPU_LAUNCHES, GPU_ALLOC_SPACE, GPU_INUSE_SPACE, TENSOR_ALLOC_SPACE, TENSOR_INUSE_SPACE)


@dataclass(frozen=True)
class Recorded:
    """One phase of the program: what was recorded, and what happened."""

    profiles: dict[str, Profile]
    launches: Counter[str]
    """By Python function, as the program counted."""
    tensors: dict[str, int]
    truth: Truth
    """Of the driver, over the same phase."""

    @property
    def samples(self) -> tuple[Sample, ...]:
        return self.profiles[GPU_LAUNCHES.name].samples

    def by_function(self) -> Counter[str]:
        """Add up the launches below each of the functions that the program counts."""
        found: Counter[str] = Counter()
        for sample in self.samples:
            for name in {f.function for f in sample.stack if f.kind is FrameKind.CPYTHON} & self.launches.keys():
                found[name] += sample.value
        return found


def _environment(directory: Path) -> dict[str, str]:
    # PyTorch brings its own runtime, which the test's library path must not replace.
    mock = str(ground.part("mock"))
    return {
        "LD_LIBRARY_PATH": mock,
        "TRITON_LIBCUDA_PATH": mock,
        "TRITON_CACHE_DIR": str(directory / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(directory / "inductor"),
    }


def _record(directory: Path, *what: str, stacks_per_second: int = EVERY_STACK) -> Recorded:
    """Record the second of two equal phases: in the first one everything is loaded that will be."""
    command = [ground.torch_python(), ground.PROGRAMS / "torch_profile.py", "--phases", "2", "--what", *what]
    with Program(command, directory, _environment(directory)) as program:
        program.ready(STARTS_S)
        with Recording(program.pid, TYPES, stacks_per_second=stacks_per_second) as recorder:
            program.run_phase(STARTS_S)
            program.ready()
            assert recorder.settle(TABLES_S)
            before = program.truth_now()
            recorder.start()
            event = program.run_phase(STARTS_S)
            program.ready()
            truth = program.truth_now() - before
            profiles = {p.type.name: p for p in recorder.finish()}
        program.go()
        program.finish()
    return Recorded(profiles, Counter(event["launches"]), event["tensors"], truth)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return _record(tmp_path_factory.mktemp("torch"), "main", "thread", "loader")


def _is_engines(sample: Sample) -> bool:
    return any(f.function.startswith("torch::autograd::Engine::thread_main") for f in sample.stack)


def _functions(sample: Sample) -> list[str]:
    return [f.function for f in sample.stack]


def _share(samples: Iterable[Sample], total: int) -> float:
    return sum(s.value for s in samples) / total


def test_every_stack_reaches_the_start_of_its_thread(recorded: Recorded) -> None:
    total = recorded.profiles[GPU_LAUNCHES.name].total

    assert _share((s for s in recorded.samples if not is_truncated(s.stack)), total) >= 0.99


def test_launches_of_each_function_are_those_that_it_counted(recorded: Recorded) -> None:
    assert recorded.profiles[GPU_LAUNCHES.name].total == recorded.truth.launches.total()
    assert set(recorded.launches) == {
        "main_forward",
        "main_backward",
        "main_update",
        "checkpointed_backward",
        "failing_backward",
        "thread_forward",
        "thread_backward",
        "loaded_step",
    }
    assert recorded.by_function() == recorded.launches


def test_backward_hangs_below_the_function_that_asked_for_it(recorded: Recorded) -> None:
    # The gradient to begin with is made by the caller itself.
    backward = [s for s in recorded.samples if "main_backward" in _functions(s) and _is_engines(s)]

    assert sum(s.value for s in backward) > recorded.launches["main_backward"] / 2
    for sample in backward:
        names = _functions(sample)
        marker = names.index("[backward]")
        assert names[marker + 1].startswith("torch::autograd::Engine::execute")
        assert "main_backward" in names[marker:]
        # The engine's own thread has no Python frames.
        assert not any(f.kind is FrameKind.CPYTHON for f in sample.stack[:marker])


def test_no_launch_of_the_engine_stands_alone(recorded: Recorded) -> None:
    assert [s for s in recorded.samples if _is_engines(s) and "[backward]" not in _functions(s)] == []


def test_tensors_of_the_backward_pass_hang_below_it_too(recorded: Recorded) -> None:
    made = recorded.profiles[TENSOR_ALLOC_SPACE.name].samples

    assert any(_is_engines(s) for s in made)
    assert [s for s in made if _is_engines(s) and "[backward]" not in _functions(s)] == []


def test_each_kernel_is_a_leaf_with_its_name(recorded: Recorded) -> None:
    assert {s.stack[0].kind for s in recorded.samples} == {FrameKind.CUDA}
    assert not any(s.stack[0].function.startswith("unknown+") for s in recorded.samples)


def test_tensors_are_those_that_pytorch_counts(recorded: Recorded) -> None:
    made, alive = recorded.profiles[TENSOR_ALLOC_SPACE.name], recorded.profiles[TENSOR_INUSE_SPACE.name]

    assert made.total == recorded.tensors["made"]
    assert alive.total == recorded.tensors["alive"] > 0


def test_the_drivers_memory_is_told_apart_from_tensors(recorded: Recorded) -> None:
    allocated = recorded.profiles.get(GPU_ALLOC_SPACE.name)

    assert (allocated.total if allocated else 0) == sum(recorded.truth.allocated.values())


def test_totals_hold_when_few_stacks_are_taken(tmp_path: Path) -> None:
    recorded = _record(tmp_path, "main", stacks_per_second=8)

    assert recorded.profiles[GPU_LAUNCHES.name].total == recorded.truth.launches.total()
    assert recorded.profiles[TENSOR_ALLOC_SPACE.name].total == recorded.tensors["made"]


def test_compiled_code_is_walked(tmp_path: Path) -> None:
    recorded = _record(tmp_path, "compile")
    total = recorded.profiles[GPU_LAUNCHES.name].total

    assert any(s.stack[0].function.startswith("triton_") for s in recorded.samples)
    assert total == recorded.truth.launches.total()
    assert recorded.by_function() == recorded.launches
    assert _share((s for s in recorded.samples if not is_truncated(s.stack)), total) >= 0.99
