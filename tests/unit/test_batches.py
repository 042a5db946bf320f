"""What cannot be handed on is a failure of its signal, and costs nothing else."""

from __future__ import annotations

from dataclasses import replace

from otel_gpu.exporters import PipelineExporter
from otel_gpu.exporters.batch import Batch
from otel_gpu.exporters.delivery.payload import Encoded
from otel_gpu.exporters.fan_out import profiles_to
from otel_gpu.runtime.supervision import Component
from otel_gpu.service.batches import Batches, BatchPipeline
from otel_gpu.signals.metrics import Resource
from otel_gpu.signals.profiles import Profile
from tests.unit.profile_examples import training


class Requests(PipelineExporter):
    """An exporter that keeps what it was handed."""

    def __init__(self) -> None:
        super().__init__("requests")
        self.encoded: list[Encoded] = []

    def export_profiles(self, batch: Batch[Profile]) -> None:
        self.encoded.append(batch.requests(1 << 20))


def test_a_profile_that_cannot_be_encoded_is_a_failure_and_the_others_are_handed_on() -> None:
    good = training()
    bad = replace(good, resource=Resource((("key", object()),)))  # type: ignore[arg-type]
    requests, component = Requests(), Component("profiles")
    export = profiles_to([requests], component)

    def read(*, last: bool = False) -> list[Profile]:
        assert not last
        return [bad, good]

    batches = Batches(component, {"profile": read}, [BatchPipeline(("profile",), (), export.export)])
    batches.export()

    [encoded] = requests.encoded
    assert sum(payload.points for payload in encoded.payloads) == len(good.samples)
    assert encoded.lost == len(bad.samples)
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
