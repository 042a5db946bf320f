"""Has code that a runtime compiled the names that the runtime notes for perf?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import CPU
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.samples import record_samples

_UNNAMED = "[code made at run time]"


@pytest.mark.parametrize("options", [["--perf-basic-prof"], []], ids=["noted", "not noted"])
def test_functions_of_node_have_their_names(options: list[str], tmp_path: Path) -> None:
    node = shutil.which("node") or pytest.skip("no Node on this machine")
    with Program([node, *options, ground.PROGRAMS / "busy.js", "60"], tmp_path) as program:
        program.ready()
        try:
            with Recording(program.pid, (CPU,)) as recorder:
                (profile,) = record_samples(recorder, 60)
        finally:
            Path(f"/tmp/perf-{program.pid}.map").unlink(missing_ok=True)

    made = {f.function for sample in profile.samples for f in sample.stack if f.mapping is None}
    named = {name for name in made if name.startswith("JS:") and "Work " in name}
    if options:
        assert named
    else:
        assert _UNNAMED in made
        assert not named
