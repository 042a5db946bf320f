"""Which programs bring about every metric at once, and how does one agent observe them all?

What `test_everything_declared.py` spreads over two agents, RDMA on the stand-in of libibverbs and ports as sysfs shows them
included: everything that a dashboard or a rule can ask for is there at one time, while the programs live.
"""

from __future__ import annotations

import http.client
import itertools
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from tests.e2e import ground, liar, nccl_ranks, verbs
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.test_busy import CLOCK
from tests.e2e.test_engines import Pair, started
from tests.e2e.test_everything_declared import _FREES_LATE, _MAPS_LATE, _ask_everything
from tests.e2e.test_requests import server

TYPES = ("launch", "wait", "copy", "alloc", "inuse", "gputime", "cpu", "offcpu")
_PODS = {"OTEL_RESOURCE_ATTRIBUTES": "k8s.namespace.name=serving,k8s.pod.name=trainer-0"}
_STREAMED = b'{"model": "small", "stream": true}'
_REFUSED = 0xBAD
"""A key that the other side of a queue pair refuses."""
_PORT = {"state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)", "link_layer": "Ethernet"}
_PORT_COUNTERS = (
    *(f"counters/port_{name}" for name in ("xmit_packets", "rcv_packets", "xmit_data", "rcv_data", "xmit_wait")),
    *(f"hw_counters/{name}" for name in ("packet_seq_err", "implied_nak_seq_err", "rnr_nak_retry_err")),
    *(
        f"hw_counters/{name}"
        for name in ("local_ack_timeout_err", "roce_adp_retrans", "np_cnp_sent", "out_of_sequence")
    ),
)


@dataclass(frozen=True)
class Everything:
    """An agent, and what it observes."""

    agent: Agent
    http_port: int
    grpc_port: int
    pair: Pair
    verbs: verbs.Verbs
    pairs: Iterator[int]
    """Numbers of the queue pairs that are made from now on."""

    def go_on(self) -> None:
        """Ask servers and devices once more: what is told of requests that have ended is told of these."""
        _ask_everything(self.http_port)
        with closing(http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=DEADLINE_S)) as connection:
            connection.request("POST", "/v1/chat/completions", _STREAMED)
            connection.getresponse().read()
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            channel.unary_unary("/work.Work/Do")(b"1/3", timeout=DEADLINE_S)
        self.pair.ask(3)
        self._use_verbs()

    def _use_verbs(self) -> None:
        self.verbs.do("poll", 0, 100)
        self.verbs.do("pairs", 0, 1, 128, 0, verbs.RTS)
        self.verbs.do("post", next(self.pairs), verbs.WRITE, 2, 8, 1, 0, _REFUSED)
        self.verbs.do("poll", 0, 100)
        # One of five is under way until the next time.
        self.verbs.do("post", 0, verbs.WRITE, 5, 4096, 1, 0)
        self.verbs.do("poll", 0, 4)


class _Ports:
    """A port of an RDMA device as sysfs shows it, whose counters grow."""

    def __init__(self, sys_class: Path) -> None:
        self._port = sys_class / "infiniband" / "mlx5_0" / "ports" / "1"
        self._value = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        for name, value in _PORT.items():
            self._write(name, value)
        self._count()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            self._count()

    def _count(self) -> None:
        self._value += 1
        for name in _PORT_COUNTERS:
            self._write(name, self._value * (1000 if "packets" in name or "data" in name else 1))

    def _write(self, name: str, value: object) -> None:
        path = self._port / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


@contextmanager
def everything(directory: Path, hip_programs: Path, exporters: Mapping[str, object]) -> Iterator[Everything]:
    """Observe programs that do everything; all of their phases were run when this is entered."""
    (directory / "state").mkdir()
    control, sys_class, of_verbs = directory / "nvml", directory / "class", directory / "verbs"
    control.write_text("MOCKNVML_PCIE_TX=1000\nMOCKNVML_PCIE_RX=2000\n")
    of_verbs.mkdir()
    cuda = {"LD_LIBRARY_PATH": ground.library_path(), "MOCKCUDA_STATE": str(directory / "state")}
    hip = {"LD_LIBRARY_PATH": str(hip_programs / "rocm6"), "MOCKHIP_TRUTH": str(directory / "truth-of-hip.json")}
    with ExitStack() as running:
        running.enter_context(_Ports(sys_class))

        def start(*command: str | Path, **environment: str) -> Program:
            return running.enter_context(Program(list(command), directory, {**cuda, **_PODS, **environment}))

        programs, python, nccl = ground.part("programs"), (sys.executable, "-c"), nccl_ranks.build() / "libnccl.so.2"
        gated = [
            start(programs / "busy_mix", "--rounds", "100", **CLOCK),
            start(programs / "graph_mix", "50"),
            start(programs / "launch_storm", "--gate", "--launches", "3000", "--memory", "40", "--errors", "3"),
            start(*python, _MAPS_LATE, ground.own_driver(directory / "late") / "libcuda.so.1"),
            start(*python, _FREES_LATE, "libcuda.so.1", "cuMemAlloc_v2", "cuMemFree_v2"),
            start(*python, _FREES_LATE, "libamdhip64.so.6", "hipMalloc", "hipFree", **hip),
            start(hip_programs / "hip_calls_6", "2", "200", **hip),
            start(sys.executable, ground.PROGRAMS / "nccl_calls.py", nccl),
            start(sys.executable, ground.PROGRAMS / "nccl_waits.py", nccl),
            start(liar.built() / "hostile", "handles", "60000", LD_LIBRARY_PATH=str(liar.built())),
            start(sys.executable, ground.PROGRAMS / "steady.py", nccl),
        ]
        for program in gated:
            program.ready()
        ranks = running.enter_context(nccl_ranks.Ranks(directory, 2, 20_000, "pause_us=10000"))
        requests, port = running.enter_context(server(directory, "everything"))
        calls, grpc_port = running.enter_context(server(directory, "grpc_server"))
        pair = running.enter_context(started(directory, "--server", "threads", "--step-ms", 20, "--graphs"))
        rdma = running.enter_context(verbs.Verbs(verbs.built(of_verbs)))
        config = directory / "agent.json"
        config.write_text(json.dumps(_config(exporters)))
        pids = [*(p.pid for p in gated), *ranks.pids, requests.pid, calls.pid, pair.program.pid, pair.engine, rdma.pid]
        arguments = ["--config", config, *(word for pid in pids for word in ("--pid", str(pid)))]
        # What the agent takes for sysfs is ours, for it and nobody else.
        within = ["unshare", "--mount", "sh", "-c", f'mount --bind "{sys_class}" /sys/class && exec "$@"', "sh"]
        environment = {**cuda, "MOCKNVML_CONTROL": str(control)}
        agent = running.enter_context(Agent(arguments, directory, environment, within=within))
        # Everything at once is a lot for a busy host.
        agent.wait_attached(2 * DEADLINE_S)
        agent.wait_for(r"attached \d\d probes to .*libnccl", 2 * DEADLINE_S)
        rdma.do("open", 2)
        _use_verbs(rdma)
        for program in gated:
            program.run_phase()
        ranks.make()
        # They go on meeting for as long as this takes.
        ranks.program.go()
        yield Everything(agent, port, grpc_port, pair, rdma, itertools.count(1))


def _use_verbs(program: verbs.Verbs) -> None:
    """Do what a queue pair and memory can be used for."""
    program.do("pairs", 0, 1, 128, 0, verbs.RTS)
    program.do("deliver", 0, 777, 1)
    program.do("poll", 0, 1)
    program.do("receive", 0)
    program.do("event", 1)
    program.do("register", 4096, 0)


def _config(exporters: Mapping[str, object]) -> dict[str, object]:
    return {
        "receivers": {
            **{name: {} for name in ("cuda", "nccl", "nvml", "self", "inference")},
            "profile": {"types": list(TYPES)},
            "rdma": {"processes": "all"},
        },
        "processors": {"kernel_names": {}},
        "exporters": exporters,
        "service": {
            "interval": "1s",
            "pipelines": {
                "metrics": {
                    "receivers": ["cuda", "inference", "nccl", "nvml", "rdma", "self"],
                    "processors": ["kernel_names"],
                    "exporters": list(exporters),
                },
                "traces": {"receivers": ["inference"], "exporters": [next(iter(exporters))]},
                "profiles": {"receivers": ["profile"], "exporters": [next(iter(exporters))]},
            },
        },
    }
