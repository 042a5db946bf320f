"""Is the image made as is good practice, of what it needs, and with the rights that the documents name?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from otel_gpu.runtime.privileges import Capability
from otel_gpu.service.rights import PART, SERVICE
from tests.image.build import instructions, is_ignored

_TREE = Path(__file__).parent.parent.parent
_STEPS = list(instructions((_TREE / "Dockerfile").read_text()))
_DEPLOY = _TREE / "deploy"


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("hadolint is not installed: pip install -e '.[dev]'")
    done = subprocess.run([hadolint, _TREE / "Dockerfile"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


def test_it_runs_as_nobody_with_the_rights_of_a_service() -> None:
    assert [rest for instruction, rest in _STEPS if instruction == "USER"] == ["65532:65532"]
    (granted,) = (rest for instruction, rest in _STEPS if rest.startswith("setcap"))
    # Not effective: what cannot be had would keep the command from being started at all.
    names = re.search(r"setcap (\S+)=p ", granted)[1]
    assert {Capability[name.upper()] for name in names.split(",")} == SERVICE
    assert len([1 for instruction, _ in _STEPS if instruction == "FROM"]) == 2


def test_it_brings_the_exporter_that_the_chart_can_enable() -> None:
    (installed,) = (rest for _, rest in _STEPS if "/opt/otel-gpu/bin/pip install" in rest)

    assert "prometheus" in re.search(r"whl\)\[(.*?)\]", installed)[1].split(",")


@pytest.mark.parametrize("folder", ["daemonset/otel-gpu.yaml", "sidecar/sidecar.yaml"])
def test_manifests_name_the_rights_one_by_one(folder: str) -> None:
    manifests = yaml.safe_load_all((_DEPLOY / "kustomize" / folder).read_text())
    (spec,) = (m["spec"]["template"]["spec"] for m in manifests if m["kind"] in ("DaemonSet", "Deployment"))
    (container,) = spec["containers"]
    security = container["securityContext"]

    assert {Capability[f"CAP_{name}"] for name in security["capabilities"]["add"]} == SERVICE | PART
    assert security["capabilities"]["drop"] == ["ALL"]
    assert (security["privileged"], security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (
        False,
        False,
        True,
    )
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_account_may_list_and_watch_pods_alone() -> None:
    manifests = yaml.safe_load_all((_DEPLOY / "kustomize" / "daemonset" / "otel-gpu.yaml").read_text())
    (role,) = (m for m in manifests if m["kind"] == "ClusterRole")

    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        ("otel_gpu/cli/run.py", False),
        ("ebpf/lib/caller.bpf.h", False),
        ("scripts/bundle_libbpf.sh", False),
        ("otel_gpu/bpf/objects/cuda.x86_64.bpf.o", True),
        ("otel_gpu/cli/__pycache__/run.cpython-311.pyc", True),
        (".git/config", True),
        ("tests/unit/test_generated_abi.py", True),
        (".venv/bin/python", True),
        ("secrets.env", True),
    ],
)
def test_it_is_made_of_sources_and_nothing_else(name: str, ignored: bool) -> None:
    rules = [line for line in (_TREE / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]

    assert is_ignored(name, rules) is ignored
