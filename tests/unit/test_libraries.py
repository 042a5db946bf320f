"""A file is what it exports, whatever it is called; and what is no ELF file is nothing."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.discovery.catalogue import LibraryCatalogue
from otel_gpu.discovery.drivers import libraries_at
from otel_gpu.discovery.libraries import LibraryKind, class_of, exports
from otel_gpu.errors import ElfError
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.sandbox.files import FileId, MappedFile
from otel_gpu.sandbox.parsers import Parsers

DRIVER = ("cuInit", "cuLaunchKernel", "cuCtxSynchronize")
RUNTIME = ("cudaLaunchKernel", "cudaMalloc")


def kind_of(file: Path) -> LibraryKind | None:
    with ElfFile(file) as elf:
        return class_of(elf, file.name).kind


def build(directory: Path, names: tuple[str, ...], *flags: str, extra: str = "") -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not there to make a library")
    source = directory / "source.c"
    padding = "".join(f"int f{n}(void) {{ return {n}; }}\n" for n in range(200))
    source.write_text(padding + extra + "".join(f"int {name}(void) {{ return 1; }}\n" for name in names))
    library = directory / "library.bin"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,--build-id", *flags, "-o", library, source], check=True)
    return library


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
@pytest.mark.parametrize(("names", "kind"), [(DRIVER, LibraryKind.DRIVER), (RUNTIME, LibraryKind.RUNTIME)])
def test_a_library_is_known_by_what_it_exports(
    tmp_path: Path, names: tuple[str, ...], kind: LibraryKind, style: str
) -> None:
    library = build(tmp_path, names, f"-Wl,--hash-style={style}")
    subprocess.run(["strip", library], check=True)

    with Parsers() as parsers:
        ((found, file),) = libraries_at(parsers, [str(library)])

    assert (found.kind, found.path, file.path) == (kind, str(library), os.fsencode(library))
    assert found.id == FileId.of(library.stat())
    assert found.build_id


FINDS = '#include <dlfcn.h>\nvoid *found(void) { return dlsym((void *)-1L, "cuInit"); }\n'
OPENS = '#include <dlfcn.h>\nvoid *opened(void) { return dlopen("%s", 2); }\n'


@pytest.mark.parametrize(
    ("extra", "soname", "is_driver"),
    [
        ("", "libcuda.so.1", True),
        ("", "libvgpu.so", True),
        (FINDS, "libvgpu.so", False),
        (FINDS, "libcuda.so.1", True),
        (FINDS, "libcudart_shim.so", False),
        (FINDS, None, False),
        (OPENS % "libcuda.so.1", "libtensorflow_framework.so.2", False),
        (OPENS % "libcuda.so.1", "libcuda.so.1", True),
        (OPENS % "libnvidia-ml.so.1", "libcuda.so.1", True),
        (OPENS % "/opt/driver/libcuda.so.1", "libcuda.so.1", False),
        (OPENS % "libcuda_real.so", "libcuda.so.1", False),
        (OPENS % "libcuda.so.535.54.03", "libcuda.so.1", False),
        ('const char *said = "/usr/lib/libcuda.so.1";\n', "libcuda.so.1", True),
    ],
)
def test_what_finds_a_driver_and_calls_on_is_none(
    tmp_path: Path, extra: str, soname: str | None, is_driver: bool
) -> None:
    flags = [] if soname is None else [f"-Wl,-soname,{soname}"]

    assert (kind_of(build(tmp_path, DRIVER, *flags, extra=extra)) is LibraryKind.DRIVER) == is_driver


def test_what_is_linked_against_a_driver_is_none(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = build(tmp_path / "real", DRIVER, "-Wl,-soname,libcuda.so.535")

    shim = build(tmp_path, DRIVER, "-Wl,-soname,libcuda.so.1", "-Wl,--no-as-needed", os.fspath(real))

    assert (kind_of(real), kind_of(shim)) == (LibraryKind.DRIVER, None)


def test_a_file_without_a_name_inside_is_told_by_its_own(tmp_path: Path) -> None:
    library = build(tmp_path, DRIVER, extra=FINDS).rename(tmp_path / "libcuda.so.1.1")

    assert kind_of(library) is LibraryKind.DRIVER


def test_a_library_that_lacks_one_function_is_not_it(tmp_path: Path) -> None:
    assert kind_of(build(tmp_path, DRIVER[:2])) is None


def test_a_library_that_only_uses_the_functions_is_not_it(tmp_path: Path) -> None:
    extra = "".join(f"int {n}(void); int use_{n}(void) {{ return {n}(); }}\n" for n in DRIVER)

    library = build(tmp_path, (), extra=extra)

    with ElfFile(library) as elf:
        assert not exports(elf, DRIVER)
        assert exports(elf, ("use_cuInit", "f199"))
    assert kind_of(library) is None


def test_a_program_with_device_code_has_a_runtime_of_its_own(tmp_path: Path) -> None:
    extra = '__attribute__((section(".nv_fatbin"))) int device_code = 1;\n'

    assert kind_of(build(tmp_path, (), extra=extra)) is LibraryKind.STATIC_RUNTIME


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01\x01" + b"\xff" * 100])
def test_what_is_no_elf_file_is_nothing(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)

    with Parsers() as parsers:
        assert list(libraries_at(parsers, [str(file)])) == []


def mapping(file: Path, *, inode: int | None = None) -> MappedFile:
    """Say that this process has a file mapped; the kernel knows nothing of it, so it is opened by its path."""
    status = file.stat()
    device = os.major(status.st_dev), os.minor(status.st_dev)
    return MappedFile(os.getpid(), 0x1000, 0x2000, 0, device, inode or status.st_ino, os.fsencode(file))


def test_a_file_is_looked_at_once_however_many_map_it(tmp_path: Path) -> None:
    file = mapping(build(tmp_path, DRIVER))
    with Parsers() as parsers:
        catalogue = LibraryCatalogue(parsers)
        ((shown, first),) = catalogue.look_up([file, file], [1, 1])
        parsers.close()

        assert shown is file
        assert list(catalogue.look_up([file], [1])) == [(file, first)]


def test_a_file_that_is_not_the_one_that_is_mapped_is_not_believed(tmp_path: Path) -> None:
    library = build(tmp_path, DRIVER)
    with Parsers() as parsers:
        catalogue = LibraryCatalogue(parsers)

        assert list(catalogue.look_up([mapping(library, inode=library.stat().st_ino + 1)], [1])) == []
        assert [found.kind for _, found in catalogue.look_up([mapping(library)], [1])] == [LibraryKind.DRIVER]


def test_one_bad_file_costs_the_others_nothing(tmp_path: Path) -> None:
    library = build(tmp_path, DRIVER)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "device").symlink_to("/dev/watchdog")
    (tmp_path / "text").write_text("no library")
    files = [mapping(tmp_path / "fifo"), mapping(tmp_path / "text"), mapping(library)]
    with Parsers() as parsers:
        found = list(LibraryCatalogue(parsers).look_up(files))

    assert [(file.path, library.kind) for file, library in found] == [(os.fsencode(library), LibraryKind.DRIVER)]


def test_no_further_file_is_looked_at_once_the_agent_ends(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("one", "other")]
    for place in places:
        place.mkdir()
    ends = threading.Event()
    with Parsers() as parsers:
        catalogue = LibraryCatalogue(parsers, ends.is_set)
        found = catalogue.look_up([mapping(build(place, DRIVER)) for place in places])
        assert next(found)[1].kind is LibraryKind.DRIVER
        ends.set()

        assert list(found) == []


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return build(tmp_path_factory.mktemp("image"), DRIVER, "-Wl,--hash-style=both").read_bytes()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 15), st.integers(0, 255)), max_size=30), st.integers(0, 1 << 15))
def test_a_damaged_library_is_told_or_is_nothing(
    image: bytes, tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(image)
    for position, value in damage:
        data[position % len(data)] = value
    file = tmp_path_factory.getbasetemp() / f"damaged-{os.getpid()}"
    file.write_bytes(bytes(data[: len(data) - cut % len(data) // 2]))

    try:
        found = kind_of(file)
    except (ElfError, struct.error):
        return
    assert found is None or found in LibraryKind


def test_a_file_of_another_machines_width_is_refused(tmp_path: Path, image: bytes) -> None:
    file = tmp_path / "narrow"
    file.write_bytes(image[:4] + b"\x01" + image[5:])

    with pytest.raises(ElfError):
        ElfFile(file)
