"""Who a process is follows from what it says itself, then from what it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.discovery import procfs, resource
from otel_gpu.discovery.resource import of_process, parse_resource_attributes, service_name

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    running = []

    def start(*arguments: str, **environment: str) -> int:
        command = [sys.executable, "-S", *(arguments or ("-c", "import sys; print(flush=True); sys.stdin.read()"))]
        child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running.append(child)
        child.stdout.readline()
        return child.pid

    yield start
    for child in running:
        child.communicate()


def who(pid: int, **extra: str) -> dict[str, object]:
    return dict(of_process(pid, {k.replace("_", "."): v for k, v in extra.items()}).attributes)


def test_a_process_is_described(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "train model.py"
    script.write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
    pid = start(str(script))

    found = who(pid)

    assert found["service.name"] == "train model"
    assert found["process.pid"] == pid
    assert found["process.executable.path"] == str(Path(sys.executable).resolve())
    assert str(found["process.executable.name"]).startswith("python")
    assert found["process.command"] == sys.executable
    assert {"host.name", "host.arch", "os.type", "process.parent_pid"} <= found.keys()


def test_what_it_says_of_itself_goes_before_all(start: Start) -> None:
    said = "service.name=by-attributes,deployment.environment.name=prod%2Ceu,host.name=own"
    by_both = start(OTEL_SERVICE_NAME="by-name", OTEL_RESOURCE_ATTRIBUTES=said)
    by_attributes = start(OTEL_RESOURCE_ATTRIBUTES=said)

    assert who(by_both)["service.name"] == "by-name"
    found = who(by_attributes, deployment_environment_name="test", team="ours")
    assert found["service.name"] == "by-attributes"
    assert found["deployment.environment.name"] == "prod,eu"
    assert (found["host.name"], found["team"]) == ("own", "ours")


def test_a_process_that_is_gone_has_a_name_all_the_same() -> None:
    assert who(1 << 22)["service.name"] == "unknown_service"
    assert dict(of_process(1 << 22, fallback_name="short").attributes)["service.name"] == "short"


def test_long_values_are_cut(start: Start) -> None:
    pid = start(OTEL_SERVICE_NAME="x" * 10_000)

    assert who(pid)["service.name"] == "x" * 4096


@pytest.mark.parametrize(
    ("executable", "arguments", "name"),
    [
        ("/opt/app/server", ["./server", "--port", "1"], "server"),
        ("/usr/bin/python3.11", ["python3", "/srv/train.py", "--lr", "1"], "train"),
        ("/usr/bin/python3.13t", ["python3.13t", "-u", "-X", "dev", "-W", "error", "app.py"], "app"),
        ("/usr/bin/python3", ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "x"], "vllm.entrypoints.openai.api_server"),
        ("/usr/bin/python3", ["python3", "-c", "print(1)"], "python3"),
        ("/usr/bin/python3", ["python3"], "python3"),
        ("/usr/bin/python3", ["python3", "-m"], "python3"),
        ("/usr/bin/python3", [], "python3"),
        ("/usr/bin/pypy3", ["pypy3", "/srv/app/"], "app"),
        ("/usr/bin/python-config", ["python-config", "x.py"], "python-config"),
    ],
)  # fmt: skip
def test_programs_are_named_by_what_they_run(executable: str, arguments: list[str], name: str) -> None:
    assert service_name(executable, arguments) == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1,b=two words", {"a": "1", "b": "two words"}),
        (" a = 1 , broken, =x, c=%2C%3D ", {"a": "1", "c": ",="}),
        ("a=1,a=2", {"a": "2"}),
        ("a=b=c", {"a": "b=c"}),
    ],
)
def test_resource_attributes_are_parsed(text: str, expected: dict[str, str]) -> None:
    assert parse_resource_attributes(text) == expected


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    assert all(key.strip() for key in parse_resource_attributes(text))


ID = "0123456789abcdef" * 4
POD_SLICE = "kubepods-burstable.slice/kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice"


@pytest.mark.parametrize(
    ("cgroup", "container", "pod"),
    [
        (f"12:cpu:/docker/{ID}\n0::/docker/{ID}\n", ID, None),
        (f"0::/system.slice/docker-{ID}.scope\n", ID, None),
        (
            f"0::/kubepods.slice/{POD_SLICE}/cri-containerd-{ID}.scope\n",
            ID,
            "01234567-89ab-cdef-0123-456789abcdef",
        ),
        (
            f"1:name=systemd:/kubepods/besteffort/pod01234567-89ab-cdef-0123-456789abcdef/{ID}\n",
            ID,
            "01234567-89ab-cdef-0123-456789abcdef",
        ),
        ("0::/user.slice/user-0.slice\n", None, None),
        (f"0::/build-{ID}ff\n", None, None),
    ],
)
def test_containers_and_pods_are_told_by_the_cgroup(
    monkeypatch: pytest.MonkeyPatch, cgroup: str, container: str | None, pod: str | None
) -> None:
    monkeypatch.setattr(procfs, "read", lambda _pid, _name, _limit=0: cgroup.encode())

    found = resource._container(1)

    assert (found.get("container.id"), found.get("k8s.pod.uid")) == (container, pod)
