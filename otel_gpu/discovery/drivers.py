"""Where would a program find the CUDA driver or the HIP runtime? Looked at before any process maps it, so that no call is missed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from ..bpf.libbpf import machine
from ..sandbox.batches import each
from ..sandbox.files import RootedFile
from ..sandbox.parsers import Parsers
from .libraries import CLASSIFICATION, Library, LibraryKind, classify

_NAMES = ("libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
_KINDS = (LibraryKind.DRIVER, LibraryKind.HIP)


def driver_directories(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return where drivers and their libraries lie on hosts and in containers, the linker's own choice first."""
    return [
        *filter(os.path.isabs, environ.get("LD_LIBRARY_PATH", "").split(":")),
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


def installed(
    parsers: Parsers, configured: Iterable[str], environ: Mapping[str, str] = os.environ
) -> Iterator[tuple[Library, RootedFile]]:
    """Yield the drivers and HIP runtimes of this host, and those configured, each with where it lies."""
    directories = driver_directories(environ)
    paths = [*map(os.path.abspath, configured), *(os.path.join(d, name) for d in directories for name in _NAMES)]
    seen = set()
    for library, file in libraries_at(parsers, dict.fromkeys(paths)):
        if library.kind in _KINDS and library.id not in seen:
            seen.add(library.id)
            yield library, file


def libraries_at(parsers: Parsers, paths: Iterable[str]) -> Iterator[tuple[Library, RootedFile]]:
    """Yield the libraries of interest among files of this host."""
    files = [RootedFile(-1, os.fsencode(path)) for path in paths]
    for outcome in each(parsers, classify, files, None, CLASSIFICATION):
        if outcome.answer is None or outcome.opened is None or outcome.opened.id is None:
            continue
        library = outcome.answer.library(outcome.opened.id, files[outcome.number].shown)
        if library is not None:
            yield library, files[outcome.number]


def is_arm64() -> bool:
    """Say whether probes follow arm64's rules, where single-stepping has crashed GPU processes."""
    return machine() == "aarch64"
