"""The targets of the Makefile that people, scripts and packages name."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.documents import DOCUMENTS, ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def _named() -> Iterator[str]:
    yield from ("setup", "demo", "test", "check", "test-all", "bench", "wheel", "clean")
    # What a package is built by has no line in any document.
    for call in ast.walk(ast.parse((ROOT / "setup.py").read_text())):
        if isinstance(call, ast.List) and isinstance(call.elts[0], ast.Constant) and call.elts[0].value == "make":
            yield from (word.value for word in call.elts[1:] if not word.value.startswith("-"))
    for document in DOCUMENTS:
        yield from re.findall(r"(?:`|^\$ )make ([a-z][a-z-]*)", document.read_text(), re.MULTILINE)


def test_every_target_that_is_named_exists() -> None:
    named = sorted(set(_named()))
    assert {"libbpf", "test-deb"} <= set(named)
    # Without a step of it: only what it depends on is looked up.
    done = [
        subprocess.run(["make", "-n", "-C", ROOT, target], capture_output=True, text=True, check=False)
        for target in named
    ]

    assert [one.stderr for one in done if one.returncode] == []
