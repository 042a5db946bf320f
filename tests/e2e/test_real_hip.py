"""Are AMD's own HIP runtime and header as the table takes them to be? Those of ROCm 5.2, as Debian has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.discovery.libraries import LibraryKind, class_of
from otel_gpu.probes.attach import PlannedProbe, plan
from otel_gpu.probes.hip import HIP
from otel_gpu.probes.hook import Hook
from otel_gpu.probes.sites import Cost, SiteRules
from otel_gpu.sandbox.elf import ElfFile
from tests.e2e import ground

HOOKS: dict[str, Hook] = {symbol: hook for hook in HIP for symbol, _ in hook.symbols()}
LATER = {
    "hipModuleLaunchCooperativeKernel",
    "hipModuleLaunchCooperativeKernelMultiDevice",
    "hipLaunchKernelExC",
    "hipMemcpyAtoA",
    "hipMemcpyAtoD",
    "hipMemcpyAtoHAsync",
    "hipMemcpyDtoA",
    "hipMemcpyHtoAAsync",
    *(f"hipMemsetD2D{bits}{is_async}" for bits in (8, 16, 32) for is_async in ("", "Async")),
    "hipDrvLaunchKernelEx",
    "hipGraphAddMemAllocNode",
    "hipStreamBeginCaptureToGraph",
    "hipEventRecordWithFlags",
    "hipGraphInstantiateWithParams",
    "hipGraphNodeSetEnabled",
}
"""Functions that came after ROCm 5.2."""
FOUR_BYTES = (
    "int", "unsigned", "unsigned int", "uint32_t", "hipMemcpyKind", "hipStreamCaptureMode", "hipDevice_t",
)  # fmt: skip
SMALL = {"unsigned char": 1, "unsigned short": 2}


@pytest.fixture(scope="module")
def library() -> Path:
    return ground.hip() / "lib" / "libamdhip64.so.5"


@pytest.fixture(scope="module")
def planned(library: Path) -> dict[str, PlannedProbe]:
    with ElfFile(str(library)) as elf:
        return {probe.symbol: probe for probe in plan(elf, HIP, SiteRules.here())}


def declared() -> dict[str, tuple[str, ...]]:
    """Return the types of every function's parameters, from the headers."""
    found = {}
    for header in ("hip_runtime_api.h", "hip_ext.h"):
        text = (ground.hip() / "include" / "hip" / header).read_text()
        text = re.sub(r"/\*.*?\*/|//[^\n]*|^#.*?$|__dparm\([^)]*\)|= ?\w+", "", text, flags=re.DOTALL | re.MULTILINE)
        for match in re.finditer(r"hipError_t\s+(hip\w+)\s*\(([^;{}]*)\)\s*(?:__attribute__[^;]*)?;", text):
            types = [re.sub(r"\b(const|struct|enum)\b", "", p) for p in match[2].split(",") if p.split() != ["void"]]
            # The first declaration counts: those behind it are overloads of C++.
            found.setdefault(match[1], tuple(_type(t) for t in types))
    return found


def _type(declaration: str) -> str:
    words = " ".join(declaration.replace("*", " * ").split())
    return words if words.endswith("*") else words.rpartition(" ")[0] or words


def _size(kind: str) -> int | str:
    if kind == "dim3":
        return kind
    return 4 if kind in FOUR_BYTES else SMALL.get(kind, 8)


def test_the_library_is_recognised_by_what_it_exports(library: Path) -> None:
    with ElfFile(library) as elf:
        assert class_of(elf).kind is LibraryKind.HIP


def test_it_exports_what_the_table_names_but_for_later_functions(planned: dict[str, PlannedProbe]) -> None:
    names = {HOOKS[symbol].counts_as or HOOKS[symbol].name for symbol in planned}

    assert {hook.counts_as or hook.name for hook in HIP} - names == LATER


@pytest.mark.parametrize("hook", [h for h in HIP if h.name not in LATER], ids=lambda hook: hook.name)
def test_a_row_has_the_parameters_that_the_header_declares(hook: Hook) -> None:
    mine = hook.prototype[hook.prototype.index("(") + 1 : -1].split(",")
    sizes = [_size(_type(re.sub(r"\bconst\b", "", p))) for p in mine if p != "void"]

    assert sizes == [_size(kind) for kind in declared()[hook.counts_as if hook.name.startswith("_Z") else hook.name]]


def test_every_function_is_probed_at_an_emulated_instruction(planned: dict[str, PlannedProbe]) -> None:
    assert {(p.site, p.instruction.split()[0], p.cost) for p in planned.values()} == {(0, "push", Cost.EMULATED)}


def test_functions_that_call_each_other_count_as_one(library: Path) -> None:
    with ElfFile(str(library)) as elf:
        pairs = {pair for pair in _calls(elf) if pair[0] in HOOKS and pair[1] in HOOKS}

    assert pairs
    assert {(a, b) for a, b in pairs if HOOKS[a].counts_as != HOOKS[b].name} == {
        # Both are told of, the inner one as if the graph became its child: see the limits in probes/hip.py.
        ("hipGraphExecChildGraphNodeSetParams", "hipGraphExecUpdate"),
    }


def _calls(elf: ElfFile) -> Iterator[tuple[str, str]]:
    """Yield which exported function calls which, directly or through the procedure linkage table."""
    from capstone import CS_ARCH_X86, CS_GRP_CALL, CS_GRP_JUMP, CS_MODE_64, Cs
    from capstone.x86 import X86_OP_IMM

    functions = {s.value: s for s in elf.symbols() if s.name in HOOKS}
    through_table = dict(_linkage(elf))
    disassembler = Cs(CS_ARCH_X86, CS_MODE_64)
    disassembler.detail = True
    for symbol in functions.values():
        for instruction in disassembler.disasm(elf.read_vaddr(symbol.value, symbol.size), symbol.value):
            if not (instruction.group(CS_GRP_CALL) or instruction.group(CS_GRP_JUMP)):
                continue
            operand = instruction.operands[0]
            if operand.type != X86_OP_IMM:
                continue
            callee = functions[operand.imm].name if operand.imm in functions else through_table.get(operand.imm)
            if callee is not None and callee != symbol.name:
                yield symbol.name, callee


def _linkage(elf: ElfFile) -> Iterator[tuple[int, str]]:
    """Yield the entries of the procedure linkage table and the functions they lead to."""
    from elftools.elf.elffile import ELFFile

    with Path(elf.path).open("rb") as f:
        parsed = ELFFile(f)
        names = parsed.get_section_by_name(".dynsym")
        relocations = parsed.get_section_by_name(".rela.plt").iter_relocations()
        slots = {r["r_offset"]: names.get_symbol(r["r_info_sym"]).name for r in relocations}
    for section in elf.sections:
        if not section.name.startswith(".plt"):
            continue
        code = elf.section_data(section)
        for at in range(len(code) - 5):
            if code[at : at + 2] == b"\xff\x25":  # jmp *slot(%rip)
                slot = section.vaddr + at + 6 + int.from_bytes(code[at + 2 : at + 6], "little", signed=True)
                if slot in slots:
                    yield (section.vaddr + at) // 16 * 16, slots[slot]
