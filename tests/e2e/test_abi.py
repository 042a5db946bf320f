"""Is every row of the hook table what cuda.h says, and is a call decoded as it was made?"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_gpu.bpf.abi.rows import BUCKET_NONE, Family, MemoryType
from otel_gpu.probes.hook import Hook
from otel_gpu.probes.table import DRIVER, FUNCTIONS
from otel_gpu.receivers.cuda.rows import RowDelta
from tests.e2e import abi_calls, ground
from tests.e2e.abi_calls import BYTES, PITCH, STREAM, Call, Row
from tests.e2e.call_bench import Bench, open_bench
from tests.e2e.cuda_header import Parameter, layout, prototypes

HOOKS: dict[str, Hook] = {symbol: hook for hook in DRIVER for symbol, _ in hook.symbols()}
COUNTED = [s for s in HOOKS if abi_calls.expected_rows(s)]
RETURNS = [s for s, hook in HOOKS.items() if hook.return_program and hook.family is not None]
FREES = {"cuMemFree_v2": "cuMemAlloc_v2", "cuMemFreeHost": "cuMemHostAlloc", "cuMemHostUnregister": "cuMemHostRegister",
         "cuMemFreeAsync": "cuMemAllocAsync", "cuMemRelease": "cuMemCreate"}  # fmt: skip
SIZES = {"char": 1, "short": 2, "unsigned": 4, "int": 4}
INVALID_VALUE = 1

Header = dict[str, tuple[Parameter, ...]]


@pytest.fixture(scope="module")
def include() -> Path:
    return ground.part("cuda13") / "include"


@pytest.fixture(scope="module")
def header(include: Path) -> Header:
    return prototypes(include)


@pytest.fixture(scope="module")
def offsets(include: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return layout(include, abi_calls.STRUCTS, tmp_path_factory.mktemp("layout"))


def _declared_sizes(hook: Hook) -> list[int]:
    inside = hook.prototype[hook.prototype.index("(") + 1 : hook.prototype.rindex(")")]
    if inside == "void":
        return []
    sizes = []
    for declaration in inside.split(","):
        words = re.sub(r"\w+$", "", declaration.strip()).split()
        sizes.append(8 if "*" in declaration else SIZES.get(words[-1], 8))
    return sizes


@pytest.mark.parametrize("symbol", HOOKS)
def test_the_prototype_is_that_of_cuda_h(symbol: str, header: Header) -> None:
    hook, parameters = HOOKS[symbol], header[symbol]

    # Versions of a function share a row; they differ in parameters that nothing reads: a mode, a context, flags.
    declared = _declared_sizes(hook)
    read = {hook.parameters.index(p) for p in (hook.stream, hook.host, hook.size, hook.size2, hook.out) if p}
    looked_at = read if hook.family is None else set(range(min(len(declared), len(parameters))))
    assert {i: declared[i] for i in looked_at} == {i: parameters[i].size for i in looked_at}
    if hook.family is not Family.WAIT:
        streams = [i for i, p in enumerate(parameters) if p.type == "CUstream"]
        assert streams == ([] if hook.stream is None else [hook.position(hook.stream)])
    if hook.host and hook.out and hook.family is Family.COPY:
        assert [parameters[hook.position(p)].name.rstrip("s") for p in (hook.out, hook.host)] == ["dst", "src"]
    elif hook.host:
        assert parameters[hook.position(hook.host)].name in ("srcHost", "dstHost")


def test_no_function_of_the_families_is_left_out(header: Header) -> None:
    families = r"cu(Launch|GraphLaunch|Memcpy|Memset|MemAlloc|MemFree|MemHost(Alloc|Reg|Unreg)|MemCreate|MemRelease|\w+Synchronize)"
    found = {name for name in header if re.match(families, name)}
    # What runs on the host; and the 32-bit functions of CUDA 3.1, which no 64-bit driver of today answers.
    host_functions = {n for n in found if n.startswith("cuLaunchHostFunc")}
    old = {n for n in found if f"{n}_v2" in found and n not in HOOKS}

    assert found - host_functions - old - HOOKS.keys() == set()


@pytest.fixture(scope="module")
def call(header: Header, offsets: dict[str, int]) -> Callable[[str], Call]:
    fresh = itertools.count(0xA_0000_4000, 0x1000)

    def make(symbol: str, address: int | None = None, **changed: int) -> Call:
        # An address of its own for each call, unless a test wants one that it knows.
        address = next(fresh) if address is None else address
        parameters = header[symbol]
        arguments = abi_calls.arguments(parameters, offsets, address)
        for name, value in changed.items():
            arguments[[p.name for p in parameters].index(name)] = value
        following = {"next_address": address, "next_pitch": PITCH}
        return Call(symbol, arguments, abi_calls.expected_rows(symbol), following)

    return make


def _stand_in(directory: Path, header: Header) -> Path:
    """Compile a library with every symbol of the table: allocations write their result, all return what is next."""
    lines = ["unsigned long long next_address, next_pitch, next_result;"]
    for symbol in HOOKS:
        out = [i for i, p in enumerate(header[symbol]) if p.type.endswith("*") and p.name in ("dptr", "pp", "handle")]
        pitch = [i for i, p in enumerate(header[symbol]) if p.name == "pPitch"]
        writes = "".join(f"*a{i} = next_address; " for i in out) + "".join(f"*a{i} = next_pitch; " for i in pitch)
        parameters = ", ".join(f"unsigned long long *a{i}" for i in range(len(header[symbol]))) or "void"
        lines.append(f"int {symbol}({parameters}) {{ {writes}return (int)next_result; }}")
    lines += [f"int {name}(void) {{ return 0; }}" for name in ("cuInit",) if name not in HOOKS]
    source, library = directory / "stand_in.c", directory / "libcuda.so.1"
    source.write_text("\n".join(lines))
    flags = ("-shared", "-fPIC", "-O1", "-fno-omit-frame-pointer", "-fcf-protection=none", "-fno-ipa-icf")
    subprocess.run(["gcc", *flags, "-w", "-o", library, source], check=True)
    return library


@pytest.fixture(scope="module")
def bench(header: Header, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("abi")
    with open_bench(_stand_in(directory, header), directory) as bench:
        yield bench


def _as_expected(rows: list[RowDelta], expected: frozenset[Row]) -> list[Row]:
    """Return what was counted, times left out where the expectation leaves them out."""
    timed = {row.family for row in expected if row.sum_a is None}
    return [
        Row(
            Family(row.family),
            row.subject,
            row.kind,
            row.count,
            None if Family(row.family) in timed else row.sum_a,
            row.sum_b,
        )
        for row in rows
    ]


@pytest.mark.parametrize("symbol", COUNTED)
def test_a_call_is_decoded_as_it_was_made(symbol: str, bench: Bench, call: Callable[..., Call]) -> None:
    made = call(symbol)

    rows = bench.make(made)

    counted = _as_expected(rows, made.rows)
    assert len(counted) == len(made.rows)
    assert set(counted) == made.rows
    for row in rows:
        family = Family(row.family)
        if family in (Family.WAIT, Family.ERROR):
            assert FUNCTIONS[row.function] == abi_calls.plain_name(symbol)
        if family in (Family.COPY, Family.MEMSET, Family.LAUNCH):
            # OTLP's bucket plus two: (2^(b-2), 2^(b-1)] holds every value of the row.
            assert 2 ** (row.bucket_a - 2) < row.sum_a / row.count <= 2 ** (row.bucket_a - 1) or row.sum_a == 1
        if family is Family.LAUNCH and not row.sum_b:
            assert row.bucket_b == BUCKET_NONE


EDGES = [0, 1, 2, 3, 4, 5, 1023, 1024, 1025, 2048, 2049, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 31) - 1]


def test_dimensions_stand_in_their_buckets_and_add_up(bench: Bench, call: Callable[..., Call]) -> None:
    # Alike and not, as rows count the first and the rest apart.
    grids = [*EDGES, *EDGES, *EDGES[::2]]
    for blocks, threads in [*((grid, 128) for grid in grids), *((6, edge) for edge in EDGES), (0xFFFF, 1), (0xFFFF, 1)]:
        one = dict.fromkeys(("gridDimY", "gridDimZ", "blockDimY", "blockDimZ"), 1)
        rows = bench.make(call("cuLaunchKernel", gridDimX=blocks, blockDimX=threads, **one))

        (row,) = (row for row in rows if row.family == Family.LAUNCH)
        assert (row.count, row.sum_a, row.sum_b) == (1, blocks, threads)
        assert row.bucket_a == (int(blocks - 1).bit_length() + 1 if blocks else 0)
        assert row.bucket_b == (int(threads - 1).bit_length() + 1 if threads else BUCKET_NONE)


@pytest.mark.parametrize("symbol", RETURNS)
def test_a_failed_call_is_an_error_and_nothing_else(symbol: str, bench: Bench, call: Callable[..., Call]) -> None:
    rows = bench.make(call(symbol), result=INVALID_VALUE)

    errors = [row for row in rows if Family(row.family) is Family.ERROR]
    assert [(e.subject, e.count) for e in errors] == [(INVALID_VALUE, 1)]
    assert FUNCTIONS[errors[0].function] == abi_calls.plain_name(symbol)
    assert {Family(row.family) for row in rows} <= {Family.ERROR, Family.WAIT}


@pytest.mark.parametrize("free", FREES)
def test_a_free_is_charged_with_what_was_allocated(free: str, bench: Bench, call: Callable[..., Call]) -> None:
    allocate = FREES[free]
    bench.make(call(allocate, 0x100_0000))

    freed = bench.make(call(free, 0x100_0000))
    again = bench.make(call(free, 0x100_0000))

    kind = abi_calls.memory_type(allocate)
    assert _as_expected(freed, frozenset()) == [Row(Family.FREE, kind=kind, sum_a=BYTES)]
    assert _as_expected(again, frozenset()) == [Row(Family.FREE, kind=MemoryType.UNKNOWN)]


def test_a_failed_free_leaves_the_allocation_live(bench: Bench, call: Callable[..., Call]) -> None:
    bench.make(call("cuMemAlloc_v2", 0x200_0000))
    bench.make(call("cuMemFree_v2", 0x200_0000), result=INVALID_VALUE)

    freed = bench.make(call("cuMemFree_v2", 0x200_0000))

    assert _as_expected(freed, frozenset()) == [Row(Family.FREE, kind=MemoryType.DEVICE, sum_a=BYTES)]


def test_an_address_given_twice_was_freed_in_between(bench: Bench, call: Callable[..., Call]) -> None:
    bench.make(call("cuMemAlloc_v2", 0x300_0000))

    rows = bench.make(call("cuMemAllocManaged", 0x300_0000))

    assert set(_as_expected(rows, frozenset())) == {
        Row(Family.ALLOC, kind=MemoryType.MANAGED, sum_a=BYTES),
        Row(Family.FREE, kind=MemoryType.DEVICE, sum_a=BYTES),
    }


@pytest.mark.parametrize("begin", [s for s in HOOKS if "Begin" in s])
def test_what_a_capture_records_is_not_counted(begin: str, bench: Bench, call: Callable[..., Call]) -> None:
    end = "cuStreamEndCapture_ptsz" if begin.endswith("_ptsz") else "cuStreamEndCapture"
    recorded = ("cuLaunchKernel", "cuLaunchKernelEx", "cuMemcpyAsync", "cuMemcpy2DAsync_v2", "cuMemsetD2D32Async",
                "cuGraphLaunch", "cuMemcpyBatchAsync_v2", "cuMemAllocAsync", "cuMemFreeAsync")  # fmt: skip

    bench.make(call(begin))
    during = {symbol: bench.make(call(symbol)) for symbol in recorded}
    elsewhere = bench.make(call("cuLaunchKernel", hStream=STREAM + 0x10))
    bench.make(call(end))
    after = bench.make(call("cuLaunchKernel"))

    assert during == {symbol: [] for symbol in recorded}
    assert len(elsewhere) == len(after) == 1


def test_a_capture_spreads_to_streams_that_wait_for_its_events(bench: Bench, call: Callable[..., Call]) -> None:
    joined, event = STREAM + 0x100, 0xEE
    bench.make(call("cuStreamBeginCapture_v2"))
    bench.make(call("cuEventRecord", hEvent=event))
    before = bench.make(call("cuLaunchKernel", hStream=joined))
    bench.make(call("cuStreamWaitEvent", hStream=joined, hEvent=event))

    during = bench.make(call("cuLaunchKernel", hStream=joined))
    bench.make(call("cuStreamEndCapture"))
    after = bench.make(call("cuLaunchKernel", hStream=joined))

    assert (len(before), during, len(after)) == (1, [], 1)


def test_stream_zero_is_the_threads_own_in_per_thread_variants(bench: Bench, call: Callable[..., Call]) -> None:
    per_thread = 2
    bench.make(call("cuStreamBeginCapture_v2_ptsz", hStream=0))

    recorded = (
        bench.make(call("cuLaunchKernel_ptsz", hStream=0)),
        bench.make(call("cuLaunchKernel", hStream=per_thread)),
    )
    legacy = bench.make(call("cuLaunchKernel", hStream=0))
    bench.make(call("cuStreamEndCapture", hStream=per_thread))

    assert recorded == ([], [])
    assert len(legacy) == 1


def test_a_capture_that_could_not_begin_records_nothing(bench: Bench, call: Callable[..., Call]) -> None:
    bench.make(call("cuStreamBeginCapture_v2"), result=INVALID_VALUE)

    assert len(bench.make(call("cuLaunchKernel"))) == 1
