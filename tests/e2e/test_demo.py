from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.truth import Truth

_ROOT = Path(__file__).parent.parent.parent
_SECONDS = 5


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Run the demo with nobody at the terminal; return what it printed, and its flame graph."""
    ground.part("mock")
    flame_graph = tmp_path_factory.mktemp("demo") / "demo.html"
    command = [sys.executable, "-m", "otel_gpu", "demo", "--duration", str(_SECONDS), "-o", str(flame_graph)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, flame_graph


def test_it_counts_what_the_program_says_it_did(demo: tuple[str, Path]) -> None:
    rows = re.findall(
        r"^(\S.*?) {2,}([\d,]+) +([\d,]+) +(equal|DIFFERENT)$", demo[0].replace(" \n", "\n"), re.MULTILINE
    )

    counted = {what: (int(ours.replace(",", "")), verdict) for what, ours, _, verdict in rows}
    assert set(counted) == {
        "launches",
        "graph launches",
        "kernels in graphs",
        "bytes to the GPU",
        "bytes from the GPU",
        "bytes allocated",
        "errors",
    }
    assert {verdict for _, verdict in counted.values()} == {"equal"}
    assert counted["launches"][0] > 1000


def test_it_shows_the_kernels_the_copies_and_the_waits(demo: tuple[str, Path]) -> None:
    for expected in ("flash_attention", "paged_attention", "pageable", "pinned", "cuStreamSynchronize"):
        assert expected in demo[0]


def test_it_leaves_a_flame_graph_with_the_programs_functions(demo: tuple[str, Path]) -> None:
    text, flame_graph = demo
    page = flame_graph.read_text()

    assert str(flame_graph) in text
    assert all(name in page for name in ("Server.prefill", "Server.decode", "cuLaunchKernel", "flash_attention"))


def test_the_program_does_not_outlive_the_demo(demo: tuple[str, Path]) -> None:
    pid = re.search(r"pid (\d+)", demo[0])

    assert pid is not None
    assert not os.path.exists(f"/proc/{pid[1]}")


def test_ctrl_c_ends_it_with_its_totals_and_its_flame_graph(tmp_path: Path) -> None:
    ground.part("mock")
    flame_graph = tmp_path / "demo.html"
    command = [sys.executable, "-m", "otel_gpu", "demo", "--duration", "100", "-o", str(flame_graph)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline().startswith("observing ")
        time.sleep(2)
        demo.send_signal(signal.SIGINT)
        text = demo.stdout.read()

    assert demo.returncode == 0
    assert text.count("equal") == 7
    assert flame_graph.exists()


@pytest.mark.torch
def test_its_pytorch_program_launches_and_stops_when_told(tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    command = [ground.torch_python(), "-m", "otel_gpu.cli.demo.inference_torch"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "LD_LIBRARY_PATH": str(ground.part("mock")),
        "MOCKCUDA_TRUTH": str(truth),
        "MOCKCUDA_STATE": "",
    }
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        print(file=program.stdin, flush=True)
        time.sleep(5)
        print(file=program.stdin, flush=True)
        assert json.loads(program.stdout.readline()) == {}
        program.send_signal(signal.SIGUSR2)
        while not truth.exists():
            time.sleep(0.01)
        program.stdin.close()

    assert program.returncode == 0
    assert sum(Truth.read(truth).launches.values()) > 1000
