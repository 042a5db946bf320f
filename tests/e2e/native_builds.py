"""How is a native program built in every way that changes how its stacks can be walked?"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import ground

_C, _CXX, _LATE = (ground.PROGRAMS / f"native_shapes{rest}" for rest in (".c", "_cxx.cc", "_late.c"))
BARE = ground.PROGRAMS / "native_bare.c"
_PT_GNU_EH_FRAME = 0x6474E550


@dataclass(frozen=True)
class Build:
    """One way to build native_shapes."""

    name: str
    flags: tuple[str, ...] = ("-O2",)
    link: tuple[str, ...] = ()
    compilers: tuple[str, str] = ("gcc", "g++")
    with_cxx: bool = True
    change: Callable[[bytearray], None] | None = None
    """What is done to the linked file."""
    packed: bool = False
    """Compressed by UPX, and unpacked in memory by itself."""
    source: Path = _C

    def make(self, directory: Path) -> Path:
        """Compile and link; skips where a tool is missing."""
        for tool in self.compilers:
            if shutil.which(tool) is None:
                pytest.skip(f"needs {tool}")
        c, cxx = self.compilers
        objects = [directory / "shapes.o"]
        defines, library = ["-DWITH_CXX"] if self.with_cxx else [], None
        if "-z,lazy" in " ".join(self.link):
            defines.append("-DWITH_LATE")
            library = directory / "liblate.so"
            _run(c, "-shared", "-fPIC", *self.flags, "-o", library, _LATE)
        _run(c, "-c", "-g0", *self.flags, *defines, "-o", objects[0], self.source)
        if self.with_cxx:
            objects.append(directory / "shapes_cxx.o")
            _run(cxx, "-c", "-g0", *self.flags, "-o", objects[1], _CXX)
        if library is not None:
            objects.append(library)
        program = directory / "native_shapes"
        flags = [*self.flags, *self.link, *(["-rdynamic", f"-Wl,-rpath,{directory}"] if library else [])]
        _run(cxx if self.with_cxx else c, *flags, "-o", program, *objects, "-ldl", "-pthread")
        if self.change is not None:
            image = bytearray(program.read_bytes())
            self.change(image)
            program.write_bytes(image)
        if self.packed:
            _run(ground.part("upx"), "-q", program)
        return program


def lld() -> tuple[str, ...]:
    """Return the flags that link by lld: LLVM's, or the one that comes with Rust."""
    if shutil.which("ld.lld"):
        return ("-fuse-ld=lld",)
    if shutil.which("rustc"):
        root = subprocess.run(
            ["rustc", "--print", "sysroot"], capture_output=True, text=True, check=False
        ).stdout.strip()
        for folder in Path(root).glob("lib/rustlib/*/bin/gcc-ld"):
            return ("-fuse-ld=lld", f"-B{folder}")
    return ("-fuse-ld=lld",)


def without_sections(image: bytearray) -> None:
    """Remove the section table, as sstrip and packers do."""
    struct.pack_into("<Q", image, 40, 0)
    struct.pack_into("<HH", image, 60, 0, 0)


def without_frame_header(image: bytearray) -> None:
    """Make the program header that leads to .eh_frame_hdr mean nothing."""
    (at,), (size, number) = struct.unpack_from("<Q", image, 32), struct.unpack_from("<HH", image, 54)
    for header in range(at, at + size * number, size):
        if struct.unpack_from("<I", image, header)[0] == _PT_GNU_EH_FRAME:
            struct.pack_into("<I", image, header, 0)


def without_both(image: bytearray) -> None:
    """Leave nothing that leads to .eh_frame."""
    without_frame_header(image)
    without_sections(image)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{command[0]} cannot: {done.stderr.strip().splitlines()[:1]}")
