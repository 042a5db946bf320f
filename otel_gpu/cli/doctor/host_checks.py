"""Can this host run otel-gpu, and what is missing? Real checks, each with its fix; nothing is changed."""

from __future__ import annotations

import ctypes
import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from ...bpf.features import Features, probe
from ...bpf.link_mode import usable_mode
from ...bpf.needs import Check, check
from ...bpf.perf_event import PARANOID, right
from ...bpf.pid_namespace import is_first_pid_namespace
from ...config.model import Config
from ...config.needs import checks, endpoints, exporter_checks, needs
from ...errors import LoadError, UnsupportedKernelError
from ...runtime.privileges import Capability, held
from ...service import rights_trials
from ...service.rights import LOAD, SERVICE

_WAYS = {
    "multi": "by links over many sites",
    "perf": "by one perf event a site",
    "copies": "by one perf event and one copy of the program a site",
}
_PACKAGE = Path(__file__).parents[2]
_CONNECT_S = 2.0


def check_host(config: Config) -> Iterator[Check]:
    """Yield every check, in the order in which it makes sense to mend them."""
    yield _architecture()
    yield from _kernel(config)
    yield _capabilities()
    yield from _events()
    yield from _processes_of_others()
    yield _libbpf()
    yield _objects()
    yield from checks(config)
    yield _pid_namespace()
    for notice in config.notices:
        yield Check(
            "variables", ok=False, required=False, detail=notice, fix="unset it, or set it to what is understood"
        )
    yield from exporter_checks(config)
    for component, where in endpoints(config):
        yield _endpoint(f"endpoint {component.partition('.')[2]}", where)


def _architecture() -> Check:
    machine = platform.machine()
    return check("architecture", machine in {"x86_64", "aarch64"}, machine, "run it on x86-64 or arm64 Linux")


def _kernel(config: Config) -> Iterator[Check]:
    release = os.uname().release
    try:
        features = probe()
    except LoadError as e:
        yield Check("kernel", ok=False, required=True, detail=f"Linux {release}: {e}", fix="run it on x86-64 or arm64")
        return
    yield check(
        "btf",
        features.btf,
        "/sys/kernel/btf/vmlinux",
        "run a kernel built with CONFIG_DEBUG_INFO_BTF=y; every major distribution's is since 2021",
    )
    yield check(
        "bpf",
        features.permitted,
        f"programs can be loaded on Linux {release}" if features.permitted else "the kernel refuses to load a program",
        "run as root or with CAP_BPF and CAP_PERFMON; in a container add them, and check its seccomp profile",
    )
    if not features.permitted:
        return  # the kernel refuses everything else for the same reason
    newer = f"this is Linux {release}; run"
    refused = rights_trials.make_tables()
    yield check(
        "bpf tables",
        refused is None,
        refused or "as large as the agent's are",
        "raise the limit of locked memory, LimitMEMLOCK=infinity in a service: Linux before 5.11 counts them there",
    )
    yield check("uprobes", features.uprobes, "the uprobe event source", f"{newer} one built with CONFIG_UPROBES=y")
    yield check("ring buffer", features.ring_buffer, "BPF_MAP_TYPE_RINGBUF", f"{newer} 5.8 or newer")
    yield check(
        "attach cookie",
        features.attach_cookie,
        "bpf_get_attach_cookie; without it each site costs a program of its own",
        f"{newer} 5.15 or newer",
        required=False,
    )
    yield check(
        "bpf_loop", features.bpf_loop, "needed for stacks and profiles", f"{newer} 5.17 or newer", required=False
    )
    if features.uprobes:
        yield from _placing(config, features)


def _placing(config: Config, features: Features) -> Iterator[Check]:
    """Place a probe in each of the ways that there are, and say which one is taken."""
    multi, perf = rights_trials.place("multi"), rights_trials.place("perf" if features.attach_cookie else "copies")
    way = f"this is Linux {os.uname().release}; run 6.6 or newer"
    yield check(
        "uprobe_multi",
        multi is None,
        f"attaches and detaches many sites at once{_but(multi)}",
        "check the container's seccomp profile, and the kernel's lockdown" if features.uprobe_multi else way,
        required=False,
    )
    yield check(
        "perf uprobes",
        perf is None,
        f"what there is without uprobe_multi{_but(perf)}",
        "nothing, with uprobe_multi; else give CAP_SYS_ADMIN, which kernels with the fix of CVE-2025-38466 want for them",
        required=False,
    )
    component, link = next(((name, found.link) for name, found in needs(config) if found.link), ("", "auto"))
    try:
        mode = usable_mode(link, features)
        refused = multi if mode == "multi" else perf
    except UnsupportedKernelError as e:
        yield Check("probes", ok=False, required=True, detail="none can be placed", fix=str(e))
        return
    detail = f"placed {_WAYS[mode]}{f' ({component}.link)' if link != 'auto' else ''}{_but(refused)}"
    yield check("probes", refused is None, detail, "see the two checks above")


def _but(refused: str | None) -> str:
    return "" if refused is None else f"; tried: {refused}"


def _capabilities() -> Check:
    has = held()
    needed = [c for c in sorted(SERVICE) if not (c in LOAD and Capability.CAP_SYS_ADMIN in has)]
    missing = [c.name for c in needed if c not in has]
    required = [c for c in missing if c in (*(c.name for c in LOAD), Capability.CAP_SYS_PTRACE.name)]
    names = ", ".join(c.name for c in sorted(SERVICE))
    return Check(
        "capabilities",
        ok=not missing,
        required=bool(required),
        detail=f"missing {', '.join(missing)}" if missing else ", ".join(c.name for c in sorted(has)),
        fix=f"run as root, or in a service or container with {names}" if missing else None,
    )


def _events() -> Iterator[Check]:
    """Perf events: what tells of processes, and what samples CPUs."""
    try:
        level = Path(PARANOID).read_text().strip()
    except OSError:
        level = "not there"
    for name, refused, what in (
        ("perf events", rights_trials.hear_of_processes(), "which tell of processes"),
        ("cpu samples", rights_trials.sample_cpus(), "for profiles of the type cpu"),
    ):
        detail = f"{what}; perf_event_paranoid is {level}{_but(refused)}"
        yield check(name, refused is None, detail, right(), required=name == "perf events")


def _processes_of_others() -> Iterator[Check]:
    """What is read of observed programs that other users run, and what `inspect` asks the kernel."""
    with rights_trials.process_of_another_user() as pid:
        if pid is None:
            yield Check("others' processes", ok=True, required=False, detail="none is here to try it on")
            return
        yield check(
            "others' maps",
            (refused := rights_trials.look_at(pid)) is None,
            f"which libraries a process of another user has mapped{_but(refused)}",
            "give CAP_SYS_PTRACE, and mount /proc without hidepid",
        )
        yield check(
            "others' memory",
            (refused := rights_trials.read_memory(pid)) is None,
            f"names of its kernels, its environment, its Python frames{_but(refused)}",
            "give CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; kernel.yama.ptrace_scope must not be 3",
            required=False,
        )
        yield check(
            "others' files",
            (refused := rights_trials.open_mapped(pid)) is None,
            f"the very file that it has mapped, even replaced or deleted{_but(refused)}",
            "give CAP_CHECKPOINT_RESTORE, with the two above",
            required=False,
        )
    yield check(
        "inspect",
        (refused := rights_trials.list_links()) is None,
        f"its list of what is attached{_but(refused)}",
        "nothing for the agent; run inspect as root or with CAP_SYS_ADMIN",
        required=False,
    )


def _pid_namespace() -> Check:
    try:
        is_first = is_first_pid_namespace()
    except OSError as e:
        return check("pid namespace", False, f"cannot be told: {e.strerror}", "mount /proc", required=False)
    return check(
        "pid namespace",
        is_first,
        "the host's: every process is seen"
        if is_first
        else "a private one: GPU processes outside of it are not observed",
        "to observe the whole host give the host's: hostPID: true in Kubernetes, --pid=host for Docker and Podman",
        required=False,
    )


def _libbpf() -> Check:
    try:
        from ...bpf.libbpf import libbpf

        library = libbpf()
        library.libbpf_version_string.restype = ctypes.c_char_p
        detail = f"{library.libbpf_version_string().decode()} ({os.path.basename(library._name)})"  # noqa: SLF001 - ctypes
    except LoadError as e:
        return Check("libbpf", ok=False, required=True, detail=str(e), fix="reinstall otel-gpu, or install libbpf1")
    return Check("libbpf", ok=True, required=True, detail=detail)


def _objects() -> Check:
    names = sorted(p.name for p in (_PACKAGE / "bpf" / "objects").glob(f"*.{platform.machine()}.bpf.o"))
    fix = "reinstall otel-gpu; in a checkout: make bpf"
    return check("bpf objects", bool(names), ", ".join(names) or "none for this machine", fix)


def _endpoint(name: str, where: str) -> Check:
    """Connect to what is known of nothing but where it is."""
    url = urlsplit(where if "://" in where else f"//{where}")
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((url.hostname or "localhost", port), _CONNECT_S).close()
    except OSError as e:
        detail, fix = f"{where}: {e.strerror or e}", "start what is to answer there, or name another place"
        return check(name, ok=False, required=False, detail=detail, fix=fix)
    return Check(name, ok=True, required=False, detail=f"{where} accepts connections")
