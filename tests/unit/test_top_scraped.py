"""Is what an agent tells Prometheus what it counted?"""

from __future__ import annotations

import pytest

from otel_gpu.cli.top.figures import Direction
from otel_gpu.cli.top.scraped import ScrapedSource
from otel_gpu.errors import ConfigError
from otel_gpu.exporters.prometheus.exporter import PrometheusExporter
from otel_gpu.exporters.prometheus.settings import PrometheusSettings
from otel_gpu.signals import cuda
from otel_gpu.signals.metrics import Buckets, Measurement, Resource, SeriesStore, attributes

PROCESS = Resource(
    attributes({"service.name": "train", "service.namespace": "ml", "service.instance.id": "i-1", "process.pid": 7})
)
COPY = attributes({"cuda.memcpy.kind": "MemcpyHostToDevice", "cuda.memory.host.type": "pinned"})


def test_what_is_scraped_is_what_was_counted_and_when() -> None:
    store = SeriesStore()
    kernel = attributes({"cuda.kernel.name": 'a"b\\c'})
    counted = [
        Measurement(PROCESS, cuda.KERNEL_LAUNCH_CALLS, kernel, 5),
        Measurement(PROCESS, cuda.MEMORY_COPIES, COPY, Buckets({11: 2, 12: 1}, 12_345)),
        Measurement(PROCESS, cuda.MEMORY_USAGE, attributes({"cuda.memory.type": "device"}), 1 << 40),
        Measurement(PROCESS, cuda.SYNCHRONIZE_DURATION, attributes({"cuda.function": "f"}), Buckets({-3: 4}, 0.75)),
    ]
    store.fold(counted, 1)
    exporter = PrometheusExporter(PrometheusSettings(endpoint="localhost:0"))
    try:
        with ScrapedSource(f"localhost:{exporter.address[1]}") as source:
            exporter.export_metrics(store, 3_000_000_000)
            first = source.take()
            assert source.take() is first
            # Of another pipeline, which carries the same.
            exporter.export_metrics(store, 5_500_000_000)
            second = source.take()
    finally:
        exporter.shutdown(5)

    assert second.at_s - first.at_s == 2.5
    [process] = second.figures.processes.values()
    assert (process.pid, process.service) == (7, "train")
    assert {name: k.launches for name, k in process.kernels.items()} == {'a"b\\c': 5}
    copied = process.copies[Direction("MemcpyHostToDevice", "pinned", False)]
    assert (copied.count, copied.sum) == (3, 12_345)
    assert process.memory == {"device": 1 << 40}
    assert process.waits["f"] == Buckets({-3: 4}, 0.75)


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://x:0/", "http://x:port/"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        ScrapedSource(url)
