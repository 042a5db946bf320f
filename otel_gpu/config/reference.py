"""Which keys may stand in a configuration file? Every one with its type, its default and what it says.

Read from the dataclasses that the file is checked against, and from what is written below each of their fields, so that the
document cannot differ from the program: docs/configuration-reference.md is what `render()` returns (`make docs`).
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from ..components import registry
from ..components.values import Duration
from .schema import PipelineSection, ServiceSection, hints_of, kinds_of, listed_section_of, section_of
from .settings import EXTENSIONS, Discovery

_TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false", object: "keys and values"}
_KINDS: tuple[registry.Kind, ...] = ("receivers", "processors", "exporters")


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section, its path from the section with dots."""

    path: str
    type: str
    default: str
    """As it would be written; empty where leaving it out is a value of its own."""
    description: str


def keys(schema: type, prefix: str = "") -> Iterator[Key]:
    """Yield every key of a section, those of sections within after the key that holds them."""
    hints, with_bounds = hints_of(schema), typing.get_type_hints(schema, include_extras=True)
    said = _descriptions(schema)
    for field in dataclasses.fields(schema):
        path, hint = f"{prefix}{field.name}", hints[field.name]
        within, listed = section_of(hint), listed_section_of(hint)
        type_ = "list of sections" if listed is not None else _type(with_bounds[field.name])
        yield Key(path, type_, _default(field), said.get(field.name, ""))
        if within is not None:
            yield from keys(within, f"{path}.")
        elif listed is not None:
            yield from keys(listed, f"{path}[].")


def render() -> str:
    """Return docs/configuration-reference.md."""
    lines = [
        "# Configuration reference",
        "",
        "Every key that a configuration file may have. Generated from the classes that the file is checked against by",
        "`make docs`; do not edit. [configuration.md](configuration.md) tells what they are for, with examples;",
        "[variables.md](variables.md) has the variables.",
        "",
        "A time has a unit, `500ms`, `10s`, `1m30s`, or is seconds. Where the default is empty, nothing is done or said. `[]` stands for each",
        "member of a list.",
    ]
    for kind in _KINDS:
        lines += ["", f"## {kind}"]
        for names, schema in _components(kind):
            lines += ["", f"### {', '.join(f'`{name}`' for name in names)}", "", _sentence(schema)]
            lines += _table(keys(schema))
    lines += ["", "## extensions"]
    for name, settings in EXTENSIONS.items():
        lines += ["", f"### `{name}`", "", _sentence(settings), *_table(keys(settings))]
    lines += ["", "## discovery", "", _sentence(Discovery), *_table(keys(Discovery))]
    lines += ["", "## service", "", "How the parts are put together, and what the agent says of itself."]
    lines += _table((*keys(ServiceSection), *keys(PipelineSection, "pipelines.ID.")))
    return "\n".join(lines) + "\n"


def _components(kind: registry.Kind) -> Iterator[tuple[list[str], type]]:
    """Yield the sections of this package's components; types that have the same one stand together."""
    by_schema: dict[type, list[str]] = {}
    for name in registry.own(kind):
        factory: Any = registry.find(kind, name)
        by_schema.setdefault(factory.settings, []).append(name)
    for schema, names in by_schema.items():
        yield names, schema


def _table(found: Iterable[Key]) -> list[str]:
    rows = [f"| `{key.path}` | {key.type} | {key.default} | {key.description} |" for key in found]
    if not rows:
        return ["", "It has no keys."]
    return ["", "| key | type | default | what it says |", "|---|---|---|---|", *rows]


def _sentence(schema: type) -> str:
    return (inspect.getdoc(schema) or "").partition("\n\n")[0].replace("\n", " ")


def _descriptions(schema: type) -> dict[str, str]:
    """Return what is written below each field, in the class and in those that it is made of."""
    found: dict[str, str] = {}
    for base in reversed(schema.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for node, below in zip(definition.body, definition.body[1:], strict=False):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[node.target.id] = " ".join(str(below.value.value).split()).replace("|", "\\|")
    return found


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "must be there"
    # What a section within has, its own rows say.
    return "" if value is None or dataclasses.is_dataclass(value) else f"`{_written(value)}`"


def _written(value: object) -> str:
    """Return a default as YAML has it."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(_written(one) for one in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _type(hint: object) -> str:
    """Return what a person calls the type, with its bounds or its choices."""
    if typing.get_origin(hint) is Annotated:
        inner, *more = typing.get_args(hint)
        return f"{_type(inner)}{''.join(_bounds(one) for one in more if isinstance(one, msgspec.Meta))}"
    kinds = [kind for kind in kinds_of(hint) if kind is not type(None)]
    if set(kinds) == set(typing.get_args(Duration)):
        return "time"
    return " or ".join(_one_type(kind) for kind in kinds)


def _one_type(kind: object) -> str:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in inside)
    if origin in (tuple, list):
        return f"list of {_type(inside[0])}"
    if origin in (dict, Mapping):
        return "keys and values"
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return "section"
    assert isinstance(kind, type)
    return _TYPES[kind]


def _bounds(meta: msgspec.Meta) -> str:
    if meta.ge is not None:
        return f", {meta.ge:,} to {meta.le:,}" if meta.le is not None else f", {meta.ge:,} or more"
    return ", not empty" if meta.min_length else ""
