"""Is everything that is declared emitted? One agent over programs that do all that is counted, one that follows requests.

Hardware is the stand-ins of the driver, of NVML and of HIP: there is no metric that needs more. One that could not be had
from them would stand in `NEEDS_HARDWARE`, with the reason.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import grpc
import pytest

from otel_gpu.discovery.kubernetes import metrics as pod_metrics
from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.service import telemetry
from otel_gpu.signals import telemetry_spans
from otel_gpu.signals.metrics import OVERFLOW
from otel_gpu.signals.profiles import CHOICES, PROFILE_TYPES
from otel_gpu.signals.spans import Span
from tests.e2e import ground, liar, nccl_ranks, test_callbacks, test_torch_profiles, verbs
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.test_busy import CLOCK
from tests.e2e.test_engines import started
from tests.e2e.test_hip import built  # noqa: F401
from tests.e2e.test_requests import server
from tests.span_reading import read_spans

NEEDS_HARDWARE: dict[str, str] = {}
"""Metrics that no stand-in gives, and why; one in here that is emitted all the same fails the test too."""
OF_REQUESTS = {spec.name for spec in telemetry.GROUPS["Requests"]}
"""Metrics that the other agent emits."""
NEEDS_A_HANG = {"nccl.in_flight"}
"""Attributes of calls that do not come back: `tests/e2e/test_stragglers.py` shows them."""
OF_RDMA = {spec.name for spec in telemetry.GROUPS["RDMA"]}
"""Metrics that the agent over verbs emits."""
NEEDS_PORTS = {name for name in OF_RDMA if name.startswith("rdma.port.")}
"""Metrics that only a host with RDMA devices has: `tests/soft_roce/check.py` and `tests/unit/test_rdma_ports.py` show them."""
OF_PODS = {spec.name for spec in (*pod_metrics.SPECS, *pod_metrics.SELF_SPECS)}
"""Metrics of what only an API server knows: `test_kubernetes.py` shows them."""
OF_APPLICATIONS = {telemetry_spans.GPU_REQUEST.name}
"""Spans below those that a program's own tracing makes: `test_sdk_context.py` shows them."""
OF_JOBS = {telemetry_spans.NCCL_COLLECTIVE.name}
"""Spans that the agent emits which has all other receivers."""
NEEDS_PYTORCH = {t.name for t in test_torch_profiles.TYPES}
"""Types of profiles that tests record which are run where PyTorch is (`make test-torch`)."""
OF_RECORDINGS = ("peak", "leak")
"""Choices that are about one recording as a whole; tests/e2e/test_record.py records them."""
_TYPES = [choice for choice in CHOICES if choice not in ("tensor", *OF_RECORDINGS)]
_COUNTERS, _RATE = "MOCKNVML_PCIE_TX=1000\nMOCKNVML_PCIE_RX=2000\n", "MOCKNVML_PCIE_RATE=3000\n"
"""What a GPU knows of its link: bytes, or if it does not count them how many there are a second."""

_CONFIG = """
receivers: {{cuda: {{}}, nccl: {{}}, nvml: {{}}, self: {{}}, profile: {{types: [{types}]}}}}
processors: {{kernel_names: {{top: 0}}}}
exporters: {{file: {{path: {out}}}}}
service:
  interval: 300ms
  pipelines:
    metrics: {{receivers: [cuda, nccl, nvml, self], exporters: [file]}}
    profiles: {{receivers: [profile], exporters: [file]}}
    traces: {{receivers: [nccl], exporters: [file]}}
"""

_OF_REQUESTS_CONFIG = """
receivers: {{cuda: {{}}, inference: {{max_children: 4}}}}
exporters: {{file: {{path: {out}}}}}
service:
  interval: 300ms
  pipelines:
    metrics: {{receivers: [cuda, inference], exporters: [file]}}
    traces: {{receivers: [inference], exporters: [file]}}
"""
_WORK = ("launch", "graph", "launch+graph+wait", "h2d", "d2h", "d2d", "wait", "launch+wait+launch+wait+h2d+d2h+d2d")
_CLIENTS, _TOKENS, _STEP_MS = 150, 10, 300
"""More requests at once than a span has links, each of as many steps as it takes until all of them are there."""

_MAPS_LATE = """
import ctypes, sys
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
cu = ctypes.CDLL(sys.argv[1])
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert not cu.cuInit(0) and not cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
assert not cu.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
print('{"event": "phase"}', flush=True)
sys.stdin.readline()
"""
"""Maps a driver that nobody has probed while the agent looks on."""

_FREES_LATE = """
import ctypes, sys
library, allocate, free = sys.argv[1:]
gpu = ctypes.CDLL(library)
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
if "cuda" in library:
    assert not gpu.cuInit(0) and not gpu.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
assert not gpu[allocate](ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
assert not gpu[free](pointer)
assert not gpu[allocate](ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
print('{"event": "phase"}', flush=True)
sys.stdin.readline()
"""
"""Frees what it had before the agent was there, and holds as much anew."""


_LAUNCHES_A_GRAPH_LATE = """
import ctypes, sys
cu = ctypes.CDLL("libcuda.so.1")
context, graph, made = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert not cu.cuInit(0) and not cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
assert not cu.cuGraphCreate(ctypes.byref(graph), 0)
assert not cu.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_uint64(0))
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
assert not any(cu.cuGraphLaunch(made, None) for _ in range(7))
print('{"event": "phase"}', flush=True)
sys.stdin.readline()
"""
"""Launches a graph that it made before the agent was there."""


@pytest.fixture(scope="module")
def out(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """Return what an agent wrote of programs that do everything."""
    directory = tmp_path_factory.mktemp("everything")
    (directory / "state").mkdir()
    control = directory / "nvml"
    control.write_text(_COUNTERS)
    cuda = {"LD_LIBRARY_PATH": ground.library_path(), "MOCKCUDA_STATE": str(directory / "state")}
    hip = {"LD_LIBRARY_PATH": str(built / "rocm6"), "MOCKHIP_TRUTH": str(directory / "truth-of-hip.json")}
    (directory / "agent.yaml").write_text(_CONFIG.format(types=", ".join(_TYPES), out=directory / "out"))
    with ExitStack() as running:

        def start(*command: str | Path, **environment: str) -> Program:
            return running.enter_context(Program(list(command), directory, {**cuda, **environment}))

        programs, python = ground.part("programs"), (sys.executable, "-c")
        gated = [
            start(programs / "busy_mix", "--rounds", "100", **CLOCK),
            start(programs / "graph_mix", "50"),
            start(
                programs / "launch_storm", "--gate", "--launches", "3000", "--memory", "40", "--errors", "3",
                OTEL_RESOURCE_ATTRIBUTES="host.name=elsewhere",
            ),
            start(*python, _MAPS_LATE, ground.own_driver(directory / "late") / "libcuda.so.1"),
            start(*python, _FREES_LATE, "libcuda.so.1", "cuMemAlloc_v2", "cuMemFree_v2"),
            start(*python, _FREES_LATE, "libamdhip64.so.6", "hipMalloc", "hipFree", **hip),
            start(*python, _LAUNCHES_A_GRAPH_LATE),
            start(built / "hip_calls_6", "2", "200", **hip),
            start(sys.executable, ground.PROGRAMS / "nccl_calls.py", nccl_ranks.build() / "libnccl.so.2"),
            start(sys.executable, ground.PROGRAMS / "nccl_waits.py", nccl_ranks.build() / "libnccl.so.2"),
            start(liar.built() / "hostile", "handles", "60000", LD_LIBRARY_PATH=str(liar.built())),
        ]  # fmt: skip
        for program in gated:
            program.ready()
        arguments = ["--config", directory / "agent.yaml", *(w for p in gated for w in ("--pid", str(p.pid)))]
        with Agent(arguments, directory, {**cuda, "MOCKNVML_CONTROL": str(control)}) as agent:
            agent.wait_attached()
            agent.wait_for(r"attached \d\d probes to .*libnccl")
            for program in gated:
                program.run_phase()
            _wait_for(directory / "out", "hw.gpu.io", "gpu.cuda.memory.untracked")
            control.write_text(_RATE)
            _wait_for(directory / "out", "gpu.nvml.io.rate")
            agent.stop()
    return directory / "out"


def _wait_for(out: Path, *metrics: str) -> None:
    """Wait until these are there, as long as it is sensible; what is missing then the tests say."""
    deadline = time.monotonic() + DEADLINE_S
    while not set(metrics) <= {s.name for s in read_metrics(out).samples} and time.monotonic() < deadline:
        time.sleep(0.2)


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what an agent wrote of servers whose requests are all that there are, until nothing new is to be expected."""
    directory = tmp_path_factory.mktemp("requests")
    (directory / "agent.yaml").write_text(_OF_REQUESTS_CONFIG.format(out=directory / "out"))
    out = directory / "out"
    with (
        server(directory, "everything") as (program, port),
        server(directory, "grpc_server") as (called, grpc_port),
        started(directory, "--server", "threads", "--batch", _CLIENTS, "--step-ms", _STEP_MS, "--graphs") as pair,
        Program(
            [test_callbacks.built(directory / "ros2") / "callbacks", "1", "1", "everything"], directory
        ) as callbacks,
    ):
        callbacks.ready()
        pids = program.pid, called.pid, pair.program.pid, pair.engine, callbacks.pid
        arguments = ["--config", directory / "agent.yaml", *(w for pid in pids for w in ("--pid", str(pid)))]
        with Agent(arguments, directory) as agent:
            agent.wait_attached()
            deadline = time.monotonic() + 2 * DEADLINE_S
            # Some requests go by before the servers are followed; what is missing after a while the tests say.
            while (missing := _missing(read_spans(out)) | _missing_metrics(out)) and time.monotonic() < deadline:
                _ask_everything(port)
                _call_everything(grpc_port)
                callbacks.go()
                if any(name == "gpu step" for name, _ in missing):
                    with ThreadPoolExecutor(_CLIENTS) as clients:
                        list(clients.map(pair.ask, [_TOKENS] * _CLIENTS))
                time.sleep(0.3)
            agent.stop()
    return out


def _ask_everything(port: int) -> None:
    # A connection that begins with a method nobody knows is not taken for HTTP.
    asked = [[("GET", f"/work/{what}", None)] for what in _WORK]
    asked += [[("GET", "/fails/at/once", None), ("BREW", "/pot/1", None)]]
    asked += [[("POST", "/v1/chat/completions", b'{"model": "small"}')]]
    for of_connection in asked:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)) as connection:
            for method, path, body in of_connection:
                connection.request(method, path, body)
                connection.getresponse().read()
    post = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(post + b"Content-Length: 100\r\n\r\nhalf")
    # Of two lengths nobody knows which one holds.
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        connection.sendall(post + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r")
        connection.recv(1024)


def _call_everything(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for number, method in enumerate(("Do", "NobodyHasIt")):
            with suppress(grpc.RpcError):
                channel.unary_unary(f"/work.Work/{method}")(f"{number}/1".encode(), timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def of_verbs(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the names of what an agent measures of programs that do with verbs all that is counted."""
    where = verbs.built(tmp_path_factory.mktemp("verbs"))
    with verbs.Verbs(where) as late, verbs.Verbs(where) as fresh:
        late.do("open", 1)
        late.do("pairs", 0, 1, 128, 0, verbs.RTS)
        late.do("post", 0, verbs.WRITE, 5, 100, 1, 0)
        with verbs.observing(tmp_path_factory.mktemp("out"), late, fresh) as observed:
            observed.until_placed(late, fresh)
            fresh.do("open", 1)
            observed.until_followed(late, fresh)
            fresh.do("pairs", 0, 2, 128, 0, verbs.RTS)
            fresh.do("post", 1, verbs.WRITE, 3, 8, 1, 0)
            assert fresh.do("poll", 0, 3) == 3
            for size, how in ((4096, 0), (0, 0)):
                fresh.do("register", size, how)
            fresh.do("receive", 0)
            fresh.do("post", 0, verbs.WRITE, 5, 8, 1, 0, 0xBAD)
            fresh.do("event", 1)
            for program in (late, fresh):
                assert program.do("poll", 0, 100) == 5
            fresh.do("post", 1, verbs.WRITE, 1, 8, 1, 0)
            observed.until(fresh.pid, lambda p: p.total("rdma.completion.errors") == 5)
            observed.until(late.pid, lambda p: p.total("rdma.probe.unmatched") == 5)
            return {p.name for program in (late, fresh) for p in observed.points(program.pid).all}


def test_every_metric_of_rdma_is_emitted(of_verbs: set[str]) -> None:
    assert OF_RDMA - of_verbs == NEEDS_PORTS


def _missing(spans: list[Span]) -> set[tuple[str, str]]:
    """Return what is declared of spans and not there, by the span's name and the attribute's."""
    found = {
        (spec.name, key)
        for s in spans
        if (spec := telemetry_spans.specification(s)) is not None
        for key, _ in s.attributes
    }
    declared = {(spec.name, attribute) for spec in telemetry_spans.SPANS for attribute in spec.attributes}
    return {(name, key) for name, key in declared - found if name not in OF_APPLICATIONS | OF_JOBS}


def _missing_metrics(out: Path) -> set[tuple[str, str]]:
    emitted = {sample.name for sample in read_metrics(out).samples}
    return {(name, "") for name in OF_REQUESTS - emitted}


def test_every_span_is_emitted_with_every_attribute(requests: Path) -> None:
    spans = read_spans(requests)

    wanted = {s.name for s in telemetry_spans.SPANS} - OF_APPLICATIONS - OF_JOBS
    assert {spec.name for span in spans if (spec := telemetry_spans.specification(span)) is not None} == wanted
    assert _missing(spans) == set()


def test_every_attribute_of_collectives_is_emitted(out: Path) -> None:
    found = {key for span in read_spans(out) for key, _ in span.attributes}

    assert found | NEEDS_A_HANG == set(telemetry_spans.NCCL_COLLECTIVE.attributes)


def test_no_span_and_no_attribute_is_emitted_that_is_not_declared(out: Path, requests: Path) -> None:
    spans = read_spans(requests) + read_spans(out)

    more = {
        s.name: {*dict(s.attributes)}
        - {*(spec.attributes if (spec := telemetry_spans.specification(s)) is not None else ())}
        for s in spans
    }
    assert {name: of for name, of in more.items() if of} == {}
    assert [span for span in spans if telemetry_spans.declaration(span) is None] == []
    values = {(key, value) for span in spans for key, value in span.attributes}
    declared = {a.name: a.values for a in telemetry_spans.ATTRIBUTES if a.values}
    assert {(key, value) for key, value in values if key in declared and value not in declared[key]} == set()


def test_every_metric_of_requests_is_emitted(requests: Path) -> None:
    assert _missing_metrics(requests) == set()


def test_every_metric_is_emitted(out: Path) -> None:
    emitted = {sample.name for sample in read_metrics(out).samples}

    assert set(telemetry.ALL) - emitted == set(NEEDS_HARDWARE) | OF_REQUESTS | OF_RDMA | OF_PODS


def test_every_metric_has_only_attributes_that_are_declared(out: Path, requests: Path) -> None:
    found: dict[str, set[str]] = {}
    for sample in (*read_metrics(out).samples, *read_metrics(requests).samples):
        found.setdefault(sample.name, set()).update(sample.attributes)

    overflow = {name for name, _ in OVERFLOW}
    more = {name: of - {*telemetry.ALL[name].attributes} - overflow for name, of in found.items()}
    assert {name: of for name, of in more.items() if of} == {}


def test_every_profile_type_is_emitted(out: Path) -> None:
    emitted = {profile.type.name for profile in read_profiles(out / "profiles.jsonl")}

    of_recordings = {t.name for choice in OF_RECORDINGS for t in CHOICES[choice]}
    assert set(PROFILE_TYPES) - emitted <= NEEDS_PYTORCH | of_recordings
    assert {t.name for choice in _TYPES for t in CHOICES[choice]} <= emitted


def test_every_resource_is_an_instance_of_a_service(out: Path, requests: Path) -> None:
    files = [file for directory in (out, requests) for file in directory.glob("*.jsonl")]
    resources = [
        {one["key"]: one["value"].get("stringValue") for one in of_resource["resource"]["attributes"]}
        for file in files
        for line in file.read_text().splitlines()
        for key, of_resources in json.loads(line).items()
        if key.startswith("resource")
        for of_resource in of_resources
    ]

    assert {file.stem for file in files} == {"metrics", "traces", "profiles"}
    assert {"otel-gpu", "otel-gpu-hardware"} <= {resource.get("service.name") for resource in resources}
    assert [r for r in resources if not r.get("service.name") or not r.get("service.instance.id")] == []
    instances = {(r["service.instance.id"], r.get("service.name")) for r in resources}
    assert len(instances) == len({instance for instance, _ in instances}), "an instance has two names"
