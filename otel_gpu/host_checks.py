"""Can this host run otel-gpu, and what is missing? Real checks, each with its fix; nothing is changed."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .config import Config
from .errors import LoadError
from .exporters.endpoint import target
from .exporters.settings import OtlpSettings

_CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
_PACKAGE = Path(__file__).parent
_CONNECT_S = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    check: str
    ok: bool
    required: bool
    """False: a part of the work can go on without it."""
    detail: str
    fix: str | None = None
    """What to do about it; None when there is nothing to do."""


def check_host(config: Config) -> Iterator[Check]:
    """Yield every check, in the order in which it makes sense to mend them."""
    yield _architecture()
    yield from _kernel()
    yield _capabilities()
    yield _perf_event_paranoid()
    yield _tracefs()
    yield _libbpf()
    yield _objects()
    yield _driver()
    for component, settings in config.exporters.items():
        if isinstance(settings, OtlpSettings):
            yield _endpoint(component, settings)


def _check(check: str, ok: bool, detail: str, fix: str, *, required: bool = True) -> Check:
    return Check(check, ok, required, detail, None if ok else fix)


def _architecture() -> Check:
    machine = platform.machine()
    return _check("architecture", machine in {"x86_64", "aarch64"}, machine, "run it on x86-64 or arm64 Linux")


def _kernel() -> Iterator[Check]:
    release = os.uname().release
    try:
        from .bpf.features import probe

        features = probe()
    except LoadError as e:
        yield Check("kernel", ok=False, required=True, detail=f"Linux {release}: {e}", fix="run it on x86-64 or arm64")
        return
    yield _check(
        "btf",
        features.btf,
        "/sys/kernel/btf/vmlinux",
        "run a kernel built with CONFIG_DEBUG_INFO_BTF=y; every major distribution's is since 2021",
    )
    yield _check(
        "bpf",
        features.permitted,
        f"programs can be loaded on Linux {release}" if features.permitted else "the kernel refuses to load a program",
        "run as root or with CAP_BPF and CAP_PERFMON; in a container add them, and check its seccomp profile",
    )
    if not features.permitted:
        return  # the kernel refuses everything else for the same reason
    newer = f"this is Linux {release}; run"
    yield _check("uprobes", features.uprobes, "the uprobe event source", f"{newer} one built with CONFIG_UPROBES=y")
    yield _check("ring buffer", features.ring_buffer, "BPF_MAP_TYPE_RINGBUF", f"{newer} 5.8 or newer")
    yield _check(
        "attach cookie",
        features.attach_cookie,
        "bpf_get_attach_cookie; without it each site costs a program of its own",
        f"{newer} 5.15 or newer",
        required=False,
    )
    yield _check(
        "bpf_loop", features.bpf_loop, "needed for stacks and profiles", f"{newer} 5.17 or newer", required=False
    )
    yield _check(
        "uprobe_multi",
        features.uprobe_multi,
        "attaches and detaches many sites at once",
        f"{newer} 6.6 or newer",
        required=False,
    )


def _capabilities() -> Check:
    effective = _effective_capabilities()
    held = {name for name, bit in _CAPABILITIES.items() if effective >> bit & 1}
    missing = [] if "CAP_SYS_ADMIN" in held else [c for c in ("CAP_BPF", "CAP_PERFMON") if c not in held]
    missing += [c for c in ("CAP_SYS_PTRACE",) if c not in held]
    names = ",".join(n.lower() for n in ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"))
    return _check(
        "capabilities",
        not missing,
        f"missing {', '.join(missing)}" if missing else f"{', '.join(sorted(held))}",
        f"run as root, or in a service or container with {names}",
    )


def _effective_capabilities() -> int:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1], 16) if found else 0


def _perf_event_paranoid() -> Check:
    try:
        level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        return Check(
            "perf events", ok=False, required=True, detail="none", fix="run a kernel with CONFIG_PERF_EVENTS=y"
        )
    privileged = _effective_capabilities() & (1 << _CAPABILITIES["CAP_PERFMON"] | 1 << _CAPABILITIES["CAP_SYS_ADMIN"])
    return _check(
        "perf events",
        bool(privileged) or level < 0,
        f"perf_event_paranoid is {level}{', which CAP_PERFMON passes' if privileged else ''}",
        "give CAP_PERFMON, which passes kernel.perf_event_paranoid",
    )


def _tracefs() -> Check:
    places = ("/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events")
    found = next((p for p in places if os.path.isdir(p) and os.access(p, os.R_OK)), None)
    return _check(
        "tracefs",
        found is not None,
        found or "not mounted, or not readable",
        "mount -t tracefs tracefs /sys/kernel/tracing; in a container mount it from the host",
        required=False,
    )


def _libbpf() -> Check:
    try:
        from .bpf.libbpf import libbpf

        library = libbpf()
        library.libbpf_version_string.restype = ctypes.c_char_p
        detail = f"{library.libbpf_version_string().decode()} ({os.path.basename(library._name)})"  # noqa: SLF001 - ctypes
    except LoadError as e:
        return Check("libbpf", ok=False, required=True, detail=str(e), fix="reinstall otel-gpu, or install libbpf1")
    return Check("libbpf", ok=True, required=True, detail=detail)


def _objects() -> Check:
    names = sorted(p.name for p in (_PACKAGE / "bpf" / "objects").glob(f"*.{platform.machine()}.bpf.o"))
    fix = "reinstall otel-gpu; in a checkout: make bpf"
    return _check("bpf objects", bool(names), ", ".join(names) or "none for this machine", fix)


def _driver() -> Check:
    try:
        version = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        return Check("nvidia driver", ok=True, required=False, detail=version.removeprefix("NVRM version: ").strip())
    except (OSError, IndexError):
        pass
    try:
        # The dynamic linker's cache lists every library by name.
        installed = b"libcuda.so.1" in Path("/etc/ld.so.cache").read_bytes()
    except OSError:
        installed = False
    return _check(
        "nvidia driver",
        installed,
        "libcuda.so.1, without its kernel module" if installed else "not found; programs may still bring their own",
        "install NVIDIA's driver on the host",
        required=False,
    )


def _endpoint(component: str, settings: OtlpSettings) -> Check:
    where = target(settings, "metrics").address.partition("?")[0]  # a query may hold a credential
    url = urlsplit(where if "://" in where else f"//{where}")
    if not url.hostname:
        return Check(f"endpoint {component}", ok=True, required=False, detail=f"{where} is for gRPC to resolve")
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((url.hostname, port), _CONNECT_S).close()
    except OSError as e:
        return Check(
            f"endpoint {component}",
            ok=False,
            required=False,
            detail=f"{where}: {e.strerror or e}",
            fix="start a collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT; data is retried until it answers",
        )
    return Check(f"endpoint {component}", ok=True, required=False, detail=f"{where} accepts connections")
