"""Is what NVIDIA's own NCCL is asked for counted as it was asked? Two devices of the mock driver, in one process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.nccl_ranks import exported_of, fnv

_SCRIPT = ground.PROGRAMS / "real_nccl.py"
_DEVICES = 2
_SENT = 4 * 60
_ASKED = {
    # Of both ranks: calls, and bytes as the conventions of nccl-tests count them.
    ("AllReduce", "float32", "sum"): (2 * 3, 2 * 3 * 4000),
    ("ReduceScatter", "float16", "max"): (2 * 2, 2 * 2 * 40),
    ("AllGather", "int32", None): (2 * 4, 2 * 4 * 120),
    ("Broadcast", "int8", None): (2 * 5, 2 * 5 * 40),
    ("Reduce", "float32", "sum"): (2, 2 * 200),
    ("Send", "float32", None): (2, 2 * _SENT),
    ("Recv", "float32", None): (2, 2 * _SENT),
}


@pytest.mark.parametrize("stripped", [False, True], ids=["as it comes", "stripped"])
@pytest.mark.parametrize("version", ["2.21.5", "2.30.7", "2.32.3"])
def test_every_call_of_the_real_library_is_counted(tmp_path: Path, version: str, stripped: bool) -> None:
    library = Path(shutil.copy(ground.nccl(version), tmp_path))
    if stripped:
        subprocess.run(["strip", library], check=True)

    metrics, said = exported_of(
        [sys.executable, _SCRIPT, library], tmp_path, {"MOCKCUDA_DEVICES": str(_DEVICES), "NCCL_DEBUG": ""}
    )

    calls, amounts = Counter(), Counter()
    for name, found in (("nccl.collective.calls", calls), ("nccl.collective.bytes", amounts)):
        for sample in metrics.named(name).samples:
            where = sample.attributes
            # Whose it is, is known of every call.
            assert where["nccl.comm.hash"] == fnv(bytes(said["id"]))
            assert (where["nccl.rank"], where["nccl.nranks"]) in ((0, _DEVICES), (1, _DEVICES))
            found[where["nccl.collective"], where["nccl.datatype"], where.get("nccl.reduction")] += sample.value
    assert {key: (calls[key], amounts[key]) for key in calls} == _ASKED
    major, minor, patch = map(int, version.split("."))
    assert said["version"] == major * 10_000 + minor * 100 + patch
