"""Do the arguments lie where the table says? Compilers for both machines are asked, row by row."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_gpu.probes.hip import HIP
from otel_gpu.probes.hook import Hook, argument_location, is_by_value, positions
from otel_gpu.probes.table import DRIVER
from otel_gpu.sandbox.elf import EM_AARCH64, EM_X86_64
from scripts.generate_abi import clang as find_clang

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


_TYPES = [
    "typedef unsigned long long u64;",
    "typedef __SIZE_TYPE__ size_t;",
    "typedef struct { unsigned x, y, z; } dim3;",
    "typedef struct { void *ptr; size_t pitch, xsize, ysize; } hipPitchedPtr;",
    "typedef struct { size_t width, height, depth; } hipExtent;",
    "typedef struct { char bytes[64]; } hipIpcMemHandle_t, CUipcMemHandle;",
]
_EXTENTS = {"hipMemset3D": (4, 2), "hipMemset3DAsync": (4, 2), "hipMalloc3D": (0, 1)}
"""Words of the stack before an extent, and the position of the pointer to it."""
_MEMBERS = {"extent.width": 0, "extent.height": 1, "extent.depth": 2}
Stores = dict[tuple[str, str], str]
"""The code of a function that stores one parameter, by the function of the table and the parameter."""


def _compile(target: str, directory: Path) -> Stores:
    """Return the code for every parameter of every row: a compiler's start takes longer than all of them."""
    clang = find_clang()
    if clang is None:
        pytest.skip("clang is not installed")
    lines, names = list(_TYPES), {}
    for hook in HOOKS:
        for parameter in [*_plain(hook, EM_X86_64), *(_MEMBERS if hook.name in _EXTENTS else ())]:
            symbol = f"store_{len(names)}"
            lines += _storing(hook, parameter, symbol)
            names[symbol] = hook.name, parameter
    source = directory / "rows.c"
    source.write_text("\n".join(lines))
    command = [clang, f"--target={target}", "-O1", "-fomit-frame-pointer", "-w", "-S", "-o", "-", source]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    bodies = re.findall(r"^(store_\d+):(.*?)\bret", text, re.DOTALL | re.MULTILINE)
    return {names[symbol]: body for symbol, body in bodies}


def _plain(hook: Hook, machine: int) -> list[str]:
    """Return the parameters of a row that are no structures handed over by value."""
    at = positions(hook.prototype, machine)
    return [p for p in at if not is_by_value(_type(hook, p.partition(".")[0]))]


def _storing(hook: Hook, parameter: str, symbol: str) -> list[str]:
    """Return the lines of a function of the row's parameters that stores one of them."""
    declared = hook.prototype[hook.prototype.index("(") + 1 : hook.prototype.rindex(")")]
    name, _, member = parameter.partition(".")
    kind = _type(hook, name)
    if kind.strip() == "dim3":
        kind, member = "unsigned ", f".{member or 'x'}"
    elif member:
        kind, member = "size_t ", f".{member}"
    return [f"__typeof__({kind}) sink_{symbol};", f"void {symbol}({declared}) {{ sink_{symbol} = {name}{member}; }}"]


@pytest.fixture(scope="module")
def on_x86_64(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return _compile("x86_64-linux-gnu", tmp_path_factory.mktemp("x86_64"))


@pytest.fixture(scope="module")
def on_aarch64(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return _compile("aarch64-linux-gnu", tmp_path_factory.mktemp("aarch64"))


def _type(hook: Hook, parameter: str) -> str:
    inside = hook.prototype[hook.prototype.index("(") + 1 : hook.prototype.rindex(")")]
    declaration = next(d.strip() for d in inside.split(",") if re.search(rf"\b{parameter}$", d.strip()))
    return declaration.removesuffix(parameter)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_arguments_lie_where_the_table_says_on_x86_64(hook: Hook, on_x86_64: Stores) -> None:
    _assert_where_the_table_says(hook, EM_X86_64, on_x86_64, _x86_64)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_arguments_lie_where_the_table_says_on_aarch64(hook: Hook, on_aarch64: Stores) -> None:
    _assert_where_the_table_says(hook, EM_AARCH64, on_aarch64, _aarch64)


def _assert_where_the_table_says(hook: Hook, machine: int, stores: Stores, source_of: Callable[[str], str]) -> None:
    at, plain = positions(hook.prototype, machine), _plain(hook, machine)

    found = {parameter: source_of(stores[hook.name, parameter]) for parameter in plain}

    assert found == {p: argument_location(at.index(p), machine) for p in plain}


@pytest.mark.parametrize("name", _EXTENTS)
def test_an_extent_lies_where_the_programs_read_it(name: str, on_x86_64: Stores, on_aarch64: Stores) -> None:
    """As extent_of in ebpf/cuda/extents.bpf.h has it: words of the stack, or behind a pointer."""
    word, position = _EXTENTS[name]

    for member, number in _MEMBERS.items():
        assert _x86_64(on_x86_64[name, member]) == f"[sp+{8 * (1 + word + number)}]"
        base, offset = re.search(r"ldr\s+x\d+, \[x(\d+)(?:, #(\d+))?\]", on_aarch64[name, member]).groups()
        assert (int(base), int(offset or 0)) == (position, 8 * number)
