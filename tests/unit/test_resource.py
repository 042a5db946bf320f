"""Who a process is follows from what is seen of it, then from what it says itself."""

from __future__ import annotations

import queue
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.discovery import procfs
from otel_gpu.discovery.host import host
from otel_gpu.discovery.process_info import ProcessInfo, ProcessInfoReader, Unread, kernel_info
from otel_gpu.discovery.program_names import service_name
from otel_gpu.discovery.resource import Identities, identify
from otel_gpu.discovery.resource_variables import MAX_ATTRIBUTES, MAX_TOTAL, MAX_VALUE, Cut
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.signals.metrics import Resource

Start = Callable[..., int]
Who = Callable[..., dict[str, object]]

ID = "0123456789abcdef" * 4
POD = "01234567-89ab-cdef-0123-456789abcdef"
POD_SLICE = "kubepods-burstable.slice/kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice"


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


@pytest.fixture(scope="module")
def reader() -> Iterator[ProcessInfoReader]:
    with Parsers(modules=("otel_gpu.discovery.process_info_work",)) as parsers:
        made = ProcessInfoReader(parsers)
        yield made
        made.close()


@pytest.fixture
def info_of(reader: ProcessInfoReader) -> Callable[[int], ProcessInfo]:
    def read(pid: int) -> ProcessInfo:
        found: queue.Queue[ProcessInfo] = queue.Queue()
        reader.complete(kernel_info(pid), found.put)
        return found.get(timeout=60)

    return read


@pytest.fixture
def who(info_of: Callable[[int], ProcessInfo]) -> Who:
    def who(pid: int, **extra: str) -> dict[str, object]:
        shared = {k.replace("_", "."): v for k, v in extra.items()}
        return dict(Identities(shared).of_program(info_of(pid)).attributes)

    return who


def test_a_process_is_described(start: Start, who: Who, tmp_path: Path) -> None:
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


def test_what_it_says_of_itself_goes_before_what_the_agent_is_told(start: Start, who: Who) -> None:
    said = "service.name=by-attributes,deployment.environment.name=prod%2Ceu,own/key=x"
    by_both = start(OTEL_SERVICE_NAME="by-name", OTEL_RESOURCE_ATTRIBUTES=said)
    by_attributes = start(OTEL_RESOURCE_ATTRIBUTES=said)

    assert who(by_both)["service.name"] == "by-name"
    found = who(by_attributes, deployment_environment_name="test", team="ours")
    assert found["service.name"] == "by-attributes"
    assert found["deployment.environment.name"] == "prod,eu"
    assert (found["own/key"], found["team"]) == ("x", "ours")


def test_a_process_cannot_say_that_it_is_another(start: Start, who: Who, info_of: Callable[[int], ProcessInfo]) -> None:
    lie = (
        "host.name=elsewhere,Host.ID=1,host_arch=vax,os.type=windows,process.pid=1,process.executable.path=/bin/true,"
        "container.id=0,telemetry.sdk.name=mine,k8s.pod.uid=other,k8s.pod.name=stays"
    )
    pid = start(OTEL_RESOURCE_ATTRIBUTES=lie)
    honest = who(start())

    info = replace(info_of(pid), cgroups=(f"0::/kubepods/pod{POD}/{ID}",))
    found = identify(info, host())

    of_host = {key: value for key, value in honest.items() if key.startswith(("host.", "os."))}
    attributes = dict(found.resource.attributes)
    assert {key: value for key, value in attributes.items() if key.lower().startswith(("host", "os"))} == of_host
    assert (attributes["process.pid"], attributes["container.id"], attributes["k8s.pod.uid"]) == (pid, ID, POD)
    assert attributes["process.executable.path"] == honest["process.executable.path"]
    assert attributes["k8s.pod.name"] == "stays"
    assert "telemetry.sdk.name" not in attributes
    assert dict(found.cuts) == {Cut.RESERVED: 9}


def test_an_instance_is_a_process_from_its_start_to_its_end(who: Who, start: Start) -> None:
    first, second = start(), start()
    ids = {pid: who(pid)["service.instance.id"] for pid in (first, second)}

    assert who(first)["service.instance.id"] == ids[first] != ids[second]
    assert uuid.UUID(str(ids[first])).version == 5
    by_kernel = dict(
        identify(replace(ProcessInfo(first), start_ticks=procfs.stat(first).start_ticks), {}).resource.attributes
    )
    assert by_kernel["service.instance.id"] == ids[first]
    later = dict(identify(ProcessInfo(first, start_ticks=procfs.stat(first).start_ticks + 1), {}).resource.attributes)
    assert later["service.instance.id"] != ids[first]


def test_nobody_has_the_instance_of_a_process_of_which_the_start_is_not_known() -> None:
    one, other = (dict(identify(ProcessInfo(7), {}).resource.attributes)["service.instance.id"] for _ in range(2))

    assert one != other


def test_to_repeat_what_was_observed_is_no_lie() -> None:
    info = ProcessInfo(7, variables=(("OTEL_RESOURCE_ATTRIBUTES", "process.pid=7,host.name=here"),))

    assert identify(info, {"host.name": "here"}).cuts == ()


def test_what_the_operator_says_of_the_host_goes_before_what_a_process_says() -> None:
    info = ProcessInfo(7, variables=(("OTEL_RESOURCE_ATTRIBUTES", "k8s.node.name=b,k8s.namespace.name=b"),))

    found = dict(identify(info, {}, {"k8s.node.name": "a", "host.name": "told"}).resource.attributes)

    assert (found["k8s.node.name"], found["host.name"], found["k8s.namespace.name"]) == ("a", "told", "b")


def test_a_process_that_is_gone_has_a_name_all_the_same(who: Who, info_of: Callable[[int], ProcessInfo]) -> None:
    assert who(1 << 22)["service.name"] == "unknown_service"
    assert info_of(1 << 22).unread is Unread.ENDED


def of_list(text: str) -> tuple[dict[str, object], dict[Cut, int]]:
    found = identify(ProcessInfo(7, comm="x", variables=(("OTEL_RESOURCE_ATTRIBUTES", text),)), {})
    own = {k: v for k, v in found.resource.attributes if not k.startswith(("process.", "service."))}
    return own, dict(found.cuts)


@pytest.mark.parametrize(
    ("text", "kept", "cuts"),
    [
        (",".join(f"k{n}=v" for n in range(100)), MAX_ATTRIBUTES, {Cut.TOO_MANY: 36}),
        (",".join(f"k{n}=v" for n in range(50_000)), MAX_ATTRIBUTES, {Cut.TOO_MANY: 49_936}),
        (",".join(f"k{n}={'v' * 250}" for n in range(20)), 16, {Cut.TOO_MANY: 4}),
        ("k=" + "v" * 100_000, 1, {Cut.SHORTENED: 1}),
        ("k=" + "%F0%9F%98%80" * 256, 1, {}),
        ("k=" + "%1b" * 100, 1, {Cut.SHORTENED: 1}),
        ("k" * 129 + "=v," + "k" * 128 + "=v", 1, {Cut.MALFORMED: 1}),
        ("1=v,a b=v,\x1b=v,ü=v,broken,=v,,k=v,", 1, {Cut.MALFORMED: 6}),
    ],
)
def test_what_a_process_says_is_limited_and_what_is_cut_is_counted(text: str, kept: int, cuts: dict[Cut, int]) -> None:
    own, counted = of_list(text)

    assert len(own) == kept
    assert counted == cuts
    assert sum(len(key) + len(str(value)) for key, value in own.items()) <= MAX_TOTAL
    assert all(len(str(value)) <= MAX_VALUE for value in own.values())


def test_a_hundred_processes_that_say_all_they_can_cost_little() -> None:
    text = ",".join(f"k{n}={'v' * 200}" for n in range(600))

    said = [of_list(text)[0] for _ in range(100)]

    assert sum(len(key) + len(str(value)) for own in said for key, value in own.items()) <= 100 * MAX_TOTAL


def test_names_of_strangers_are_escaped_and_bounded() -> None:
    hostile = "\x1b[2J\n\u202e\udcff"
    variables = (("OTEL_SERVICE_NAME", hostile), ("OTEL_RESOURCE_ATTRIBUTES", "own=%1b%5b2J%ff"))
    long = "/" + "d/" * 10_000
    info = ProcessInfo(7, 1, hostile, f"{long}{hostile}", (f"{hostile}{long}",), variables, ("junk", "::" * 9_000))

    found = dict(identify(info, {}).resource.attributes)

    assert found["service.name"] == r"\x1b[2J\n\u202e\xff"
    assert found["own"] == r"\x1b[2J\xff"
    assert found["process.executable.name"] == r"\x1b[2J\n\u202e\xff"
    assert all(value.isprintable() and len(value) <= 1024 for value in found.values() if isinstance(value, str))
    assert dict(identify(replace(info, variables=(), executable=""), {}).resource.attributes)["service.name"] == (
        r"\x1b[2J\n\u202e\xff"
    )


TEXT = st.text(st.characters(codec=None), max_size=50)


@given(TEXT, TEXT, st.lists(TEXT, max_size=5), TEXT, TEXT)
def test_any_process_makes_a_resource_that_can_be_shown(
    comm: str, executable: str, arguments: list[str], variable: str, cgroup: str
) -> None:
    variables = (("OTEL_SERVICE_NAME", variable), ("OTEL_RESOURCE_ATTRIBUTES", f"a={variable},{variable}=a"))
    info = ProcessInfo(7, 1, comm, executable, tuple(arguments), variables, (cgroup,))

    found = identify(info, host()).resource.attributes

    assert all(key.isprintable() and str(value).isprintable() for key, value in found)
    assert dict(found)["process.pid"] == 7
    assert dict(found)["service.name"]


def test_cuts_are_counted_over_all_and_said_once_a_program(caplog: pytest.LogCaptureFixture) -> None:
    identities = Identities()
    lying = ProcessInfo(7, comm="liar", variables=(("OTEL_RESOURCE_ATTRIBUTES", "host.name=a,os.type=b,x"),))

    for info in (lying, replace(lying, variables=()), replace(lying, pid=8)):
        identities.of_program(info)

    assert identities.cuts() == {Cut.RESERVED: 4, Cut.MALFORMED: 2, Cut.TOO_MANY: 0, Cut.SHORTENED: 0}
    assert [r.getMessage() for r in caplog.records] == [
        f"process {pid} (liar): some of what it says of itself (OTEL_RESOURCE_ATTRIBUTES, process "
        "context) is left out or cut: "
        "2 reserved, 1 malformed"
        for pid in (7, 8)
    ]


def test_a_host_that_starts_liars_all_the_time_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    identities = Identities()
    for pid in range(1, 1_000):
        identities.of_program(ProcessInfo(pid, variables=(("OTEL_RESOURCE_ATTRIBUTES", "host.name=a"),)))

    assert len(caplog.records) == 100
    assert caplog.messages[-1].endswith("further processes are only counted")
    assert identities.cuts()[Cut.RESERVED] == 999


def _claiming(pid: int, instance: str = "rank", start_ticks: int = 1) -> ProcessInfo:
    said = (("OTEL_RESOURCE_ATTRIBUTES", f"service.name=trainer,service.instance.id={instance}"),)
    return ProcessInfo(pid, start_ticks=start_ticks, variables=said)


def _instance(resource: Resource) -> object:
    return dict(resource.attributes)["service.instance.id"]


def test_processes_that_report_one_instance_have_each_their_own() -> None:
    identities = Identities()
    first, second = map(identities.of_program, (_claiming(7), _claiming(8)))
    nested = identities.of_program(_claiming(9, "rank/8"))
    elsewhere = identities.of_program(replace(_claiming(10), variables=(("OTEL_SERVICE_NAME", "trainer"),)))
    copied = identities.of_program(_claiming(11, str(_instance(elsewhere))))

    assert [_instance(one) for one in (first, second, nested)] == ["rank", "rank/8", "rank/8/9"]
    assert _instance(copied) == f"{_instance(elsewhere)}/11"


def test_an_instance_is_free_again_once_its_series_have_ended() -> None:
    identities = Identities()
    first, second = map(identities.of_program, (_claiming(7), _claiming(8)))

    assert _instance(identities.of_program(_claiming(9))) == "rank/9"
    identities.forget(first)
    later = identities.of_program(_claiming(10))
    assert _instance(later) == "rank"
    identities.forget(first)  # which holds it no longer
    assert _instance(identities.of_program(_claiming(12))) == "rank/12"
    assert _instance(second) == "rank/8"


def test_a_process_keeps_its_instance_over_an_exec() -> None:
    identities = Identities()
    shell, program = map(identities.of_program, (_claiming(7), replace(_claiming(7), comm="python3")))
    assert _instance(shell) == _instance(program) == "rank"

    identities.forget(shell)

    assert _instance(identities.of_program(_claiming(8))) == "rank/8"


@pytest.mark.parametrize(
    ("executable", "arguments", "name"),
    [
        ("/opt/app/server", ["./server", "--port", "1"], "server"),
        ("/usr/bin/python3.11", ["python3", "/srv/train.py", "--lr", "1"], "train"),
        ("/usr/bin/python3.13t", ["python3.13t", "-u", "-X", "dev", "-W", "error", "app.py"], "app"),
        ("/usr/bin/python3", ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "x"], "vllm.entrypoints.openai.api_server"),
        ("/usr/bin/python3", ["python3", "-c", "print(1)"], "python3"),
        ("/usr/bin/python3", ["python3", "-Ic", "print(1)", "x.py"], "python3"),
        ("/usr/bin/python3", ["python3", "-Wd", "-X", "dev", "-uc", "print(1)"], "python3"),
        ("/usr/bin/python3", ["python3", "-Wcm", "-um", "http.server"], "http.server"),
        ("/usr/bin/python3", ["python3", "-", "x.py"], "python3"),
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
        ("a=%zz%4", {"a": "%zz%4"}),
    ],
)
def test_resource_attributes_are_parsed(text: str, expected: dict[str, str]) -> None:
    assert of_list(text)[0] == expected


@pytest.mark.parametrize(
    ("cgroup", "container", "pod"),
    [
        (f"12:cpu:/docker/{ID}\n0::/docker/{ID}\n", ID, None),
        (f"0::/system.slice/docker-{ID}.scope\n", ID, None),
        (
            f"0::/kubepods.slice/{POD_SLICE}/cri-containerd-{ID}.scope\n",
            ID,
            POD,
        ),
        (
            f"1:name=systemd:/kubepods/besteffort/pod01234567-89ab-cdef-0123-456789abcdef/{ID}\n",
            ID,
            POD,
        ),
        ("0::/user.slice/user-0.slice\n", None, None),
        (f"0::/build-{ID}ff\n", None, None),
    ],
)
def test_containers_and_pods_are_told_by_the_cgroup(cgroup: str, container: str | None, pod: str | None) -> None:
    found = dict(identify(ProcessInfo(1, cgroups=tuple(cgroup.splitlines())), {}).resource.attributes)

    assert (found.get("container.id"), found.get("k8s.pod.uid")) == (container, pod)
