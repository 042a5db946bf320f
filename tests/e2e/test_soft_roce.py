"""Is real RDMA seen as it is? Two soft-RoCE devices of a kernel that has them, in QEMU, with lost packets and refused requests.

The agent itself runs in the guest, with its own objects, on the guest's Python: what is tested is what is shipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.documents import ROOT
from tests.e2e import ground

_TOOLS = ("qemu-system-x86_64", "busybox", "cpio", "depmod", "modprobe", "rdma", "ip", "tc", "gcc")


@pytest.mark.machine
@pytest.mark.timeout(1500)
def test_real_rdma_is_counted_exactly() -> None:
    kernel = ground.kernel_with_modules("bookworm")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [tool for tool in _TOOLS if shutil.which(tool, path=path) is None]:
        pytest.skip(f"not installed here: {', '.join(missing)} (tests/ground/tools.sh)")

    done = subprocess.run(
        [ROOT / "tests" / "soft_roce" / "boot.sh", kernel],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    said = done.stdout.splitlines()
    assert said, done.stderr
    assert said[-1] == "check: end", done.stdout
    assert sum(line.startswith("check: EXACT") for line in said) == 18, done.stdout
    assert not [line for line in said if line.startswith(("check: WRONG", "check: FAILED"))], done.stdout
