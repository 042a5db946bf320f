"""What is made of what Kubernetes says of pods, also where it makes no sense, and by which pod is a process known?"""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.discovery.containers import container_id, pod_uid
from otel_gpu.discovery.kubernetes.access import Access, read_token
from otel_gpu.discovery.kubernetes.connection import Connections, RefusedError, UnreachableError
from otel_gpu.discovery.kubernetes.objects import PodObject, pod_of
from otel_gpu.discovery.kubernetes.pod import Pod
from otel_gpu.discovery.kubernetes.pods import Pods
from otel_gpu.discovery.kubernetes.settings import KubernetesSettings
from otel_gpu.discovery.kubernetes.table import PodTable
from otel_gpu.discovery.kubernetes.watch import Outcome, PodWatch, Waits
from otel_gpu.discovery.process_devices import DeviceTable
from otel_gpu.discovery.process_info import ProcessInfo
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.discovery.resource import Identities, identify
from otel_gpu.discovery.selection import Rule, Selection
from otel_gpu.errors import ConfigError, OtelGpuError
from otel_gpu.exporters.prometheus.families import Families
from otel_gpu.processors.kubernetes.processor import PodAttributes
from otel_gpu.processors.kubernetes.settings import Extract, Field
from otel_gpu.receivers.kubernetes.receiver import PodGpus
from otel_gpu.runtime.supervision import Component
from otel_gpu.service.lifetimes import Lifetimes
from otel_gpu.signals.cuda import KERNEL_LAUNCH_CALLS, MEMORY_USAGE
from otel_gpu.signals.metrics import Measurement, Resource, SeriesStore, attributes
from otel_gpu.signals.profiles import GPU_LAUNCHES, Frame, FrameKind, ProfileBuilder
from otel_gpu.signals.spans import Span, SpanContext
from tests.unit.graphs import one_pipeline
from tests.unit.test_pipeline import Sink, Source

UID, OTHER = "01234567-89ab-cdef-0123-456789abcdef", "11111111-89ab-cdef-0123-456789abcdef"
ID, INNER = "a" * 64, "b" * 64
POD = Pod(UID, UID, "web-1", "shop", "node-a", containers={ID: "main"})


def _pod(**parts: Mapping[str, object]) -> Pod | None:
    metadata = {"name": "web-1", "namespace": "shop", "uid": UID, **parts.pop("metadata", {})}
    return pod_of(msgspec.json.decode(json.dumps({"metadata": metadata, **parts}), type=PodObject))


def _gpus(count: object, restart: str | None = None) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": {"nvidia.com/gpu": count, "cpu": "1"}}, "restartPolicy": restart}


@pytest.mark.parametrize(
    ("containers", "before", "needed"),
    [
        ([_gpus("1"), _gpus("2")], [], 3),
        ([_gpus("1")], [_gpus("4"), _gpus("2")], 4),
        ([_gpus("1")], [_gpus("2", "Always"), _gpus("3")], 5),
        ([_gpus("1")], [_gpus("3"), _gpus("2", "Always")], 3),
        ([_gpus("1k")], [], 1000),
        ([_gpus("one"), _gpus("-1"), _gpus("1.5")], [], 0),
    ],
)
def test_gpus_are_reckoned_as_the_scheduler_does(containers: list[object], before: list[object], needed: int) -> None:
    pod = _pod(spec={"containers": containers, "initContainers": before})

    assert sum(pod.requests.values()) == needed
    assert not pod.requests.keys() - {"nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("amd.com/gpu", True),
        ("nvidia.com/hostdev", False),
        ("evil.nvidia.com/gpu", False),
        ("cpu", False),
        ("nvidia.com/gpu\n", False),
    ],
)
def test_resources_that_are_gpus_are_told_by_their_names(name: str, is_one: bool) -> None:
    pod = _pod(spec={"containers": [{"resources": {"limits": {name: "1"}}}]})

    assert bool(pod.limits) is is_one


@pytest.mark.parametrize(
    ("kind", "name", "labels", "created", "said"),
    [
        ("ReplicaSet", "a-b-77", {"pod-template-hash": "77"}, None, {"replicaset": "a-b-77", "deployment": "a-b"}),
        ("ReplicaSet", "a-b-77", {}, None, {"replicaset": "a-b-77"}),
        ("ReplicaSet", "77", {"pod-template-hash": "77"}, None, {"replicaset": "77"}),
        ("Job", "nightly-29406240", {}, "2025-11-29T00:00:07Z", {"job": "nightly-29406240", "cronjob": "nightly"}),
        ("Job", "import-20251129", {}, "2025-11-29T00:00:07Z", {"job": "import-20251129"}),
        ("Job", "nightly-29406240", {}, "yesterday", {"job": "nightly-29406240"}),
        ("StatefulSet", "db", {}, None, {"statefulset": "db"}),
        ("Elsewhere", "db", {}, None, {}),
        ("DaemonSet", "UPPER\n", {}, None, {}),
    ],
)
def test_owners_are_named_as_the_conventions_do(kind, name, labels, created, said) -> None:
    owner = {"kind": kind, "name": name, "uid": OTHER, "controller": True}
    metadata = {"ownerReferences": [{**owner, "controller": False, "name": "not"}, owner]}
    pod = _pod(metadata={**metadata, "labels": labels, "creationTimestamp": created})

    assert {key: value for key, value in pod.owners if key.endswith(".name")} == {
        f"k8s.{key}.name": value for key, value in said.items()
    }


@pytest.mark.parametrize(
    "metadata", [{"uid": "x"}, {"name": ""}, {"name": "a/../b"}, {"namespace": "A"}, {"name": "n" * 254}]
)
def test_what_cannot_be_a_pod_is_none(metadata: dict[str, str]) -> None:
    assert _pod(metadata=metadata) is None


def test_keys_of_labels_are_kept_whole_at_their_longest() -> None:
    keys = [f"{'p' * 253}/{'n' * 62}{last}" for last in "ab"]
    table = PodTable()
    table.put(replace(_pod(metadata={"labels": dict.fromkeys(keys, "v" * 63)}), containers={ID: "main"}))
    found = PodAttributes(table, Extract(labels=(Field(keys[1], "chosen"),))).resource(_process())

    assert _said(found)["chosen"] == "v" * 63


@given(st.dictionaries(st.text(), st.text(), max_size=300), st.text())
def test_texts_are_printable_and_bounded(labels: dict[str, str], phase: str) -> None:
    pod = _pod(metadata={"labels": labels, "annotations": labels}, status={"phase": phase})

    assert len(pod.labels) <= 128
    for text in (*pod.labels, *pod.labels.values(), *pod.annotations.values(), pod.node):
        assert len(text) <= 317
        assert text.isprintable()
    assert all(len(text) <= 256 for text in (*pod.labels.values(), *pod.annotations.values()))


@pytest.mark.parametrize(
    ("path", "pod", "container"),
    [
        (f"/kubepods/burstable/pod{UID}/{ID}", UID, ID),
        (f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope/container", UID, ID),
        (f"/kubelet.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope", UID, ID),
        (
            f"/system.slice/containerd.service/kubepods-besteffort-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}",
            UID,
            ID,
        ),
        (f"/kubepods/pod{UID}/{ID}/kubepods/pod{OTHER}/{INNER}", UID, ID),
        (f"/docker/{INNER}/kubepods/pod{UID}/{ID}", UID, ID),
        (f"/docker/{ID}/docker/{INNER}", None, INNER),
        (f"/../../podd{UID}/{ID}", None, ID),
        (f"/../../pod{UID}/{ID}", UID, ID),
        (f"/kubepods/pod{'0123456789abcdef' * 2}/{ID}", "0123456789abcdef" * 2, ID),
        (
            f"/user.slice/user-1000.slice/user@1000.service/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope",
            None,
            ID,
        ),
        (f"/kubepods/pod{UID}x/{ID}", None, ID),
    ],
)
def test_the_outermost_pod_and_its_container_count(path: str, pod: str | None, container: str) -> None:
    assert (pod_uid([f"0::{path}"]), container_id([f"0::{path}"])) == (pod, container)


@pytest.mark.parametrize(("path", "said"), [("/", None), (f"/docker/{ID}", None), (f"/../{ID}", UID)])
def test_who_is_seen_to_be_in_no_pod_cannot_claim_one(path: str, said: str | None) -> None:
    info = ProcessInfo(7, cgroups=(f"0::{path}",), variables=(("OTEL_RESOURCE_ATTRIBUTES", f"k8s.pod.uid={UID}"),))

    assert dict(identify(info, {}).resource.attributes).get("k8s.pod.uid") == said


def _process(**more: str) -> Resource:
    return Resource(attributes({"process.pid": 7, "k8s.pod.uid": UID, "container.id": ID, **more}))


def _said(resource: Resource) -> dict[str, object]:
    return {key: value for key, value in resource.attributes if key not in ("process.pid", "container.id")}


class TestProcessor:
    def test_a_process_has_its_pod_and_keeps_it(self) -> None:
        table = PodTable()
        table.put(replace(POD, labels={"team": "a", "x/y": "b"}))
        processor = PodAttributes(table, Extract(labels=(Field("x/*"), Field("team", "team"))))
        lies = {
            "k8s.pod.name": "lie",
            "k8s_namespace_name": "lie",
            "k8s.pod.label.other": "lie",
            "k8s.cluster.name": "c",
        }
        found = processor.resource(_process(**lies))

        assert _said(found) == {
            "k8s.cluster.name": "c",
            "k8s.container.name": "main",
            "k8s.namespace.name": "shop",
            "k8s.node.name": "node-a",
            "k8s.pod.label.x/y": "b",
            "k8s.pod.name": "web-1",
            "k8s.pod.uid": UID,
            "team": "a",
        }
        table.put(replace(POD, labels={"team": "other"}))
        table.replace([])
        assert processor.learnt() == ()
        assert processor.resource(_process(**lies)) == found

    @pytest.mark.parametrize("containers", [{INNER: "another"}, {}])
    def test_a_container_that_is_not_the_pods_is_not_named(self, containers: dict[str, str]) -> None:
        table = PodTable()
        table.put(replace(POD, containers=containers))
        found = _said(PodAttributes(table, Extract()).resource(_process()))

        assert "k8s.container.name" not in found
        # Of a pod whose containers are known, this is none.
        assert ("k8s.pod.name" in found) is not bool(containers)

    @pytest.mark.parametrize("containers", [{ID: "main"}, {}])
    def test_who_says_itself_that_this_is_its_pod_is_not_named(self, containers: dict[str, str]) -> None:
        table = PodTable()
        table.put(replace(POD, containers=containers))
        claims = Resource(attributes({"process.pid": 7, "k8s.pod.uid": UID}))

        assert PodAttributes(table, Extract()).resource(claims) == claims

    def test_spans_and_profiles_are_of_their_pods_and_profiles_that_become_one_add_up(self) -> None:
        table = PodTable()
        table.put(POD)
        mine, elsewhere = _process(), Resource(attributes({"process.pid": 8, "k8s.pod.name": "lie"}))
        processor = PodAttributes(table, Extract(), remembers=False)
        spans = processor.spans([Span(of, "s", SpanContext(b"t" * 16, b"s" * 8), 1, 2) for of in (mine, elsewhere)])
        assert [_said(span.resource).get("k8s.pod.name") for span in spans] == ["web-1", None]
        assert [span.name for span in spans] == ["s", "s"]

        built = []
        # One that says of itself where it is, and after an exec no more: it is one process.
        for of, count in ((mine, 3), (_process(**{"k8s.pod.name": "lie"}), 4), (elsewhere, 5)):
            builder = ProfileBuilder(GPU_LAUNCHES, of, 1)
            builder.add((Frame(FrameKind.CUDA, "k"),), count)
            built.append(builder.build(5))
        totals = {_said(p.resource).get("k8s.pod.name"): p.total for p in processor.profiles(built)}
        assert totals == {"web-1": 7, None: 5}
        # Nothing is kept of them: whatever comes next is asked anew.
        table.put(replace(POD, name="renamed"))
        assert _said(processor.resource(mine))["k8s.pod.name"] == "renamed"
        assert processor.learnt() == ()

    def test_who_is_in_no_pod_says_nothing_of_pods(self) -> None:
        said = {"process.pid": 7, "k8s.pod.name": "lie", "k8s.deployment.name": "lie", "k8s.cluster.name": "c"}
        found = PodAttributes(PodTable(), Extract()).resource(Resource(attributes(said)))

        assert _said(found) == {"k8s.cluster.name": "c"}

    def test_what_is_learnt_later_begins_another_series(self) -> None:
        table, process = PodTable(), _process()
        processor = PodAttributes(table, Extract())
        lifetimes = Lifetimes([processor], Component("processors"))
        lifetimes.note([process])
        before = processor.resource(process)
        lifetimes.learn()
        assert lifetimes.over() == []

        table.put(POD)
        lifetimes.learn()
        after = processor.resource(process)
        assert after != before == process
        assert lifetimes.over() == [before]
        lifetimes.note([process])
        lifetimes.learn()
        assert (lifetimes.over(), list(lifetimes.forget())) == ([], [])
        lifetimes.end(process)
        assert lifetimes.over() == [after]
        assert list(lifetimes.forget()) == [(processor, process)]
        (measured,) = processor.metrics([Measurement(process, KERNEL_LAUNCH_CALLS, (), 1)])
        assert measured.resource == after

    def test_what_a_process_holds_goes_with_it_when_more_is_learnt_of_it(self) -> None:
        table, process, sink = PodTable(), _process(), Sink()
        measured = [[Measurement(process, MEMORY_USAGE, (), n)] for n in (100, -30)]
        graph = one_pipeline({"source": Source(*measured, [])}, [PodAttributes(table, Extract())], [sink])  # type: ignore[dict-item]
        for prepare in (lambda: None, lambda: table.put(POD), lambda: None):
            prepare()
            assert graph.collect()
            graph.export()

        held = [{resource: value for (resource, _), value in export.items()} for export in sink.exports]
        after = PodAttributes(table, Extract()).resource(process)
        assert held == [{process: 100}, {process: 0, after: 70}, {after: 70}]


class TestTable:
    def test_it_is_bounded_and_says_what_it_refused(self) -> None:
        table = PodTable(max_pods=3, max_deleted=2)
        pods = [replace(POD, uid=f"{n}", cgroup_uid=f"{n}") for n in range(5)]
        for pod in pods:
            table.put(pod)
        assert (table.sizes, table.refused) == ((3, 0), 2)
        table.replace([])
        assert table.sizes == (0, 2)
        assert table.find("0") is None

    def test_a_deleted_pod_that_is_asked_for_stays_longest(self) -> None:
        table = PodTable(max_deleted=2)
        pods = [replace(POD, uid=f"{n}", cgroup_uid=f"{n}") for n in range(3)]
        for pod in pods[:2]:
            table.put(pod)
            table.delete(pod)
        assert table.find("0") == pods[0]
        table.put(pods[2])
        table.delete(pods[2])
        assert table.find("1") is None
        assert table.find("0") == pods[0]


def test_pods_of_a_host_are_apart_where_only_job_and_instance_tell() -> None:
    pods = Pods(KubernetesSettings(node="node-a", endpoint="https://127.0.0.1:1"))
    for uid in (UID, OTHER):
        pods.table.put(replace(POD, uid=uid, cgroup_uid=uid, requests={"nvidia.com/gpu": 1}))
    host = Resource(
        attributes({"service.name": "otel-gpu-hardware", "service.instance.id": "h", "host.name": "node-a"})
    )
    store = SeriesStore()
    store.fold(PodGpus(pods, host, DeviceTable(ProcessTable())).collect(), 1)
    families = Families()
    families.add(store)
    found = [one.labels for of_name in families.collect() for one in of_name.samples if one.name == "gpu_pod_request"]

    assert [(one["job"], one["instance"]) for one in found] == [
        ("otel-gpu-hardware", UID),
        ("otel-gpu-hardware", OTHER),
    ]


def test_a_pod_uses_no_gpu_because_a_process_says_that_it_is_its_own() -> None:
    processes = ProcessTable({"k8s.pod.uid": UID})
    devices = DeviceTable(processes)
    pods = Pods(KubernetesSettings(node="node-a", endpoint="https://127.0.0.1:1"))
    pods.table.put(replace(POD, requests={"nvidia.com/gpu": 1}))
    receiver = PodGpus(pods, Resource(()), devices)

    def measured() -> dict[str, float]:
        return {m.metric.name: m.value for m in receiver.collect()}

    assert measured() == {"gpu.pod.request": 1}
    processes.observe(os.getpid())
    devices.learn((), [("GPU-1", os.getpid())])
    assert measured() == {"gpu.pod.request": 1, "gpu.pod.used": 0}


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Rule(namespace="sh*"), True),
        (Rule(namespace="other"), False),
        (Rule(pod_labels={"tier": "a*"}), True),
        (Rule(pod_labels={"tier": "a*", "more": "*"}), False),
    ],
)
def test_rules_ask_for_pods(rule: Rule, says: bool) -> None:
    pod = replace(POD, labels={"tier": "ab"})
    info = ProcessInfo(7, cgroups=(f"0::/kubepods/pod{UID}/{ID}",))

    assert rule.says(info, lambda _: pod) is says
    assert rule.says(info) is None
    assert rule.says(replace(info, cgroups=("0::/",)), lambda _: pod) is False


def test_a_program_is_selected_once_its_pod_is_known() -> None:
    table = PodTable()
    identities = Identities(selection=Selection(include=[Rule(namespace="shop")]))
    identities.ask_pods(table.find)
    resource = identities.of_program(ProcessInfo(7, cgroups=(f"0::/kubepods/pod{UID}/{ID}",)))
    elsewhere = identities.of_program(ProcessInfo(8, cgroups=("0::/",)))

    assert not identities.is_selected(resource)
    table.put(POD)
    assert identities.is_selected(resource)
    table.replace([])
    assert identities.is_selected(resource)
    assert not identities.is_selected(elsewhere)
    identities.forget(resource)
    assert not identities.is_selected(resource)


@pytest.mark.parametrize(
    "endpoint", ["http://10.0.0.1:443", "ftp://x", "https://", "https://a:99999", "https://u:p@host", "https://a/b"]
)
def test_endpoints_that_cannot_be_are_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError):
        KubernetesSettings(endpoint=endpoint)


def test_the_node_has_to_be_said() -> None:
    assert KubernetesSettings().node_name({"K8S_NODE_NAME": "a"}) == "a"
    for environ in ({}, {"K8S_NODE_NAME": "a,metadata.name!=b"}):
        with pytest.raises(ConfigError, match=r"spec\.nodeName"):
            KubernetesSettings().node_name(environ)


@pytest.mark.parametrize("content", [b"", b"two words", b"line\nX-Other: 1", b"\xff\xfe"])
def test_a_token_that_is_none_is_not_sent(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(OtelGpuError, match="token_file"):
        read_token(str(tmp_path / "token"))


@contextmanager
def _server(*answers: bytes) -> Iterator[tuple[Connections, list[bytes]]]:
    """Answer so, one connection after another, whatever is asked."""
    listener, asked = socket.create_server(("127.0.0.1", 0)), []

    def serve() -> None:
        for answer in answers:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(65536))
                try:
                    connection.sendall(answer)
                except OSError:
                    pass  # it has heard enough

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Connections(Access("127.0.0.1", listener.getsockname()[1], None, lambda: "Bearer t", "a file")), asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _answer(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


class TestConnection:
    def test_no_redirection_is_followed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        elsewhere = _answer(b"", "307 Moved", "Location: http://127.0.0.1:9/\r\n")
        no_further = pytest.raises(RefusedError, match="where the token does not go")
        with _server(elsewhere) as (connections, asked), no_further:
            connections.get("/x")
        assert asked[0].startswith(b"GET /x HTTP/1.1\r\n")
        assert b"Bearer t" in asked[0]

    def test_a_line_without_end_is_not_kept(self) -> None:
        too_long = pytest.raises(UnreachableError, match="a line of more than 8 MB")
        with _server(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (9 << 20)) as (connections, _), too_long:
            list(connections.lines("/", 5, lambda: None))

    @pytest.mark.parametrize("answer", [b"", b"\x16\x03\x01", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n"])
    def test_what_is_no_http_is_said(self, answer: bytes) -> None:
        with _server(answer) as (connections, _), pytest.raises(UnreachableError, match="cannot be reached"):
            connections.get("/")

    def test_who_was_interrupted_asks_nothing_more(self) -> None:
        with _server() as (connections, _):
            connections.interrupt()
            with pytest.raises(UnreachableError):
                connections.get("/")

    def test_who_is_interrupted_while_it_connects_does_not_wait_for_an_answer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connect = http.client.HTTPConnection.connect

        def interrupted(connection: http.client.HTTPConnection) -> None:
            connect(connection)
            connections.interrupt()

        monkeypatch.setattr(http.client.HTTPConnection, "connect", interrupted)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            connections = Connections(Access("127.0.0.1", listener.getsockname()[1], None, lambda: None, "a file"))
            with pytest.raises(UnreachableError, match="nothing is asked any more"):
                connections.get("/")


def _list(*uids: str, version: str = "5") -> bytes:
    items = [{"metadata": {"name": f"p{n}", "namespace": "d", "uid": uid}} for n, uid in enumerate(uids)]
    return _answer(json.dumps({"metadata": {"resourceVersion": version}, "items": items}).encode())


class TestWatch:
    def test_events_are_taken_in_until_one_says_that_it_is_too_late(self) -> None:
        events = [
            {
                "type": "ADDED",
                "object": {"metadata": {"name": "b", "namespace": "d", "uid": OTHER, "resourceVersion": "6"}},
            },
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
            {
                "type": "DELETED",
                "object": {"metadata": {"name": "p0", "namespace": "d", "uid": UID, "resourceVersion": "10"}},
            },
            {"type": "ERROR", "object": {"code": 410, "reason": "Expired"}},
        ]
        lines = b"".join(json.dumps(e).encode() + b"\n" for e in events)
        with _server(_list(UID), b"HTTP/1.1 200 OK\r\n\r\n" + lines, _list(OTHER)) as (connections, asked):
            table = PodTable()
            watch = PodWatch(connections, table, "node-a")
            assert watch.step() == 0
            assert watch.step() > 0
            assert [pod.uid for pod in table.running()] == [OTHER]
            assert watch.outcomes()[Outcome.EXPIRED] == 1
            watch.step()
        assert b"fieldSelector=spec.nodeName%3Dnode-a&limit=250&resourceVersion=0" in asked[0]
        assert b"resourceVersion=5&" in asked[1]
        assert b"resourceVersion" not in asked[2]

    def test_pods_of_other_nodes_are_not_believed(self) -> None:
        other = {"metadata": {"name": "b", "namespace": "d", "uid": OTHER}, "spec": {"nodeName": "node-b"}}
        with _server(_answer(json.dumps({"metadata": {}, "items": [other]}).encode())) as (connections, _):
            table = PodTable()
            PodWatch(connections, table, "node-a").step()
        assert table.sizes == (0, 0)

    @pytest.mark.parametrize(
        "body",
        [
            b"[]",
            b"{",
            b'{"items": 3}',
            b"\xff",
            b'{"items": [{"metadata": {"uid": 1}}]}',
            b'{"metadata": {"continue": "\xff"}}',
            b'{"x":' * 100_000,
        ],
    )
    def test_nonsense_changes_nothing(self, body: bytes) -> None:
        table = PodTable()
        table.put(POD)
        with _server(_answer(body)) as (connections, _):
            watch = PodWatch(connections, table, "node-a")
            assert 0.5 <= watch.step() <= 1
        assert "cannot be read" in watch.trouble
        assert watch.outcomes()[Outcome.MALFORMED] == 1
        assert table.find(UID) == POD

    def test_a_kubelet_is_asked_again_and_again(self) -> None:
        with _server(_list(UID), _list(OTHER)) as (connections, asked):
            table = PodTable()
            watch = PodWatch(connections, table, "node-a", is_kubelet=True)
            assert watch.step() == watch.step() == 10
        assert all(one.startswith(b"GET /pods HTTP/1.1\r\n") for one in asked)
        assert [pod.uid for pod in table.running()] == [OTHER]

    def test_the_end_of_the_agent_is_no_failure(self, caplog: pytest.LogCaptureFixture) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            connections = Connections(Access("127.0.0.1", listener.getsockname()[1], None, lambda: None, "a file"))
            watch = PodWatch(connections, PodTable(), "node-a")
            step = threading.Thread(target=watch.step)
            step.start()
            asked, _ = listener.accept()
            with asked:
                asked.recv(65536)
                connections.interrupt()
                step.join(20)
        assert not step.is_alive()
        assert not caplog.records

    def test_waits_double_up_to_a_minute(self) -> None:
        for failures, longest in ((1, 1), (2, 2), (5, 16), (7, 60), (1000, 60)):
            assert longest / 2 <= Waits().after(failures) <= longest
