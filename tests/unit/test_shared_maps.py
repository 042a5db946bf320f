"""Do objects of one agent look into the same maps? One that is shared by its source alone would be empty in one of them."""

from __future__ import annotations

import pytest

from otel_gpu.bpf import object as bpf_object
from otel_gpu.components.counting.shared import REQUEST_MAPS, REQUEST_TABLES
from otel_gpu.receivers.nccl import loading as nccl
from otel_gpu.receivers.profiles import blocked
from otel_gpu.receivers.profiles import receiver as profiles
from otel_gpu.receivers.rdma import receiver as rdma
from otel_gpu.sandbox.elf import ElfFile

_COUNTING = ("cuda", "cuda_before_5_17")
_OF_DEAD_CODE = {"contexts", "primaries", "placed", "captured_kernels"}
"""Of functions of shared headers that the programs for profiles never call."""


def _maps(name: str, machine: str) -> set[str]:
    path = bpf_object._OBJECTS / f"{name}.{machine}.bpf.o"
    if not path.exists():
        pytest.skip(f"{path.name} is not built; run `make bpf`")
    with ElfFile(path) as elf:
        return {s.name for s in elf.symbols(".symtab") if elf.sections[s.section].name == ".maps"}


@pytest.mark.parametrize("machine", ("x86_64", "aarch64"))
@pytest.mark.parametrize("counting", _COUNTING)
@pytest.mark.parametrize(
    ("name", "shared", "own"),
    (
        ("inference", {*REQUEST_MAPS}, {"targets"}),
        ("profile", {*profiles._SHARED, *REQUEST_TABLES, "obi_map"}, {"losses", *_OF_DEAD_CODE}),
        ("rdma", {*rdma._SHARED}, {"targets"}),
        ("nccl", {*nccl._SHARED}, {"losses", "targets"}),
        ("nccl_before_5_17", {*nccl._SHARED}, {"losses", "targets"}),
    ),
)
def test_a_map_of_those_that_count_is_shared_or_is_said_to_be_another(
    name: str, shared: set[str], own: set[str], counting: str, machine: str
) -> None:
    assert _maps(name, machine) & _maps(counting, machine) == (shared & _maps(name, machine)) | own


@pytest.mark.parametrize("machine", ("x86_64", "aarch64"))
def test_stacks_of_waiting_threads_look_where_profiles_look(machine: str) -> None:
    both = _maps("blocked", machine) & _maps("profile", machine)

    assert both == {*blocked._SHARED, "targets"}


@pytest.mark.parametrize("machine", ("x86_64", "aarch64"))
def test_whoever_charges_requests_has_the_tables_where_those_that_count_have_them(machine: str) -> None:
    counting = _maps("cuda", machine)

    assert {*REQUEST_MAPS} <= counting
    assert {*REQUEST_MAPS} <= _maps("inference", machine)
