"""Are NVIDIA's own libraries as the tables and the mock driver take them to be?"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.bpf.abi.rows import Family
from otel_gpu.discovery.libraries import LibraryKind, class_of
from otel_gpu.probes.attach import PlannedProbe, plan
from otel_gpu.probes.sites import Cost, SiteRules
from otel_gpu.probes.table import DRIVER
from otel_gpu.sandbox.elf import ElfFile
from tests.e2e import abi_calls, ground
from tests.e2e.abi_calls import Call
from tests.e2e.call_bench import Bench, open_bench
from tests.e2e.cuda_header import Parameter, prototypes

NOT_INITIALIZED = 3


def _plan(path: Path) -> dict[str, PlannedProbe]:
    with ElfFile(str(path)) as elf:
        return {probe.symbol: probe for probe in plan(elf, DRIVER, SiteRules.here())}


def test_the_real_driver_exports_what_the_table_and_its_own_header_name() -> None:
    named = {symbol for hook in DRIVER for symbol, _ in hook.symbols()}
    declared = prototypes(ground.part("header535")).keys()

    assert _plan(ground.part("driver")).keys() == named & declared


def test_every_site_in_the_real_driver_is_the_emulated_branch_behind_the_guard() -> None:
    sites = {(p.site, p.instruction.split()[0], p.cost) for p in _plan(ground.part("driver")).values()}

    assert sites == {(10, "je", Cost.EMULATED)}


def test_the_mock_driver_has_the_real_ones_sites() -> None:
    real, mock = _plan(ground.part("driver")), _plan(ground.part("mock") / "libcuda.so.1")

    assert {s: (mock[s].site, mock[s].cost) for s in real} == {s: (p.site, p.cost) for s, p in real.items()}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(ground.part("driver"), tmp_path_factory.mktemp("real")) as bench:
        yield bench


def test_a_launch_on_the_real_driver_is_decoded(real: Bench) -> None:
    names = ("f", *(f"{what}Dim{axis}" for what in ("grid", "block") for axis in "XYZ"), "sharedMemBytes")
    parameters = [Parameter("CUfunction" if name == "f" else "unsigned int", name) for name in names]
    parameters += [
        Parameter("CUstream", "hStream"),
        Parameter("void **", "kernelParams"),
        Parameter("void **", "extra"),
    ]
    call = Call("cuLaunchKernel", abi_calls.arguments(parameters, {}, 0), abi_calls.expected_rows("cuLaunchKernel"), {})

    rows = real.make(call, result=NOT_INITIALIZED)

    (expected,) = call.rows
    assert [(r.subject, r.count, r.sum_a, r.sum_b) for r in rows] == [
        (expected.subject, 1, expected.sum_a, expected.sum_b)
    ]


def test_what_the_real_driver_refuses_is_an_error(real: Bench) -> None:
    rows = real.make(Call("cuMemAlloc_v2", [{"bytes": bytes(8).hex()}, 4096], frozenset(), {}), result=NOT_INITIALIZED)

    assert [(Family(r.family), r.subject, r.count) for r in rows] == [(Family.ERROR, NOT_INITIALIZED, 1)]


@pytest.mark.parametrize(
    "part, below, kind",
    (
        ("cuda13", "lib/libcudart.so.13", LibraryKind.RUNTIME),
        ("cuda12", "cuda_runtime/lib/libcudart.so.12", LibraryKind.RUNTIME),
        ("driver", "", LibraryKind.DRIVER),
        ("mock", "libcuda.so.1", LibraryKind.DRIVER),
        ("cuprograms", "runtime_calls_13_static", LibraryKind.STATIC_RUNTIME),
        ("cuprograms", "runtime_calls_13_stripped", LibraryKind.STATIC_RUNTIME),
        ("programs", "launch_storm", None),
    ),
)
def test_a_file_is_known_by_what_it_holds_whatever_its_name(
    part: str, below: str, kind: LibraryKind | None, tmp_path: Path
) -> None:
    renamed = tmp_path / "some-name"
    shutil.copyfile(ground.part(part) / below if below else ground.part(part), renamed)

    with ElfFile(renamed) as elf:
        assert class_of(elf).kind is kind
