"""Which of the expressions that compilers and linkers write for the CFA can a row say?"""

from __future__ import annotations

import functools

from ...bpf.abi.unwinding import RowKind
from .rows import deref_offset

_DEREF, _AND, _PLUS, _PLUS_UCONST, _SHL, _GE, _LIT0, _BREG0 = 0x06, 0x1A, 0x22, 0x23, 0x24, 0x2A, 0x30, 0x70
_RBP, _RSP, _RIP = 6, 7, 16


@functools.lru_cache(maxsize=1024)
def recognise(expression: bytes) -> tuple[RowKind, int]:
    """Return the kind and cfa_offset of a row with this CFA expression; UNSUPPORTED for all others."""
    operations = _decode(expression)
    match operations:
        case [
            (op, 8),
            (rip, 0),
            (0x3F, 0),
            (0x1A, 0),
            (literal, 0),
            (0x2A, 0),
            (0x33, 0),
            (0x24, 0),
            (0x22, 0),
        ] if op == _BREG0 + _RSP and rip == _BREG0 + _RIP and _LIT0 < literal <= _LIT0 + 15:
            # rsp + 8 + ((rip & 15) >= literal) << 3: after that instruction a stub has pushed its index.
            return RowKind.PLT, literal - _LIT0
        case [(op, offset), (0x06, 0), *rest] if op in (_BREG0 + _RSP, _BREG0 + _RBP):
            addend = 0
            match rest:
                case []:
                    pass
                case [(0x23, value)]:
                    addend = value
                case _:
                    return RowKind.UNSUPPORTED, 0
            packed = deref_offset(offset, addend)
            if packed is not None:
                return (RowKind.DEREF_SP if op == _BREG0 + _RSP else RowKind.DEREF_FP), packed
    return RowKind.UNSUPPORTED, 0


@functools.lru_cache(maxsize=1024)
def is_at_rbp(expression: bytes) -> bool:
    """Say whether a register is saved where rbp points, as in functions that realign their stack."""
    return _decode(expression) == [(_BREG0 + _RBP, 0)]


def _decode(expression: bytes) -> list[tuple[int, int]]:
    """Split into operations and operands; empty where something else than these few kinds stands there."""
    operations: list[tuple[int, int]] = []
    p = 0
    while p < len(expression) and len(operations) < 16:
        op = expression[p]
        p += 1
        operand = 0
        if _BREG0 <= op < _BREG0 + 32 or op == _PLUS_UCONST:
            shift, byte = 0, 128
            while byte & 128:
                if p >= len(expression) or shift > 28:
                    return []
                byte = expression[p]
                p += 1
                operand |= (byte & 127) << shift
                shift += 7
            if op != _PLUS_UCONST and byte & 64:
                operand -= 1 << shift
        elif op not in (_DEREF, _AND, _PLUS, _SHL, _GE) and not _LIT0 <= op < _LIT0 + 32:
            return []
        operations.append((op, operand))
    return operations if p == len(expression) else []
