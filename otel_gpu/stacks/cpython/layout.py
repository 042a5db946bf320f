"""Where does this CPython keep its frames? Every offset that the kernel's walker and the code-object reader need.

GIL builds of 3.8–3.15, 64-bit. Through 3.12 the offsets are fixed by the minor version: read from that version's
`Include/internal/pycore_{runtime,interp,frame}.h`, `Include/cpython/{pystate,frameobject,code}.h`. From 3.13 on the
interpreter describes itself: `_Py_DebugOffsets` (`Include/internal/pycore_debug_offsets.h`) is the head of
`_PyRuntime`; what it leaves out (owner values, tag bits, `_co_firsttraceable`) comes from the same headers. A
version, build or number that is not known is refused: a wrong offset would invent frames.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import replace

from ...bpf.abi.unwinding import PY_ABSENT, EntryRule
from ...errors import OtelGpuError
from ...signals.structs import Frozen

COOKIE = b"xdebugpy"
"""How `_PyRuntime` begins from 3.13 on."""

DEBUG_OFFSETS_SIZE = 8 * 111
"""Bytes at `_PyRuntime` that hold `_Py_DebugOffsets` in every known version (3.15 has most words)."""

OWNER_GENERATOR = 1
"""`enum _frameowner`: the frame lives in a generator or coroutine; the value is the same from 3.11 to 3.15."""


class UnsupportedPythonError(OtelGpuError):
    """This CPython's frames cannot be walked; the process gets native stacks only."""


class TssKind(enum.IntEnum):
    """Where a thread keeps the pointer to its PyThreadState."""

    NONE = 0
    KEY = 1
    """A pthread key, an int at `_PyRuntime + tss_offset`."""
    SLOT = 2
    """The pointer is at fs base + tss_offset (signed)."""
    DTV = 3
    """GOT pair {module, offset} at the link-time address tss_offset; the pointer is tss_block further on."""


class LineTable(enum.IntEnum):
    """How a code object maps bytecode to lines."""

    LNOTAB = 0
    """`co_lnotab`, 3.8 and 3.9."""
    PEP626 = 1
    """`co_linetable` of 3.10."""
    LOCATIONS = 2
    """`co_linetable` of 3.11 and later (`Objects/locations.md`)."""


class PythonLayout(Frozen):
    """Offsets in bytes, `PY_ABSENT` where the version has no such field.

    `pack()` writes `struct py_layout`, 80 bytes, little-endian, without gaps, in this order:

    | field | type | meaning |
    |---|---|---|
    | minor | u16 | 8 … 15 |
    | tss_kind | u16 | `TssKind` |
    | tss_offset | u32 | see `TssKind`; two's complement for SLOT |
    | tss_block | u16 | DTV: offset of the pointer behind the GOT pair's offset |
    | runtime_interpreters | u16 | `_PyRuntime` → first interpreter |
    | interp_next, interp_threads | u16 ×2 | next interpreter, first thread state |
    | tstate_next, tstate_interp | u16 ×2 | next thread state, its interpreter |
    | tstate_thread_id, tstate_native_id | u16 ×2 | pthread_t (= fs base), TID (3.11+) |
    | tstate_frame | u16 | innermost frame; PY_ABSENT where the cframe holds it |
    | tstate_cframe, cframe_frame, cframe_previous | u16 ×3 | 3.10–3.12; 3.10's cframe holds no frame |
    | frame_code, frame_previous, frame_instr | u16 ×3 | code (tagged from 3.14), next outer frame, instruction |
    | frame_instr_size | u16 | 4: int f_lasti; 8: pointer to a code unit |
    | frame_owner, frame_is_entry | u16 ×2 | bytes |
    | entry_rule | u16 | `EntryRule` |
    | shim_owners | u16 | bit n set: owner n is a shim |
    | tag_mask | u16 | bits to clear in frame_code's value |
    | marker_to_cfa | u16 | CFA of the eval activation − its cframe or shim; up to 3.10, − its `fastlocals`; 0 unknown |
    | object_type | u16 | PyObject → ob_type |
    | code_bytecode, code_first_traceable | u16 ×2 | 3.11+: first code unit; u32 index of the first traced one |
    | code_argcount, code_kwonly, code_flags, code_first_line | u16 ×4 | ints; the checksum of `code_checksum` |
    | code_filename, code_name, code_line_table | u16 ×3 | pointers; name is the qualified one from 3.11 |
    | str_ascii, str_other | u16 ×2 | character data of ASCII and of other compact strings |
    | lasti_unit | u16 | bytes per unit of an int f_lasti |
    """

    minor: int
    tss_kind: TssKind
    tss_offset: int
    tss_block: int
    runtime_interpreters: int
    interp_next: int
    interp_threads: int
    tstate_next: int
    tstate_interp: int
    tstate_thread_id: int
    tstate_native_id: int
    tstate_frame: int
    tstate_cframe: int
    cframe_frame: int
    cframe_previous: int
    frame_code: int
    frame_previous: int
    frame_instr: int
    frame_instr_size: int
    frame_owner: int
    frame_is_entry: int
    entry_rule: EntryRule
    shim_owners: int
    tag_mask: int
    marker_to_cfa: int
    object_type: int
    code_bytecode: int
    code_first_traceable: int
    code_argcount: int
    code_kwonly: int
    code_flags: int
    code_first_line: int
    code_filename: int
    code_name: int
    code_line_table: int
    str_ascii: int
    str_other: int
    lasti_unit: int

    @property
    def line_table(self) -> LineTable:
        if self.minor >= 11:
            return LineTable.LOCATIONS
        return LineTable.PEP626 if self.minor == 10 else LineTable.LNOTAB

    def pack(self) -> bytes:
        """Return `struct py_layout`, the form that the BPF programs read."""
        values = [getattr(self, name) for name in self.__struct_fields__]
        values[2] &= 0xFFFFFFFF
        return _PACKED.pack(*values)

    def with_tss(self, kind: TssKind, offset: int, block: int = 0) -> PythonLayout:
        """Return this layout with the thread-state slot that the binary's own text names."""
        return replace(self, tss_kind=kind, tss_offset=offset, tss_block=block)

    def with_marker(self, to_cfa: int) -> PythonLayout:
        """Return this layout with the distance of the activation's end from what marks it, as the binary's text has it."""
        return replace(self, marker_to_cfa=to_cfa)

    def lasti(self, code: int, instr: int) -> int:
        """Convert what a frame's instruction field held into bytes from the start of the bytecode."""
        if self.frame_instr_size == 4:
            signed = instr - (1 << 32) if instr & 0x80000000 and instr < 1 << 32 else instr
            # -1, not yet started, is no number of units.
            return signed * self.lasti_unit if signed >= 0 else signed
        return instr - code - self.code_bytecode


_PACKED = struct.Struct("<HHI35H2x")


def code_checksum(argcount: int, kwonly: int, flags: int, first_line: int) -> int:
    """Mix four ints of a code object into the u32 that tells a reused address from the object a stack saw."""
    total = 0
    for value in (argcount, kwonly, flags, first_line):
        total = (total * 31 + value) & 0xFFFFFFFF
    return total


_FRAME_OBJECTS = PythonLayout(
    minor=8, tss_kind=TssKind.KEY, tss_offset=1396, tss_block=0, runtime_interpreters=32,
    interp_next=0, interp_threads=8, tstate_next=8, tstate_interp=16, tstate_thread_id=176, tstate_native_id=PY_ABSENT,
    tstate_frame=24, tstate_cframe=PY_ABSENT, cframe_frame=PY_ABSENT, cframe_previous=PY_ABSENT,
    frame_code=32, frame_previous=24, frame_instr=104, frame_instr_size=4, frame_owner=PY_ABSENT, frame_is_entry=PY_ABSENT,
    entry_rule=EntryRule.EACH, shim_owners=0, tag_mask=0, marker_to_cfa=0, object_type=8,
    code_bytecode=PY_ABSENT, code_first_traceable=PY_ABSENT, code_argcount=16, code_kwonly=24, code_flags=36,
    code_first_line=40, code_filename=104, code_name=112, code_line_table=120, str_ascii=48, str_other=72, lasti_unit=1,
)  # fmt: skip
_INTERPRETER_FRAMES = replace(
    _FRAME_OBJECTS, minor=11, tss_offset=596, runtime_interpreters=40, interp_threads=16,
    tstate_thread_id=152, tstate_native_id=160, tstate_frame=PY_ABSENT, tstate_cframe=56, cframe_frame=8,
    cframe_previous=16, frame_previous=48, frame_instr=56, frame_instr_size=8, frame_owner=69, frame_is_entry=68,
    entry_rule=EntryRule.IS_ENTRY, marker_to_cfa=0xB0, code_bytecode=184, code_first_traceable=168, code_argcount=56,
    code_kwonly=64, code_flags=48, code_first_line=72, code_filename=112, code_name=128, code_line_table=136,
    lasti_unit=0,
)  # fmt: skip
_SHIMS = replace(
    _INTERPRETER_FRAMES, minor=12, tss_offset=1548, interp_threads=72, tstate_thread_id=136, tstate_native_id=144,
    cframe_frame=0, cframe_previous=8, frame_code=0, frame_previous=8, frame_owner=70, frame_is_entry=PY_ABSENT,
    entry_rule=EntryRule.SHIM, shim_owners=1 << 3, marker_to_cfa=0x90, code_bytecode=192, code_first_traceable=176,
    code_argcount=52, code_kwonly=60, code_first_line=68, str_ascii=40, str_other=56,
)  # fmt: skip
_SELF_DESCRIBED = replace(
    _SHIMS, minor=13, tstate_cframe=PY_ABSENT, cframe_frame=PY_ABSENT, cframe_previous=PY_ABSENT, tss_offset=2164,
    code_first_traceable=184,
)  # fmt: skip

_KNOWN = {
    8: _FRAME_OBJECTS,
    9: replace(_FRAME_OBJECTS, minor=9, tss_offset=588),
    10: replace(
        _FRAME_OBJECTS, minor=10, tss_offset=588, tstate_cframe=48, cframe_previous=8, frame_instr=96, lasti_unit=2,
    ),
    11: _INTERPRETER_FRAMES,
    12: _SHIMS,
    13: _SELF_DESCRIBED,
    14: replace(
        _SELF_DESCRIBED, minor=14, tss_offset=2340, shim_owners=1 << 3 | 1 << 4, tag_mask=3, marker_to_cfa=0xA0,
        code_first_traceable=192,
    ),
    15: replace(
        _SELF_DESCRIBED, minor=15, tss_kind=TssKind.NONE, tss_offset=0, tag_mask=3, marker_to_cfa=0xA0,
        code_first_traceable=192,
    ),
}  # fmt: skip

# Byte positions of the u64 words of _Py_DebugOffsets that say what a layout field is.
_WORDS = {
    13: {
        "runtime_interpreters": 40, "interp_next": 64, "interp_threads": 72, "tstate_next": 168, "tstate_interp": 176,
        "tstate_frame": 184, "tstate_thread_id": 192, "tstate_native_id": 200, "frame_previous": 232, "frame_code": 240,
        "frame_instr": 248, "frame_owner": 264, "code_filename": 280, "code_name": 296, "code_line_table": 304,
        "code_first_line": 312, "code_argcount": 320, "code_bytecode": 344, "str_ascii": 560,
    },
    14: {
        "runtime_interpreters": 40, "interp_next": 64, "interp_threads": 72, "tstate_next": 192, "tstate_interp": 200,
        "tstate_frame": 208, "tstate_thread_id": 216, "tstate_native_id": 224, "frame_previous": 256, "frame_code": 264,
        "frame_instr": 272, "frame_owner": 288, "code_filename": 320, "code_name": 336, "code_line_table": 344,
        "code_first_line": 352, "code_argcount": 360, "code_bytecode": 384, "str_ascii": 640,
    },
    15: {
        "runtime_interpreters": 40, "interp_next": 64, "interp_threads": 72, "tstate_next": 192, "tstate_interp": 200,
        "tstate_frame": 208, "tstate_thread_id": 240, "tstate_native_id": 248, "frame_previous": 320, "frame_code": 328,
        "frame_instr": 336, "frame_owner": 352, "code_filename": 384, "code_name": 400, "code_line_table": 408,
        "code_first_line": 416, "code_argcount": 424, "code_bytecode": 448, "str_ascii": 736,
    },
}  # fmt: skip
_HEAD = struct.Struct("<8sQQ")
_RELEASE_CANDIDATE = 0xC


def layout_for(version: tuple[int, int], debug_offsets: bytes | None = None) -> PythonLayout:
    """Return the layout of a CPython `(major, minor)`.

    3.13 and later need the first `DEBUG_OFFSETS_SIZE` bytes of `_PyRuntime`, from the process or from its file.
    Raises UnsupportedPythonError with the reason.
    """
    major, minor = version
    known = _KNOWN.get(minor) if major == 3 else None
    if known is None:
        raise UnsupportedPythonError(
            f"CPython {major}.{minor} is not known (3.{min(_KNOWN)} to 3.{max(_KNOWN)} are): its processes get native "
            "stacks only; a newer otel-gpu may know it"
        )
    if minor not in _WORDS:
        return known
    if debug_offsets is None:
        raise UnsupportedPythonError(f"CPython 3.{minor}: its _Py_DebugOffsets are needed and were not read")
    return _described(known, debug_offsets)


def _described(known: PythonLayout, raw: bytes) -> PythonLayout:
    minor = known.minor
    if len(raw) < DEBUG_OFFSETS_SIZE or raw[:8] != COOKIE:
        raise UnsupportedPythonError(f"CPython 3.{minor}: no _Py_DebugOffsets at _PyRuntime, so its layout is unknown")
    _, version, free_threaded = _HEAD.unpack_from(raw)
    if version >> 16 != 3 << 8 | minor:
        raise UnsupportedPythonError(
            f"CPython 3.{minor}: _Py_DebugOffsets are of another version ({version:#x}); the build is not trusted"
        )
    # Before the release candidates the words still move from one pre-release to the next.
    if version >> 4 & 0xF < _RELEASE_CANDIDATE:
        raise UnsupportedPythonError(f"CPython 3.{minor}: this is a pre-release ({version:#x}); use a final release")
    if free_threaded:
        raise UnsupportedPythonError(
            f"CPython 3.{minor} is a free-threaded build, whose frames are laid out differently; its processes get "
            "native stacks only"
        )
    fields = {name: int.from_bytes(raw[at : at + 8], "little") for name, at in _WORDS[minor].items()}
    if absurd := [name for name, value in fields.items() if value >= PY_ABSENT]:
        raise UnsupportedPythonError(f"CPython 3.{minor}: _Py_DebugOffsets say the absurd ({', '.join(absurd)})")
    described = replace(known, **fields)  # type: ignore[arg-type]
    # PyCompactUnicodeObject adds the UTF-8 cache's length and pointer to PyASCIIObject, in every version.
    return replace(described, str_other=described.str_ascii + 16)
