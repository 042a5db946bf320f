"""Does each series carry the pod that it is of, as a real API server knows it, and never another? With the chart's own rights."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from otel_gpu.config import Config
from otel_gpu.discovery.kubernetes import metrics
from otel_gpu.discovery.kubernetes.pods import Pods
from otel_gpu.discovery.kubernetes.settings import KubernetesSettings
from otel_gpu.discovery.kubernetes.watch import Outcome, Waits
from tests.e2e import ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.kubernetes import ADMIN, NODE, ApiError, Cluster, Pod, control_group, new_id
from tests.e2e.processes import Agent, Program
from tests.waiting import until

_ROOT = Path(__file__).parent.parent.parent
_DEPLOY = _ROOT / "deploy"
_CHART = _DEPLOY / "helm" / "otel-gpu"
_NAMESPACE = "otel-gpu"
_SOON = Waits(0.05, 0.2)
_PHASES = 200
"""As many as a program may need until what is waited for has come about."""
_CONFIG = """
receivers: {{cuda: {{}}, kubernetes: {{}}, self: {{}}}}
processors: {{kubernetes: {{extract: {{labels: [{{key: team}}, {{key: "app.kubernetes.io/*"}}], annotations: [{{key: cost, tag_name: cost.center}}]}}}}}}
exporters: {{file: {{path: {out}}}}}
discovery: {{kubernetes: {settings}, include: {include}}}
service: {{interval: 300ms}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("kubernetes"))
    try:
        made.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
        for manifest in _rendered(made):
            made.apply(manifest)
        yield made
    finally:
        made.close()


@pytest.fixture
def settings(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """With the rights of the chart's service account, and no more."""
    token = tmp_path / "token"
    token.write_text(cluster.token("otel-gpu", _NAMESPACE))
    return {
        "endpoint": cluster.endpoint, "token_file": str(token), "ca_file": str(cluster.ca), "node": NODE,
        "pod_resources": "",
    }  # fmt: skip


def _rendered(cluster: Cluster, *arguments: str, release: str = "otel-gpu") -> list[dict[str, object]]:
    command = [
        cluster.parts / "bin" / "helm",
        "template",
        release,
        _CHART,
        "-n",
        _NAMESPACE,
        "--kube-version",
        "1.36.3",
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def _agent(
    tmp_path: Path,
    settings: dict[str, str],
    pids: list[int],
    include: str = "[]",
    within: Sequence[str] = (),
    config: str = _CONFIG,
    environment: Mapping[str, str] | None = None,
) -> Agent:
    file = tmp_path / "agent.yaml"
    file.write_text(config.format(out=tmp_path / "out", settings=json.dumps(settings), include=include))
    chosen = [word for pid in pids for word in ("--pid", str(pid))]
    return Agent(["--config", file, *chosen], tmp_path, environment, within=within)


def _program(
    running: ExitStack, directory: Path, pod: Pod, form: str = "cgroupfs", phases: int = 1, **environment: str
) -> Program:
    within = running.enter_context(control_group(pod.groups(form)))
    command = [*within, ground.part("programs") / "launch_storm", "--gate", "--launches", "100"]
    command += ["--phases", str(phases)]
    program = running.enter_context(Program(command, directory, environment))
    program.ready()
    return program


@contextmanager
def _kubelet(cluster: Cluster, directory: Path, pods: list[dict[str, object]]) -> Iterator[Path]:
    """Serve what the kubelet would say of devices, by its own code."""
    socket, file = directory / "kubelet.sock", directory / "devices.json"
    file.write_text(json.dumps(pods))
    kubelet = subprocess.Popen([cluster.parts / "bin" / "podresources", socket, file], stderr=subprocess.DEVNULL)
    try:
        until(socket.exists)
        yield socket
    finally:
        kubelet.kill()
        kubelet.wait()


def _launches(tmp_path: Path, pid: int) -> Metrics:
    return read_metrics(tmp_path / "out").of(pid).named("gpu.cuda.kernel.launch.calls")


def _resources(metrics: Metrics) -> set[tuple[tuple[str, object], ...]]:
    return {tuple(sorted(s.resource.items())) for s in metrics.samples}


def _owner(kind: str, name: str, uid: str = "00000000-0000-4000-8000-000000000001") -> dict[str, object]:
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {"ownerReferences": [{"apiVersion": group, "kind": kind, "name": name, "uid": uid, "controller": True}]}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (
            "--set",
            "profiles=true,traces=true,prometheus.enabled=true,kubernetes.enabled=false,capabilities={BPF,SYS_ADMIN}",
        ),
    ],
)
def test_the_server_takes_every_manifest_of_the_chart(cluster: Cluster, arguments: tuple[str, ...]) -> None:
    for manifest in _rendered(cluster, *arguments):
        taken = cluster.apply(manifest, dry_run=True)
        assert taken["metadata"]["name"] == manifest["metadata"]["name"]


@pytest.mark.parametrize("release", ["1234", "a.b", "n" * 53])
def test_the_server_takes_the_chart_by_every_name_of_a_release(cluster: Cluster, release: str) -> None:
    values = "prometheus.enabled=true,serviceMonitor.enabled=true,dashboards.enabled=true,config=null"
    values += ",dashboards.labels.grafana_dashboard=null"
    for manifest in _rendered(cluster, "--set", values, release=release):
        if not str(manifest["apiVersion"]).startswith("monitoring."):
            cluster.apply(manifest, dry_run=True)


@pytest.mark.parametrize("folder", ["daemonset", "sidecar"])
def test_the_server_takes_every_kustomization(cluster: Cluster, folder: str, tmp_path: Path) -> None:
    built = _DEPLOY / "kustomize" / folder
    if folder == "sidecar":
        built = _application(tmp_path, built)
    command = [cluster.parts / "bin" / "kustomize", "build", "--load-restrictor", "LoadRestrictionsNone", built]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    manifests = list(yaml.safe_load_all(done.stdout))

    for manifest in manifests:
        cluster.apply(manifest, dry_run=True)
    (spec,) = (m["spec"]["template"]["spec"] for m in manifests if m["kind"] in ("DaemonSet", "Deployment"))
    (agent,) = (c for c in spec["containers"] if c["name"] == "otel-gpu")
    assert agent["securityContext"]["allowPrivilegeEscalation"] is False
    assert len(spec["containers"]) == (2 if folder == "sidecar" else 1)


def _application(directory: Path, sidecar: Path) -> Path:
    """Write an application that has the sidecar beside it."""
    app = directory / "app"
    app.mkdir()
    labels = {"app": "inference"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "server", "image": "vllm"}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "inference", "namespace": "default", "labels": {"otel-gpu.sidecar": "true"}},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    (app / "deployment.yaml").write_text(yaml.safe_dump(deployment))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "default",
        "resources": ["deployment.yaml"],
        "components": [os.path.relpath(sidecar, app)],
    }
    (app / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return app


def test_the_kustomization_is_what_the_chart_says(cluster: Cluster) -> None:
    command = [_ROOT / "scripts" / "render_kustomization.sh", cluster.parts / "bin" / "helm"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == (_DEPLOY / "kustomize" / "daemonset" / "otel-gpu.yaml").read_text()


@pytest.mark.parametrize(
    "value",
    [
        "image.pullPolicy=Sometimes",
        "capabilities={ALL}",
        "healthCheck.port=80",
        "unknown=1",
        # What the chart itself says would stand there twice.
        r"podLabels.app\.kubernetes\.io/name=mine",
        r"serviceMonitor.labels.app\.kubernetes\.io/instance=mine",
        "podAnnotations.checksum/config=mine",
    ],
)
def test_values_that_cannot_be_are_refused(cluster: Cluster, value: str) -> None:
    command = [cluster.parts / "bin" / "helm", "template", _CHART, "--kube-version", "1.36.3", "--set", value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_the_chart_brings_what_prometheus_and_grafana_read(cluster: Cluster) -> None:
    enabled = ("prometheus", "serviceMonitor", "prometheusRule", "dashboards")
    made = _rendered(cluster, "--set", ",".join(f"{part}.enabled=true" for part in enabled))
    of_kind = {kind: [m for m in made if m["kind"] == kind] for kind in {m["kind"] for m in made}}

    boards = {file: text for m in of_kind["ConfigMap"] for file, text in m["data"].items() if file != "agent.yaml"}
    # YAML ends a text with one newline.
    assert boards == {f"otel-gpu-{file.name}": file.read_text() for file in (_DEPLOY / "grafana").glob("*.json")}
    assert sum(m["metadata"]["labels"].get("grafana_dashboard") == "1" for m in of_kind["ConfigMap"]) == len(boards)
    (rules,) = of_kind["PrometheusRule"]
    assert rules["spec"] == yaml.safe_load((_ROOT / "collector-config" / "rules.yaml").read_text())
    (service,), (monitor,), (daemons,) = (of_kind[kind] for kind in ("Service", "ServiceMonitor", "DaemonSet"))
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"] == daemons["spec"]["selector"]["matchLabels"]
    (endpoint,), (port,) = monitor["spec"]["endpoints"], service["spec"]["ports"]
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    assert endpoint["port"] == port["name"]
    assert port["targetPort"] in {p["name"] for p in container["ports"]}
    for manifest in made:
        # The operator's own kinds are not known to this server.
        if not str(manifest["apiVersion"]).startswith("monitoring."):
            cluster.apply(manifest, dry_run=True)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("serviceMonitor.enabled=true", "nothing to scrape"),
        ("prometheus.enabled=true,serviceMonitor.enabled=true,podMonitor.enabled=true", "scraped twice"),
    ],
)
def test_monitors_that_cannot_be_are_refused(cluster: Cluster, values: str, reason: str) -> None:
    command = [cluster.parts / "bin" / "helm", "template", _CHART, "--kube-version", "1.36.3", "--set", values]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert reason in done.stderr


def test_helm_installs_the_chart_says_how_to_go_on_and_takes_it_away(cluster: Cluster, tmp_path: Path) -> None:
    namespace = "installed"
    chart = shutil.copytree(_CHART, tmp_path / "chart")
    # A server that is built from its module has no version to compare with.
    about = chart / "Chart.yaml"
    about.write_text(re.sub("^kubeVersion.*\n", "", about.read_text(), flags=re.MULTILINE))
    helm = [cluster.parts / "bin" / "helm", "-n", namespace, "--kube-apiserver", cluster.endpoint]
    helm += ["--kube-ca-file", cluster.ca, "--kube-token", ADMIN]
    install = [*helm, "install", "seen", chart, "--create-namespace"]
    done = subprocess.run(
        [*install, "--set", "traces=true,dashboards.enabled=true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    notes = done.stdout[done.stdout.index("NOTES:") :]

    assert "Metrics and traces go by OTLP to http://${env:HOST_IP}:4317" in notes
    assert f"kubectl -n {namespace} exec daemonset/seen-otel-gpu -- otel-gpu doctor" in notes
    assert "set runtimeClassName" in notes
    (daemons,) = cluster.ask("GET", f"/apis/apps/v1/namespaces/{namespace}/daemonsets")["items"]
    assert daemons["metadata"]["name"] == "seen-otel-gpu"
    path = f"/api/v1/namespaces/{namespace}/configmaps?labelSelector=grafana_dashboard%3D1"
    assert len(cluster.ask("GET", path)["items"]) == len(list((_DEPLOY / "grafana").glob("*.json")))
    subprocess.run([*helm, "uninstall", "seen"], capture_output=True, check=True)
    assert not cluster.ask("GET", f"/apis/apps/v1/namespaces/{namespace}/daemonsets")["items"]


def test_what_the_chart_says_is_a_configuration(cluster: Cluster, tmp_path: Path) -> None:
    values = "profiles=true,traces=true,config.service.interval=5s"
    (config,) = (m for m in _rendered(cluster, "--set", values) if m["kind"] == "ConfigMap")
    (tmp_path / "agent.yaml").write_text(config["data"]["agent.yaml"])
    environ = {"HOST_IP": "10.0.0.1", "POD_IP": "10.1.0.1", "K8S_NODE_NAME": NODE}
    loaded = Config.load(tmp_path / "agent.yaml", environ=environ)

    assert loaded.signals == {"metrics", "traces", "profiles"}
    assert loaded.needs_pods
    assert loaded.interval_s == 5


def test_the_charts_rights_are_enough(cluster: Cluster, settings: dict[str, str], tmp_path: Path) -> None:
    (daemons,) = (m for m in _rendered(cluster) if m["kind"] == "DaemonSet")
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    rights = ",".join(f"+{name.lower()}" for name in container["securityContext"]["capabilities"]["add"])
    within = ["setpriv", f"--bounding-set=-all,{rights}", "--inh-caps=-all", "--no-new-privs"]
    pod = cluster.pod("observed")
    with ExitStack() as running:
        group = running.enter_context(control_group(pod.groups("containerd")))
        # Another user's program, of which nothing can be seen without rights; a checkout may be closed to that user.
        open_to_all = Path(running.enter_context(tempfile.TemporaryDirectory()))
        open_to_all.chmod(0o755)
        driver = ground.own_driver(open_to_all / "driver")
        storm = shutil.copy(ground.part("programs") / "launch_storm", open_to_all)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        command = [*group, *user, storm, "--gate", "--launches", "100"]
        theirs = {"MOCKCUDA_TRUTH": "", "OTEL_SERVICE_NAME": "theirs", "LD_LIBRARY_PATH": str(driver)}
        program = running.enter_context(Program(command, tmp_path, theirs))
        program.ready()
        with _agent(tmp_path, settings, [program.pid], within=within) as agent:
            agent.wait_attached(driver=driver)
            program.run_phase()
            assert program.wait() == 0
            agent.stop()

    launches = _launches(tmp_path, program.pid)
    assert launches.total("gpu.cuda.kernel.launch.calls") == 100
    assert {(s.resource["service.name"], s.resource["k8s.pod.name"]) for s in launches.samples} == {
        ("theirs", "observed")
    }
    pod.delete()


def test_the_account_may_hear_of_pods_and_do_nothing_else(cluster: Cluster) -> None:
    token = cluster.token("otel-gpu", _NAMESPACE)

    assert cluster.ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}", token=token)["kind"] == "PodList"
    for method, path in (
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/nodes"),
        ("GET", f"/api/v1/namespaces/{_NAMESPACE}/pods/x"),
        ("DELETE", "/api/v1/namespaces/default/pods/x"),
        ("GET", "/apis/apps/v1/daemonsets"),
    ):
        with pytest.raises(ApiError) as refused:
            cluster.ask(method, path, token=token)
        assert refused.value.status == 403


def test_every_process_has_its_pod(cluster: Cluster, settings: dict[str, str], tmp_path: Path) -> None:
    long = "n" * 63
    deployed = {
        **_owner("ReplicaSet", "web-5d4f8c7b9"),
        "labels": {"pod-template-hash": "5d4f8c7b9", "team": "vision", "app.kubernetes.io/name": long, "other": "no"},
        "annotations": {"cost": "4711\n\x1b[2J", "big": "x" * 100_000},
    }
    pods = {
        "cgroupfs": cluster.pod("web-5d4f8c7b9-x2x4z", metadata=deployed, gpus=2),
        "containerd": cluster.pod("db-0", metadata=_owner("StatefulSet", "db")),
        "cri-o": cluster.pod("n" * 253, metadata=_owner("DaemonSet", long)),
        "docker": cluster.pod("alone"),
    }
    devices = [{"name": pods["cgroupfs"].name, "namespace": "default", "uid": pods["cgroupfs"].uid}]
    devices[0]["devices"] = {"main": {"nvidia.com/gpu": ["GPU-1", "GPU-2"]}}
    lies = (
        "k8s.pod.name=victim,k8s_deployment_name=victim,k8s.pod.uid=9,k8s.pod.label.team=victim,k8s.cluster.name=east"
    )
    with ExitStack() as running:
        programs = {
            form: _program(running, tmp_path, pod, form, OTEL_RESOURCE_ATTRIBUTES=lies) for form, pod in pods.items()
        }
        settings["pod_resources"] = str(running.enter_context(_kubelet(cluster, tmp_path, devices)))
        with _agent(tmp_path, settings, [p.pid for p in programs.values()]) as agent:
            agent.wait_attached()
            for program in programs.values():
                program.run_phase()
            until(lambda: read_metrics(tmp_path / "out").named("gpu.pod.allocated").samples)
            for program in programs.values():
                program.finish()
            agent.stop()

    found = {}
    for form, program in programs.items():
        launches = _launches(tmp_path, program.pid)
        assert launches.total("gpu.cuda.kernel.launch.calls") == 100
        (found[form],) = {tuple(sorted(s.resource.items())) for s in launches.samples}
        resource = dict(found[form])
        pod = pods[form]
        wanted = (
            "k8s.pod.name",
            "k8s.pod.uid",
            "k8s.namespace.name",
            "k8s.node.name",
            "k8s.container.name",
            "container.id",
        )
        assert [resource[key] for key in wanted] == [pod.name, pod.uid, "default", NODE, "main", pod.container_id]
        assert resource["k8s.cluster.name"] == "east"
        assert "victim" not in resource.values()
    web, db, agents, alone = (dict(found[form]) for form in pods)
    assert (web["k8s.deployment.name"], web["k8s.replicaset.name"]) == ("web", "web-5d4f8c7b9")
    assert (web["k8s.pod.label.team"], web["k8s.pod.label.app.kubernetes.io/name"]) == ("vision", long)
    assert web["cost.center"] == r"4711\n\x1b[2J"
    assert not any("other" in key or "big" in key for key in web)
    assert (db["k8s.statefulset.name"], agents["k8s.daemonset.name"]) == ("db", long)
    assert not any(key.endswith((".label.team", "set.name", "deployment.name")) for key in alone)
    of_web = read_metrics(tmp_path / "out").where(lambda s: s.resource.get("k8s.pod.uid") == pods["cgroupfs"].uid)
    for name, value in (("gpu.pod.request", 2), ("gpu.pod.limit", 2), ("gpu.pod.allocated", 2)):
        assert of_web.total(name) == value
    assert set(of_web.by("gpu.pod.allocated", "hw.id")) == {"GPU-1", "GPU-2"}
    emitted = read_metrics(tmp_path / "out")
    # Nobody asks NVML here, so that it is not known whether any is used.
    assert not emitted.named(metrics.USED.name).samples
    for spec in {*metrics.SPECS, *metrics.SELF_SPECS} - {metrics.USED}:
        assert emitted.named(spec.name).samples, spec.name
        assert {key for s in emitted.named(spec.name).samples for key in s.attributes} == set(spec.attributes)
    for pod in pods.values():
        pod.delete()


def test_gpus_that_pods_use_are_those_on_which_nvml_finds_them(
    cluster: Cluster, settings: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    hardware = {"MOCKCUDA_DEVICES": "2", "MOCKCUDA_STATE": str(tmp_path / "state")}
    idle, busy = cluster.pod("idle", gpus=2), cluster.pod("busy", gpus=4)
    config = _CONFIG.replace("kubernetes: {{}}, self", "kubernetes: {{}}, nvml: {{}}, self")
    with ExitStack() as running:
        program = _program(running, tmp_path, busy, phases=2, **hardware)
        agents = {**hardware, "LD_LIBRARY_PATH": ground.library_path()}
        with _agent(tmp_path, settings, [program.pid], config=config, environment=agents) as agent:
            agent.wait_attached()

            def used(pod: Pod) -> float | None:
                found = read_metrics(tmp_path / "out").where(lambda s: s.resource.get("k8s.pod.uid") == pod.uid)
                return found.total("gpu.pod.used") if found.named("gpu.pod.used").samples else None

            program.run_phase()
            until(lambda: used(busy) == 2)
            assert used(idle) == 0
            program.ready()
            program.run_phase()
            program.finish()
            agent.stop()
    for pod in (idle, busy):
        pod.delete()


def test_a_pod_may_go_while_its_process_stays_and_another_take_its_name(
    cluster: Cluster, settings: dict[str, str], tmp_path: Path
) -> None:
    first = cluster.pod("same-0", metadata=_owner("StatefulSet", "same"))
    with ExitStack() as running:
        old = _program(running, tmp_path, first)
        with _agent(tmp_path, settings, [old.pid, os.getpid()]) as agent:
            agent.wait_attached()
            first.delete()
            second = cluster.pod("same-0", metadata=_owner("StatefulSet", "same"))
            old.run_phase()
            until(
                lambda: _launches(tmp_path, old.pid).total("gpu.cuda.kernel.launch.calls") == 100,
                "launches are counted",
            )
            old.finish()
            agent.stop()

    assert second.uid != first.uid
    assert {s.resource["k8s.pod.uid"] for s in _launches(tmp_path, old.pid).samples} == {first.uid}
    assert {s.resource["k8s.pod.name"] for s in _launches(tmp_path, old.pid).samples} == {"same-0"}
    second.delete()


def test_what_begins_while_nobody_answers_has_its_name_later(
    cluster: Cluster, settings: dict[str, str], tmp_path: Path
) -> None:
    known, unknown = cluster.pod("known"), cluster.pod("unknown")
    pod_of_unknown = unknown.container_id
    with ExitStack() as running:
        one = _program(running, tmp_path, known)
        # To the kubelet it runs; the server has not been told of the container that it restarted.
        unknown.container_id = new_id()
        two = _program(running, tmp_path, unknown, phases=_PHASES)
        with _agent(tmp_path, settings, [one.pid, two.pid]) as agent:
            agent.wait_attached()

            def wait_counted(phases: int) -> None:
                until(
                    lambda: _launches(tmp_path, two.pid).total("gpu.cuda.kernel.launch.calls") == 100 * phases,
                    "launches are counted",
                )

            with cluster.away():
                agent.wait_for(r"pods: .*cannot be reached")
                for program in (one, two):
                    program.run_phase()
                wait_counted(1)
                (alone,) = _resources(_launches(tmp_path, two.pid))
            unknown.runs(unknown.container_id, restarts=1, before=pod_of_unknown)
            agent.wait_for("answers again")
            # When the server tells of the container nobody can say: all pods may have to be asked for anew, after a while.
            ran = 1
            while len(_resources(_launches(tmp_path, two.pid))) == 1 and ran < _PHASES:
                two.ready()
                two.run_phase()
                ran += 1
                wait_counted(ran)
            one.finish()
            two.process.stdin.close()
            two.finish()
            agent.stop()

    assert {s.resource["k8s.pod.name"] for s in _launches(tmp_path, one.pid).samples} == {"known"}
    assert "k8s.pod.name" not in dict(alone)
    # What was counted before stays where it was, and ends; what comes then has the name, and begins anew.
    launches = _launches(tmp_path, two.pid)
    before, after = sorted(_resources(launches), key=lambda resource: "k8s.pod.name" in dict(resource))
    assert before == alone
    named = ("k8s.pod.uid", "k8s.pod.name", "k8s.container.name", "container.id")
    assert [dict(after)[key] for key in named] == [unknown.uid, "unknown", "main", unknown.container_id]
    counts = [launches.where(lambda s, r=r: s.resource == dict(r)) for r in (before, after)]
    alone_count, named_count = (c.total("gpu.cuda.kernel.launch.calls") for c in counts)
    assert alone_count + named_count == 100 * _PHASES
    # An interval may end, and the name come, in the middle of the phase that was the first to have it.
    assert 100 * (ran - 1) <= alone_count < 100 * ran
    began = [{s.start_ns for s in launches.samples if s.resource == dict(r)} for r in (before, after)]
    assert min(began[1]) > max(began[0])
    health = (
        read_metrics(tmp_path / "out")
        .named("otel_gpu.kubernetes.requests")
        .by("otel_gpu.kubernetes.requests", "otel_gpu.kubernetes.outcome")
    )
    assert health["unreachable"] >= 1
    assert health["answered"] >= 1
    for pod in (known, unknown):
        pod.delete()


def test_only_programs_of_chosen_pods_are_exported(cluster: Cluster, settings: dict[str, str], tmp_path: Path) -> None:
    wanted = cluster.pod("wanted", metadata={"labels": {"tier": "serving-a"}})
    other = cluster.pod("other", metadata={"labels": {"tier": "batch"}})
    with ExitStack() as running:
        one, two = (_program(running, tmp_path, pod) for pod in (wanted, other))
        rules = '[{namespace: "def*", pod_labels: {tier: "serving-*"}}]'
        with _agent(tmp_path, settings, [one.pid, two.pid], rules) as agent:
            agent.wait_attached()
            for program in (one, two):
                program.run_phase()
                program.finish()
            agent.stop()

    assert _launches(tmp_path, one.pid).total("gpu.cuda.kernel.launch.calls") == 100
    assert not read_metrics(tmp_path / "out").of(two.pid).samples
    for pod in (wanted, other):
        pod.delete()


@pytest.fixture
def pods(settings: dict[str, str]) -> Iterator[Pods]:
    made = Pods(KubernetesSettings(**settings), waits=_SOON)
    made.start(30)
    yield made
    made.close()


def test_pods_come_move_and_go(cluster: Cluster, pods: Pods) -> None:
    elsewhere = cluster.pod("elsewhere", node="node-b")
    here = cluster.pod("here")
    until(lambda: pods.find(here.uid) is not None)

    assert pods.find(elsewhere.uid) is None
    again = new_id()
    here.runs(again, restarts=1, before=here.container_id)
    until(lambda: pods.find(here.uid).container(again) == "main")
    here.delete()
    until(lambda: here.uid not in {pod.uid for pod in pods.table.running()})
    assert pods.find(here.uid).name == "here"
    elsewhere.delete()


def test_many_that_come_and_go_leave_nothing_behind(cluster: Cluster, pods: Pods) -> None:
    def come_and_go(n: int) -> None:
        cluster.pod(f"churn-{n}", node=NODE if n % 2 else "node-b").delete()

    with ThreadPoolExecutor(8) as beside:
        list(beside.map(come_and_go, range(200)))
    last = cluster.pod("last")
    until(lambda: pods.find(last.uid) is not None)

    assert [pod.name for pod in pods.table.running() if pod.name.startswith(("churn", "last"))] == ["last"]
    assert pods.table.refused == 0
    assert pods.table.sizes[1] <= 1024
    last.delete()


def test_a_static_pod_is_known_by_the_kubelets_id(cluster: Cluster, pods: Pods) -> None:
    kubelets, victim = "0123456789abcdef" * 2, cluster.pod("victim")
    static = cluster.pod("static-node-a", metadata={"annotations": {"kubernetes.io/config.mirror": kubelets}})
    liar = cluster.pod("liar", metadata={"annotations": {"kubernetes.io/config.mirror": victim.uid}})
    until(lambda: pods.find(liar.uid) is not None and pods.find(kubelets) is not None)

    assert pods.find(kubelets).name == "static-node-a"
    assert pods.find(victim.uid).name == "victim"
    another = cluster.pod("another", metadata={"annotations": {"kubernetes.io/config.mirror": kubelets}})
    until(lambda: pods.find(kubelets) is None)
    for pod in (static, liar, another, victim):
        pod.delete()


def test_a_refusal_says_which_rule_is_missing(cluster: Cluster, settings: dict[str, str], tmp_path: Path) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "poor", "namespace": _NAMESPACE}})
    Path(settings["token_file"]).write_text(cluster.token("poor", _NAMESPACE))
    made = Pods(KubernetesSettings(**settings), waits=_SOON)
    try:
        made.start(30)
        trouble = " ".join(health.trouble for health in made.health())
        assert "403" in trouble
        assert "system:serviceaccount:otel-gpu:poor" in trouble
        assert '{apiGroups: [""], resources: [pods], verbs: [list, watch]}' in trouble

        # Once it may, nothing has to be started again.
        Path(settings["token_file"]).write_text(cluster.token("otel-gpu", _NAMESPACE))
        until(lambda: not any(health.trouble for health in made.health()))
    finally:
        made.close()


def test_a_token_is_read_anew_when_it_has_expired(cluster: Cluster, settings: dict[str, str]) -> None:
    Path(settings["token_file"]).write_text("expired")
    made = Pods(KubernetesSettings(**settings), waits=_SOON)
    try:
        made.start(30)
        assert any("401" in health.trouble and settings["token_file"] in health.trouble for health in made.health())
        Path(settings["token_file"]).unlink()
        until(lambda: any("cannot be read" in health.trouble for health in made.health()))
        Path(settings["token_file"]).write_text(cluster.token("otel-gpu", _NAMESPACE))
        until(lambda: not any(health.trouble for health in made.health()))
    finally:
        made.close()


def test_a_kubeconfig_is_enough(cluster: Cluster, settings: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("kubernetes", reason="it is in the extra k8s")
    file = tmp_path / "kubeconfig"
    user = {"name": "u", "user": {"tokenFile": settings["token_file"]}}
    server = {"name": "c", "cluster": {"server": cluster.endpoint, "certificate-authority": str(cluster.ca)}}
    context = {"name": "one", "context": {"cluster": "c", "user": "u"}}
    lists = {"clusters": [server], "users": [user], "contexts": [context]}
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "one", **lists}))
    chosen = {"auth_type": "kubeConfig", "kubeconfig": str(file), "node": NODE, "pod_resources": ""}
    pod = cluster.pod("asked-from-outside")
    pods = Pods(KubernetesSettings(**chosen), waits=_SOON)
    try:
        pods.start(30)
        assert pods.find(pod.uid).name == "asked-from-outside"
        assert [health.trouble for health in pods.health()] == [""]
    finally:
        pods.close()
        pod.delete()


def test_another_servers_certificate_is_not_believed(
    cluster: Cluster, settings: dict[str, str], tmp_path: Path
) -> None:
    key = tmp_path / "other"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout {key} -out {key}.crt"
    subprocess.run(command.split(), check=True, capture_output=True)
    made = Pods(KubernetesSettings(**{**settings, "ca_file": f"{key}.crt"}), waits=_SOON)
    try:
        made.start(30)
        assert any("not believed" in health.trouble for health in made.health())
        assert made.table.sizes == (0, 0)
    finally:
        made.close()


def test_a_server_that_is_away_for_long_is_asked_ever_more_rarely(cluster: Cluster, pods: Pods) -> None:
    stays, goes = cluster.pod("stays"), cluster.pod("goes")
    until(lambda: pods.find(stays.uid) is not None and pods.find(goes.uid) is not None)
    with cluster.away():
        until(lambda: pods._watch.outcomes()[Outcome.UNREACHABLE] >= 5)
        assert pods.find(stays.uid).name == "stays"
        assert pods._watch.age_s > 0
    until(lambda: not any(health.trouble for health in pods.health()))
    goes.delete()
    until(lambda: goes.uid not in {pod.uid for pod in pods.table.running()})

    # Ten minutes' worth of retries, as they are waited for by default: not more than one a minute in the end.
    waits, total = [], 0.0
    while total < 600:
        waits.append(Waits().after(len(waits) + 1))
        total += waits[-1]
    assert len(waits) < 26
    assert all(30 <= wait <= 60 for wait in waits[7:])
    stays.delete()


def test_who_is_too_far_behind_lists_anew(cluster: Cluster, pods: Pods) -> None:
    pod = cluster.pod("later")
    until(lambda: pods.find(pod.uid) is not None)
    # Far older than what etcd keeps once it is compacted.
    cluster.compact()
    with cluster.away():
        until(lambda: pods._watch.trouble)
        pods._watch._version = "1"
    pod.runs(pod.container_id, reason="changed")
    another = cluster.pod("another-later")
    until(lambda: pods.find(another.uid) is not None)
    assert pods._watch.outcomes()[Outcome.EXPIRED] >= 1
    for one in (pod, another):
        one.delete()


def test_devices_are_of_the_pod_that_the_kubelet_names(
    cluster: Cluster, settings: dict[str, str], tmp_path: Path
) -> None:
    pod = cluster.pod("training", gpus=2)
    devices = {"nvidia.com/gpu": ["GPU-1", "GPU-2::0", "GPU-2::3"], "example.com/nic": ["x"]}
    claims = {"gpu.nvidia.com": ["gpu-7"], "nic.example.com": ["y"]}
    of_pod = {"name": "training", "namespace": "default", "uid": pod.uid}
    unknown = {
        "name": "unknown",
        "namespace": "default",
        "uid": "u",
        "devices": {"main": {"nvidia.com/gpu": ["GPU-9"]}},
    }
    said = [{**of_pod, "devices": {"main": devices}, "claims": {"main": claims}}, unknown]
    with _kubelet(cluster, tmp_path, said) as socket, ExitStack() as running:
        made = Pods(KubernetesSettings(**{**settings, "pod_resources": str(socket)}), waits=_SOON)
        running.callback(made.close)
        made.start(30)
        until(lambda: made.devices(pod.uid))
        assert dict(made.devices(pod.uid)) == {
            ("nvidia.com/gpu", "GPU-1"): 1,
            ("nvidia.com/gpu", "GPU-2"): 2,
            ("gpu.nvidia.com", "gpu-7"): 1,
        }
        running.pop_all()
    # The kubelet is gone, as while it is updated: its devices are still theirs.
    try:
        made._asking.wake()
        until(lambda: any("does not say" in health.trouble for health in made.health()))
        assert made.devices(pod.uid)
    finally:
        made.close()
    pod.delete()
