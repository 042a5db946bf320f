"""What shape must a configuration section have? Checked against frozen dataclasses, key by key.

A class declares a section; `parse()` turns the mapping that stood in the file into one of its values, and
says for a key that does not exist which one is nearest.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import msgspec

from ..components.values import Duration, nearest
from ..errors import ConfigError

_Section = TypeVar("_Section")
_KINDS = {str: "text", list: "a list", bool: "true or false", int: "a number", float: "a number"}
_STEP = re.compile(r"\.?(?P<key>[^.\[\]]+)|\[[^\]]*\]")
_AT = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)


def parse(schema: type[_Section], data: object, where: str) -> _Section:
    """Make a `schema` of what stands at `where`; nothing there (null) means all defaults."""
    cleaned = _checked(schema, data, where)
    try:
        # Not strict: what ${env:…} gave is text, whatever type the key has.
        return msgspec.convert(cleaned, schema, strict=False)
    except msgspec.ValidationError as e:
        found = _AT.fullmatch(str(e))
        assert found
        what = found["what"].replace("`", "")
        path = _join(where, (found["path"] or "").removeprefix("."))
        if choices := _choices(schema, found["path"] or ""):
            what = f"{what}; choose of {', '.join(choices)}"
        raise ConfigError(f"{path}: {what[:1].lower()}{what[1:]}") from None
    except ConfigError as e:
        # What a section says of its keys together.
        raise ConfigError(f"{where}: {e}") from None


def _choices(schema: type, path: str) -> list[str]:
    """Return what may stand at a path such as `.types[0]`, where that is one of a few words."""
    hint: object = schema
    for step in _STEP.finditer(path):
        kinds = kinds_of(hint)
        if (key := step["key"]) is None:
            of_lists = [typing.get_args(kind) for kind in kinds if typing.get_origin(kind) in (tuple, list, dict)]
            hint = next((of[-1] if of[-1] is not Ellipsis else of[0] for of in of_lists if of), None)
        else:
            section = section_of(hint)
            hint = hints_of(section).get(key) if section is not None else None
    literals = (kind for kind in kinds_of(hint) if typing.get_origin(kind) is Literal)
    return [str(word) for kind in literals for word in typing.get_args(kind)]


def _join(where: str, key: object) -> str:
    """Return the path of a key; a `where` that ends in a blank or is empty is the top of the file."""
    return f"{where}{key}" if not where or where.endswith(" ") or not key else f"{where}.{key}"


@functools.cache
def hints_of(schema: type) -> Mapping[str, object]:
    """Return the type of each key, without its bounds."""
    return typing.get_type_hints(schema)


def section_of(hint: object) -> type | None:
    """Return the dataclass that a key holds, or may hold."""
    return next((k for k in kinds_of(hint) if isinstance(k, type) and dataclasses.is_dataclass(k)), None)


def listed_section_of(hint: object) -> type | None:
    """Return the dataclass of which a key holds, or may hold, a list."""
    lists = (kind for kind in kinds_of(hint) if typing.get_origin(kind) in (tuple, list))
    return next((section_of(typing.get_args(kind)[0]) for kind in lists), None)


def kinds_of(hint: object) -> tuple[object, ...]:
    """Return the types of which a key may have one."""
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _checked(schema: type, data: object, where: str) -> dict[str, object]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected keys and values, found {_KINDS.get(type(data), 'a value')}")
    hints = hints_of(schema)
    cleaned: dict[str, object] = {}
    for key, value in data.items():
        if key not in hints:
            raise ConfigError(f"{_join(where, key)}: there is no such key; {nearest(str(key), hints)}")
        hint = hints[key]
        section = section_of(hint)
        if section is not None:
            # Also where it may be left out: a section that is there, with nothing in it, has its defaults.
            cleaned[key] = _checked(section, value, _join(where, key))
        elif isinstance(value, list) and (each := listed_section_of(hint)) is not None:
            cleaned[key] = [_checked(each, one, f"{_join(where, key)}[{i}]") for i, one in enumerate(value)]
        elif value is False and "off" in typing.get_args(hint):
            # YAML 1.1 takes the word for a boolean.
            cleaned[key] = "off"
        elif value is not None or type(None) in typing.get_args(hint):
            cleaned[key] = value
    return cleaned


@dataclass(frozen=True, slots=True)
class PipelineSection:
    """One of `service.pipelines`, whose id is a signal, or `signal/name`."""

    receivers: tuple[str, ...] = ()
    """Who gives."""
    processors: tuple[str, ...] = ()
    """What it goes through, in this order."""
    exporters: tuple[str, ...] = ()
    """Where it goes."""


@dataclass(frozen=True, slots=True)
class LogsSection:
    """`service.telemetry.logs`."""

    level: Literal["debug", "info", "warn", "error"] | None = None
    """What of its log is written: this and what is worse; left out: `info`."""


@dataclass(frozen=True, slots=True)
class TelemetrySection:
    """`service.telemetry`."""

    logs: LogsSection = field(default_factory=LogsSection)
    """Its log."""


@dataclass(frozen=True, slots=True)
class ServiceSection:
    """`service`."""

    extensions: tuple[str, ...] = ()
    """Which are started."""
    pipelines: dict[str, object] = field(default_factory=dict)
    """By id, `metrics`, `profiles` or `traces`, or one with a name such as `metrics/near`; left out: one for each signal that receivers give."""
    telemetry: TelemetrySection = field(default_factory=TelemetrySection)
    """What the agent says of itself."""
    interval: Duration | None = None
    """From one export to the next; left out: as `OTEL_METRIC_EXPORT_INTERVAL` says, else 10s."""


@dataclass(frozen=True, slots=True)
class FileSection:
    """The whole file; components are parsed by their own type."""

    receivers: dict[str, object] | None = None
    processors: dict[str, object] | None = None
    exporters: dict[str, object] | None = None
    extensions: dict[str, object] = field(default_factory=dict)
    discovery: dict[str, object] | None = None
    service: ServiceSection = field(default_factory=ServiceSection)
