"""A package of somebody else adds a receiver, a processor and an exporter, without a change to any file here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gpu.exporters.recordings.reading import read_profiles
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Program
from tests.span_reading import read_spans

_PACKAGE = """
from dataclasses import dataclass
from pathlib import Path

from otel_gpu.components import (
    AttributeSpec, Check, ExporterFactory, Instrument, Measurement, MetricSpec, Needs, ProcessorFactory, ReceiverFactory, Resource,
    attributes,
)

SPEED = MetricSpec("fans.speed", "{revolution}/min", Instrument.GAUGE, "How fast a fan turns.", ("fan",))


@dataclass(frozen=True)
class FanSettings:
    speed: int
    fails: bool = False


class Fans:
    def __init__(self, context, settings):
        self._context, self._settings = context, settings

    def collect(self):
        if self._settings.fails:
            raise OSError("no fan turns")
        return [Measurement(self._context.host, SPEED, attributes({"fan": "left"}), self._settings.speed)]

    def close(self):
        with open("closed.txt", "a") as file:
            file.write("%d\\n" % self._settings.speed)


@dataclass(frozen=True)
class RenameSettings:
    to: str = "right"


class Rename:
    def __init__(self, context, settings):
        self._settings = settings

    def metrics(self, measurements):
        return [
            Measurement(m.resource, m.metric, attributes({**dict(m.attributes), "fan": self._settings.to}), m.value)
            if m.metric is SPEED else m
            for m in measurements
        ]

    def forget(self, resource):
        pass


@dataclass(frozen=True)
class TextSettings:
    path: str


class Text:
    def __init__(self, context, settings):
        self._settings = settings

    def export_metrics(self, points):
        Path(self._settings.path).write_text("".join(f"{p.name} {p.value}\\n" for p in points))


def needs(settings, signal):
    return Needs(written=(settings.path,), endpoints=("127.0.0.1:1",))


def checks():
    return [Check("fans", ok=False, required=False, detail="none turns", fix="switch one on")]


RECEIVER = ReceiverFactory(
    FanSettings, Fans, (SPEED,), (AttributeSpec("fan", "Which fan.", ("left", "right")),), checks=checks
)
ONE_ONLY = ReceiverFactory(FanSettings, Fans, why_one="one is loud enough")
PROCESSOR = ProcessorFactory(RenameSettings, Rename)
EXPORTER = ExporterFactory(TextSettings, Text, needs=needs)
"""
_ENTRY_POINTS = """
[otel_gpu.receivers]
fans = fans_of_others:RECEIVER
loud_fans = fans_of_others:ONE_ONLY
broken_fans = fans_of_others:NOTHING
[otel_gpu.processors]
rename_fans = fans_of_others:PROCESSOR
[otel_gpu.exporters]
text = fans_of_others:EXPORTER
"""
_CONFIG = {
    "receivers": {
        "fans": {"speed": 900},
        "fans/second": {"speed": 40},
        "fans/broken": {"speed": 0, "fails": True},
        "self": {},
    },
    "processors": {"rename_fans": {}},
    "exporters": {"file": {"path": "out"}, "text": {"path": "fans.txt"}},
    "service": {
        "interval": "200ms",
        "pipelines": {
            "metrics": {
                "receivers": ["fans", "fans/broken", "self"],
                "processors": ["rename_fans"],
                "exporters": ["file"],
            },
            "metrics/text": {"receivers": ["fans/second"], "exporters": ["text"]},
        },
    },
}


@pytest.fixture
def package(tmp_path: Path) -> dict[str, str]:
    """Install the package where `PYTHONPATH` says, and return the environment for that."""
    place = tmp_path / "packages"
    about = place / "fans_of_others-1.0.dist-info"
    about.mkdir(parents=True)
    (place / "fans_of_others.py").write_text(_PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fans-of-others\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(_ENTRY_POINTS)
    return {**os.environ, "PYTHONPATH": str(place)}


def _install(tmp_path: Path, module: str, source: str, entry_points: list[tuple[str, str]]) -> None:
    """Put a module beside the package's, and have these entry points, by their groups, in place of its own."""
    place = tmp_path / "packages"
    (place / f"{module}.py").write_text(source)
    text = "".join(f"[otel_gpu.{group}]\n{entry_point}\n" for group, entry_point in entry_points)
    (place / "fans_of_others-1.0.dist-info" / "entry_points.txt").write_text(text)


def _run(environment: dict[str, str], tmp_path: Path, config: object) -> subprocess.CompletedProcess[str]:
    (tmp_path / "agent.yaml").write_text(json.dumps(config))
    return subprocess.run(
        [sys.executable, "-m", "otel_gpu", "run", "--config", "agent.yaml", "--duration", "2"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}:{Path(__file__).parent.parent.parent}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_components_of_another_package_are_configured_routed_and_watched(
    package: dict[str, str], tmp_path: Path
) -> None:
    done = _run(package, tmp_path, _CONFIG)

    assert done.returncode == 0, done.stderr
    exported = read_metrics(tmp_path / "out")
    assert exported.by("fans.speed", "fan") == {"right": 900}
    assert exported.by("otel_gpu.component.health", "otel_gpu.component")["fans"] == 1
    assert exported.by("otel_gpu.component.health", "otel_gpu.component")["fans/broken"] == 0
    assert exported.by("otel_gpu.component.failures", "otel_gpu.component")["fans/broken"] > 0
    [fan] = exported.named("fans.speed").samples
    assert "host.name" in fan.resource
    assert (tmp_path / "fans.txt").read_text() == "fans.speed 40\n"
    assert sorted((tmp_path / "closed.txt").read_text().split()) == ["0", "40", "900"]


@pytest.mark.parametrize(
    ("receivers", "said"),
    [
        ({"fans": {"spede": 1}}, "receivers.fans.spede: there is no such key; did you mean 'speed'"),
        ({"fasn": {}}, "receivers.fasn: there is no such component; did you mean 'fans'"),
        ({"broken_fans": {}}, "broken_fans of the package fans-of-others cannot be imported: AttributeError"),
        ({"loud_fans": {"speed": 1}, "loud_fans/b": {"speed": 1}}, "one is loud enough"),
    ],
)
def test_what_is_wrong_with_them_is_said(
    package: dict[str, str], tmp_path: Path, receivers: dict[str, object], said: str
) -> None:
    done = _run(package, tmp_path, {"receivers": receivers, "exporters": {"file": {"path": "out"}}})

    assert done.returncode == 2
    assert said in done.stderr


def test_what_they_need_of_the_host_is_looked_at(package: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(json.dumps(_CONFIG))
    done = subprocess.run(
        [sys.executable, "-m", "otel_gpu", "doctor", "--json", "--config", str(tmp_path / "agent.yaml")],
        env={**package, "PYTHONPATH": f"{package['PYTHONPATH']}:{Path(__file__).parent.parent.parent}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    found = [(c["check"], c["detail"], c["fix"]) for c in json.loads(done.stdout)]
    assert found.count(("fans", "none turns", "switch one on")) == 1
    assert [detail for name, detail, _ in found if name == "endpoint text"] == ["127.0.0.1:1: Connection refused"]
    assert "nvidia driver" not in {name for name, _, _ in found}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a right of its own there")
def test_where_they_write_root_keeps_the_right_to(package: dict[str, str], tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    os.chown(theirs, 65534, 65534)
    config = {
        "receivers": {"fans": {"speed": 900}},
        "exporters": {"text": {"path": str(theirs / "fans.txt")}},
        "service": {"interval": "200ms"},
    }

    done = _run(package, tmp_path, config)

    assert done.returncode == 0, done.stderr
    assert (theirs / "fans.txt").read_text() == "fans.speed 900\n"


def test_they_are_documented(package: dict[str, str]) -> None:
    document = _document(package)

    assert "| `fans.speed` | gauge | `{revolution}/min` | `fan` | development | How fast a fan turns. |" in document
    assert "| `fan` | Which fan. | `left`, `right` |" in document


def _document(environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "otel_gpu.service.telemetry"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


_TOWER = """
import os
import time
from dataclasses import dataclass

from otel_gpu.components import (
    Frame, FrameKind, Health, Instrument, Measurement, MetricSpec, ProcessorFactory, ProfileBuilder, ProfileType, ReceiverFactory,
    SelfReading, Span, SpanContext, SpanSpec, SpanKind, attributes,
)

HEIGHT = MetricSpec("tower.height", "m", Instrument.GAUGE, "How high it is.")
RAISED = MetricSpec("upper.raised", "{item}", Instrument.COUNTER, "How many passed by it.")
LOOKS = MetricSpec("tower.looks", "{look}", Instrument.COUNTER, "How often it looked.")
STEPS = ProfileType("tower_steps", "count", "steps", "count", 1, "Steps", "Steps taken by floor.")
CLIMB = SpanSpec("climb", SpanKind.INTERNAL, "One way to the top.")


@dataclass(frozen=True)
class TowerSettings:
    floors: int = 3


class Tower:
    def __init__(self, context, settings):
        self._context, self._floors, self._looks = context, settings.floors, 0
        assert context.pids == () and "tower" in context.types

    def collect(self):
        self._looks += 1
        return [Measurement(self._context.host, HEIGHT, attributes({}), 4 * self._floors)]

    def spans(self, *, last=False):
        now = time.time_ns()
        name = "last climb" if last else "climb"
        return [Span(self._context.host, name, SpanContext(os.urandom(16), os.urandom(8)), now - 1_000, now)]

    def profiles(self, *, last=False):
        steps = ProfileBuilder(STEPS, self._context.host, time.time_ns())
        for floor in range(self._floors):
            steps.add((Frame(FrameKind.CUDA, "_Z4stepIfEvPT_"), Frame(FrameKind.NATIVE, f"floor {floor}")), 20)
        return [steps.build(time.time_ns())]

    def readings(self):
        yield SelfReading(LOOKS, self._looks)

    def health(self):
        return [Health("lift", 2, "it stands still")]

    def close(self):
        pass


@dataclass(frozen=True)
class UpperSettings:
    pass


class Upper:
    def __init__(self, context, settings):
        self._raised = 0

    def readings(self):
        yield SelfReading(RAISED, self._raised)

    def spans(self, spans):
        self._raised += 1
        from dataclasses import replace
        return [replace(span, name=span.name.upper()) for span in spans]

    def profiles(self, profiles):
        self._raised += 1_000_000
        return [p for p in profiles if p.type is STEPS]


SIGNALS = ("metrics", "traces", "profiles")
RECEIVER = ReceiverFactory(TowerSettings, Tower, (HEIGHT, LOOKS), signals=SIGNALS, spans=(CLIMB,), profiles=(STEPS,))
PROCESSOR = ProcessorFactory(UpperSettings, Upper, signals=("traces", "profiles"), metrics=(RAISED,))
"""


def test_a_receiver_of_another_package_gives_every_signal_and_measures_itself(
    package: dict[str, str], tmp_path: Path
) -> None:
    _install(
        tmp_path,
        "towers_of_others",
        _TOWER,
        [
            ("receivers", "tower = towers_of_others:RECEIVER"),
            ("processors", "upper = towers_of_others:PROCESSOR"),
        ],
    )
    routes = {"receivers": ["tower"], "exporters": ["file"]}
    config = {
        "receivers": {"tower": {"floors": 5}, "self": {}},
        "processors": {"upper": {}},
        "exporters": {"file": {"path": "out"}},
        "service": {
            "interval": "200ms",
            "pipelines": {
                "metrics": {"receivers": ["tower", "self"], "exporters": ["file"]},
                "traces": {**routes, "processors": ["upper"]},
                "profiles": {**routes, "processors": ["upper"]},
            },
        },
    }

    done = _run(package, tmp_path, config)

    assert done.returncode == 0, done.stderr
    exported = read_metrics(tmp_path / "out")
    assert exported.total("tower.height") == 20
    assert exported.total("tower.looks") > 2
    # What it counts in its pipelines is one sum.
    raised = exported.total("upper.raised")
    assert raised > 1_000_000
    assert raised % 1_000_000 > 0
    assert exported.by("otel_gpu.component.health", "otel_gpu.component")["lift"] == 0
    assert exported.by("otel_gpu.component.failures", "otel_gpu.component")["lift"] == 2
    names = {span.name for span in read_spans(tmp_path / "out")}
    assert names == {"CLIMB", "LAST CLIMB"}
    profiles = read_profiles(tmp_path / "out" / "profiles.jsonl")
    [steps] = profiles
    assert (steps.type.name, steps.total % 100, len(steps.samples)) == ("tower_steps", 0, 5)
    document = _document(package)
    assert "| `tower.looks` | counter | `{look}` |  | development | How often it looked. |" in document
    assert "## Processor `upper`" in document
    assert "| `upper.raised` | counter | `{item}` |  | development | How many passed by it. |" in document
    assert "| `climb` | INTERNAL |  | development | One way to the top. |" in document
    assert "| `tower_steps` | `count` | | development | Steps: Steps taken by floor. |" in document
    wrong = {
        **config,
        "processors": {"kernel_names": {}},
        "service": {"pipelines": {"traces": {**routes, "processors": ["kernel_names"]}}},
    }
    refused = _run(package, tmp_path, wrong)
    assert refused.returncode == 2
    assert "kernel_names processes metrics and profiles; leave it out" in refused.stderr


def test_pipelines_of_which_nothing_is_written_have_every_processor_of_their_signal(
    package: dict[str, str], tmp_path: Path
) -> None:
    _install(
        tmp_path,
        "towers_of_others",
        _TOWER,
        [
            ("receivers", "tower = towers_of_others:RECEIVER"),
            ("processors", "upper = towers_of_others:PROCESSOR"),
            ("exporters", "text = fans_of_others:EXPORTER"),
        ],
    )
    action = {"key": "deployment.environment.name", "value": "lab", "action": "upsert"}
    config = {
        "receivers": {"tower": {}},
        "processors": {"upper": {}, "kernel_names": {"demangle": "short"}, "resource": {"attributes": [action]}},
        "exporters": {"file": {"path": "out"}, "text": {"path": "tower.txt"}},
        "service": {"interval": "200ms"},
    }

    done = _run(package, tmp_path, config)

    assert done.returncode == 0, done.stderr
    [height] = read_metrics(tmp_path / "out").samples
    spans = read_spans(tmp_path / "out")
    [steps] = read_profiles(tmp_path / "out" / "profiles.jsonl")
    resources = [dict(height.resource), *(dict(r.attributes) for r in (steps.resource, *(s.resource for s in spans)))]
    assert {resource["deployment.environment.name"] for resource in resources} == {"lab"}
    assert {span.name for span in spans} == {"CLIMB", "LAST CLIMB"}
    assert {sample.stack[0].function for sample in steps.samples} == {"step"}
    assert (tmp_path / "tower.txt").read_text() == "tower.height 12\n"


def test_resources_of_every_signal_are_changed_where_a_pipeline_asks_for_it(
    package: dict[str, str], tmp_path: Path
) -> None:
    _install(
        tmp_path,
        "towers_of_others",
        _TOWER,
        [
            ("receivers", "tower = towers_of_others:RECEIVER"),
        ],
    )
    changed = {"receivers": ["tower"], "processors": ["resource"], "exporters": ["file"]}
    action = {"key": "deployment.environment.name", "value": "lab", "action": "upsert"}
    config = {
        "receivers": {"tower": {}},
        "processors": {"resource": {"attributes": [action, {"key": "host.name", "action": "delete"}]}},
        "exporters": {"file": {"path": "out"}, "file/raw": {"path": "raw"}},
        "service": {
            "interval": "200ms",
            "pipelines": {
                "metrics": changed,
                "traces": changed,
                "profiles": changed,
                "metrics/raw": {"receivers": ["tower"], "exporters": ["file/raw"]},
            },
        },
    }

    done = _run(package, tmp_path, config)

    assert done.returncode == 0, done.stderr
    shown = (
        [dict(sample.resource) for sample in read_metrics(tmp_path / "out").samples]
        + [dict(span.resource.attributes) for span in read_spans(tmp_path / "out")]
        + [dict(profile.resource.attributes) for profile in read_profiles(tmp_path / "out" / "profiles.jsonl")]
    )
    assert len(shown) > 3
    for resource in shown:
        assert resource["deployment.environment.name"] == "lab"
        assert "host.name" not in resource
    [raw] = read_metrics(tmp_path / "raw").samples
    assert "host.name" in raw.resource
    assert "deployment.environment.name" not in raw.resource


_HEAT = """
from dataclasses import dataclass

from otel_gpu.components import Instrument, Measurement, MetricSpec, ReceiverFactory, attributes

HEAT = MetricSpec(
    "heat.of.device", "Cel", Instrument.GAUGE, "How warm a process's device is.",
    ("cuda.device.index", "cuda.device.model", "cuda.device.uuid"),
)


@dataclass(frozen=True)
class HeatSettings:
    pass


class Heat:
    def __init__(self, context, settings):
        self._observed = context.observed

    def collect(self):
        return [Measurement(who, HEAT, attributes({"cuda.device.index": 1}), 60) for who in self._observed()]

    def close(self):
        pass


RECEIVER = ReceiverFactory(HeatSettings, Heat, (HEAT,))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="programs are observed by root")
def test_what_they_measure_of_processes_has_their_resources_and_names_of_devices(
    package: dict[str, str], tmp_path: Path
) -> None:
    _install(
        tmp_path,
        "heat_of_others",
        _HEAT,
        [
            ("receivers", "heat = heat_of_others:RECEIVER"),
        ],
    )
    (tmp_path / "state").mkdir()
    hardware = {
        "MOCKCUDA_DEVICES": "2",
        "MOCKCUDA_STATE": str(tmp_path / "state"),
        "LD_LIBRARY_PATH": ground.library_path(),
    }
    service = {"OTEL_SERVICE_NAME": "oven"}
    with Program([ground.part("programs") / "launch_storm", "--gate"], tmp_path, {**hardware, **service}) as program:
        program.ready()
        config = {
            "receivers": {"cuda": {}, "nvml": {}, "heat": {}},
            "exporters": {"file": {"path": "out"}},
            "discovery": {"pids": [program.pid]},
            "service": {"interval": "200ms"},
        }
        done = _run({**package, **hardware}, tmp_path, config)
        program.run_phase()
        program.finish()

    assert done.returncode == 0, done.stderr
    heat = read_metrics(tmp_path / "out").named("heat.of.device").samples
    assert {(s.resource["process.pid"], s.resource["service.name"]) for s in heat} == {(program.pid, "oven")}
    assert [s.attributes for s in heat] == [
        {
            "cuda.device.index": 1,
            "cuda.device.model": "NVIDIA H200 (mock)",
            "cuda.device.uuid": "5e1fca6d-0b6c-4a11-9d20-483230306d01",
            "hw.id": "GPU-5e1fca6d-0b6c-4a11-9d20-483230306d01",
        }
    ]
