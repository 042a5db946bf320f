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

from ..errors import ConfigError
from ..values import Duration, nearest

_Section = TypeVar("_Section")
_KINDS = {str: "text", list: "a list", bool: "true or false", int: "a number", float: "a number"}
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
        raise ConfigError(f"{path}: {what[:1].lower()}{what[1:]}") from None
    except ConfigError as e:
        # What a section says of its keys together.
        raise ConfigError(f"{where}: {e}") from None


def _join(where: str, key: object) -> str:
    """Return the path of a key; a `where` that ends in a blank or is empty is the top of the file."""
    return f"{where}{key}" if not where or where.endswith(" ") or not key else f"{where}.{key}"


@functools.cache
def _hints(schema: type) -> Mapping[str, object]:
    return typing.get_type_hints(schema)


def _section_of(hint: object) -> type | None:
    """Return the dataclass that a key holds, or may hold."""
    return next((k for k in _kinds(hint) if isinstance(k, type) and dataclasses.is_dataclass(k)), None)


def _listed_section_of(hint: object) -> type | None:
    """Return the dataclass of which a key holds, or may hold, a list."""
    lists = (kind for kind in _kinds(hint) if typing.get_origin(kind) in (tuple, list))
    return next((_section_of(typing.get_args(kind)[0]) for kind in lists), None)


def _kinds(hint: object) -> tuple[object, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _checked(schema: type, data: object, where: str) -> dict[str, object]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected keys and values, found {_KINDS.get(type(data), 'a value')}")
    hints = _hints(schema)
    cleaned: dict[str, object] = {}
    for key, value in data.items():
        if key not in hints:
            raise ConfigError(f"{_join(where, key)}: there is no such key; {nearest(str(key), hints)}")
        hint = hints[key]
        section = _section_of(hint)
        if section is not None:
            # Also where it may be left out: a section that is there, with nothing in it, has its defaults.
            cleaned[key] = _checked(section, value, _join(where, key))
        elif isinstance(value, list) and (each := _listed_section_of(hint)) is not None:
            cleaned[key] = [_checked(each, one, f"{_join(where, key)}[{i}]") for i, one in enumerate(value)]
        elif value is False and "off" in typing.get_args(hint):
            # YAML 1.1 takes the word for a boolean.
            cleaned[key] = "off"
        elif value is not None or type(None) in typing.get_args(hint):
            cleaned[key] = value
    return cleaned


@dataclass(frozen=True, slots=True)
class PipelineSection:
    """One of `service.pipelines`."""

    receivers: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogsSection:
    """`service.telemetry.logs`."""

    level: Literal["debug", "info", "warn", "error"] | None = None


@dataclass(frozen=True, slots=True)
class TelemetrySection:
    """`service.telemetry`."""

    logs: LogsSection = field(default_factory=LogsSection)


@dataclass(frozen=True, slots=True)
class ServiceSection:
    """`service`."""

    extensions: tuple[str, ...] = ()
    pipelines: dict[str, object] = field(default_factory=dict)
    telemetry: TelemetrySection = field(default_factory=TelemetrySection)
    interval: Duration | None = None


@dataclass(frozen=True, slots=True)
class FileSection:
    """The whole file; components are parsed by their own type."""

    receivers: dict[str, object] | None = None
    processors: dict[str, object] | None = None
    exporters: dict[str, object] | None = None
    extensions: dict[str, object] = field(default_factory=dict)
    discovery: dict[str, object] | None = None
    service: ServiceSection = field(default_factory=ServiceSection)
