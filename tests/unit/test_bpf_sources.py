"""Are the BPF sources made of parts that stand alone, and do includes run one way?"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.generate_abi import clang

_SOURCES = Path(__file__).parents[2] / "ebpf"
_HEADERS = sorted(_SOURCES.glob("*/*.h"))
_PROGRAMS = sorted(_SOURCES.glob("*/*.bpf.c"))
_PARTS = [*_HEADERS, *_PROGRAMS]
_OBJECTS = sorted(_SOURCES.glob("*.bpf.c"))
_FOLDERS = {
    "abi": frozenset[str](),
    "lib": frozenset({"abi"}),
    "unwind": frozenset({"abi", "lib"}),
    "inference": frozenset({"abi", "lib"}),
    "rdma": frozenset({"abi", "lib"}),
    "nccl": frozenset({"abi", "lib"}),
    "cuda": frozenset({"abi", "lib", "inference"}),
    "profile": frozenset({"abi", "lib", "unwind", "cuda", "inference"}),
}
"""What the parts in each folder may include, besides their own."""
_FLAGS = (
    "-fsyntax-only",
    "-target",
    "bpf",
    "-mcpu=v3",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused",
    "-Wno-unused-parameter",
    f"-I{_SOURCES}",
)
_QUOTED = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)


def _included(path: Path) -> list[str]:
    return _QUOTED.findall(path.read_text())


def _name(path: Path) -> str:
    return path.relative_to(_SOURCES).as_posix()


@pytest.mark.parametrize("architecture", ["x86", "arm64"])
def test_every_part_compiles_alone(architecture: str) -> None:
    compiler = clang()
    if compiler is None:
        pytest.skip("there is no clang")
    assert len(_HEADERS) > 40
    assert len(_PROGRAMS) > 15

    done = subprocess.run(
        [compiler, *_FLAGS, f"-D__TARGET_ARCH_{architecture}", "-x", "c", *_PARTS],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("path", [*_PARTS, *_OBJECTS], ids=_name)
def test_includes_stand_at_the_top(path: Path) -> None:
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    last = max((at for at, line in enumerate(lines) if line.startswith("#include")), default=-1)

    assert [line for line in lines[: last + 1] if not re.match(r"#(include|ifndef OTEL_GPU_|define \w+)", line)] == []


@pytest.mark.parametrize("path", _HEADERS, ids=_name)
def test_a_header_is_guarded_by_its_own_name(path: Path) -> None:
    guard = "OTEL_GPU_" + re.sub(r"\W", "_", _name(path)).upper()

    assert f"#ifndef {guard}\n#define {guard}\n" in path.read_text()


@pytest.mark.parametrize("path", _PARTS, ids=_name)
def test_a_folder_includes_only_those_below_it(path: Path) -> None:
    folder = path.parent.name

    assert {name.split("/")[0] for name in _included(path)} <= _FOLDERS[folder] | {folder}


@pytest.mark.parametrize("path", _PARTS, ids=_name)
def test_only_an_object_includes_programs(path: Path) -> None:
    assert [name for name in _included(path) if name.endswith(".c")] == []


@pytest.mark.parametrize("path", _HEADERS, ids=_name)
def test_a_header_holds_no_program(path: Path) -> None:
    assert not re.search(r"^\s*SEC\(\"(?!\.maps|license)", path.read_text(), re.MULTILINE)


def test_no_parts_include_each_other() -> None:
    included = {_name(path): _included(path) for path in [*_PARTS, *_OBJECTS]}

    assert {name for names in included.values() for name in names} <= included.keys()
    assert _circle(included) == []


def test_every_part_is_in_an_object() -> None:
    included = {_name(path): _included(path) for path in [*_PARTS, *_OBJECTS]}
    reached, left = set[str](), [_name(path) for path in _OBJECTS]
    while left:
        name = left.pop()
        left += [further for further in included[name] if further not in reached]
        reached.add(name)

    assert reached == included.keys()


def _circle(included: Mapping[str, list[str]]) -> list[str]:
    """Return a way that comes back to where it began; nothing where there is none."""
    done = set[str]()

    def search(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name not in done:
            for further in included[name]:
                if found := search(further, [*way, name]):
                    return found
            done.add(name)
        return []

    for name in included:
        if found := search(name, []):
            return found
    return []
