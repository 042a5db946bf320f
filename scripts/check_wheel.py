"""Does this wheel hold all that `pip install` needs? Fails when it does not.

The BPF objects of every architecture, the man page and the completions of shells, a libbpf that loads from inside the wheel, and a platform tag that
auditwheel agrees with.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from pathlib import Path

_SHARED = (
    "man/man1/otel-gpu.1",
    "bash-completion/completions/otel-gpu",
    "zsh/site-functions/_otel-gpu",
    "fish/vendor_completions.d/otel-gpu.fish",
)
_OF_SOURCE = (
    "Makefile",
    "ebpf/cuda.bpf.c",
    "ebpf/abi/",
    "scripts/bundle_libbpf.sh",
    "docs/operations.md",
    "deploy/helm/otel-gpu/dashboards/fleet.json",  # a link in a checkout
    "deploy/helm/otel-gpu/rules.yaml",
    "examples/",
    "LICENSE",
)
"""The wheel is built from the source distribution, in a directory of its own: what that lacks of code fails there."""


def check_installed(path: str) -> None:
    """Install it as README does, into an environment of its own, and use it from there."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        pip = [f"{directory}/bin/pip", "install", "-q", "--disable-pip-version-check", f"{path}[view]"]
        subprocess.run(pip, check=True)
        command = f"{directory}/bin/otel-gpu"
        subprocess.run([command, "--version"], cwd="/", check=True)
        check_view(command)
        script = subprocess.run([command, "completion", "bash"], cwd="/", check=True, capture_output=True).stdout
        if script != Path(directory, "share", _SHARED[1]).read_bytes():
            sys.exit(f"{path}: `completion bash` is not what is installed below share/")


def check_view(command: str) -> None:
    """See the page served by what README installs."""
    ports = ["--port", "0", "--grpc-port", "0"]
    with subprocess.Popen([command, "view", *ports], cwd="/", stdout=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        said = view.stdout.readline()
        url = said.partition("the page: ")[2].strip()
        if not url:
            sys.exit(f"{command} view says {said!r}, and not where its page is")
        with urllib.request.urlopen(url, timeout=30) as page:  # noqa: S310 - our own, on this host
            found = page.read()
        view.terminate()
    if b"<html" not in found:
        sys.exit(f"{url} is no page")


def check_source(path: str) -> None:
    with tarfile.open(path) as source:
        names = [name.partition("/")[2] for name in source.getnames()]
    for wanted in _OF_SOURCE:
        if not any(name.startswith(wanted) for name in names):
            sys.exit(f"{path}: no {wanted}; see MANIFEST.in")
    print(f"{path}: {len(names)} files")


def main(path: str) -> None:
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as directory:
        names = wheel.namelist()
        sources = sorted(p.name.removesuffix(".bpf.c") for p in Path("ebpf").glob("*.bpf.c"))
        for arch in ("x86_64", "aarch64"):
            for source in sources:
                if f"otel_gpu/bpf/objects/{source}.{arch}.bpf.o" not in names:
                    sys.exit(f"{path}: no BPF object {source} for {arch}; run `make bpf` and build again")
        for shared in _SHARED:
            if not any(name.endswith(f".data/data/share/{shared}") for name in names):
                sys.exit(f"{path}: no share/{shared}; run `make docs` and build again")
        wheel.extractall(directory)  # noqa: S202 - our own
        library = ctypes.CDLL(os.path.join(directory, "otel_gpu/bpf/lib/libotelgpu_bpf.so"))
        library.libbpf_version_string.restype = ctypes.c_char_p
        version = library.libbpf_version_string().decode()
        ctypes.CDLL(os.path.join(directory, "otel_gpu/context/lib/libotelgpu_context.so"))
        with open("/proc/self/maps") as maps:
            if not any(directory in line and "libbpf.so" in line for line in maps):
                sys.exit(f"{path}: libbpf came from outside the wheel")
    report = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", path], capture_output=True, text=True, check=True
    ).stdout
    tag = path.rsplit("-", 1)[1].removesuffix(".whl")
    print(f"{path}: {len(sources)} programs, libbpf {version}, {tag}")
    print(report.strip())


if __name__ == "__main__":
    for built in sys.argv[1:]:
        if built.endswith(".tar.gz"):
            check_source(built)
        else:
            main(built)
            check_installed(built)
