"""What cannot be handed on is a failure of its signal, and costs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from otel_gpu.exporters import ExporterStats
from otel_gpu.exporters.payload import Payload
from otel_gpu.service.batches import Batches, BatchPipeline
from otel_gpu.service.profile_export import ProfileExport
from otel_gpu.signals import Signal
from otel_gpu.signals.metrics import Resource
from otel_gpu.signals.profiles import Profile
from otel_gpu.supervision import Component, Worker
from tests.unit.profile_examples import training


class Requests:
    """An exporter that keeps what it was handed."""

    name = "requests"
    max_request_bytes = 1 << 20

    def __init__(self) -> None:
        self.points: list[int] = []

    def submit(self, _signal: Signal, payload: Payload[bytes]) -> None:
        self.points.append(payload.points)

    def count_failed(self, signal: Signal, points: int) -> None:
        raise AssertionError(f"{points} {signal} failed")

    def shutdown(self, timeout_s: float) -> None:
        pass

    def stats(self) -> ExporterStats:
        return ExporterStats()

    def workers(self) -> Sequence[Worker]:
        return ()


def test_a_profile_that_cannot_be_encoded_is_a_failure_and_the_others_are_handed_on() -> None:
    good = training()
    bad = replace(good, resource=Resource((("key", object()),)))  # type: ignore[arg-type]
    requests, component = Requests(), Component("profiles")
    export = ProfileExport([requests], 1 << 20, component)

    def read(*, last: bool = False) -> list[Profile]:
        assert not last
        return [bad, good]

    batches = Batches(component, {"profile": read}, [BatchPipeline(("profile",), (), export.export)])
    batches.export()

    assert sum(requests.points) == len(good.samples)
    [health] = batches.health()
    assert (health.component, health.failures) == ("profiles", 2)  # all of them together, and the one alone


def test_what_could_not_be_handed_over_is_handed_over_with_what_follows() -> None:
    component, taken = Component("numbers"), list[list[int]]()
    given = iter(([1, 2], [3], [4]))

    def export(items: list[int]) -> None:
        if items[-1] != 3:
            raise OSError("no room")
        taken.append(items)

    def read(*, last: bool = False) -> list[int]:
        assert not last
        return next(given)

    batches = Batches(component, {"one": read}, [BatchPipeline(("one",), (), export)])
    batches.export()
    batches.export()

    assert taken == [[1, 2, 3]]
    assert component.health().failures == 1
