"""Are kernel names read from registrations right in every shape of machine code, and in stripped files?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.errors import ElfError
from otel_gpu.receivers.cuda.kernel_names import stubs
from otel_gpu.receivers.cuda.kernel_names.cache import SymbolCache
from otel_gpu.receivers.cuda.kernel_names.stub_map import StubMap, clean_name
from otel_gpu.receivers.cuda.kernel_names.stubs import read_stub_map
from otel_gpu.sandbox.address_spans import Span, merge
from otel_gpu.sandbox.elf import ElfFile
from tests.plain_stub_reader import handles, read_plainly

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

# What nvcc generates, in C: a stub for each kernel, a constructor that registers them, a variable for each handle.
# The runtime is a file of its own, as it is for nvcc: the compiler must not know what its functions leave alone.
RUNTIME = r"""
#define NOINLINE __attribute__((noinline, noclone))
NOINLINE void __cudaRegisterFunction(void **module, const char *stub, char *kernel, const char *name, int limit,
                                     void *a, void *b, void *c, void *d, int *e)
{ __asm__ volatile("" ::"r"(module), "r"(stub), "r"(kernel), "r"(name), "r"(limit), "m"(a), "m"(b), "m"(c), "m"(d), "m"(e)); }
NOINLINE int __cudaGetKernel(void **handle, const void *stub) { *handle = (void *)stub; return 0; }
NOINLINE int launch(void *handle, int n) { __asm__ volatile("" ::"r"(handle), "r"(n)); return n; }
NOINLINE int attribute(const void *stub, long a, long b, long c, int limit)
{ __asm__ volatile("" ::"r"(stub), "r"(a), "r"(b), "r"(c), "r"(limit)); return limit; }
"""
SOURCE = r"""
#define NOINLINE __attribute__((noinline, noclone))
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
int __cudaGetKernel(void **, const void *);
int launch(void *, int);
int attribute(const void *, long, long, long, int);
static void *module;

#define KERNEL(stub, text)                                                                            \
    NOINLINE LINKAGE void stub(int n)                                                                 \
    { static void *handle; static int once;                                                           \
      if (!once) { once = 1; __cudaGetKernel(&handle, (const void *)stub); }                          \
      launch(handle, n); }
#define REGISTER(stub, text) __cudaRegisterFunction(&module, (const char *)stub, (char *)text, text, -1, 0, 0, 0, 0, 0);
#define KERNELS(X) X(first, "_Z5firsti") X(second, "_Z6secondi") X(third, "odd \x1b name")
KERNELS(KERNEL)
__attribute__((constructor)) static void register_all(void) { KERNELS(REGISTER) }

NOINLINE int sets_a_fifth_argument(int n) { return attribute((const void *)second, n, n, n, -1); }
NOINLINE int cudaLaunchKernel(int n) { static const char *name; name = "cudaLaunchKernel"; __asm__ volatile("" ::"r"(name), "r"(n)); return n + 1; }
NOINLINE int cudaFree(int n) { static const char *name; name = "cudaFree"; __asm__ volatile("" ::"r"(name), "r"(n)); return n + 2; }
NOINLINE const char *api_name(int n) { return n ? "cudaMalloc" : "cudaMemcpy"; }
int main(int n, char **v) { first(n); second(n); third(n); return sets_a_fifth_argument(n) + cudaLaunchKernel(n) + cudaFree(n) + *api_name(n); }
"""
NAMES = {"first": "_Z5firsti", "second": "_Z6secondi", "third": "odd \\x1b name"}
SHAPES = {
    "O0": ["-O0"],
    "O2": ["-O2"],
    "Os": ["-Os"],
    "fixed address": ["-O2", "-fno-pie", "-no-pie"],
    "shared, stubs through the GOT": ["-O2", "-fPIC", "-shared", "-DEXPORTED"],
    "shared, hidden": ["-O1", "-fPIC", "-shared"],
    "shared, stubs through packed relocations": [
        "-O2",
        "-fPIC",
        "-shared",
        "-DEXPORTED",
        "-Wl,-z,pack-relative-relocs",
    ],
    "shared, functions through the GOT": ["-O2", "-fPIC", "-shared", "-DEXPORTED", "-fno-plt"],
    "endbr64": ["-O2", "-fcf-protection=full"],
}


def build(directory: Path, flags: list[str]) -> Path:
    source = directory / "program.c"
    linkage = "" if "-DEXPORTED" in flags else "static"
    source.write_text(f"#define LINKAGE {linkage}\n{SOURCE}")
    runtime = directory / "runtime.c"
    runtime.write_text(RUNTIME)
    program = directory / "program"
    subprocess.run(["gcc", "-w", *flags, "-Wl,--build-id", "-o", program, source, runtime], check=True)
    return program


def addresses(path: Path) -> dict[str, int]:
    with ElfFile(path) as elf:
        return {s.name: s.value for s in elf.symbols(".symtab")}


@pytest.mark.parametrize("flags", SHAPES.values(), ids=SHAPES)
def test_stubs_and_handle_variables_of_a_stripped_file_have_their_names(tmp_path: Path, flags: list[str]) -> None:
    program = build(tmp_path, flags)
    truth = addresses(program)
    subprocess.run(["strip", program], check=True)

    with ElfFile(program) as elf:
        found = read_stub_map(elf)

    assert dict(zip(found.stubs, found.names, strict=True)) == {truth[stub]: name for stub, name in NAMES.items()}
    variables = {truth[s] for s in truth if s.startswith("handle.")}
    assert set(found.handle_variables) == variables
    assert set(handles(found).values()) == set(NAMES.values())
    assert found.skipped == 0


@pytest.mark.parametrize("flags", SHAPES.values(), ids=SHAPES)
def test_what_is_read_is_what_decoding_everything_tells(tmp_path: Path, flags: list[str]) -> None:
    with ElfFile(build(tmp_path, flags)) as elf:
        found, plain = read_stub_map(elf), read_plainly(elf)

    assert dict(zip(found.stubs, found.names, strict=True)) == plain.names
    assert handles(found) == {variable: plain.names[stub] for variable, stub in plain.handles.items()}
    assert all(found.names_used_at(end) >= {plain.names[stub]} for _, end, stub in plain.users)


def test_the_function_around_a_launch_names_its_kernel(tmp_path: Path) -> None:
    program = build(tmp_path, ["-O2"])
    truth = addresses(program)

    with ElfFile(program) as elf:
        found = read_stub_map(elf)

    assert found.names_used_at(truth["second"] + 20) == {"_Z6secondi"}
    # It has a fifth argument of -1 as registrations do, but registers nothing.
    assert found.names_used_at(truth["sets_a_fifth_argument"] + 20) == {"_Z6secondi"}
    assert found.names_used_at(truth["launch"] + 4) == frozenset()
    assert found.names_used_at(0) == frozenset()


def test_a_file_without_kernels_has_an_empty_map() -> None:
    true = shutil.which("true")
    assert true is not None
    with ElfFile(true) as elf:
        assert len(read_stub_map(elf)) == 0


def test_damaged_code_gives_no_wrong_names(tmp_path: Path) -> None:
    program = build(tmp_path, ["-O2"])
    data = bytearray(program.read_bytes())
    with ElfFile(program) as elf:
        section = elf.section(".text")
        assert section is not None
    for at in range(section.offset, section.offset + section.size, 5):
        data[at] ^= 0x55
    program.write_bytes(data)

    with ElfFile(program) as elf:
        found = read_stub_map(elf)

    assert set(found.names) <= set(NAMES.values())


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return build(tmp_path_factory.mktemp("image"), ["-O2"]).read_bytes()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=20), st.integers(0, 1 << 16))
def test_a_damaged_file_is_refused_or_read_without_failing(
    image: bytes, damage: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(image)
    for position, value in damage:
        data[position % len(data)] = value

    try:
        elf = ElfFile.from_bytes(bytes(data[: len(data) - length % 4096]))
        found = read_stub_map(elf)
    except ElfError:
        return

    assert len(found) <= 10


def test_many_sections_over_the_same_code_are_read_once() -> None:
    assert merge([Span(0, 10), Span(5, 20), Span(0, 10), Span(30, 40)]) == [Span(0, 20), Span(30, 40)]


def test_decoding_has_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stubs, "_MAX_DECODED", 10)
    with ElfFile(build(tmp_path, ["-O2"])) as elf:
        found = read_stub_map(elf)

    assert (len(found), found.skipped) == (0, 1)


NAME = "0123456789abcdef"


def test_the_map_is_kept_on_disk_and_lost_when_damaged(tmp_path: Path) -> None:
    program = build(tmp_path, ["-O2"])
    cache = SymbolCache(tmp_path / "cache")

    with ElfFile(program) as elf:
        first = read_stub_map(elf)
    before = cache.read(NAME, "stubs", StubMap)
    cache.write(NAME, "stubs", first)
    (kept,) = cache.directory.iterdir()
    again = cache.read(NAME, "stubs", StubMap)
    names = cache.names("stubs"), cache.names("others")
    kept.write_bytes(kept.read_bytes()[:-3])
    after_damage = cache.read(NAME, "stubs", StubMap)

    assert before is None
    assert again == first
    assert names == ({NAME}, set())
    assert after_damage is None


@pytest.mark.parametrize("name", ["", "../../../../tmp/elsewhere", "0123456789abcdef/..", "x" * 20])
def test_only_a_hash_is_a_name_in_the_cache(tmp_path: Path, name: str) -> None:
    cache = SymbolCache(tmp_path / "a" / "cache")

    cache.write(name, "stubs", StubMap())

    assert cache.read(name, "stubs", StubMap) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [0, 3, 19, 20, 30])
def test_a_file_of_any_length_in_the_cache_is_survived(tmp_path: Path, length: int) -> None:
    cache = SymbolCache(tmp_path / "cache")

    cache.write(NAME, "stubs", StubMap())
    (kept,) = cache.directory.iterdir()
    kept.write_bytes(kept.read_bytes()[:length])

    assert cache.read(NAME, "stubs", StubMap) is None


def test_the_cache_stays_below_its_size(tmp_path: Path) -> None:
    cache = SymbolCache(tmp_path / "cache", max_bytes=300)

    for number in range(5):
        cache.write(NAME, f"kind{number}", StubMap.of({number: "x" * 10}))
    newest = cache.read(NAME, "kind4", StubMap)

    assert newest == StubMap.of({4: "x" * 10})
    assert sum(f.stat().st_size for f in cache.directory.iterdir()) <= 300


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = SymbolCache(blocked / "cache")

    cache.write(NAME, "stubs", StubMap())

    assert cache.read(NAME, "stubs", StubMap) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [(b"_Z4axpyPf", "_Z4axpyPf"), (b"a\nb\x00", "a\\nb\\x00"), (b"\xff", "\\xff"), (b"x" * 5000, "x" * 4093 + "...")],
)
def test_names_are_escaped_and_cut(raw: bytes, text: str) -> None:
    assert clean_name(raw) == text
