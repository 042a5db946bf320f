"""What does knowing pods cost? Resident memory and CPU of an agent on a node of 110 pods, and while thousands come and go.

    python -m bench.kubernetes [--pods 110] [--seconds 60] [--churn 2000]

The API server is real (tests/ground/kubernetes.sh), pods are run by kwok. Both agents measure themselves only: the difference
is what is asked and kept of pods. In the quiet part one pod a second changes, more than a node of 110 has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.exported import read_metrics
from tests.e2e.kubernetes import NODE, Cluster

_TICKS = os.sysconf("SC_CLK_TCK")
_WITHOUT = (
    "receivers: {{self: {{}}}}\nprocessors: {{}}\nexporters: {{file: {{path: {out}}}}}\nservice: {{interval: 10s}}\n"
)
_WITH = """receivers: {{self: {{}}, kubernetes: {{}}}}
processors: {{kubernetes: {{}}}}
exporters: {{file: {{path: {out}}}}}
service: {{interval: 10s}}
discovery: {{kubernetes: {settings}}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=110)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--churn", type=int, default=2000, help="pods that come and go; 0 leaves that out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        cluster = Cluster(directory)
        kwok = _kwok(cluster, directory)
        try:
            _measure(cluster, directory, asked)
        finally:
            kwok.kill()
            kwok.wait()
            cluster.close()


def _measure(cluster: Cluster, directory: Path, asked: argparse.Namespace) -> None:
    cluster.ask("POST", "/api/v1/nodes", {"metadata": {"name": NODE, "annotations": {"kwok.x-k8s.io/node": "fake"}}})
    with ThreadPoolExecutor(8) as beside:
        list(beside.map(lambda n: _pod(cluster, f"pod-{n}"), range(asked.pods)))
    token = directory / "token"
    token.write_text("the-operator")
    settings = json.dumps(
        {
            "endpoint": cluster.endpoint,
            "token_file": str(token),
            "ca_file": str(cluster.ca),
            "node": NODE,
            "pod_resources": "",
        }
    )
    agents = {}
    for name, text in (("without", _WITHOUT), ("with", _WITH)):
        config = directory / f"{name}.yaml"
        config.write_text(text.format(out=directory / name, settings=settings))
        agents[name] = subprocess.Popen([sys.executable, "-m", "otel_gpu", "run", "--config", config])
    try:
        time.sleep(15)
        before = {name: _cpu_s(agent.pid) for name, agent in agents.items()}
        began = time.monotonic()
        while (took := time.monotonic() - began) < asked.seconds:
            # As a container that is restarted: the whole pod is sent.
            change = {"metadata": {"annotations": {"changed": f"{took}"}}}
            cluster.ask(
                "PATCH",
                f"/api/v1/namespaces/default/pods/pod-{int(took) % asked.pods}",
                change,
                kind="application/merge-patch+json",
            )
            time.sleep(1)
        cpu = {name: 100 * (_cpu_s(agent.pid) - before[name]) / took for name, agent in agents.items()}
        rss = {name: _rss_mb(agent.pid) for name, agent in agents.items()}
        print(f"{asked.pods} pods, one change a second, {took:.0f} s")
        for what, unit, found in (("resident", "MB", rss), ("CPU", "% of a core", cpu)):
            print(
                f"  {what:10}{found['without']:8.2f}{found['with']:8.2f}   +{found['with'] - found['without']:.2f} {unit}"
            )
        if asked.churn:
            _churn(cluster, agents["with"].pid, asked.churn)
    finally:
        for agent in agents.values():
            agent.terminate()
            agent.wait(30)
    known = read_metrics(directory / "with").by("otel_gpu.pods", "otel_gpu.pod.state")
    print(f"  known in the end: {known['running']:.0f} that run, {known['deleted']:.0f} deleted")


def _churn(cluster: Cluster, pid: int, count: int) -> None:
    before, began = _cpu_s(pid), time.monotonic()

    def come_and_go(n: int) -> None:
        _pod(cluster, f"churn-{n}")
        cluster.ask("DELETE", f"/api/v1/namespaces/default/pods/churn-{n}?gracePeriodSeconds=0")

    with ThreadPoolExecutor(16) as beside:
        list(beside.map(come_and_go, range(count)))
    took = time.monotonic() - began
    time.sleep(10)
    print(
        f"{count} pods came and went in {took:.0f} s: {1000 * (_cpu_s(pid) - before) / count:.2f} ms of CPU each, {_rss_mb(pid):.0f} MB resident"
    )


def _pod(cluster: Cluster, name: str) -> None:
    metadata = {
        "name": name,
        "labels": {f"label-{n}": "v" * 40 for n in range(12)},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "x" * 6_000,
            **{f"a-{n}": "y" * 100 for n in range(10)},
        },
    }
    environment = [{"name": f"VARIABLE_{n}", "value": "z" * 60} for n in range(40)]
    containers = [{"name": f"c{n}", "image": "none", "env": environment} for n in range(2)]
    spec = {"nodeName": NODE, "containers": containers, "tolerations": [{"operator": "Exists"}]}
    cluster.ask("POST", "/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})


def _kwok(cluster: Cluster, directory: Path) -> subprocess.Popen[bytes]:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": cluster.endpoint, "certificate-authority": str(cluster.ca)}}],
        "users": [{"name": "u", "user": {"token": "the-operator"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (directory / "kubeconfig").write_text(json.dumps(config))
    command = [cluster.parts / "bin" / "kwok", "--kubeconfig", directory / "kubeconfig", "--manage-all-nodes=true"]
    with (directory / "kwok.log").open("wb") as log:
        return subprocess.Popen([*command, "--server-address", ""], stdout=log, stderr=log)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
