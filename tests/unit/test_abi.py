from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otel_gpu import abi
from otel_gpu.eh_frame import rows
from otel_gpu.receivers.inference import engine_events, records
from otel_gpu.receivers.rdma import records as rdma
from otel_gpu.unwind import loader
from tests.btf import Btf

OBJECTS = Path(abi.__file__).parent / "bpf" / "objects"
TYPES = {
    "row_key": abi.ROW_KEY,
    "row": abi.ROW,
    "counted_row": abi.COUNTED_ROW,
    "live_key": abi.LIVE_KEY,
    "live": abi.LIVE,
    "range_key": abi.RANGE_KEY,
    "busy_key": abi.BUSY_KEY,
    "period_part": abi.PERIOD_PART,
    "period_kind": abi.PERIOD_KIND,
    "period_sum": abi.PERIOD_SUM,
    "program_key": abi.PROGRAM_KEY,
    "program": abi.PROGRAM,
    "kernel": abi.KERNEL,
    "entered": abi.ENTERED,
    "sampler": abi.SAMPLER,
    "sampled_thread": abi.SAMPLED_THREAD,
    "remainder_key": abi.REMAINDER_KEY,
    "remainder": abi.REMAINDER,
    "gpu_totals": records.TOTALS,
    "gpu_work": records.WORK,
    "request": records.REQUEST,
    "no_owner_key": records.NO_OWNER_KEY,
    "followed": records.FOLLOWED,
    "own_span": records.OWN_SPAN,
    "span_source": records.SPAN_SOURCE,
    "engine_event": engine_events.ENGINE_EVENT,
    "engine": engine_events.ENGINE,
    "step": engine_events.STEP,
    "queue_pair_key": rdma.PAIR_KEY,
    "queue_pair": rdma.PAIR,
    "rdma_row_key": rdma.ROW_KEY,
    "rdma_row": rdma.ROW,
    "verbs_program": rdma.VERBS_PROGRAM,
    "unwind_mapping": loader.MAPPING,
    "unwind_row": rows.ROW,
}
SIZES = {
    "frame": abi.FRAME_SIZE,
    "busy": abi.BUSY.itemsize,
    "asked": abi.ASKED.size,
}


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def objects(request: pytest.FixtureRequest) -> list[Btf]:
    paths = sorted(OBJECTS.glob(f"*.{request.param}.bpf.o"))
    if not paths:
        pytest.skip("the BPF objects are not built: make bpf")
    return [Btf(p) for p in paths]


@pytest.mark.parametrize("name", TYPES)
def test_structures_have_the_fields_that_python_reads(name: str, objects: list[Btf]) -> None:
    found = [o.structs()[name] for o in objects if name in o.structs()]

    assert found, f"no object has a struct {name}"
    for compiled in found:
        mirrored = TYPES[name]
        assert compiled.size == mirrored.itemsize
        fields = {n: (offset, kind.itemsize) for n, (kind, offset, *_) in _fields(mirrored)}
        assert fields == compiled.members


@pytest.mark.parametrize("name", SIZES)
def test_structures_have_the_size_that_python_unpacks(name: str, objects: list[Btf]) -> None:
    found = {o.structs()[name].size for o in objects if name in o.structs()}

    assert found == {SIZES[name]}


def test_a_sample_has_its_frames_behind_its_head(objects: list[Btf]) -> None:
    sample = next(o.structs()["stack_sample"] for o in objects if "stack_sample" in o.structs())

    assert sample.members["frame"][0] == abi.SAMPLE.size


def _fields(kind: np.dtype) -> list[tuple[str, tuple[np.dtype, int]]]:
    assert kind.fields is not None
    return list(kind.fields.items())
