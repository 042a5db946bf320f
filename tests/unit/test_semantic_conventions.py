"""Names that OpenTelemetry's conventions have are used as they have them; what they lack is listed here.

Why a test, and not their constants in the code: they lie in modules whose names begin with `_incubating`, which change without
notice with the SDK that a user happens to have, and importing those for what is declared costs 0.1 to 0.2 s and 3 to 4 MB.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import opentelemetry.semconv._incubating.attributes as incubating
import opentelemetry.semconv._incubating.metrics as incubating_metrics
import opentelemetry.semconv.attributes as stable
import opentelemetry.semconv.metrics as stable_metrics

import otel_gpu
from otel_gpu.service import telemetry
from otel_gpu.signals.metrics import Instrument

_MOVED = "Moved to the [OpenTelemetry GenAI semantic conventions repository]"
_WRITTEN = (
    "client.",
    "container.",
    "cpu.",
    "deployment.",
    "error.",
    "gen_ai.",
    "host.",
    "http.",
    "hw.",
    "k8s.",
    "network.",
    "os.",
    "otel.component.",
    "otel.sdk.",
    "process.",
    "rpc.",
    "server.",
    "service.",
    "telemetry.",
    "url.",
)
"""What begins so in the code is a name of theirs, declared or not."""

_OF_ASGI = {"http.response.start", "http.response.body"}
"""Kinds of messages between servers and applications of Python, whose names look like attributes."""


def _modules() -> Iterator[ModuleType]:
    for package in (incubating, stable, incubating_metrics, stable_metrics):
        for module in pkgutil.iter_modules(package.__path__):
            yield importlib.import_module(f"{package.__name__}.{module.name}")


@cache
def _conventions() -> dict[str, list[str]]:
    """Return what is said of each name, wherever it is declared."""
    found = defaultdict(list)
    for module in _modules():
        body = ast.parse(inspect.getsource(module)).body
        for statement, after in zip(body, [*body[1:], None]):
            if not isinstance(statement, ast.Assign | ast.AnnAssign):
                continue
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            value = getattr(module, target.id, None) if isinstance(target, ast.Name) and target.id.isupper() else None
            if isinstance(value, str):
                is_said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                found[value].append(inspect.cleandoc(str(after.value.value)) if is_said else "")
    return found


def _values() -> dict[str, set[object]]:
    """Return the values of attributes that have a list of them."""
    found = defaultdict(set)
    for module in _modules():
        known = vars(module)
        for name, value in known.items():
            values = known.get("".join(word.capitalize() for word in name.split("_")) + "Values")
            if name.isupper() and isinstance(values, enum.EnumMeta):
                found[value].update(member.value for member in values)
    return found


def _namespaces() -> tuple[str, ...]:
    return tuple({f"{name.partition('.')[0]}." for name in _conventions() if "." in name})


def _used() -> set[str]:
    text = "".join(path.read_text() for path in Path(otel_gpu.__path__[0]).rglob("*.py"))
    named = set(re.findall(r'"([a-z][a-z0-9_]*\.[a-z0-9_.]*[a-z0-9])"', text))
    written = {name for name in named if name.startswith(_WRITTEN)}
    declared = {name for name in set(telemetry.ALL) | set(telemetry.ATTRIBUTES) if name.startswith(_namespaces())}
    return written | declared


def _out_of_date(said: list[str]) -> str | None:
    """Return why a name is not to be used any more; one that has become stable is deprecated where it was before."""
    is_current = any("Deprecated" not in text or _MOVED in text for text in said)
    return None if is_current else said[0]


def test_names_in_namespaces_of_the_conventions_are_theirs() -> None:
    used = _used()

    assert len(used) > 60
    assert used - _OF_ASGI - _conventions().keys() == set()


def test_none_of_them_is_out_of_date() -> None:
    stale = {name: said for name in _used() & _conventions().keys() if (said := _out_of_date(_conventions()[name]))}

    assert stale == {}


def test_metrics_have_their_units_and_instruments() -> None:
    known = {name: spec for name, spec in telemetry.ALL.items() if name in _conventions()}
    differing = {}
    for name, spec in known.items():
        kind = "histogram" if spec.instrument is Instrument.HISTOGRAM else spec.instrument.value
        for said in _conventions()[name]:
            if "Instrument:" in said and not {f"Instrument: {kind}", f"Unit: {spec.unit}"} <= set(said.splitlines()):
                differing[name] = said

    assert len(known) > 15
    assert differing == {}


def test_values_are_theirs_where_they_list_them() -> None:
    theirs = _values()
    listed = {name: set(spec.values) for name, spec in telemetry.ATTRIBUTES.items() if "." in name and name in theirs}
    others = {name: values - theirs[name] for name, values in listed.items() if values - theirs[name]}

    assert len(listed) > 5
    assert others == {}
