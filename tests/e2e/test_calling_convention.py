"""Do the arguments lie where the table says? Compilers for both machines are asked, row by row."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from otel_gpu.elf import EM_AARCH64, EM_X86_64
from otel_gpu.probes.hip import HIP
from otel_gpu.probes.hook import Hook, argument_location, is_by_value, positions
from otel_gpu.probes.table import DRIVER

HOOKS = [hook for hook in (*DRIVER, *HIP) if hook.parameters != ("void",)]
_X86_64_NAMES = {
    **{part: full for full in ("rdi", "rsi", "rdx", "rcx") for part in (full, "e" + full[1:], full[1:])},
    **{f"{full}{part}": full for full in ("r8", "r9") for part in ("", "d", "w", "b")},
    "dil": "rdi", "sil": "rsi", "dl": "rdx", "cl": "rcx",
}  # fmt: skip


def _x86_64(code: str) -> str:
    """Return where the value that a function stores came from, in AT&T syntax."""
    if stack := re.search(r"mov\w*\s+(\d+)\(%rsp\)", code):
        return f"[sp+{stack[1]}]"
    return _X86_64_NAMES[re.search(r"mov\w*\s+%(\w+), sink\w*\(%rip\)", code)[1]]


def _aarch64(code: str) -> str:
    if stack := re.search(r"ldr[bh]?\s+\w+, \[sp(?:, #(\d+))?\]", code):
        return f"[sp+{stack[1] or 0}]"
    return "x" + re.search(r"str[bh]?\s+[xw](\d+), \[", code)[1]


def _compile(hook: Hook, parameters: Iterable[str], target: str, directory: Path) -> dict[str, str]:
    """Return the code of one function for each parameter, which stores that parameter."""
    clang = shutil.which("clang-14") or shutil.which("clang")
    if clang is None:
        pytest.skip("clang is not installed")
    declared = hook.prototype[hook.prototype.index("(") + 1 : hook.prototype.rindex(")")]
    functions = [
        "typedef unsigned long long u64;",
        "typedef __SIZE_TYPE__ size_t;",
        "typedef struct { unsigned x, y, z; } dim3;",
        "typedef struct { void *ptr; size_t pitch, xsize, ysize; } hipPitchedPtr;",
        "typedef struct { size_t width, height, depth; } hipExtent;",
        "typedef struct { char bytes[64]; } hipIpcMemHandle_t, CUipcMemHandle;",
    ]
    for parameter in parameters:
        name, _, member = parameter.partition(".")
        kind = _type(hook, name)
        if kind.strip() == "dim3":
            kind, member = "unsigned ", f".{member or 'x'}"
        elif member:
            kind, member = "size_t ", f".{member}"
        symbol = parameter.replace(".", "_")
        functions += [f"__typeof__({kind}) sink_{symbol};"]
        functions += [f"void store_{symbol}({declared}) {{ sink_{symbol} = {name}{member}; }}"]
    source = directory / "rows.c"
    source.write_text("\n".join(functions))
    command = [clang, f"--target={target}", "-O1", "-fomit-frame-pointer", "-w", "-S", "-o", "-", source]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {p: text.split(f"\nstore_{p.replace('.', '_')}:")[1].split("ret")[0] for p in parameters}


def _type(hook: Hook, parameter: str) -> str:
    inside = hook.prototype[hook.prototype.index("(") + 1 : hook.prototype.rindex(")")]
    declaration = next(d.strip() for d in inside.split(",") if re.search(rf"\b{parameter}$", d.strip()))
    return declaration.removesuffix(parameter)


@pytest.mark.parametrize(
    "target, machine, source_of",
    (("x86_64-linux-gnu", EM_X86_64, _x86_64), ("aarch64-linux-gnu", EM_AARCH64, _aarch64)),
    ids=("x86_64", "aarch64"),
)
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_arguments_lie_where_the_table_says(
    hook: Hook, target: str, machine: int, source_of: Callable[[str], str], tmp_path: Path
) -> None:
    at = positions(hook.prototype, machine)
    plain = [p for p in at if not is_by_value(_type(hook, p.partition(".")[0]))]
    code = _compile(hook, plain, target, tmp_path)

    found = {parameter: source_of(code[parameter]) for parameter in plain}

    assert found == {p: argument_location(at.index(p), machine) for p in plain}


@pytest.mark.parametrize(
    ("name", "word", "position"), [("hipMemset3D", 4, 2), ("hipMemset3DAsync", 4, 2), ("hipMalloc3D", 0, 1)]
)
def test_an_extent_lies_where_the_programs_read_it(name: str, word: int, position: int, tmp_path: Path) -> None:
    """As extent_of in ebpf/cuda/extents.bpf.h has it: words of the stack, or behind a pointer."""
    hook = next(hook for hook in HIP if hook.name == name)
    members = {"extent.width": 0, "extent.height": 1, "extent.depth": 2}

    for parameter, code in _compile(hook, members, "x86_64-linux-gnu", tmp_path).items():
        assert _x86_64(code) == f"[sp+{8 * (1 + word + members[parameter])}]"
    for parameter, code in _compile(hook, members, "aarch64-linux-gnu", tmp_path).items():
        base, offset = re.search(r"ldr\s+x\d+, \[x(\d+)(?:, #(\d+))?\]", code).groups()
        assert (int(base), int(offset or 0)) == (position, 8 * members[parameter])
