"""The plan of the house: fifteen rooms, arrows that run one way, and components that the registry alone names."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import otel_gpu

_HOUSE = Path(otel_gpu.__path__[0])
_FILES = {
    ".".join(path.relative_to(_HOUSE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in _HOUSE.rglob("*.py")
}
_COMPONENTS = {
    kind: {place.parent.name for place in (_HOUSE / kind).glob("*/factory.py")}
    for kind in ("receivers", "processors", "exporters")
}
_ON_ONE_COMPONENT = {
    "cli/inspect.py": "shows CUDA's probes",
    "cli/record.py": "takes profiles, on CUDA's probes",
    "config/__init__.py": "what programs set",
    "cli/demo/screen.py": "writes quantities as the console does",
    "cli/demo/show.py": "a program that observes another",
    "cli/inspection.py": "shows CUDA's probes",
    "service/recorder.py": "takes profiles, on CUDA's probes",
    "service/recording.py": "takes profiles, on CUDA's probes",
    "service/snapshot.py": "takes stacks, as profiles do",
    "service/telemetry.py": "all declarations",
    "cli/top/figures.py": "shows requests",
    "cli/top/scraped.py": "reads what Prometheus is told",
    "cli/top/screen.py": "writes quantities as the console does",
    "cli/top/tables.py": "writes quantities as the console does",
    "tracers.py": "spans of the SDK",
}
"""Files that know a component by name beside the registry, and what for."""


_PUBLIC = {"__init__.py", "__main__.py", "errors.py", "meters.py", "profiles.py", "text.py", "tracers.py", "version.py"}
"""The modules outside of rooms: what other programs use, and what `errors.py` needs."""
_UPWARDS = (
    ("text.py", "version.py", "signals"),
    ("errors.py",),
    ("runtime",),
    ("sandbox",),
    ("bpf",),
    ("discovery",),
    ("stacks",),
    ("probes",),
    ("components",),
    ("processors",),
    ("receivers",),
    ("exporters", "context"),
    ("view", "config"),
    ("service",),
    ("cli", "meters.py", "profiles.py", "tracers.py"),
    ("__init__.py", "__main__.py"),
)
"""The floors, from the ground: a file needs nothing above its own."""


def _imported(module: str) -> Iterator[str]:
    """Yield the modules of this package that one imports, wherever and for whatever it does."""
    path = _FILES[module]
    base = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = ".".join(base[: len(base) - node.level + 1]) if node.level else ""
            place = ".".join(filter(None, (above, node.module)))
            found = {name if (name := f"{place}.{alias.name}") in _FILES else place for alias in node.names}
        else:
            found = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
        yield from (name for name in found if name in _FILES and name != module)


@functools.cache
def _arrows() -> dict[str, set[str]]:
    """Return what each module imports: to read them all takes seconds, and every worker would do so as it collects."""
    return {module: set(_imported(module)) for module in _FILES}


def _room(module: str) -> str:
    return _FILES[module].relative_to(_HOUSE).parts[0]


def _component(module: str) -> str | None:
    """Return which component a module is part of, if any."""
    room, *inside = _FILES[module].relative_to(_HOUSE).parts
    return f"{room}.{inside[0]}" if len(inside) > 1 and inside[0] in _COMPONENTS.get(room, ()) else None


def _by_room() -> dict[str, set[str]]:
    arrows: dict[str, set[str]] = defaultdict(set)
    for module, imported in _arrows().items():
        arrows[_room(module)] |= {_room(other) for other in imported} - {_room(module)}
    return arrows


def _circles(arrows: Mapping[str, set[str]]) -> set[str]:
    """Return what can be reached from itself."""
    found = set()
    for start in arrows:
        reached: set[str] = set()
        ahead = list(arrows[start])
        while ahead:
            if (one := ahead.pop()) not in reached:
                reached.add(one)
                ahead += arrows.get(one, ())
        if start in reached:
            found.add(start)
    return found


@pytest.mark.parametrize("arrows_of", [_arrows, _by_room], ids=["files", "rooms"])
def test_there_is_no_circle(arrows_of: Callable[[], Mapping[str, set[str]]]) -> None:
    arrows = arrows_of()
    assert len(arrows) > 20
    assert _circles(arrows) == set()


def test_there_are_fifteen_rooms() -> None:
    rooms = {path.parent.name for path in _HOUSE.glob("*/__init__.py")}

    # What an observed program imports is no room of the agent's.
    assert len(rooms - {"context"}) == 15
    assert {path.name for path in _HOUSE.glob("*.py")} == _PUBLIC
    assert rooms | _PUBLIC == {room for floor in _UPWARDS for room in floor}


def test_no_arrow_points_upwards() -> None:
    floor = {room: at for at, rooms in enumerate(_UPWARDS) for room in rooms}
    upwards = {
        (module, other)
        for module, imported in _arrows().items()
        for other in imported
        if floor[_room(other)] > floor[_room(module)] and other != "otel_gpu"
    }

    assert upwards == set()


def test_components_are_named_by_the_registry_alone() -> None:
    known = defaultdict(set)
    for module, imported in _arrows().items():
        for other in imported:
            component = _component(other)
            if component is not None and _room(module) != _room(other):
                known[str(_FILES[module].relative_to(_HOUSE))].add(component)

    assert known.keys() == _ON_ONE_COMPONENT.keys()


@pytest.mark.parametrize("kind", sorted(_COMPONENTS))
def test_components_do_not_know_those_of_other_kinds(kind: str) -> None:
    others = {other for other in _COMPONENTS if other != kind}
    known = {
        (module, other)
        for module, imported in _arrows().items()
        for other in imported
        if _room(module) == kind and _room(other) in others
    }
    # What completes what several receivers measured stands with the processors.
    completing = {
        "otel_gpu.processors.devices",
        "otel_gpu.processors.hip_devices",
        "otel_gpu.processors.untracked_memory",
    }

    assert {other for _, other in known} == (completing if kind == "receivers" else set())


def test_components_do_not_know_each_other() -> None:
    known = {(_component(module), _component(other)) for module, imported in _arrows().items() for other in imported}

    assert {(one, other) for one, other in known if one and other and one != other} == set()


def _documented() -> str:
    return (_HOUSE.parent / "docs" / "architecture.md").read_text()


def test_every_room_stands_in_the_document() -> None:
    rooms = re.search(r"## Rooms(.*?)\n## ", _documented(), re.DOTALL)
    assert rooms

    there = {path.name for path in _HOUSE.glob("[a-z]*") if path.is_dir() or path.suffix == ".py"}
    assert {name for name in there if not re.search(rf"`(otel_gpu/)?{re.escape(name)}/?`", rooms[1])} == set()


def test_every_file_that_a_newcomer_is_sent_to_is_there() -> None:
    table = re.search(r"## I want to(.*?)\n## ", _documented(), re.DOTALL)
    assert table
    named = re.findall(r"`((?:otel_gpu|ebpf|tests|bench)/[^`]*)`", table[1])

    assert len(named) > 30
    assert [name for name in named if not (_HOUSE.parent / name).exists()] == []
