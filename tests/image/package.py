"""The Debian package, built, installed, removed and purged on a fresh Debian 12 and Ubuntu 24.04, each a root made by debootstrap.

    package.py DIRECTORY [RELEASE ...]

`dist/` holds a wheel (`make wheel`). One root builds the package; another one that is as fresh installs it, so that what the package
depends on is not there by chance. No systemd runs there: `tests/e2e/test_service.py` runs the service as its unit says. Needs
root, debootstrap and the mirrors of Debian and Ubuntu.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.documents import ROOT
from tests.image.build import Stage, run
from tests.image.quick_start import RELEASES, Release, debootstrap

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SOURCES = ("scripts/build_deb.sh", "deploy/systemd/otel-gpu.service", "examples/agent.yaml", "LICENSE", "CHANGELOG.md")


def package(release: Release, directory: Path) -> None:
    """Build the package there, install it on the like, and see that it works and leaves nothing."""
    pristine, built_on, root = (directory / f"{release.name}{what}" for what in ("", "-built-on", "-installed"))
    debootstrap(release, directory, pristine)
    for copy in (built_on, root):
        subprocess.run(["cp", "-a", pristine, copy], check=True)
    deb = _build(built_on)
    shutil.copy(deb, root / "root")
    stage = Stage(root, {"PATH": _PATH, "DEBIAN_FRONTEND": "noninteractive"}, directory="/root")
    _sh(stage, f"apt-get update -q >&2; apt-get install -qy --no-install-recommends ./{deb.name} >&2")

    installed = run(stage, ["dpkg", "-L", "otel-gpu"]).stdout.splitlines()
    assert run(stage, ["dpkg", "--verify", "otel-gpu"]).stdout == ""
    version = run(stage, ["otel-gpu", "--version"]).stdout.strip()
    assert run(stage, ["dpkg-query", "-W", "-f", "${Version}", "otel-gpu"]).stdout in version
    checks = run(stage, ["otel-gpu", "doctor", "--json"], check=False).stdout
    assert checks.startswith(("[", "{")), f"{release.name}: otel-gpu doctor printed {checks!r}"
    # As the service starts it, but for what it observes.
    (start,) = re.findall(
        r"^ExecStart=(.*)$", (root / "usr/lib/systemd/system/otel-gpu.service").read_text(), re.MULTILINE
    )
    started = f"OTEL_SDK_DISABLED=true setpriv --reuid=otel-gpu --regid=otel-gpu --clear-groups {start} 2>&1"
    assert "nothing is observed" in run(stage, ["sh", "-ec", started]).stdout
    view = "timeout --preserve-status -s INT 20 otel-gpu view --port 0 --grpc-port 0"
    page = run(stage, ["sh", "-ec", view]).stdout
    assert "the page: http://" in page, f"{release.name}: otel-gpu view printed {page!r}"
    # Nothing was compiled or written anew by what ran, and nothing says where it was built.
    assert run(stage, ["dpkg", "--verify", "otel-gpu"]).stdout == ""
    assert run(stage, ["grep", "-rlE", "/tmp/tmp[.]|/root/dist", "/opt/otel-gpu"], check=False).stdout == ""

    _sh(stage, "apt-get remove -qy otel-gpu >&2")
    assert (root / "etc/otel-gpu.yaml").exists()
    _sh(stage, "apt-get purge -qy otel-gpu >&2")
    left = [
        path for path in installed if not (pristine / path.lstrip("/")).exists() and os.path.lexists(f"{root}{path}")
    ]
    assert not left, f"{release.name}: left behind: {left}"
    assert "otel-gpu" not in (root / "etc/passwd").read_text()
    print(
        f"{release.name}: {deb.name}, {deb.stat().st_size / 1e6:.0f} MB, {len(installed)} files: {version}", flush=True
    )


def _build(root: Path) -> Path:
    stage = Stage(root, {"PATH": _PATH, "DEBIAN_FRONTEND": "noninteractive"}, directory="/root")
    _sh(stage, "apt-get update -q >&2; apt-get install -qy --no-install-recommends python3-venv >&2")
    for name in _SOURCES:
        (root / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / "root" / name)
    (root / "root/dist").mkdir()
    (wheel,) = (ROOT / "dist").glob("otel_gpu-*.whl")
    shutil.copy(wheel, root / "root/dist")
    written = run(stage, ["scripts/build_deb.sh"]).stdout.strip()
    return root / written.lstrip("/")


def _sh(stage: Stage, line: str) -> None:
    run(stage, ["sh", "-ec", line])


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    for known in RELEASES:
        if known.name in (sys.argv[2:] or [r.name for r in RELEASES]):
            package(known, where)
