"""What does a CPython binary say about itself: version, runtime, thread state, and where its eval loop lies?

The walker puts Python frames in place of the native frames of the eval loop, so it must know all of the loop's
code. A compiler may move most of it out of `_PyEval_EvalFrameDefault` into a cold part that has no symbol.
"""

from __future__ import annotations

from ...sandbox.elf import PT_DYNAMIC, PT_INTERP, PT_TLS, ElfFile
from ...signals.structs import Frozen
from .eval_loop import SMALLEST_LOOP, eval_ranges, eval_ranges_without_symbols
from .layout import DEBUG_OFFSETS_SIZE, PythonLayout, TssKind, UnsupportedPythonError, layout_for
from .symbols import CODE_TYPE, EVAL, GILSTATE, RUNTIME, python_symbols
from .thread_state import NOT_FOUND, ThreadStateSlot, find_slot
from .version import version_of

_LOCALS = {(3, 8): 360, (3, 9): 360, (3, 10): 352}
"""`PyFrameObject.f_localsplus` (`Include/cpython/frameobject.h`); later frames mark their activation."""
_PREAMBLE = 1024
_TLS_ALIGNMENT = 64


class PythonBinary(Frozen):
    """One interpreter file; addresses are link-time addresses."""

    version: tuple[int, int]
    release: int
    """`Py_Version`, such as 0x030b0700; 0 below 3.11, where files do not say."""
    runtime: int
    """Address of `_PyRuntime`."""
    eval_ranges: tuple[tuple[int, int], ...]
    """All parts of the eval loop, each from its first address to the one after its last."""
    slot: ThreadStateSlot
    debug_offsets: bytes | None
    """The head of `_PyRuntime` as the file has it; from 3.13."""
    locals_to_cfa: int
    """Up to 3.10: how far from its end an activation's stack frame keeps where the frame's locals begin; 0 unknown."""
    is_tail_call: bool
    """The opcodes are functions of their own, so no range of addresses is the eval loop."""
    is_stripped: bool = False
    """The function that gets a thread's state has no name: the slot is looked for in the process."""
    tls_bytes: int = 0
    """How much its thread-local variables take below a thread's base; 0 of a library, whose may be elsewhere."""
    code_type: int = 0
    """Address of PyCode_Type; 0 where unknown."""

    def layout(self) -> PythonLayout:
        """Return the offsets of this build; UnsupportedPythonError for one whose frames cannot be walked."""
        found = layout_for(self.version, self.debug_offsets)
        if self.is_tail_call:
            raise UnsupportedPythonError(
                f"CPython 3.{found.minor} is a tail-call build, which has no eval loop that could be told by its "
                "addresses; its processes get native stacks only"
            )
        if self.locals_to_cfa:
            found = found.with_marker(self.locals_to_cfa)
        if self.slot.kind is TssKind.NONE:
            return found
        return found.with_tss(self.slot.kind, self.slot.offset, self.slot.block)


def analyse_python(elf: ElfFile) -> PythonBinary | None:
    """Read an interpreter; None where the file is none, UnsupportedPythonError where it cannot be understood."""
    symbols = python_symbols(elf)
    if symbols is None:
        return None
    named = symbols.named
    runtime, loop = named[RUNTIME], named.get(EVAL)
    version, release = version_of(elf, named)
    offsets = None
    if version >= (3, 13):
        offsets = elf.read_vaddr(runtime.value, min(DEBUG_OFFSETS_SIZE, runtime.size or DEBUG_OFFSETS_SIZE))
    if loop is not None:
        ranges = eval_ranges(elf, loop, symbols.functions)
    else:
        ranges = eval_ranges_without_symbols(elf, symbols.functions, layout_for(version, offsets).tstate_frame)
    return PythonBinary(
        version=version,
        release=release,
        runtime=runtime.value,
        eval_ranges=ranges,
        slot=find_slot(elf, named[GILSTATE], runtime) if GILSTATE in named else NOT_FOUND,
        debug_offsets=offsets,
        locals_to_cfa=_locals_to_cfa(elf, loop.value, _LOCALS[version])
        if loop is not None and version in _LOCALS
        else 0,
        is_tail_call=sum(stop - start for start, stop in ranges) < SMALLEST_LOOP,
        is_stripped=loop is None,
        tls_bytes=_tls_bytes(elf),
        code_type=named[CODE_TYPE].value if CODE_TYPE in named else 0,
    )


def _tls_bytes(elf: ElfFile) -> int:
    kinds = {s.type for s in elf.segments}
    if PT_INTERP not in kinds and PT_DYNAMIC in kinds:
        return 0
    return sum(-(-s.mem_size // _TLS_ALIGNMENT) * _TLS_ALIGNMENT for s in elf.segments if s.type == PT_TLS)


def _locals_to_cfa(elf: ElfFile, start: int, offset: int) -> int:
    """Find where eval() spills `fastlocals`, its frame plus `offset`: computed and stored once, before the first opcode."""
    import capstone
    from capstone import x86_const as x86

    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    size, register = 8, 0
    for instruction in decoder.disasm(elf.read_vaddr(start, _PREAMBLE), start):
        operands = instruction.operands
        if instruction.id == x86.X86_INS_PUSH and not register and operands[0].type == x86.X86_OP_REG:
            size += 8
        if len(operands) != 2:
            continue
        to, source = operands
        if to.type == x86.X86_OP_REG and to.reg == x86.X86_REG_RSP and source.type == x86.X86_OP_IMM and size <= 64:
            # The first is the frame; what follows makes room for arguments, and gives it back.
            size += source.imm
        elif instruction.id == x86.X86_INS_LEA and source.mem.disp == offset and source.mem.base != x86.X86_REG_RSP:
            register = to.reg
        elif register and to.type == x86.X86_OP_MEM and source.type == x86.X86_OP_REG and source.reg == register:
            is_spill = to.mem.base == x86.X86_REG_RSP and not to.mem.index and 0 <= to.mem.disp < size
            return size - to.mem.disp if is_spill else 0
    return 0
