"""How does a `Config` come about? The file's sections, the variables and the command line, put together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ..components import Written, registry
from ..components.values import nearest, parse_duration
from ..components.variables import Variables
from ..errors import ConfigError
from . import declarative
from .environ import Environment
from .factories import exporter_factory, exporter_settings
from .schema import FileSection, PipelineSection, parse
from .settings import (
    DEFAULT_INTERVAL_S,
    EXTENSIONS,
    Discovery,
    ExporterSettings,
    HealthCheckSettings,
    Pipeline,
    check_id,
    component_type,
)
from .standard import Standard, from_environment

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
    contents: dict[str, object] = {}
    if path is not None:
        from .file import read  # here, because it imports YAML

        contents = read(os.fspath(path), environ)
    where = f"{os.fspath(path)}: " if path is not None else ""
    file = parse(FileSection, contents, where)
    standard = _standard(environment, where)
    declared = _Exporters(standard.variables)
    if file.exporters is not None:
        for component, value in file.exporters.items():
            declared.add(component, value, f"{where}exporters.{component}")
    elif output is None:
        for component, (place, value) in standard.exporters.items():
            declared.add(component, value, place)
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
        "discovery": replace(discovery, pids=pids, all=False) if pids else discovery,
        "interval_s": _interval_s(file, standard, where),
        "duration_s": duration_s,
        "log_level": file.service.telemetry.logs.level or standard.log_level or "info",
        "resource_attributes": standard.resource_attributes,
        "disabled": standard.disabled,
    }
    instead = _Exporters(standard.variables)
    if output is not None:
        instead.add_output(output, where)
    _note_unused(standard.variables, declared.by_id.keys() | instead.by_id.keys())
    values["notices"] = (*standard.notices, *environment.notices)
    try:
        if output is None:
            usual = standard.usual_exporters if file.exporters is None else {}
            return make(**values, **declared.values(), pipelines=pipelines, usual_exporters=usual)
        if file.exporters is not None:
            # What stands in a file is right or wrong, whatever goes before it this time.
            make(**values, **declared.values(), pipelines=pipelines)
        there = {name: replace(pipeline, exporters=tuple(instead.by_id)) for name, pipeline in pipelines.items()}
        return make(**values, **instead.values(), pipelines=there)
    except ConfigError as e:
        raise ConfigError(f"{where}{e}") from e


def _note_unused(variables: Variables, declared: Collection[str]) -> None:
    """Note what cannot be understood of variables that no declared exporter has asked for."""
    # What a variable of OTLP may say depends on the protocol, which exporters that are declared have chosen.
    is_otlp_declared = any(component_type(component).startswith("otlp") for component in declared)
    for kind in ("prometheus",) if is_otlp_declared else ("prometheus", "otlp"):
        settings = exporter_factory(kind).settings()
        with contextlib.suppress(ConfigError):  # an endpoint or a header that nothing uses is no error
            exporter_settings(kind, settings, Written(frozenset(), f"exporters.{kind}", variables))


def _standard(environment: Environment, where: str) -> Standard:
    if (path := environment.text("OTEL_CONFIG_FILE")) is not None:
        return declarative.from_file(path, environment.values)
    return from_environment(environment, where)


def _interval_s(file: FileSection, standard: Standard, where: str) -> float:
    text = file.service.interval
    if text is None:
        return standard.interval_s or DEFAULT_INTERVAL_S
    interval_s = parse_duration(text, f"{where}service.interval")
    if interval_s < _SHORTEST_INTERVAL_S:
        raise ConfigError(f"{where}service.interval: {text} is too short; 10ms is the least")
    return interval_s


def _extensions(file: FileSection, where: str) -> dict[str, HealthCheckSettings]:
    """Return those that the service is to have; as in the Collector, others are not started."""
    declared = _components(file.extensions, f"{where}extensions", types=EXTENSIONS)
    for component in declared:
        check_id(f"{where}extensions", component)
    named = file.service.extensions
    for position, component in enumerate(named):
        if component in named[:position]:
            raise ConfigError(f"{where}service.extensions: {component!r} stands here twice; name it once")
        if component not in declared:
            raise ConfigError(
                f"{where}service.extensions: {component!r} is not declared under extensions; "
                f"{nearest(component, declared)}"
            )
    return {component: declared[component] for component in named}


def _components(
    declared: Mapping[str, object],
    where: str,
    group: registry.Kind | None = None,
    types: Mapping[str, type[Any]] = {},
) -> dict[str, Any]:
    found = {}
    for component, value in declared.items():
        place = f"{where}.{component}"
        found[component] = parse(_settings_of(component, types, place, group), value, place)
    return found


def _settings_of(component: str, types: Mapping[str, type[Any]], where: str, group: registry.Kind | None) -> type[Any]:
    """Return what the settings of a component must be: of ours, or of one that another package has installed."""
    kind = component_type(component)
    if kind in types:
        return types[kind]
    if group is not None and (factory := registry.find(group, kind)) is not None:
        return factory.settings
    known = [*types, *(registry.names(group) if group is not None else ())]
    raise ConfigError(f"{where}: there is no such component; {nearest(kind, known)}")


def _pipeline(section: object, where: str) -> Pipeline:
    parsed = parse(PipelineSection, section, where)
    for kind, components in (("receivers", parsed.receivers), ("exporters", parsed.exporters)):
        if not components:
            raise ConfigError(f"{where}.{kind}: a pipeline needs at least one; name one that is declared")
    return Pipeline(parsed.receivers, parsed.processors, parsed.exporters)


class _Exporters:
    """The exporters' settings, by id, and by id and signal where those differ."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self.by_id: dict[str, ExporterSettings] = {}
        self.by_signal: dict[tuple[str, str], ExporterSettings] = {}

    def values(self) -> dict[str, Any]:
        """Return what a Config takes of them."""
        return {"exporters": self.by_id, "signal_exporters": self.by_signal}

    def add_output(self, output: str, where: str) -> None:
        """Add what `--output` names."""
        kind, _, argument = output.partition(":")
        if output in {"console", "otlp"}:
            self.add(output, None, f"{where}exporters.{output}")
        elif kind == "file" and argument:
            self.add(kind, {"path": argument}, f"{where}exporters.{kind}")
        else:
            shown = f"{kind}:…" if argument else output  # an endpoint, perhaps, with credentials in it
            raise ConfigError(f"--output {shown}: not understood; write file:DIRECTORY, console or otlp")

    def add(self, component: str, value: object, where: str) -> None:
        """Add an exporter whose settings stand at `where`."""
        settings: Any = parse(_settings_of(component, {}, where, "exporters"), value, where)
        keys = frozenset(value) if isinstance(value, dict) else frozenset()
        by_signal = exporter_settings(component, settings, Written(keys, where, self._variables))
        self.by_id[component] = usual = next(iter(by_signal.values()))
        self.by_signal |= {(component, signal): one for signal, one in by_signal.items() if one != usual}
