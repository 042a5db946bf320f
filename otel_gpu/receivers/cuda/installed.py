"""Is NVIDIA's driver on this host? For `otel-gpu doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...bpf.needs import Check, check


def checks() -> Iterator[Check]:
    """Look for the kernel's module, and else for the library that programs load."""
    try:
        version = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        detail = version.removeprefix("NVRM version: ").strip()
        yield Check("nvidia driver", ok=True, required=False, detail=detail)
        return
    except (OSError, IndexError):
        pass
    try:
        # The dynamic linker's cache lists every library by name.
        is_installed = b"libcuda.so.1" in Path("/etc/ld.so.cache").read_bytes()
    except OSError:
        is_installed = False
    yield check(
        "nvidia driver",
        is_installed,
        "libcuda.so.1, without its kernel module" if is_installed else "not found; programs may still bring their own",
        "install NVIDIA's driver on the host",
        required=False,
    )
