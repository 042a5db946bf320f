"""Does README's quick start work as written on a fresh Debian 12 and Ubuntu 24.04? Each is a root made by debootstrap.

    quick_start.py DIRECTORY [RELEASE ...]

`dist/` holds a wheel (`make wheel`). What needs a kernel of one's own, `otel-gpu run`, is tested elsewhere: here it is told
to observe nothing. Needs root, debootstrap and the mirrors of Debian and Ubuntu.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests.documents import ROOT, commands
from tests.image.build import Stage, run

_UBUNTU = "http://archive.ubuntu.com/ubuntu"
_KEYRING = "ubuntu-keyring_2023.11.28.1_all.deb"
_KEYRING_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
"""Debian has no package of it."""
_PAGE = r"the page: http://\S+/"
_EXISTS = {"make demo", "make wheel"}
"""What a checkout is needed for; tests/e2e/test_demo.py runs the one, and the wheel that is there came of the other."""


@dataclass(frozen=True, slots=True)
class Release:
    """A distribution as people have it."""

    name: str
    mirror: str
    components: str


RELEASES = (
    Release("bookworm", "http://deb.debian.org/debian", "main"),
    Release("noble", _UBUNTU, "main,universe"),
)


def quick_start(release: Release, directory: Path) -> None:
    """Type the quick start's lines there, and see that the command is there and serves its page."""
    root = directory / release.name
    debootstrap(release, directory, root)
    stage = Stage(root, {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, directory="/root")
    run(stage, ["sh", "-c", "apt-get update -q >&2; apt-get install -qy --no-install-recommends sudo python3-venv >&2"])
    (wheel,) = (ROOT / "dist").glob("otel_gpu-*.whl")
    (root / "root" / "dist").mkdir()
    shutil.copy(wheel, root / "root" / "dist")
    for line in quick_start_lines():
        print(f"{release.name}: {line}", file=sys.stderr, flush=True)
        run(stage, ["bash", "-ec", line])
    version = run(stage, ["otel-gpu", "--version"]).stdout
    page = run(
        stage,
        ["timeout", "--preserve-status", "-s", "INT", "20", "otel-gpu", "view", "--port", "0", "--grpc-port", "0"],
    )
    assert re.match(_PAGE, page.stdout), f"{release.name}: otel-gpu view said {page.stdout!r}"
    checks = run(stage, ["otel-gpu", "doctor", "--json"], check=False)
    assert checks.stdout.startswith(("[", "{")), f"{release.name}: otel-gpu doctor said {checks.stdout!r}"
    print(f"{release.name}: {version.strip()}, {page.stdout.splitlines()[0]}", flush=True)


def quick_start_lines() -> list[str]:
    """Return what README shows first, up to the command itself."""
    lines = [c.line for c in commands() if c.document == "README.md"]
    return [line for line in lines[: lines.index("sudo otel-gpu run")] if line not in _EXISTS]


def debootstrap(release: Release, directory: Path, root: Path) -> None:
    """Make a fresh system at `root`; what that needs besides goes to `directory`."""
    options = ["--variant=minbase", f"--components={release.components}"]
    # Ubuntu's releases share a script, which Debian's debootstrap may lack the newest name of.
    script = []
    if release.mirror == _UBUNTU:
        options.append(f"--keyring={_ubuntu_keyring(directory)}")
        script = ["/usr/share/debootstrap/scripts/gutsy"]
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    command = ["debootstrap", *options, release.name, root, release.mirror, *script]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    # An installer writes this; debootstrap does not.
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {os.uname().nodename}\n::1 localhost\n")


def _ubuntu_keyring(directory: Path) -> Path:
    with urllib.request.urlopen(f"{_UBUNTU}/pool/main/u/ubuntu-keyring/{_KEYRING}", timeout=60) as answer:
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != _KEYRING_SHA256:
        raise SystemExit(f"{_KEYRING} is not the one that is known here")
    package = directory / _KEYRING
    package.write_bytes(data)
    subprocess.run(["dpkg-deb", "-x", package, directory / "keyring"], check=True)
    return directory / "keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg"


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    for known in RELEASES:
        if known.name in (sys.argv[2:] or [r.name for r in RELEASES]):
            quick_start(known, where)
