"""What do call frame programs say, executed many at a time?

A program is a byte string of instructions that build a table of rules. Programs are executed in arrays: all
instructions of a chunk of the section are found in lockstep, program counters are running sums, and the rule in
force after an instruction is that of the last instruction which set it. This costs about 0.1 µs an instruction
where a loop in Python costs several times as much and an object a row.

Only what a row can hold is followed: the CFA, the return address, rbp. Column numbers are those of x86-64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...signals.structs import Frozen
from . import instructions as dw
from .cfa_expression import is_at_rbp, recognise
from .records import Bools, Bytes, Ints, Programs
from .rows import RBP_AT_RBP

RSP, RBP, RIP = dw.RSP, dw.RBP, dw.RIP
UNSET = 0x1000
"""The CFA's register before any instruction has set it."""
EXPRESSION = 1 << 24
"""A CFA given by an expression: this, plus the row's kind << 16, plus the row's cfa_offset & 0xFFFF.

The offset proper stays what it was: a def_cfa_register after an expression takes it up again.
"""
UNSUPPORTED = 1 << 30
"""A rule for rbp that rows cannot hold."""
RETURN_SAVED, RETURN_UNDEFINED, RETURN_UNSUPPORTED = 0, 1, 2
"""The return address is at CFA - 8, nowhere, elsewhere."""


class Rules(Frozen):
    """The rules in force at places of programs: one element per place."""

    program: Ints
    pc: Ints
    cfa_register: Ints
    cfa_offset: Ints
    rbp: Ints
    """Where the caller's rbp is saved, in bytes from the CFA; 0 unchanged; RBP_AT_RBP; UNSUPPORTED."""
    return_address: Ints


class Initial(Frozen):
    """The rules each program begins with, its first pc and the first pc it does not describe."""

    pc: Ints
    limit: Ints
    cfa_register: Ints
    cfa_offset: Ints
    rbp: Ints
    return_address: Ints


def execute(data: Bytes, programs: Programs, initial: Initial) -> tuple[Rules, Bools]:
    """Execute programs that lie in ascending order in `data`.

    Returns the rules wherever the pc moves on, and which programs are malformed: those have no rules.
    """
    low = int(programs.begin[0]) - 1
    code = data[low : int(programs.end[-1])]
    begin, end = programs.begin - low, programs.end - low
    places, bad = dw.tokenise(code, begin, end)
    return _Execution(code, begin, places, programs, initial, bad).rules(), bad


class _Execution:
    """One pass over the instructions of a chunk."""

    def __init__(
        self, code: Bytes, begin: Ints, marks: Bools, programs: Programs, initial: Initial, bad: Bools
    ) -> None:
        self.code, self.initial, self.programs, self.bad = code, initial, programs, bad
        heads = begin - 1
        marks[heads] = True
        at = np.flatnonzero(marks)
        op = code[at]
        is_head = np.zeros(code.size, bool)
        is_head[heads] = True
        # The same byte inside a program is an unknown instruction, and that program is already known to be bad.
        op[op == dw.HEAD] = dw.NOP
        op[is_head[at]] = dw.HEAD
        keep = dw.RELEVANT[op]
        self.at, self.op = at[keep], op[keep]
        self.heads = np.flatnonzero(self.op == dw.HEAD)
        self.program = np.cumsum(self.op == dw.HEAD, dtype=np.int64) - 1
        self.size = self.at.size

    def rules(self) -> Rules:
        """Return the rules at the places after which the pc moves on."""
        advance = self._advances()
        total = np.cumsum(advance)
        pc = total + (self.initial.pc - total[self.heads])[self.program]
        moves_on = np.ones(self.size, bool)
        moves_on[:-1] = (advance[1:] > 0) | (self.op[1:] == dw.HEAD)
        columns = self._cfa_register(), self._cfa_offset(), self._rbp(), self._return_address()
        restored = self._restored()
        # After _restored, as that finds programs that restore what they never remembered.
        moves_on &= (pc < self.initial.limit[self.program]) & ~self.bad[self.program]
        rows = np.flatnonzero(moves_on)
        values = [restored(setters, rows, column) for setters, column in columns]
        return Rules(self.program[rows], pc[rows], *values)

    def _advances(self) -> Ints:
        advance = np.where(self.op & 0xC0 == dw.ADVANCE, self.op & 63, 0).astype(np.int64)
        for op, size in ((dw.ADVANCE1, 1), (dw.ADVANCE2, 2), (dw.ADVANCE4, 4)):
            found = np.flatnonzero(self.op == op)
            for i in range(size):
                # A truncated operand belongs to a program already known to be bad.
                p = np.minimum(self.at[found] + 1 + i, self.code.size - 1)
                advance[found] += self.code[p].astype(np.int64) << (8 * i)
        if (self.programs.code_align != 1).any():
            advance *= self.programs.code_align[self.program]
        return advance

    def _where(self, *ops: int) -> Ints:
        found = self.op == ops[0]
        for op in ops[1:]:
            found |= self.op == op
        return np.flatnonzero(found)

    def _second(self, tokens: Ints) -> Ints:
        """Return where the second operand begins, the first being a LEB128 number."""
        p = self.at[tokens] + 1
        for _ in range(5):
            p = p + (self.code[np.minimum(p, self.code.size - 1)] >= 128)
        return p + 1

    def _operand(self, tokens: Ints, *, signed: bool = False, second: bool = False) -> Ints:
        return dw.leb(self.code, self._second(tokens) if second else self.at[tokens] + 1, signed=signed)

    def _scaled(self, tokens: Ints, *, signed: bool = False, second: bool = False) -> Ints:
        value = self._operand(tokens, signed=signed, second=second) * self.programs.data_align[self.program[tokens]]
        return np.asarray(np.clip(value, -UNSUPPORTED, UNSUPPORTED))

    def _blocks(self, tokens: Ints, *, second: bool = False) -> list[bytes]:
        """Return the bytes of expressions, at most 64 of each: longer ones are none that a row can say."""
        starts = self._second(tokens) if second else self.at[tokens] + 1
        lengths = np.minimum(dw.leb(self.code, starts), 64)
        return [
            self.code[p + 1 : p + 1 + n].tobytes() if n < 64 else b""
            for p, n in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]

    def _column(self, initial: Ints) -> tuple[Bools, Ints]:
        """Begin a column of rules: who sets it, and to what."""
        setters = (self.op == dw.HEAD) | (self.op == dw.RESTORE_STATE)
        values = np.zeros(self.size, np.int64)
        values[self.heads] = initial
        return setters, values

    def _cfa_register(self) -> tuple[Bools, Ints]:
        setters, values = self._column(self.initial.cfa_register)
        found = self._where(dw.DEF_CFA, dw.DEF_CFA_REGISTER, dw.DEF_CFA_SF)
        setters[found] = True
        values[found] = np.minimum(self._operand(found), UNSET)
        found = self._where(dw.DEF_CFA_EXPRESSION)
        setters[found] = True
        recognised = [recognise(block) for block in self._blocks(found)]
        values[found] = [EXPRESSION + (kind << 16) + (offset & 0xFFFF) for kind, offset in recognised]
        return setters, values

    def _cfa_offset(self) -> tuple[Bools, Ints]:
        setters, values = self._column(self.initial.cfa_offset)
        found = self._where(dw.DEF_CFA_OFFSET)
        setters[found] = True
        values[found] = self._operand(found)
        found = self._where(dw.DEF_CFA)
        setters[found] = True
        values[found] = self._operand(found, second=True)
        found = self._where(dw.DEF_CFA_OFFSET_SF)
        setters[found] = True
        values[found] = self._scaled(found, signed=True)
        found = self._where(dw.DEF_CFA_SF)
        setters[found] = True
        values[found] = self._scaled(found, signed=True, second=True)
        return setters, values

    def _register_rules(self, column: int, initial: Ints, saved: Callable[[Ints], Ints]) -> tuple[Bools, Ints]:
        """Follow one register: `saved` turns offsets from the CFA into the column's values."""
        setters, values = self._column(initial)

        def put(found: Ints, value: Ints) -> None:
            setters[found] = True
            values[found] = value

        found = self._where(dw.OFFSET + column)
        put(found, saved(self._scaled(found)))
        found = self._where(dw.RESTORE + column)
        put(found, initial[self.program[found]])
        others = self._where(*_EXTENDED)
        others = others[self._operand(others) == column]
        for op in np.unique(self.op[others]).tolist():
            found = others[self.op[others] == op]
            match op:
                case dw.OFFSET_EXTENDED:
                    put(found, saved(self._scaled(found, second=True)))
                case dw.OFFSET_EXTENDED_SF:
                    put(found, saved(self._scaled(found, signed=True, second=True)))
                case dw.NEGATIVE_OFFSET:
                    put(found, saved(-self._scaled(found, second=True)))
                case dw.RESTORE_EXTENDED:
                    put(found, initial[self.program[found]])
                case dw.UNDEFINED if column == RIP:
                    put(found, np.full(found.size, RETURN_UNDEFINED))
                case dw.SAME_VALUE if column == RBP:
                    put(found, np.zeros(found.size, np.int64))
                case dw.EXPRESSION if column == RBP:
                    at_rbp = [is_at_rbp(block) for block in self._blocks(found, second=True)]
                    put(found, np.where(at_rbp, RBP_AT_RBP, UNSUPPORTED))
                case _:
                    put(found, np.full(found.size, UNSUPPORTED if column == RBP else RETURN_UNSUPPORTED))
        return setters, values

    def _rbp(self) -> tuple[Bools, Ints]:
        return self._register_rules(RBP, self.initial.rbp, lambda offset: np.where(offset, offset, UNSUPPORTED))

    def _return_address(self) -> tuple[Bools, Ints]:
        setters, values = self._register_rules(
            RIP,
            self.initial.return_address,
            lambda offset: np.where(offset == -8, RETURN_SAVED, RETURN_UNSUPPORTED),
        )
        # A caller's rsp that is not the CFA (stack switching): the walk cannot go on either.
        moved = self._where(dw.REGISTER, dw.EXPRESSION, dw.VAL_EXPRESSION, dw.OFFSET_EXTENDED, dw.VAL_OFFSET)
        moved = moved[self._operand(moved) == RSP]
        setters[moved] = True
        values[moved] = RETURN_UNSUPPORTED
        return setters, values

    def _restored(self) -> Callable[[Bools, Ints, Ints], Ints]:
        """Pair each restore_state with its remember_state; return the reader of columns that follows them."""
        order = np.arange(self.size, dtype=np.int32)
        restores = self._where(dw.RESTORE_STATE)
        if not restores.size:
            return lambda setters, rows, column: np.asarray(column[np.maximum.accumulate(order * setters)[rows]])
        both = self._where(dw.REMEMBER_STATE, dw.RESTORE_STATE)
        is_remember = self.op[both] == dw.REMEMBER_STATE
        depth = np.zeros(self.size, np.int64)
        depth[both] = np.where(is_remember, 1, -1)
        depth = np.cumsum(depth)
        level = depth[both] - depth[self.heads][self.program[both]] - is_remember
        self.bad[self.program[both[level < 0]]] = True
        # In order of program and level, what stands before a restore is the remember it belongs to.
        sequence = np.lexsort((both, level, self.program[both]))
        position = np.empty(both.size, np.int64)
        position[sequence] = np.arange(both.size)
        before = both[sequence[np.maximum(position[~is_remember] - 1, 0)]]
        paired = (self.op[before] == dw.REMEMBER_STATE) & (self.program[before] == self.program[restores])
        self.bad[self.program[restores[~paired]]] = True
        before = np.where(paired, before, self.heads[self.program[restores]])
        ordinal = np.full(self.size, -1, np.int32)
        ordinal[restores] = np.arange(restores.size)

        def read(setters: Bools, rows: Ints, column: Ints) -> Ints:
            source = np.maximum.accumulate(order * setters)
            origin = source[before]
            # What was remembered may itself have been restored: follow, doubling the distance in each round.
            while (pending := ordinal[origin] >= 0).any():
                origin = np.where(pending, origin[ordinal[origin]], origin)
            chosen = source[rows]
            through = ordinal[chosen]
            chosen = np.where(through >= 0, origin[through], chosen)
            return column[chosen]

        return read


_EXTENDED = (
    dw.OFFSET_EXTENDED,
    dw.RESTORE_EXTENDED,
    dw.UNDEFINED,
    dw.SAME_VALUE,
    dw.REGISTER,
    dw.EXPRESSION,
    dw.OFFSET_EXTENDED_SF,
    dw.VAL_OFFSET,
    dw.VAL_OFFSET_SF,
    dw.VAL_EXPRESSION,
    dw.NEGATIVE_OFFSET,
)
