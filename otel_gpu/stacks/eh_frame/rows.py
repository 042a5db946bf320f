"""What is one row of an unwinding table, and what does a table hold?

A row is 8 bytes, little endian, the same in the kernel: `struct unwind_row { u32 pc; s16 cfa_offset; u8 kind; s8 rbp; }`.
It holds from its `pc` to the next row's. `pc` is the link-time address minus the file's lowest PT_LOAD address.

Where the caller's frame (CFA), its return address and its frame pointer are, by `kind`:

| kind | CFA | note |
|---|---|---|
| END | – | no unwinding information here: stop, the stack is cut |
| SP, FP | register + cfa_offset | |
| SP_LARGE | rsp + 8 · (unsigned) cfa_offset | frames from 32 to 512 KiB |
| PLT | rsp + 8 + (8 if (pc & 15) >= cfa_offset else 0) | lazy binding stubs |
| DEREF_SP, DEREF_FP | *(register + 8 · (cfa_offset >> 4)) + 8 · (cfa_offset & 15) | realigned stacks; arithmetic shift |
| SIGNAL | registers in the rt_sigframe at rsp | |
| UNSUPPORTED | – | a rule these rows cannot say: stop, the stack is cut |
| OUTERMOST | – | the return address is marked undefined: the stack is complete |
| UNREAD | – | not read from the file yet: stop, the stack is cut and the agent reads it |

The return address is at CFA - 8. The caller's rbp is unchanged where `rbp` is 0, at *(rbp) where it is 1, else at CFA + 8 · rbp.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ...bpf.abi.unwinding import RowKind
from ...errors import OtelGpuError
from ...signals.structs import Frozen

RBP_AT_RBP = 1
"""The value of `fp_offset` for a frame pointer saved where rbp points (no saved register is above the CFA)."""


class UnwindError(OtelGpuError):
    """No unwinding table can be made for a file."""


def deref_offset(offset: int, addend: int) -> int | None:
    """Pack `*(register + offset) + addend` into a row's cfa_offset; None where it does not fit."""
    if offset % 8 or addend % 8 or not -2048 <= offset // 8 < 2048 or not 0 <= addend // 8 < 16:
        return None
    return offset // 8 << 4 | addend // 8


class UnwindTable(Frozen):
    """The rows of one file, sorted by pc; before the first row and from `end_pc` on nothing is known."""

    rows: npt.NDArray[np.void]
    end_pc: int
    functions: int
    """How many frame descriptions the rows come from."""
    skipped: Mapping[str, int]
    """Frame descriptions left out, by reason."""

    def find(self, pc: int) -> np.void | None:
        """Return the row that holds at `pc`; None outside the table."""
        if not self.rows.size or not int(self.rows["pc"][0]) <= pc < self.end_pc:
            return None
        found: np.void = self.rows[int(np.searchsorted(self.rows["pc"], pc, side="right")) - 1]
        return found

    def kinds(self) -> dict[RowKind, int]:
        """Count the rows of each kind."""
        counts = np.bincount(self.rows["kind"], minlength=len(RowKind))
        return {kind: int(counts[kind]) for kind in RowKind if counts[kind]}
