"""How is a real Kubernetes API server started, spoken to as its operator, and stopped? Over Debian's etcd, with RBAC."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import ground
from tests.waiting import until

NODE = "node-a"
ADMIN = "the-operator"
"""The token of one who may do everything."""


class ApiError(Exception):
    def __init__(self, status: int, body: dict[str, object]) -> None:
        super().__init__(f"{status}: {body.get('message')}")
        self.status, self.body = status, body


class Cluster:
    """etcd and the API server; the latter can be stopped and started again."""

    def __init__(self, directory: Path) -> None:
        self.parts = ground.kubernetes()
        self.directory = directory
        self._etcd_ports = _free_ports(2)
        (self.port,) = _free_ports(1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ca = directory / "ca.crt"
        self._make_keys()
        client, peer = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        self._start(
            "etcd", self.parts / "etcd" / "etcd", "--data-dir", directory / "etcd", "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}", "--unsafe-no-fsync",
        )  # fmt: skip
        self.start()

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self, *more: str) -> None:
        d = self.directory
        self._start(
            "apiserver", self.parts / "bin" / "apiserver", "--etcd-servers", f"http://127.0.0.1:{self._etcd_ports[0]}",
            "--cert-dir", d / "certs", "--secure-port", str(self.port), "--bind-address", "127.0.0.1",
            "--tls-cert-file", d / "server.crt", "--tls-private-key-file", d / "server.key",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-key-file", d / "sa.key", "--service-account-signing-key-file", d / "sa.key",
            "--service-cluster-ip-range", "10.0.0.0/24", "--authorization-mode", "RBAC",
            "--token-auth-file", d / "tokens.csv", "--disable-admission-plugins", "ServiceAccount", *more,
        )  # fmt: skip
        until(self._is_ready, lambda: (d / "apiserver.log").read_text()[-2000:])

    @contextmanager
    def away(self) -> Iterator[None]:
        """Have no API server for a while; etcd keeps what it knows."""
        _end(self._processes.pop("apiserver"))
        try:
            yield
        finally:
            self.start()

    def compact(self) -> None:
        """Have etcd forget what was before now."""
        value = self.ask("GET", "/api/v1/namespaces/default/pods")["metadata"]["resourceVersion"]
        body = json.dumps({"revision": value, "physical": True})
        connection = http.client.HTTPConnection("127.0.0.1", self._etcd_ports[0], timeout=30)
        connection.request("POST", "/v3/kv/compaction", body)
        assert connection.getresponse().status == 200
        connection.close()

    def close(self) -> None:
        for process in reversed(list(self._processes.values())):
            _end(process)
        self._processes.clear()

    def ask(
        self, method: str, path: str, body: object = None, *, token: str = ADMIN, kind: str = "application/json"
    ) -> dict[str, object]:
        """Ask as the operator, or with another token; ApiError where it is refused."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=30, context=ssl.create_default_context(cafile=self.ca)
        )
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        found: dict[str, object] = json.loads(response.read())
        connection.close()
        if response.status >= 300:
            raise ApiError(response.status, found)
        return found

    def apply(self, manifest: Mapping[str, object], *, dry_run: bool = False) -> dict[str, object]:
        """Apply one object on the server's side, which defaults and validates it."""
        meta = manifest["metadata"]
        group = str(manifest["apiVersion"])
        kind = str(manifest["kind"]).lower()
        plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
        base = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        namespace = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        dry = "&dryRun=All" if dry_run else ""
        path = f"{base}{namespace}/{plural}/{meta['name']}?fieldManager=tests&fieldValidation=Strict&force=true{dry}"
        return self.ask("PATCH", path, manifest, kind="application/apply-patch+yaml")

    def token(self, account: str, namespace: str, seconds: int = 3600) -> str:
        """Return a token of a service account."""
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        found = self.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", asked)
        return str(found["status"]["token"])

    def pod(
        self, name: str, *, namespace: str = "default", node: str = NODE, metadata: Mapping[str, object] = {},
        spec: Mapping[str, object] = {}, gpus: int = 0,
    ) -> Pod:  # fmt: skip
        """Make a pod that runs on a node, as its kubelet would say it."""
        amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        made = self.ask(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods",
            {
                "metadata": {"name": name, **metadata},
                "spec": {
                    "nodeName": node,
                    "containers": [
                        {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
                    ],
                    **spec,
                },
            },
        )
        pod = Pod(self, namespace, name, made["metadata"]["uid"])
        pod.runs(pod.container_id)
        return pod

    def _make_keys(self) -> None:
        d = self.directory
        (d / "tokens.csv").write_text(f'{ADMIN},operator,operator,"system:masters"\n')
        (d / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
        ec = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
        for command in (
            f"openssl req -x509 {ec} -days 2 -subj /CN=tests-ca -keyout {d}/ca.key -out {self.ca}",
            f"openssl req {ec} -subj /CN=apiserver -keyout {d}/server.key -out {d}/server.csr",
            f"openssl x509 -req -days 2 -in {d}/server.csr -CA {self.ca} -CAkey {d}/ca.key -CAcreateserial -extfile {d}/san -out {d}/server.crt",
            f"openssl genrsa -out {d}/sa.key 2048",
        ):
            subprocess.run(command.split(), check=True, capture_output=True)

    def _start(self, name: str, *command: str | Path) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen([str(w) for w in command], stdout=log, stderr=log)

    def _is_ready(self) -> bool:
        assert self._processes["apiserver"].poll() is None, (self.directory / "apiserver.log").read_text()[-2000:]
        try:
            self.ask("GET", "/api/v1/namespaces/default")
        except (OSError, ValueError, http.client.HTTPException, ApiError):
            return False
        return True


class Pod:
    """A pod, and the control groups that its containers would have."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, uid: str) -> None:
        self._cluster = cluster
        self.namespace, self.name, self.uid = namespace, name, uid
        self.container_id = new_id()

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def runs(self, container_id: str, *, restarts: int = 0, before: str | None = None, **status: object) -> None:
        """Have the kubelet say which container runs."""
        last = {"terminated": {"exitCode": 1, "containerID": f"containerd://{before}"}} if before else {}
        one = {
            "name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": restarts,
            "containerID": f"containerd://{container_id}", "state": {"running": {}}, "lastState": last,
        }  # fmt: skip
        body = {"status": {"phase": "Running", "containerStatuses": [one], **status}}
        self._cluster.ask("PATCH", f"{self.path}/status", body, kind="application/strategic-merge-patch+json")
        self.container_id = container_id

    def delete(self) -> None:
        self._cluster.ask("DELETE", f"{self.path}?gracePeriodSeconds=0")

    def groups(self, form: str = "cgroupfs") -> str:
        """Return the path of its container's control group, as kubelets and runtimes name it."""
        systemd = self.uid.replace("-", "_")
        slices = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice"
        return {
            "cgroupfs": f"kubepods/burstable/pod{self.uid}/{self.container_id}",
            "containerd": f"{slices}/cri-containerd-{self.container_id}.scope",
            "cri-o": f"{slices}/crio-{self.container_id}.scope/container",
            "docker": f"{slices}/docker-{self.container_id}.scope",
        }[form]


def new_id() -> str:
    """Return the id of a container."""
    return uuid.uuid4().hex + uuid.uuid4().hex


_HIERARCHY = Path("/sys/fs/cgroup/unified" if Path("/sys/fs/cgroup/unified").is_dir() else "/sys/fs/cgroup")


@contextmanager
def control_group(path: str) -> Iterator[list[str]]:
    """Make a control group, and yield a command before others that runs them in it."""
    group = _HIERARCHY / path
    made = [one for one in (group, *group.parents) if not one.exists()]
    group.mkdir(parents=True)
    try:
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        for one in made:
            until(lambda one=one: _removed(one), f"{one} is in use")


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return not group.exists() or any(child.is_dir() for child in group.iterdir())
    return True


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(30)
