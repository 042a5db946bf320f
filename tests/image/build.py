"""Do the Dockerfile's steps work? Carried out in order without an engine: a stage is a root made by debootstrap, RUN is chroot.

    build.py DIRECTORY

What this shows: the commands, and the files that they make. What it does not: layers, the pulled base image (debootstrap's
minbase stands for debian:bookworm-slim), the engine's seccomp and AppArmor profiles. Needs root, debootstrap and Debian's mirror.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

_TREE = Path(__file__).parent.parent.parent
_OF_HOST = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""By which a chroot reaches what an engine's network would."""
_VARIABLES = ("PIP_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(slots=True)
class Stage:
    """One FROM, and what holds from there on."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    directory: str = "/"
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)


def build(directory: Path) -> Stage:
    """Carry out all steps below a directory, and return the last stage."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for instruction, rest in instructions((_TREE / "Dockerfile").read_text()):
        print(f"{instruction} {rest[:100]}", file=sys.stderr, flush=True)
        if instruction == "FROM":
            image, _, name = rest.partition(" AS ")
            stage = stages[name or "last"] = Stage(directory / (name or "last"))
            _debootstrap(image, stage.root)
            continue
        assert stage is not None
        _carry_out(instruction, rest, stage, stages)
    assert stage is not None
    return stage


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile with what stands behind them; comments go, also within a command."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", " ", lines).splitlines():
        if line.strip():
            instruction, _, rest = line.strip().partition(" ")
            yield instruction, rest.strip()


def _carry_out(instruction: str, rest: str, stage: Stage, stages: dict[str, Stage]) -> None:
    match instruction:
        case "RUN":
            run(stage, [*stage.shell, rest])
        case "SHELL":
            stage.shell = json.loads(rest)
        case "WORKDIR":
            stage.directory = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                stage.environment[name] = re.sub(r"\$(\w+)", lambda m: stage.environment.get(m[1], ""), value)
        case "USER":
            stage.user = rest
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        case "COPY":
            *source, target = shlex.split(rest)
            where = stage.root / os.path.normpath(os.path.join(stage.directory, target)).lstrip("/")
            if source[0].startswith("--from="):
                found = stages[source[0].removeprefix("--from=")].root / source[1].lstrip("/")
                shutil.copytree(found, where, symlinks=True)
            else:
                copy_context(where)
        case "CMD":
            pass
        case _:
            raise SystemExit(f"{instruction} is not known here")


def copy_context(where: Path) -> None:
    """Copy what .dockerignore leaves of this tree, as far as its patterns go: the last that matches counts."""
    rules = [line for line in (_TREE / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    # What git does not know was not meant to be there, and may be large.
    listed = subprocess.run(
        ["git", "-C", _TREE, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if not is_ignored(name, rules) and (_TREE / name).is_file():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(_TREE / name, where / name)


def is_ignored(name: str, rules: list[str]) -> bool:
    """Say whether a file is left out of what an image is made of."""
    parents = [name]
    while "/" in parents[-1]:
        parents.append(parents[-1].rpartition("/")[0])
    ignored = False
    for rule in rules:
        pattern = rule.removeprefix("!")
        plain = pattern.removeprefix("**/")
        if any(
            fnmatch(one, pattern) or (fnmatch(one.rpartition("/")[2], plain) and plain != pattern) for one in parents
        ):
            ignored = not rule.startswith("!")
    return ignored


def run(stage: Stage, command: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command as a container of the stage would, but for what an engine adds."""
    variables = {k: v for k, v in os.environ.items() if k.upper().startswith(_VARIABLES)}
    with _mounted(stage.root):
        inside = ["chroot", f"--userspec={stage.user}", stage.root, "/usr/bin/env", "-C", stage.directory, *command]
        environment = {**variables, **stage.environment, "DEBIAN_FRONTEND": "noninteractive"}
        return subprocess.run(inside, env=environment, check=check, text=True, stdout=subprocess.PIPE)


@contextmanager
def _mounted(root: Path) -> Iterator[None]:
    mounted = []
    try:
        for kind, place in (("proc", "proc"), ("sysfs", "sys")):
            subprocess.run(["mount", "-t", kind, kind, root / place], check=True)
            mounted.append(root / place)
        for name in _OF_HOST:
            if os.path.exists(name):
                (root / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(name, root / name.lstrip("/"))
        yield
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", place], check=True)


def _debootstrap(image: str, root: Path) -> None:
    found = re.fullmatch(r"debian:([a-z]+)-slim", image)
    assert found, f"debootstrap knows no {image}"
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(LABEL) $(SITE)", "Created-By: Packages"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    mirror = next(line.split()[1] for line in listed.stdout.splitlines() if line.startswith("Debian "))
    command = ["debootstrap", "--variant=minbase", found[1], root, mirror]
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def main() -> None:
    """Build, and show that the command runs as the image's user: with its rights, and without."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True)
    last = build(directory)
    print(run(last, [*last.entrypoint, "--version"]).stdout, end="")
    print(run(last, ["id", "-u"]).stdout, end="")
    print(run(last, ["/usr/sbin/getcap", "/opt/otel-gpu/bin/python3"]).stdout, end="")
    doctor = run(last, [*last.entrypoint, "doctor", "--json"], check=False)
    for check in json.loads(doctor.stdout)["checks"]:
        print("ok  " if check["ok"] else "none", check["check"], "-", check["detail"])


if __name__ == "__main__":
    main()
