"""Run a command as deploy/systemd/otel-gpu.service says, where systemd does not run: by the same means of the kernel's.

    sandbox.py USER CACHE STATE [SHOWN ...] -- COMMAND [ARGUMENT ...]

USER is a number; CACHE and STATE are directories that stand for those under /var; each SHOWN is a directory that stays
readable, though it lies where homes or temporary files do: this tree and its Python. Prints what cannot be applied here.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from otel_gpu.runtime import privileges
from otel_gpu.runtime.privileges import Capability
from tests.e2e import seccomp, service_unit
from tests.e2e.service_unit import Service

APPLIED = frozenset(
    [
        "AmbientCapabilities",
        "CacheDirectory",
        "CapabilityBoundingSet",
        "DeviceAllow",
        "DevicePolicy",
        "Environment",
        "LimitMEMLOCK",
        "LimitNOFILE",
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "MemoryMax",
        "Nice",
        "NoNewPrivileges",
        "OOMScoreAdjust",
        "PrivateTmp",
        "ProtectControlGroups",
        "ProtectHome",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "ProtectSystem",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "StateDirectory",
        "SystemCallArchitectures",
        "SystemCallErrorNumber",
        "SystemCallFilter",
        "TasksMax",
        "UMask",
        "User",
    ]
)
"""What is applied here. ProtectClock is a filter on calls that SystemCallFilter does not let through either."""
ELSEWHERE = frozenset(
    [
        "EnvironmentFile",
        "ExecStart",
        "KeyringMode",
        "ProtectClock",
        "RemoveIPC",
        "Restart",
        "RestartSec",
        "TimeoutStopSec",
    ]
)
"""What says when and what systemd runs, or takes away what a command of otel-gpu never has."""

_CLONE_NEWNS, _CLONE_NEWUTS = 0x00020000, 0x04000000
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100
_MOUNT_ATTR_RDONLY = 1
_SYS_MOUNT_SETATTR = 442
_PR_SET_KEEPCAPS = 8
_PSEUDO_DEVICES = ("c 1:3", "c 1:5", "c 1:7", "c 1:8", "c 1:9", "c 5:0", "c 5:2", "c 136:*")
"""systemd.resource-control(5), DevicePolicy=closed: null, zero, full, random, urandom, and terminals."""
_CGROUPS = Path("/sys/fs/cgroup")
_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace"))


def main(user: int, cache: Path, state: Path, shown: Sequence[Path], command: Sequence[str]) -> None:
    service = service_unit.read()
    _limit(service)
    _close_files(service, {"CacheDirectory": cache, "StateDirectory": state}, shown, user)
    for setting in service.words("Environment"):
        name, _, value = setting.partition("=")
        os.environ[name] = value
    os.nice(int(service.one("Nice")))
    Path("/proc/self/oom_score_adj").write_text(service.one("OOMScoreAdjust"))
    os.umask(int(service.one("UMask"), 8))
    bounding = {Capability[name] for name in service.words("CapabilityBoundingSet")}
    privileges._bound(bounding)
    _libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # NoNewPrivileges as well.
    privileges.limit({Capability[name] for name in service.words("AmbientCapabilities")})
    seccomp.apply(service)
    os.chdir("/")
    os.execvp(command[0], command)


def _limit(service: Service) -> None:
    for key, limit in (("LimitNOFILE", resource.RLIMIT_NOFILE), ("LimitMEMLOCK", resource.RLIMIT_MEMLOCK)):
        value = resource.RLIM_INFINITY if service.one(key) == "infinity" else int(service.one(key))
        try:
            resource.setrlimit(limit, (value, value))
        except (PermissionError, ValueError):
            print(f"not applied: {key}, for want of CAP_SYS_RESOURCE", file=sys.stderr)
    majors = _device_majors(service.one("DeviceAllow").split()[0])
    devices = [("devices.deny", "a"), *(("devices.allow", f"{d} rwm") for d in (*_PSEUDO_DEVICES, *majors))]
    _join("memory", [("memory.limit_in_bytes", str(service.size("MemoryMax")))])
    _join("pids", [("pids.max", service.one("TasksMax"))])
    _join("devices", devices)


def _join(controller: str, settings: Iterable[tuple[str, str]]) -> None:
    """Make this process the first of a control group, named by its pid, which whoever started it removes."""
    group = _CGROUPS / controller / f"otel-gpu-test-{os.getpid()}"
    try:
        group.mkdir()
        for file, value in settings:
            (group / file).write_text(value)
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as e:
        print(f"not applied: the controller {controller}: {e}", file=sys.stderr)


def _device_majors(allowed: str) -> Iterator[str]:
    prefix = allowed.removeprefix("char-").removesuffix("*")
    for line in Path("/proc/devices").read_text().split("Block devices:")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if name.startswith(prefix):
            yield f"c {number}:*"


def _close_files(service: Service, written: dict[str, Path], shown: Sequence[Path], user: int) -> None:
    """Make this process's view of the file system the service's; other processes' views stay as they are."""
    namespaces = _CLONE_NEWNS | (_CLONE_NEWUTS if service.one("ProtectHostname") == "yes" else 0)
    _check(_libc.unshare(namespaces), "unshare")
    _mount("--make-rprivate", "/")
    aside = Path(tempfile.mkdtemp())
    _mount("-t", "tmpfs", "none", aside)
    for i, place in enumerate([*shown, *written.values()]):
        (aside / str(i)).mkdir()
        _mount("--rbind", place, aside / str(i))
    # It may lie below one of the directories that are covered next.
    kept = os.open(aside, os.O_PATH)
    covered = {"755": ["/var/cache", "/var/lib"], "1777": []}
    if service.one("ProtectHome") == "yes":
        covered["755"] += ["/home", "/root", "/run/user"]
    if service.one("PrivateTmp") == "yes":
        covered["1777"] += ["/tmp", "/var/tmp"]
    for mode, directories in covered.items():
        for directory in filter(os.path.isdir, directories):
            _mount("-t", "tmpfs", "-o", f"mode={mode}", "none", directory)
    own = [Path("/var/cache" if key == "CacheDirectory" else "/var/lib", service.one(key)) for key in written]
    for i, target in enumerate([*shown, *own]):
        target.mkdir(parents=True, exist_ok=True)
        _mount("--rbind", f"/proc/{os.getpid()}/fd/{kept}/{i}", target)
    os.close(kept)
    if service.one("ProtectSystem") == "strict":
        _read_only("/", recursive=True)
        for left in ("/dev", "/proc", "/sys", "/tmp", "/var/tmp", *map(str, own)):
            _read_only(left, recursive=True, clear=True)
    if service.one("ProtectKernelTunables") == service.one("ProtectControlGroups") == "yes":
        _read_only("/sys", recursive=True)
        _mount("--bind", "/proc/sys", "/proc/sys")
        _read_only("/proc/sys")
    for key, hidden in (("ProtectKernelLogs", "/dev/kmsg"), ("ProtectKernelModules", "/usr/lib/modules")):
        if service.one(key) == "yes" and os.path.exists(hidden):
            _mount("--bind", "/dev/null", hidden) if not os.path.isdir(hidden) else _mount(
                "-t", "tmpfs", "none", hidden
            )
    for target in own:
        os.chown(target, user, user)


def _read_only(path: str, *, recursive: bool = False, clear: bool = False) -> None:
    attributes = _Attributes(0, _MOUNT_ATTR_RDONLY) if clear else _Attributes(_MOUNT_ATTR_RDONLY)
    failed = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(path.encode()),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(failed, f"mount_setattr {path}")


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def _check(failed: int, what: str) -> None:
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)


if __name__ == "__main__":
    given = sys.argv[1 : sys.argv.index("--")]
    main(int(given[0]), Path(given[1]), Path(given[2]), [Path(p) for p in given[3:]], sys.argv[len(given) + 2 :])
