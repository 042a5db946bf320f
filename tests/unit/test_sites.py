"""Does the site finder choose instructions that are cheap, and at which the call is still as it was made?"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.probes.sites import Cost, Site, SiteRules, find_site, has_fast_nops, site_for_symbol
from otel_gpu.sandbox.elf import EM_AARCH64, EM_X86_64, STT_FUNC, STT_GNU_IFUNC, ElfFile, Symbol

DRIVER_GUARD = "81 3d 00 10 00 00 00 ba 1c 32"
ENDBR64 = "f3 0f 1e fa"
NOP5 = "0f 1f 44 00 00"

DRIVERS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "otel-gpu" / "driver"


def site(code: str, machine: int = EM_X86_64, **options: object) -> Site:
    return find_site(bytes.fromhex(code.replace(" ", "")), 0x1000, machine, **options)  # type: ignore[arg-type]


def words(*instructions: int) -> str:
    return b"".join(word.to_bytes(4, "little") for word in instructions).hex()


@pytest.mark.parametrize(
    ("code", "offset", "cost"),
    [
        ("55 48 89 e5 c3", 0, Cost.EMULATED),  # push rbp: every entry of the real libcudart
        ("41 57 c3", 0, Cost.EMULATED),  # push r15
        (f"{DRIVER_GUARD} 74 10 ff 25 00 00 00 00", 10, Cost.EMULATED),  # every entry of the real driver 535
        (f"{ENDBR64} 55 c3", 4, Cost.EMULATED),
        (f"{ENDBR64} {DRIVER_GUARD} 74 10 c3", 14, Cost.EMULATED),
        ("90 c3", 0, Cost.EMULATED),
        ("e9 00 01 00 00", 0, Cost.EMULATED),
        ("e8 00 01 00 00", 0, Cost.EMULATED),
        ("0f 84 00 01 00 00", 0, Cost.EMULATED),
        ("48 85 ff 74 20 c3", 3, Cost.EMULATED),  # test rdi, rdi; je
        ("b8 01 00 00 00 55 c3", 5, Cost.EMULATED),  # mov eax, 1; push rbp
        ("48 8b 05 00 10 00 00 53 c3", 7, Cost.EMULATED),  # mov rax, [rip + x]; push rbx
        ("48 83 ec 08 74 10 c3", 0, Cost.SINGLE_STEPPED),  # sub rsp, 8 moves the stack arguments
        ("31 ff 55 c3", 0, Cost.SINGLE_STEPPED),  # xor edi, edi destroys the first argument
        ("48 c7 07 00 00 00 00 55 c3", 0, Cost.SINGLE_STEPPED),  # mov qword [rdi], 0 writes memory
        ("48 89 7c 24 f8 55 c3", 0, Cost.SINGLE_STEPPED),  # mov [rsp - 8], rdi writes the stack
        ("b8 04 00 00 00 c3", 0, Cost.SINGLE_STEPPED),  # mov eax, 4; ret
        (f"{NOP5} c3", 0, Cost.SINGLE_STEPPED),
        (f"{NOP5} 55 c3", 5, Cost.EMULATED),
    ],
)
def test_the_first_emulated_instruction_behind_harmless_ones_is_chosen(code: str, offset: int, cost: Cost) -> None:
    chosen = site(code)

    assert (chosen.offset, chosen.cost) == (offset, cost)


@pytest.mark.parametrize(
    ("code", "vaddr", "offset", "cost"),
    [
        (f"{NOP5} c3", 0x1000, 0, Cost.OPTIMIZED),
        (f"{ENDBR64} {NOP5} c3", 0x1000, 4, Cost.OPTIMIZED),
        (f"{NOP5} c3", 0x1FFD, 0, Cost.EMULATED),  # crosses a page, so it cannot be replaced at once
        ("0f 1f 40 00 c3", 0x1000, 0, Cost.EMULATED),
    ],
)
def test_kernels_that_know_long_nops_use_them(code: str, vaddr: int, offset: int, cost: Cost) -> None:
    chosen = find_site(bytes.fromhex(code.replace(" ", "")), vaddr, EM_X86_64, fast_nops=True)

    assert (chosen.offset, chosen.cost) == (offset, cost)


@pytest.mark.parametrize(
    "loop",
    [
        "eb f6",  # jmp rel8 to +4
        "0f 85 f2 ff ff ff",  # jne rel32 to +4
        "e9 f3 ff ff ff",
    ],
)
def test_a_branch_back_to_the_site_keeps_the_probe_at_the_entry(loop: str) -> None:
    chosen = site(f"{ENDBR64} 74 06 {'90' * 6} {loop} c3")

    assert chosen.offset == 0
    assert chosen.cost is Cost.SINGLE_STEPPED
    assert chosen.reason is not None
    assert "twice" in chosen.reason


def test_bytes_that_only_look_like_a_branch_back_do_not_matter() -> None:
    immediate = "b8 eb f8 00 00"  # mov eax, 0xf8eb: holds `jmp -8`

    assert site(f"{ENDBR64} 55 {immediate} c3").offset == 4


def test_a_branch_back_to_the_entry_itself_does_not_matter() -> None:
    assert site(f"{ENDBR64} 55 eb f9").offset == 4


@pytest.mark.parametrize(
    "code",
    ["cc 55", "66 e8 00 00 00 00 c3", "f4 c3", "0f 0b", "f0 48 ff 07 c3", "0f 05 c3", "06", "2e 66 90 c3", "e4 10"],
)
def test_what_the_kernel_refuses_gets_no_site_and_a_reason(code: str) -> None:
    chosen = site(code)

    assert chosen.cost is Cost.NONE
    assert chosen.reason


def test_without_single_stepping_only_cheap_sites_remain() -> None:
    assert site("31 ff 55 c3", allow_single_step=False).cost is Cost.NONE
    assert site("55 c3", allow_single_step=False).cost is Cost.EMULATED


def test_the_entry_policy_stays_at_the_entry() -> None:
    chosen = site(f"{DRIVER_GUARD} 74 10 c3", policy="entry")

    assert (chosen.offset, chosen.cost, chosen.reason) == (0, Cost.SINGLE_STEPPED, None)


STP_FRAME = 0xA9BF7BFD  # stp x29, x30, [sp, #-16]!
ADRP_X9 = 0x90000009
CMP_X0 = 0xF100001F  # cmp x0, #0
B_EQ = 0x54000080  # b.eq +16
CBZ_X0 = 0xB4000080  # cbz x0, +16
MOV_X0 = 0xD2800000  # mov x0, #0
PACIASP = 0xD503233F
BTI_C = 0xD503245F
NOP = 0xD503201F
LDR_LITERAL = 0x58000040
RET = 0xD65F03C0
BRANCH_BACK = 0x17FFFFFF  # b -4


@pytest.mark.parametrize(
    ("instructions", "offset", "cost"),
    [
        ((ADRP_X9, STP_FRAME), 0, Cost.EMULATED),
        ((CMP_X0, B_EQ, RET), 4, Cost.EMULATED),
        ((BTI_C, CBZ_X0, RET), 4, Cost.EMULATED),
        ((RET,), 0, Cost.EMULATED),
        ((STP_FRAME, ADRP_X9), 0, Cost.SINGLE_STEPPED),
        ((PACIASP, CBZ_X0), 0, Cost.SINGLE_STEPPED),
        ((MOV_X0, CBZ_X0), 0, Cost.SINGLE_STEPPED),
        ((LDR_LITERAL, RET), 0, Cost.NONE),
        ((NOP, RET), 4, Cost.EMULATED),
        ((CMP_X0, B_EQ, BRANCH_BACK, RET), 0, Cost.SINGLE_STEPPED),
    ],
)
def test_arm64_sites_are_simulated_instructions(instructions: tuple[int, ...], offset: int, cost: Cost) -> None:
    chosen = site(words(*instructions), EM_AARCH64)

    assert (chosen.offset, chosen.cost) == (offset, cost)


def test_arm64_without_a_simulated_instruction_has_no_site_unless_single_stepping_is_allowed() -> None:
    chosen = site(words(STP_FRAME, ADRP_X9), EM_AARCH64, allow_single_step=False)

    assert chosen.cost is Cost.NONE
    assert chosen.reason is not None
    assert "single-step" in chosen.reason


def test_arm64_nops_are_cheap_on_kernels_that_simulate_them() -> None:
    assert site(words(NOP, RET), EM_AARCH64, fast_nops=True).offset == 0


def test_other_machines_have_no_sites() -> None:
    assert site("55", machine=3).cost is Cost.NONE


@given(
    st.binary(max_size=256),
    st.integers(0, 2**63),
    st.sampled_from([EM_X86_64, EM_AARCH64, 0]),
    st.booleans(),
    st.booleans(),
)
def test_any_bytes_give_a_site_inside_them(
    code: bytes, vaddr: int, machine: int, allow_single_step: bool, fast_nops: bool
) -> None:
    chosen = find_site(code, vaddr, machine, allow_single_step=allow_single_step, fast_nops=fast_nops)

    assert 0 <= chosen.offset <= len(code)
    assert chosen.cost is not Cost.NONE or chosen.reason
    assert allow_single_step or chosen.cost is not Cost.SINGLE_STEPPED


def test_the_kernel_is_asked_for_fast_nops_without_failing() -> None:
    assert has_fast_nops() in (True, False)


def test_resolvers_and_data_get_no_site(tmp_path: Path) -> None:
    with ElfFile(_true_binary()) as elf:
        resolver = site_for_symbol(elf, Symbol("memcpy", elf.entry, 16, STT_GNU_IFUNC, is_global=True), SiteRules())
        outside = site_for_symbol(elf, Symbol("data", 1 << 60, 16, STT_FUNC, is_global=True), SiteRules())

    assert resolver.cost is Cost.NONE
    assert outside.cost is Cost.NONE


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("flags", [["-O1"], ["-O2"], ["-O2", "-fcf-protection=full"], ["-O0"]])
def test_functions_compiled_by_gcc_have_a_site(tmp_path: Path, flags: list[str]) -> None:
    source = tmp_path / "f.c"
    source.write_text(
        "int callee(int *p); int f(int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += callee(p + i); return s; }"
    )
    library = tmp_path / "f.so"
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-o", library, source], check=True)

    with ElfFile(library) as elf:
        symbol = next(s for s in elf.symbols() if s.name == "f")
        chosen = site_for_symbol(elf, symbol, SiteRules())

    assert chosen.cost is Cost.EMULATED


@pytest.mark.skipif(not list(DRIVERS.rglob("libcuda.so.535*")), reason="needs `tests/ground/setup.sh driver`")
@pytest.mark.parametrize(
    "name",
    ["cuLaunchKernel", "cuLaunchKernelEx_ptsz", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemAlloc_v2", "cuInit"],
)
def test_the_real_driver_is_probed_behind_its_guard(name: str) -> None:
    library = next(p for p in DRIVERS.rglob("libcuda.so.535*") if p.is_file())

    with ElfFile(library) as elf:
        symbol = next(s for s in elf.symbols() if s.name == name)
        chosen = site_for_symbol(elf, symbol, SiteRules())

    assert (chosen.offset, chosen.cost) == (10, Cost.EMULATED)


def _true_binary() -> str:
    path = shutil.which("true")
    assert path is not None
    return path
