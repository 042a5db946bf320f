"""Does the service that we ship do all of its work under all of its restrictions? Taken from the unit itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.service.rights import READ, SERVICE
from tests.e2e import ground, sandbox, seccomp, service_unit
from tests.e2e.collector import Collector
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.test_privileges import becomes, only, threads
from tests.e2e.unprivileged import meeting_place, prefix

_ROOT = Path(__file__).parent.parent.parent
_OBSERVED, _SERVICE = 41_001, 41_002
_LAUNCHES = 1000
pytestmark = pytest.mark.skipif(
    bool(service_unit.missing() or seccomp.missing()), reason=f"{service_unit.missing() or seccomp.missing()}"
)

# A program of another user in a home of its own, which nobody else sees: in a container, say.
_AT_HOME = """
mount -t tmpfs -o mode=755 none /home
mkdir /home/somebody
cp "$1" "$2" /home/somebody/
mv /home/somebody/small_driver.so /home/somebody/libcuda.so.1
shift 2
exec "$@"
"""
_PROGRAM = """
import ctypes, json, sys
driver = ctypes.CDLL("/home/somebody/libcuda.so.1")
def say(event): print(json.dumps({"event": event}), flush=True)
def train_step():
    driver.cuLaunchKernel(ctypes.c_void_p(1), 1, 1, 1, 32, 1, 1, 0, None, None, None)
say("ready")
for line in sys.stdin:
    for _ in range(int(sys.argv[1])): train_step()
    say("phase")
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with meeting_place() as directory:
        yield directory


@contextmanager
def _program(place: Path) -> Iterator[Program]:
    script, built = place / "program.py", ground.part("programs")
    script.write_text(_PROGRAM)
    # It opens its home with no right but its own.
    at_home = ["unshare", "--mount", "bash", "-ec", _AT_HOME, "at_home", built / "small_driver.so", script]
    python = [*prefix(_OBSERVED), sys.executable, "/home/somebody/program.py", str(_LAUNCHES)]
    with Program([*at_home, *python], place, {"OTEL_SERVICE_NAME": "trainer"}) as program:
        program.ready()
        yield program


def _sandboxed(place: Path) -> list[str]:
    """Return what to put before a command, so that it runs as the service does."""
    written = [place / "cache", place / "state"]
    for directory in written:
        directory.mkdir(exist_ok=True)
    shown = {sys.base_prefix, sys.prefix, str(_ROOT), str(place / "config")}
    (place / "config").mkdir(exist_ok=True)
    return [sys.executable, "-m", "tests.e2e.sandbox", str(_SERVICE), *map(str, written), *sorted(shown), "--"]


@pytest.fixture(autouse=True)
def control_groups() -> Iterator[None]:
    before = set(Path("/sys/fs/cgroup").glob("*/otel-gpu-test-*"))
    yield
    for group in set(Path("/sys/fs/cgroup").glob("*/otel-gpu-test-*")) - before:
        becomes(lambda group=group: (group / "cgroup.procs").read_text(), "")
        group.rmdir()


def test_every_line_of_the_unit_is_applied_or_said_to_mean_nothing_here() -> None:
    keys = {key for key, _ in service_unit.read().lines}

    assert keys == sandbox.APPLIED | sandbox.ELSEWHERE
    assert not sandbox.APPLIED & sandbox.ELSEWHERE


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "otel-gpu.service"
    command = Path("/bin/true")
    unit.write_text(service_unit.UNIT.read_text().replace("/opt/otel-gpu/bin/otel-gpu", str(command)))

    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=30", unit],
        capture_output=True,
        text=True,
        check=False,
    )

    assert [line for line in checked.stderr.splitlines() if unit.name in line] == []
    assert rated.returncode == 0, rated.stdout


def _functions(place: Path) -> set[str]:
    file = place / "state" / "profiles.jsonl"
    return {f.function for p in read_profiles(file) for s in p.samples for f in s.stack} if file.exists() else set()


def test_metrics_profiles_and_names_of_others_come_through(place: Path, collector: Collector) -> None:
    sandboxed = _sandboxed(place)
    with _program(place) as program:
        (place / "config" / "agent.yaml").write_text(
            json.dumps(
                {
                    "receivers": {"cuda": None, "nvml": None, "self": None, "profile": {"types": ["launch", "cpu"]}},
                    "exporters": {
                        "file": {"path": "/var/lib/otel-gpu"},
                        "otlp": {"endpoint": f"http://localhost:{collector.port('grpc')}"},
                    },
                    "service": {
                        "interval": "500ms",
                        "pipelines": {
                            "metrics": {"receivers": ["cuda", "nvml", "self"], "exporters": ["file", "otlp"]},
                            "profiles": {"receivers": ["profile"], "exporters": ["file"]},
                        },
                    },
                }
            )
        )
        arguments = ["--config", place / "config" / "agent.yaml", "--pid", str(program.pid)]
        with Agent(arguments, _ROOT, {}, within=sandboxed) as agent:
            agent.wait_for(r"attached \d+ probes to /home/somebody/libcuda\.so\.1")
            agent.wait_watching()
            becomes(lambda: set(threads(agent.pid)), {only(READ, READ, SERVICE)})
            deadline = time.monotonic() + DEADLINE_S
            phases = 0
            while not {"train_step", "cuLaunchKernel"} <= _functions(place):
                # Stacks are whole once the tables of the interpreter's files are compiled.
                program.run_phase()
                phases += 1
                assert time.monotonic() < deadline, agent.error_text
            agent.stop()
            groups = Path("/sys/fs/cgroup").glob(f"memory/*{agent.pid}")
            peaks = [int((group / "memory.max_usage_in_bytes").read_text()) for group in groups]
        program.process.stdin.close()
        assert program.wait() == 0

    for metrics in (read_metrics(place / "state"), collector.received_metrics("grpc")):
        seen = metrics.of(program.pid)
        assert seen.total("gpu.cuda.kernel.launch.calls") == phases * _LAUNCHES
        assert {s.resource["service.name"] for s in seen.samples} == {"trainer"}
    assert list((place / "cache" / "unwind").iterdir())
    assert [line for line in agent.errors if "WARNING" in line] == []
    # The kernel's part with it.
    assert all(peak < service_unit.read().size("MemoryMax") / 3 for peak in peaks)


_ATTEMPTS = """
import ctypes, errno, json, mmap, os, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
place = sys.argv[1]
def raw(function, *arguments):
    if getattr(libc, function)(*map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), function)
def closed_device():
    # Whoever may read all files could open these.
    for name in ("fuse", "net/tun", "loop-control", "hwrng", "rtc0", "mem", "port"):
        if os.path.exists("/dev/" + name):
            return os.open("/dev/" + name, os.O_RDONLY)
    raise PermissionError(errno.EPERM, "there is none")
own = "/var/cache/otel-gpu/own"
attempts = {
    "CacheDirectory": lambda: open(own, "w").close(),
    "StateDirectory": lambda: open("/var/lib/otel-gpu/own", "w").close(),
    "ProtectSystem": lambda: open("/etc/otel-gpu-test", "w"),
    "ProtectHome": lambda: os.scandir("/home").__next__(),
    "PrivateTmp": lambda: os.stat(place + "/outside"),
    "ProtectKernelTunables": lambda: open("/proc/sys/kernel/printk_delay", "w"),
    "ProtectKernelLogs": lambda: os.stat("/dev/kmsg").st_rdev == os.stat("/dev/null").st_rdev or 1 / 0,
    "DevicePolicy": closed_device,
    "RestrictAddressFamilies, internet": lambda: socket.socket(socket.AF_INET6).close(),
    "RestrictAddressFamilies, packets": lambda: socket.socket(socket.AF_PACKET),
    "RestrictAddressFamilies, vsock": lambda: socket.socket(socket.AF_VSOCK),
    "RestrictNamespaces": lambda: raw("unshare", 0x10000000),
    "LockPersonality": lambda: raw("personality", 0x0040000),
    "MemoryDenyWriteExecute": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
    "RestrictSUIDSGID": lambda: os.chmod(own, 0o4700),
    "RestrictRealtime": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "SystemCallFilter, ptrace": lambda: raw("ptrace", 0, 0, 0, 0),
    "SystemCallFilter, write to a process": lambda: raw("process_vm_writev", os.getpid(), 0, 0, 0, 0, 0),
    "SystemCallFilter, read of a process": lambda: raw("process_vm_readv", os.getpid(), 0, 0, 0, 0, 0),
    "SystemCallFilter, setuid": lambda: os.setuid(os.getuid()),
    "SystemCallFilter, chown": lambda: os.chown(own, os.getuid(), -1),
    "SystemCallFilter, mount": lambda: raw("mount", 0, 0, 0, 0, 0),
    "UMask": lambda: stat.S_IMODE(os.stat(own).st_mode) == 0o600 or 1 / 0,
    "a thread, a child, a callback": lambda: (
        __import__("threading").Thread(target=print).start(),
        __import__("subprocess").run(["/bin/true"], check=True),
        ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)(),
    ),
}
said = {}
for name, attempt in attempts.items():
    try:
        attempt()
        said[name] = None
    except OSError as e:
        said[name] = errno.errorcode[e.errno]
    except StopIteration:
        said[name] = "nothing"
print(json.dumps(said))
"""
_REFUSED = {
    "ProtectSystem": "EROFS",
    "ProtectHome": "nothing",
    "PrivateTmp": "ENOENT",
    "ProtectKernelTunables": "EROFS",
    "DevicePolicy": "EPERM",
    "RestrictAddressFamilies, packets": "EAFNOSUPPORT",
    "RestrictAddressFamilies, vsock": "EAFNOSUPPORT",
    "RestrictNamespaces": "EPERM",
    "LockPersonality": "EPERM",
    "MemoryDenyWriteExecute": "EPERM",
    "RestrictSUIDSGID": "EPERM",
    "RestrictRealtime": "EPERM",
    "SystemCallFilter, ptrace": "EPERM",
    "SystemCallFilter, write to a process": "EPERM",
    "SystemCallFilter, setuid": "EPERM",
    "SystemCallFilter, chown": "EPERM",
    "SystemCallFilter, mount": "EPERM",
}


def test_the_restrictions_hold(place: Path) -> None:
    """Else the work that is done under them would show nothing."""
    (place / "outside").touch()
    command = [*_sandboxed(place), sys.executable, "-I", "-c", _ATTEMPTS, str(place)]

    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    if "controller devices" in done.stderr:
        del said["DevicePolicy"]
    assert {name: code for name, code in said.items() if code} == {n: c for n, c in _REFUSED.items() if n in said}
