from __future__ import annotations

from pathlib import Path

import pytest

from otel_gpu.cli.demo import driver
from otel_gpu.cli.demo.program import Program
from otel_gpu.errors import OtelGpuError


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_real_driver", lambda: None)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_a_wheel_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_MOCK", tmp_path / "gone")

    with pytest.raises(OtelGpuError, match=r"on a host with an NVIDIA GPU, or `make demo` in a checkout"):
        driver.find()


@pytest.mark.usefixtures("no_gpu")
def test_a_checkout_without_its_mock_driver_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_MOCK", tmp_path)

    with pytest.raises(OtelGpuError, match=r"not built yet; build it with `make demo`"):
        driver.find()


@pytest.mark.usefixtures("no_gpu")
def test_a_checkout_runs_on_its_mock_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_MOCK", tmp_path)
    (tmp_path / "libcuda.so.1").touch()

    found = driver.find()

    assert (found.library, found.real) == (str(tmp_path / "libcuda.so.1"), False)
    assert found.environment["LD_LIBRARY_PATH"] == str(tmp_path)


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    broken = driver.DemoDriver(str(tmp_path), real=False, modules=())

    says = r"failed: .*no_such_program.*; see all of it with .* -I .* otel_gpu.cli.demo.no_such_program <"
    with Program(broken, "otel_gpu.cli.demo.no_such_program") as program, pytest.raises(OtelGpuError, match=says):
        program.load()
