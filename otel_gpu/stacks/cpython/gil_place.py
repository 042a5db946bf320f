"""Where does this version of CPython keep its GIL?"""

from __future__ import annotations

from ...bpf.abi.unwinding import PY_ABSENT
from ...signals.structs import Frozen

_WORDS = {13: 112, 14: 120, 15: 120}
"""Where `_Py_DebugOffsets` begins to say `interpreter_state.{ceval_gil, gil_runtime_state, gil_runtime_state_enabled,
gil_runtime_state_locked, gil_runtime_state_holder}` (`Include/internal/pycore_debug_offsets.h`)."""
_LOCKED_BEHIND_HOLDER = 8


class GilPlace(Frozen):
    """Offsets in bytes."""

    in_runtime: int
    """`_PyRuntime` → the one GIL of the process; 0 where each interpreter has a pointer to its own."""
    pointer: int
    """An interpreter → the pointer to its GIL."""
    last_holder: int = 8
    """GIL → the thread state that took it last; whether it is taken stands behind that."""


_KNOWN = {
    8: GilPlace(in_runtime=1152, pointer=0),
    9: GilPlace(in_runtime=352, pointer=0),
    10: GilPlace(in_runtime=352, pointer=0),
    11: GilPlace(in_runtime=360, pointer=0),
    12: GilPlace(in_runtime=0, pointer=384),
}


def gil_place(minor: int, debug_offsets: bytes | None) -> GilPlace | None:
    """Return where CPython 3.`minor` keeps its GIL; None where that is not known."""
    if minor not in _WORDS:
        return _KNOWN.get(minor)
    if debug_offsets is None or len(debug_offsets) < _WORDS[minor] + 40:
        return None
    at = _WORDS[minor]
    words = [int.from_bytes(debug_offsets[at + 8 * n : at + 8 * n + 8], "little") for n in range(5)]
    pointer, state, _enabled, locked, holder = words
    if max(pointer, state, locked, holder) > 1 << 24 or locked - holder != _LOCKED_BEHIND_HOLDER:
        return None
    return GilPlace(0, pointer, holder - state) if 0 <= holder - state < PY_ABSENT else None
