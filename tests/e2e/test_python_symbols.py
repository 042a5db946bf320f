"""Python frames read from live processes must be the frames that those processes report themselves."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from types import CodeType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.bpf.abi.unwinding import PY_ABSENT, EntryRule, ThreadStatePlace
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.sandbox.memory import MemoryFault, ProcessMemory
from otel_gpu.stacks.cpython.code import CodeObjects, PythonFrame, Unresolved
from otel_gpu.stacks.cpython.layout import (
    DEBUG_OFFSETS_SIZE,
    PythonLayout,
    UnsupportedPythonError,
    code_checksum,
    layout_for,
)
from otel_gpu.stacks.cpython.process import observed_slot, thread_state_place
from otel_gpu.stacks.cpython.text import analyse_python
from tests.cpythons import CHURN, Interpreter, Situations, churning, find_image, interpreters
from tests.process_memory import memory_of
from tests.python_walk import PythonThreads

OWN_MEMORY = ProcessMemory(os.open("/proc/self/mem", os.O_RDONLY))


@pytest.mark.parametrize("interpreter", interpreters(), ids=lambda i: i.name)
def test_where_threads_have_their_states_is_seen_without_symbols(interpreter: Interpreter) -> None:
    if interpreter.missing:
        pytest.skip(interpreter.missing)
    with Situations(interpreter) as target, memory_of(target.pid) as memory:
        image = target.image()
        with ElfFile(image.path) as elf:
            binary = analyse_python(elf)
        assert binary is not None
        layout, runtime = binary.layout(), image.symbols["_PyRuntime"]

        kind, offset, _ = thread_state_place(layout, runtime, image.bias, memory)

        if kind == ThreadStatePlace.DTV:
            with pytest.raises(UnsupportedPythonError, match="a library that was stripped"):
                observed_slot(layout, runtime, memory, binary.tls_bytes)
        else:
            assert observed_slot(layout, runtime, memory, binary.tls_bytes) == offset


@pytest.mark.parametrize("interpreter", interpreters(with_jit=True), ids=lambda i: i.name)
def test_every_frame_of_every_thread_equals_what_the_interpreter_says(interpreter: Interpreter) -> None:
    if interpreter.missing:
        pytest.skip(interpreter.missing)
    with Situations(interpreter) as target, memory_of(target.pid) as memory:
        symbols = target.image().symbols
        runtime = symbols["_PyRuntime"]
        layout = layout_for(target.version[:2], memory.read(runtime, DEBUG_OFFSETS_SIZE))
        threads = PythonThreads(memory, layout, runtime)
        codes = CodeObjects(memory, layout, symbols["PyCode_Type"], symbols["PyUnicode_Type"])

        by_ident = {t.ident: t for t in threads}
        for truth in target.threads:
            thread = by_ident[truth.ident]
            records = threads.frames(thread)
            named = ((r, codes.resolve(r.code, r.instr, owner=r.owner)) for r in records)
            shown = [(r, f) for r, f in named if f is not Unresolved.INCOMPLETE]

            said = [PythonFrame(name, file, line, first) for name, file, line, _, first, *_ in truth.frames]
            assert [f for _, f in shown] == said, truth.name
            sums = [code_checksum(argc, kwonly, flags, first) for *_, first, argc, kwonly, flags in truth.frames]
            pairs = zip(shown, sums, strict=True)
            assert [codes.resolve(r.code, r.instr, owner=r.owner, checksum=s) for (r, _), s in pairs] == said
            assert [layout.lasti(r.code, r.instr) for r, _ in shown] == [f[3] for f in truth.frames], truth.name
            assert layout.tstate_native_id == PY_ABSENT or thread.native_id == truth.tid
            assert records[-1].is_entry
            if truth.name == "recursion":
                # From 3.11 Python calls Python without another activation of the eval loop.
                down = sum(r.is_entry for r, f in shown if isinstance(f, PythonFrame) and f.qualname.endswith("down"))
                assert down == (141 if layout.entry_rule is EntryRule.EACH else 0)


@pytest.mark.parametrize("interpreter", interpreters(), ids=lambda i: i.name)
def test_no_name_is_invented_while_code_objects_come_and_go(interpreter: Interpreter) -> None:
    if interpreter.missing:
        pytest.skip(interpreter.missing)
    with churning(interpreter) as pid, memory_of(pid) as memory:
        symbols = find_image(pid).symbols
        runtime = symbols["_PyRuntime"]
        layout = layout_for((3, interpreter.minor), memory.read(runtime, DEBUG_OFFSETS_SIZE))
        threads = PythonThreads(memory, layout, runtime)
        codes = CodeObjects(memory, layout, symbols["PyCode_Type"], symbols["PyUnicode_Type"])
        made = 0
        deadline = time.monotonic() + 20
        while made < 20:
            assert time.monotonic() < deadline
            # The thread runs on, so that chains tear and frames are gone before they are named.
            with contextlib.suppress(MemoryFault):
                records = [r for thread in threads for r in threads.frames(thread)]
                answers = [codes.resolve(r.code, r.instr, owner=r.owner) for r in records[:50]]
                frames = [a for a in answers if isinstance(a, PythonFrame)]
                made += sum(f.filename.startswith("/made/") for f in frames)
                assert [f for f in frames if not _is_of_churn(f)] == []


def _is_of_churn(frame: PythonFrame) -> bool:
    """Tell whether name and file belong together as the program makes them."""
    outer = frame.qualname.split(".")[0]
    if not frame.filename.startswith("/made/"):
        return (outer, frame.filename.rpartition("/")[2]) == ("<module>", CHURN.name)
    return outer in ("<module>", "<listcomp>") or frame.filename == f"/made/{outer}.py"


class Region:
    """Memory made of one mapped range, which remembers the largest read."""

    def __init__(self, base: int, data: bytes) -> None:
        self.base = base
        self.data = bytearray(data)
        self.largest = 0

    def read(self, address: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        at = address - self.base
        if not 0 <= at <= at + size <= len(self.data):
            raise MemoryFault(f"{address:#x} is not mapped")
        return bytes(self.data[at : at + size])


@pytest.fixture(scope="module")
def own_layout() -> PythonLayout:
    runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    try:
        return layout_for(sys.version_info[:2], ctypes.string_at(runtime, DEBUG_OFFSETS_SIZE))
    except UnsupportedPythonError as e:
        pytest.skip(f"the interpreter that runs the tests: {e}")


def code_objects(layout: PythonLayout, **options: int) -> CodeObjects:
    return CodeObjects(OWN_MEMORY, layout, id(CodeType), id(str), **options)


def instr(layout: PythonLayout, code: CodeType, units: int = 40) -> int:
    return units if layout.frame_instr_size == 4 else id(code) + layout.code_bytecode + 2 * units


def renamed(**changes: object) -> CodeType:
    return renamed.__code__.replace(**changes)  # type: ignore[arg-type]


@settings(max_examples=30)
@given(st.text(), st.text(), st.integers(1, 1 << 30))
def test_any_name_that_a_program_chooses_is_read_as_it_is(
    own_layout: PythonLayout, name: str, file: str, first: int
) -> None:
    named = {"co_qualname" if sys.version_info >= (3, 11) else "co_name": name}
    code = renamed(co_filename=file, co_firstlineno=first, **named)

    frame = code_objects(own_layout).resolve(id(code), instr(own_layout, code))

    assert isinstance(frame, PythonFrame)
    assert (frame.qualname, frame.filename, frame.first_line) == (shown(name), shown(file), first)


def shown(text: str) -> str:
    return "".join(f"\\x{ord(c):02x}" if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in text)


def test_a_name_of_a_million_characters_is_cut_and_marked(own_layout: PythonLayout) -> None:
    code = renamed(co_filename="é" * 1_000_000)

    frame = code_objects(own_layout).resolve(id(code), instr(own_layout, code))

    assert isinstance(frame, PythonFrame)
    assert frame.filename == "é" * 4096 + "…"


def test_an_undecodable_file_name_stays_printable(own_layout: PythonLayout) -> None:
    code = renamed(co_filename="/tmp/\udcff")

    frame = code_objects(own_layout).resolve(id(code), instr(own_layout, code))

    assert isinstance(frame, PythonFrame)
    assert frame.filename.encode().startswith(b"/tmp/")


def test_a_frame_before_its_first_traced_instruction_is_told_apart(own_layout: PythonLayout) -> None:
    if own_layout.code_first_traceable == PY_ABSENT:
        pytest.skip("before 3.11 every frame is complete")
    scope: dict[str, CodeType] = {}
    exec("def outer():\n    x = 1\n    return lambda: x\ncode = outer().__code__", scope)
    code = scope["code"]
    codes = code_objects(own_layout)

    assert codes.resolve(id(code), instr(own_layout, code, 0), owner=0) is Unresolved.INCOMPLETE
    # A generator's frame exists before it runs, and its owner is no reason to hide it; nor is an unknown owner.
    assert isinstance(codes.resolve(id(code), instr(own_layout, code, 0), owner=1), PythonFrame)
    assert isinstance(codes.resolve(id(code), instr(own_layout, code, 0)), PythonFrame)
    assert codes.resolve(id(code), instr(own_layout, code, 0), owner=0) is Unresolved.INCOMPLETE


def test_a_code_object_that_replaced_another_is_stale_by_its_checksum(own_layout: PythonLayout) -> None:
    code = renamed(co_firstlineno=77)
    seen = code_checksum(code.co_argcount, code.co_kwonlyargcount, code.co_flags, 77)
    codes = code_objects(own_layout)

    assert isinstance(codes.resolve(id(code), instr(own_layout, code), checksum=seen), PythonFrame)
    assert codes.resolve(id(code), instr(own_layout, code), checksum=seen + 1) is Unresolved.STALE


def test_a_name_known_already_is_not_given_to_the_next_object_at_the_address(own_layout: PythonLayout) -> None:
    first = renamed(co_name="first", co_firstlineno=5)
    second = renamed(co_name="second", co_firstlineno=6)
    size = sys.getsizeof(first)
    memory = Region(id(first), ctypes.string_at(id(first), size))
    codes = CodeObjects(Shadowed(memory), own_layout, id(CodeType), id(str))
    before = codes.resolve(id(first), instr(own_layout, first))

    memory.data[:] = ctypes.string_at(id(second), size)
    after = codes.resolve(id(first), instr(own_layout, first))

    assert isinstance(before, PythonFrame)
    assert isinstance(after, PythonFrame)
    assert (before.first_line, after.first_line) == (5, 6)


@pytest.mark.parametrize("count", [0, 0x7FFF_1234_5678])
def test_a_freed_code_object_gets_no_name(own_layout: PythonLayout, count: int) -> None:
    code = renamed()
    memory = Region(id(code), ctypes.string_at(id(code), sys.getsizeof(code)))
    # What pymalloc leaves of a freed object: all but its first eight bytes.
    memory.data[:8] = count.to_bytes(8, "little")

    codes = CodeObjects(Shadowed(memory), own_layout, id(CodeType), id(str))

    assert codes.resolve(id(code), instr(own_layout, code)) is Unresolved.STALE


def test_a_code_object_freed_during_the_read_gets_no_name(own_layout: PythonLayout) -> None:
    code = renamed()
    memory = Region(id(code), ctypes.string_at(id(code), sys.getsizeof(code)))
    codes = CodeObjects(Vanishing(memory), own_layout, id(CodeType), id(str))

    assert codes.resolve(id(code), instr(own_layout, code)) is Unresolved.STALE


class Shadowed:
    """This process's memory, with one region in place of what is there."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self._own = OWN_MEMORY

    def read(self, address: int, size: int) -> bytes:
        try:
            return self.region.read(address, size)
        except MemoryFault:
            return self._own.read(address, size)


class Vanishing(Shadowed):
    """The region's reference count falls to 0 after its first read."""

    def read(self, address: int, size: int) -> bytes:
        data = super().read(address, size)
        self.region.data[:8] = bytes(8)
        return data


@pytest.mark.parametrize("address", [0, 8, 1 << 47, 1 << 63, (1 << 64) - 8])
def test_an_address_that_is_not_mapped_is_unreadable(own_layout: PythonLayout, address: int) -> None:
    assert code_objects(own_layout).resolve(address, address) is Unresolved.UNREADABLE


def test_another_object_is_no_code(own_layout: PythonLayout) -> None:
    other = [None] * 100

    assert code_objects(own_layout).resolve(id(other), id(other)) is Unresolved.NOT_CODE


def test_a_process_that_has_ended_is_gone(own_layout: PythonLayout) -> None:
    with subprocess.Popen(["sleep", "60"]) as process, memory_of(process.pid) as memory:
        process.kill()
        process.wait()

        assert CodeObjects(memory, own_layout).resolve(0x1000, 0) is Unresolved.GONE


@given(
    st.integers(8, 12),
    st.lists(st.integers(0, 400).map(lambda n: 0x10000 + 8 * n) | st.integers(0, (1 << 64) - 1)),
    st.data(),
)
def test_any_memory_gives_a_frame_or_a_reason_and_bounded_reads(
    minor: int, words: list[int], data: st.DataObject
) -> None:
    image = b"".join(w.to_bytes(8, "little") for w in words) + data.draw(st.binary(max_size=64))
    memory = Region(0x10000, image * 8)
    codes = CodeObjects(memory, layout_for((3, minor)))

    answer = codes.resolve(data.draw(st.integers(0x10000, 0x10000 + 512)), data.draw(st.integers(0, 1 << 32)))

    assert isinstance(answer, (PythonFrame, Unresolved))
    assert memory.largest <= 1 << 20


def test_what_is_remembered_is_bounded_in_bytes(own_layout: PythonLayout) -> None:
    codes = code_objects(own_layout, budget_bytes=100_000)
    made = [renamed(co_firstlineno=n, co_filename=f"{n}" * 5_000) for n in range(1, 60)]

    answers = [codes.resolve(id(c), instr(own_layout, c)) for c in made * 2]

    assert [a.first_line for a in answers if isinstance(a, PythonFrame)] == [*range(1, 60)] * 2
    assert 0 < len(codes) < 30
    assert codes.size_bytes <= 100_000


def test_an_object_larger_than_the_budget_is_named_and_forgotten(own_layout: PythonLayout) -> None:
    codes = code_objects(own_layout, budget_bytes=100)
    code = renamed()

    assert isinstance(codes.resolve(id(code), instr(own_layout, code)), PythonFrame)
    assert (len(codes), codes.size_bytes) == (0, 0)
