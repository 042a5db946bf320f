"""Where would a program find the CUDA driver or the HIP runtime? Looked at before any process maps it, so that no call is missed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from ..bpf.libbpf import machine
from .libraries import Library, LibraryKind, classify

_NAMES = ("libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
_KINDS = (LibraryKind.DRIVER, LibraryKind.HIP)


def installed(configured: Iterable[str], environ: Mapping[str, str] = os.environ) -> Iterator[tuple[Library, str]]:
    """Yield the drivers and HIP runtimes of this host, and those configured, each with the path to open it by."""
    directories = [
        *filter(None, environ.get("LD_LIBRARY_PATH", "").split(":")),
        f"/usr/lib/{machine()}-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/nvidia/lib64",
        "/usr/lib/wsl/lib",
        # The GPU operator's driver container, and GKE's installer.
        f"/run/nvidia/driver/usr/lib/{machine()}-linux-gnu",
        "/run/nvidia/driver/usr/lib64",
        "/home/kubernetes/bin/nvidia/lib64",
        "/opt/rocm/lib",
    ]
    seen = set()
    for path in (*configured, *(os.path.join(d, name) for d in directories for name in _NAMES)):
        try:
            library = classify(path, path)
        except OSError:
            continue
        if library is not None and library.kind in _KINDS and library.id not in seen:
            seen.add(library.id)
            yield library, path


def is_arm64() -> bool:
    """Say whether probes follow arm64's rules, where single-stepping has crashed GPU processes."""
    return machine() == "aarch64"
