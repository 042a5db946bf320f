"""How does a `Config` come about? The file's sections, the variables and the command line, put together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from .. import registry
from ..components import Written
from ..errors import ConfigError
from ..signals import Signal
from ..values import nearest, parse_duration
from .environ import Environment
from .factories import exporter_settings
from .file import read
from .schema import FileSection, PipelineSection, parse
from .settings import (
    DEFAULT_INTERVAL_S,
    EXTENSIONS,
    Discovery,
    ExporterSettings,
    HealthCheckSettings,
    Pipeline,
    component_type,
)

Made = TypeVar("Made")

_SHORTEST_INTERVAL_S = 0.01


def load(
    make: Callable[..., Made],
    path: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
    pids: tuple[int, ...],
    output: str | None,
    duration_s: float | None,
) -> Made:
    """Return what `make` makes of all values, by the names of `Config`; ConfigError names the key or the variable."""
    environment = Environment(environ)
    contents = read(os.fspath(path), environ) if path is not None else {}
    where = f"{os.fspath(path)}: " if path is not None else ""
    file = parse(FileSection, contents, where)
    declared = _Exporters(environment, where)
    if file.exporters is not None or output is None:
        for component, value in _declared_exporters(file, environment).items():
            declared.add(component, value)
    values: dict[str, Any] = {}
    if file.receivers is not None:
        values["receivers"] = _components(file.receivers, f"{where}receivers", "receivers")
    if file.processors is not None:
        values["processors"] = _components(file.processors, f"{where}processors", "processors")
    pipelines = {
        pipeline: _pipeline(section, f"{where}service.pipelines.{pipeline}")
        for pipeline, section in file.service.pipelines.items()
    }
    discovery = parse(Discovery, file.discovery, f"{where}discovery")
    values |= {
        "extensions": _extensions(file, where),
        "discovery": Discovery(pids) if pids else discovery,
        "interval_s": _interval_s(file, environment, where),
        "duration_s": duration_s,
        "log_level": file.service.telemetry.logs.level or environment.log_level or "info",
        "resource_attributes": environment.resource_attributes,
        "disabled": environment.disabled,
    }
    instead = _Exporters(environment, where)
    if output is not None:
        instead.add_output(output)
    values["notices"] = environment.notices
    try:
        if output is None:
            return make(
                **values, **declared.values(), pipelines=pipelines, usual_exporters=_usual_exporters(file, environment)
            )
        if file.exporters is not None:
            # What stands in a file is right or wrong, whatever goes before it this time.
            make(**values, **declared.values(), pipelines=pipelines)
        there = {name: replace(pipeline, exporters=tuple(instead.by_id)) for name, pipeline in pipelines.items()}
        return make(**values, **instead.values(), pipelines=there)
    except ConfigError as e:
        raise ConfigError(f"{where}{e}") from e


def _declared_exporters(file: FileSection, environment: Environment) -> Mapping[str, object]:
    if file.exporters is not None:
        return file.exporters
    return {name: None for names in environment.exporters.values() for name in names}


def _usual_exporters(file: FileSection, environment: Environment) -> Mapping[Signal, tuple[str, ...]]:
    """Return where each signal goes, where the variables tell signals apart."""
    chosen = environment.exporters if file.exporters is None else {}
    return chosen if len(set(chosen.values())) > 1 else {}


def _interval_s(file: FileSection, environment: Environment, where: str) -> float:
    text = file.service.interval
    if text is None:
        return environment.interval_s or DEFAULT_INTERVAL_S
    interval_s = parse_duration(text, f"{where}service.interval")
    if interval_s < _SHORTEST_INTERVAL_S:
        raise ConfigError(f"{where}service.interval: {text} is too short; 10ms is the least")
    return interval_s


def _extensions(file: FileSection, where: str) -> dict[str, HealthCheckSettings]:
    """Return those that the service is to have; as in the Collector, others are not started."""
    declared = _components(file.extensions, f"{where}extensions", types=EXTENSIONS)
    for component in file.service.extensions:
        if component not in declared:
            raise ConfigError(
                f"{where}service.extensions: {component!r} is not declared under extensions; "
                f"{nearest(component, declared)}"
            )
    return {component: declared[component] for component in file.service.extensions}


def _components(
    declared: Mapping[str, object],
    where: str,
    group: registry.Kind | None = None,
    types: Mapping[str, type[Any]] = {},
) -> dict[str, Any]:
    return {c: parse(_settings_of(c, types, where, group), value, f"{where}.{c}") for c, value in declared.items()}


def _settings_of(component: str, types: Mapping[str, type[Any]], where: str, group: registry.Kind | None) -> type[Any]:
    """Return what the settings of a component must be: of ours, or of one that another package has installed."""
    kind = component_type(component)
    if kind in types:
        return types[kind]
    if group is not None and (factory := registry.find(group, kind)) is not None:
        return factory.settings
    known = [*types, *(registry.names(group) if group is not None else ())]
    raise ConfigError(f"{where}.{component}: there is no such component; {nearest(kind, known)}")


def _pipeline(section: object, where: str) -> Pipeline:
    parsed = parse(PipelineSection, section, where)
    for kind, components in (("receivers", parsed.receivers), ("exporters", parsed.exporters)):
        if not components:
            raise ConfigError(f"{where}.{kind}: a pipeline needs at least one; name one that is declared")
    return Pipeline(parsed.receivers, parsed.processors, parsed.exporters)


class _Exporters:
    """The exporters' settings, by id, and by id and signal where those differ."""

    def __init__(self, environment: Environment, where: str) -> None:
        self._environment = environment
        self._where = where
        self.by_id: dict[str, ExporterSettings] = {}
        self.by_signal: dict[tuple[str, str], ExporterSettings] = {}

    def values(self) -> dict[str, Any]:
        """Return what a Config takes of them."""
        return {"exporters": self.by_id, "signal_exporters": self.by_signal}

    def add_output(self, output: str) -> None:
        """Add what `--output` names."""
        kind, _, argument = output.partition(":")
        if output in {"console", "otlp"}:
            self.add(output, None)
        elif kind == "file" and argument:
            self.add(kind, {"path": argument})
        else:
            shown = f"{kind}:…" if argument else output  # an endpoint, perhaps, with credentials in it
            raise ConfigError(f"--output {shown}: not understood; write file:DIRECTORY, console or otlp")

    def add(self, component: str, value: object) -> None:
        """Add one of the file's exporters."""
        where = f"{self._where}exporters"
        settings: Any = parse(_settings_of(component, {}, where, "exporters"), value, f"{where}.{component}")
        keys = frozenset(value) if isinstance(value, dict) else frozenset()
        by_signal = exporter_settings(component, settings, Written(keys, f"{where}.{component}", self._environment))
        self.by_id[component] = usual = next(iter(by_signal.values()))
        self.by_signal |= {(component, signal): one for signal, one in by_signal.items() if one != usual}
