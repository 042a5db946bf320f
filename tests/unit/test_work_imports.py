"""Everything that work on strangers' files imports while it runs is imported before its child gives up its rights."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gpu.sandbox import parsers

_PACKAGE = Path(parsers.__file__).parents[1]
_WORK = sorted(
    "otel_gpu." + path.relative_to(_PACKAGE).with_suffix("").as_posix().replace("/", ".")
    for path in _PACKAGE.rglob("*.py")
    if any(line.startswith(("@work(", "@service(")) for line in path.read_text().splitlines())
)


def _imported_later(module: str) -> list[tuple[str, str]]:
    """Return what the functions of a module import: the name of the function, and of the module."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    package = module if spec.submodule_search_locations is not None else module.rpartition(".")[0]
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                found += [(function.name, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                if node.module is None:
                    found += [(function.name, f"{base}.{alias.name}") for alias in node.names]
                else:
                    found.append((function.name, base))
    return found


def test_there_is_work() -> None:
    assert len(_WORK) > 10


@pytest.mark.parametrize("module", _WORK)
def test_a_child_has_all_that_its_work_imports(module: str) -> None:
    needed = parsers.needed(f"{module}:work")
    code = f"import sys, importlib\nfor m in {[module, *needed]!r}: importlib.import_module(m)\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    loaded = set(done.stdout.split())

    missing = {
        (where, function, name)
        for where in loaded
        if where.startswith("otel_gpu.")
        for function, name in _imported_later(where)
        if name not in loaded
    }

    assert missing == set()
