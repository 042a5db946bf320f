"""Does the script that builds the Debian package refuse what it cannot build one of, and does sh understand what dpkg runs?"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.documents import ROOT

_SCRIPT = ROOT / "scripts" / "build_deb.sh"


@pytest.mark.parametrize(
    ("wheels", "reason"),
    [((), "there is no otel_gpu-*.whl in"), (("0.1.0", "0.2.0"), "there is more than one wheel")],
)
def test_one_package_is_built_of_one_wheel(tmp_path: Path, wheels: tuple[str, ...], reason: str) -> None:
    for version in wheels:
        (tmp_path / f"otel_gpu-{version}-py3-none-any.whl").touch()
    done = subprocess.run([_SCRIPT, tmp_path], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert all(version in done.stderr for version in wheels)


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_what_dpkg_runs_is_a_script_of_sh(name: str) -> None:
    (text,) = re.findall(rf"DEBIAN/{name}\" <<'EOF'\n(.*?)^EOF$", _SCRIPT.read_text(), re.MULTILINE | re.DOTALL)
    done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)

    assert text.startswith("#!/bin/sh\nset -e\n")
    assert (done.returncode, done.stderr) == (0, "")
