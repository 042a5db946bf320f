"""What does NVIDIA's cuda.h say? Prototypes and struct layouts, read with the machine's own C compiler."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_SCALARS = {"unsigned char": 1, "unsigned short": 2, "unsigned int": 4, "int": 4}
_WIDE = ("size_t", "unsigned long long", "cuuint64_t", "CUdeviceptr", "CUmemGenericAllocationHandle")
_INTS = ("CUdevice", "CUstreamCaptureMode", "CUmemAllocationHandleType")


@dataclass(frozen=True, slots=True)
class Parameter:
    type: str
    name: str

    @property
    def size(self) -> int:
        """Bytes of the argument: 8 for pointers and handles."""
        if self.type in _SCALARS:
            return _SCALARS[self.type]
        if self.type in _INTS:
            return 4
        return 8

    @property
    def is_pointer(self) -> bool:
        """True for pointers and for handles, which are pointers to what nobody sees."""
        return self.size == 8 and self.type not in _WIDE


def prototypes(include: Path) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of every function that cuda.h declares, all versions and variants."""
    text = subprocess.run(
        ["gcc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{include}", include / "cuda.h"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    declared = re.finditer(r"CUresult\s+(cu\w+)\s*\(([^;]*?)\)\s*;", text)
    return {match[1]: tuple(_parameters(match[2])) for match in declared}


def _parameters(text: str) -> Iterable[Parameter]:
    for declaration in text.split(","):
        words = " ".join(declaration.split())
        if words == "void":
            continue
        name = re.search(r"(\w+)$", words)[1]
        yield Parameter(words.removesuffix(name).strip(), name)


def layout(include: Path, structs: Mapping[str, Iterable[str]], directory: Path) -> dict[str, int]:
    """Return the offset of each `struct.field`, and the size of each `struct`, by compiling and running a program."""
    wanted = [(f"{s}.{f}", f"offsetof({s}, {f})") for s, fields in structs.items() for f in fields]
    wanted += [(s, f"sizeof({s})") for s in structs]
    lines = "\n".join(f'printf("%s %zu\\n", "{name}", (size_t){expression});' for name, expression in wanted)
    source = directory / "layout.c"
    source.write_text(f"#include <cuda.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{ {lines} }}\n")
    subprocess.run(["gcc", f"-I{include}", "-o", directory / "layout", source], check=True)
    out = subprocess.run([directory / "layout"], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in out.splitlines())}
