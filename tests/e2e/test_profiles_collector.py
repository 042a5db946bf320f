"""Does a real Collector take our profiles and write what we meant?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_gpu.exporters.fan_out import profiles_to
from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.settings import Compression, OtlpSettings, Protocol
from otel_gpu.exporters.recordings.files import write_profile
from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.runtime.supervision import Component
from otel_gpu.signals.profiles import CPU, GPU_INUSE_SPACE, OFF_CPU, Profile, merge
from tests.e2e.collector import Collector
from tests.unit.profile_examples import hostile, training


def sent_through(
    collector: Collector, profiles: list[Profile], protocol: Protocol, compression: Compression, max_bytes: int
) -> Path:
    """Return the file of a Collector that we sent these profiles to."""
    endpoint = collector.endpoint(protocol)
    settings = OtlpSettings(endpoint, protocol, compression=compression, max_request_bytes=max_bytes)
    exporter = OtlpExporter(settings)
    profiles_to([exporter], Component("profiles")).export(profiles)
    exporter.shutdown(20)
    stats = exporter.stats()
    assert (stats.sent_points, stats.failed_points) == (sum(len(p.samples) for p in profiles), 0), stats
    return collector.received("profiles", protocol)


def in_order(profiles: list[Profile]) -> list[Profile]:
    """Order profiles and their samples, which requests may hold in any order."""
    return sorted((replace(p, samples=tuple(sorted(p.samples, key=repr))) for p in merge(profiles)), key=repr)


@pytest.mark.parametrize("max_bytes", (3_500_000, 2_500), ids=("one request", "many requests"))
@pytest.mark.parametrize("compression", ("none", "gzip"))
@pytest.mark.parametrize("protocol", ("grpc", "http/protobuf"))
def test_the_collectors_file_holds_the_profiles_that_were_sent(
    protocol: Protocol, compression: Compression, max_bytes: int, collector: Collector
) -> None:
    profiles = [
        training(),
        training(GPU_INUSE_SPACE, scale=2**40),
        training(CPU),
        training(OFF_CPU, skip="fill_kernel"),
        training(pid=2),
    ]

    received = read_profiles(sent_through(collector, profiles, protocol, compression, max_bytes))

    assert in_order(received) == in_order(profiles)


def test_the_collectors_file_equals_our_own(collector: Collector, tmp_path: Path) -> None:
    write_profile(training(), tmp_path / "ours.otlp.json")

    received = sent_through(collector, [training()], "http/protobuf", "gzip", 3_500_000)

    ours, theirs = (json.loads(path.read_text()) for path in (tmp_path / "ours.otlp.json", received))
    for document in (ours, theirs):
        document["resourceProfiles"][0]["scopeProfiles"][0]["profiles"][0].pop("profileId")
    inline_resource(theirs, len(ours["dictionary"]["stringTable"]))
    assert simplified(ours) == simplified(theirs)


def inline_resource(document: Any, strings_of_ours: int) -> None:
    """Undo what the Collector does to resources: it appends their strings to the dictionary."""
    strings = document["dictionary"]["stringTable"]
    for attribute in document["resourceProfiles"][0]["resource"]["attributes"]:
        attribute["key"] = strings[attribute.pop("keyStrindex")]
        if (index := attribute["value"].pop("stringValueStrindex", None)) is not None:
            attribute["value"]["stringValue"] = strings[index]
    del strings[strings_of_ours:]


def simplified(tree: object) -> object:
    """Drop what is empty: writers differ in whether they spell out zeros."""
    if isinstance(tree, dict):
        empty: tuple[object, ...] = ({}, [], 0, "0", "", "0" * 32, "0" * 16)
        return {k: s for k, v in tree.items() if (s := simplified(v)) not in empty}
    return [simplified(v) for v in tree] if isinstance(tree, list) else tree


@pytest.mark.parametrize("protocol", ("grpc", "http/protobuf"))
def test_a_collector_takes_hostile_names(protocol: Protocol, collector: Collector) -> None:
    (received,) = read_profiles(sent_through(collector, [hostile()], protocol, "gzip", 3_500_000))

    assert received.total == hostile().total
