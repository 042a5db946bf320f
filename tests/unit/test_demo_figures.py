from __future__ import annotations

import pytest
from rich.console import Console

from otel_gpu.cli.demo.figures import Figures, figures
from otel_gpu.cli.demo.screen import live, totals
from otel_gpu.signals.metrics import Buckets, Point, Resource, Value, attributes


def point(name: str, value: Value, **more: str) -> Point:
    return Point(Resource(()), name, "", attributes({key.replace("__", "."): v for key, v in more.items()}), value)


POINTS = (
    point("gpu.cuda.kernel.launch.calls", 30, cuda__kernel__name="attend"),
    point("gpu.cuda.kernel.launch.calls", 10, cuda__kernel__name="other[1]"),
    point("gpu.cuda.kernel.grid.size", Buckets({2: 40}, 200), cuda__kernel__name="attend"),
    point("gpu.cuda.kernel.block.size", Buckets({6: 40}, 5120), cuda__kernel__name="attend"),
    point("gpu.cuda.graph.kernel.calls", 500, cuda__kernel__name="attend"),
    point("gpu.cuda.graph.launch.calls", 5),
    point(
        "gpu.cuda.memory.copies",
        Buckets({9: 3}, 3072),
        cuda__memcpy__kind="MemcpyHostToDevice",
        cuda__memory__host__type="pageable",
    ),
    point(
        "gpu.cuda.memory.copies",
        Buckets({9: 1}, 1024),
        cuda__memcpy__kind="MemcpyHostToDevice",
        cuda__memory__host__type="pinned",
    ),
    point("gpu.cuda.memory.allocations", 4096, cuda__memory__type="device"),
    point("gpu.cuda.memory.usage", 2048, cuda__memory__type="device"),
    point("gpu.cuda.synchronize.duration", Buckets({-10: 4}, 0.008), cuda__function="cuStreamSynchronize"),
    point("gpu.cuda.errors", 2, cuda__function="cuMemAlloc", error__type="CUDA_ERROR_OUT_OF_MEMORY"),
)


def text(shown: object) -> str:
    console = Console(width=140)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


@pytest.fixture
def figure() -> Figures:
    return figures(POINTS)


def test_totals_add_up_every_kernel_and_copy(figure: Figures) -> None:
    assert figure.totals() == {
        "launches": 40,
        "graph launches": 5,
        "kernels in graphs": 500,
        "bytes to the GPU": 4096,
        "bytes from the GPU": 0,
        "bytes allocated": 4096,
        "errors": 2,
    }


def test_a_table_shows_what_happened_since_the_one_before(figure: Figures) -> None:
    shown = text(live(figure, Figures(), 2.0)).split("\n")

    attend = next(line for line in shown if line.startswith("attend"))
    assert attend.split() == ["attend", "15", "250", "5", "128", "530"]
    # A name is text, whatever brackets are in it.
    assert any(line.startswith("other[1]") for line in shown)
    pageable = next(line for line in shown if " pageable " in line)
    assert "1.5 KiB/s" in pageable
    assert "75%" in pageable
    wait = next(line for line in shown if line.startswith("cuStreamSynchronize"))
    assert wait.split() == ["cuStreamSynchronize", "2", "2", "ms", "0%"]


def test_nothing_observed_yet_is_said() -> None:
    assert "nothing yet" in text(live(Figures(), Figures(), 1.0))


def test_a_difference_from_what_the_program_says_is_marked(figure: Figures) -> None:
    shown = text(totals(figure, {**figure.totals(), "launches": 41}))

    assert shown.count("equal") == 6
    assert "DIFFERENT" in next(line for line in shown.split("\n") if line.startswith("launches"))


def test_a_program_that_says_nothing_is_not_compared_with(figure: Figures) -> None:
    assert "DIFFERENT" not in text(totals(figure, {}))
