"""What is this code object called, and which line is it at? Names read from the target's own memory.

The kernel hands up an address that was a running code object when the stack was taken. By now it may be freed,
reused, or was never one, so a name is given only if the object's type, its strings and its table hold together,
and the object is the same before and after the read; else a reason. Nothing is ever invented.
"""

from __future__ import annotations

import enum
import re
import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ...bpf.abi.unwinding import PY_ABSENT
from ...errors import ProcessGoneError
from ...sandbox.confinement import Limits
from ...sandbox.memory import Memory, MemoryFault, ProcessMemory
from ...sandbox.work import OpenFile, service
from ...signals.structs import Frozen
from .layout import OWNER_GENERATOR, PythonLayout, code_checksum
from .lines import line_at
from .process import PythonProcess

_STR_LENGTH, _STR_STATE = 16, 32
_BYTES_SIZE, _BYTES_DATA = 16, 32
_MAX_CHARACTERS = 4_096
_MAX_LENGTH = 1 << 24
"""A name that claims more characters than this is not a name."""
_MAX_TABLE_BYTES = 1 << 20
"""Line tables take about two bytes an instruction; the largest generated functions stay far below."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_U64 = struct.Struct("<Q")
_CODECS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_MAX_FRAMES = 1_024
"""Lines remembered of one code object; few functions have as many call sites."""
_ENTRY_BYTES = 640
"""What a remembered code object takes beside its strings and table."""
_FRAME_BYTES = 160


CODE = Limits(answer_s=1.0, cpu_s=600, memory_bytes=128 << 20, answer_bytes=32 << 20)
"""Of a child that names the code objects of one process."""


class Unresolved(enum.Enum):
    """Why an address got no Python name."""

    GONE = "process has ended"
    UNREADABLE = "memory cannot be read"
    NOT_CODE = "no code object is at this address"
    MALFORMED = "the code object's strings or numbers are absurd"
    STALE = "the code object was freed or replaced"
    INCOMPLETE = "the frame is not yet a Python call"
    """Frames that CPython pushes for itself and hides from its own tracebacks: leave them out."""


class PythonFrame(Frozen):
    """One Python function at one line; `line` is None where the bytecode has none."""

    qualname: str
    """The bare name before 3.11, whose code objects hold no other."""
    filename: str
    line: int | None
    first_line: int


class CodeAddress(NamedTuple):
    """What the kernel saw of a Python frame: what CodeObjects.resolve takes."""

    code: int
    instr: int
    owner: int | None
    checksum: int | None


class CodeRequest(msgspec.Struct, frozen=True):
    """Which code objects these are; with `doubt`, nothing that was read before is believed."""

    doubt: bool
    asked: list[CodeAddress]


class _Head(Frozen):
    """The fields that tell one code object from the next at the same address."""

    checksum: int
    first_line: int
    first_traceable: int
    filename: int
    name: int
    line_table: int


class _Code(Frozen):
    head: _Head
    qualname: str
    filename: str
    table: bytes
    frames: dict[int, PythonFrame] = msgspec.field(default_factory=dict)
    """By lasti, those that no owner byte would hide."""

    @property
    def size_bytes(self) -> int:
        strings = sys.getsizeof(self.qualname) + sys.getsizeof(self.filename)
        return _ENTRY_BYTES + strings + len(self.table) + _FRAME_BYTES * len(self.frames)


class CodeObjects:
    """The code objects of one process. Owned by one thread."""

    def __init__(
        self, memory: Memory, layout: PythonLayout, code_type: int = 0, str_type: int = 0, budget_bytes: int = 4 << 20
    ) -> None:
        """Read through `memory`; `code_type` and `str_type` are the addresses of the types, 0 where unknown.

        What was read longest ago is forgotten when the names and tables take more than `budget_bytes`.
        """
        self._memory = memory
        self._layout = layout
        self._has_owners = layout.frame_owner != PY_ABSENT
        self._code_type = code_type
        self._str_type = str_type
        self._codes: dict[int, _Code] = {}
        self._doubted: set[int] = set()
        self._budget_bytes = budget_bytes
        self._size_bytes = 0
        fields = [f"code_{n}" for n in ("argcount", "kwonly", "flags", "first_line", "filename", "name", "line_table")]
        offsets = [getattr(layout, name) for name in fields]
        if layout.code_first_traceable != PY_ABSENT:
            offsets.append(layout.code_first_traceable)
        self._head_size = max(*offsets, layout.object_type) + 8

    def __len__(self) -> int:
        """Return how many code objects are remembered."""
        return len(self._codes)

    @property
    def size_bytes(self) -> int:
        """What the remembered code objects take, about."""
        return self._size_bytes

    def doubt(self) -> None:
        """Look at every code object again before it is believed: another may have got its address."""
        self._doubted.update(self._codes)

    def resolve(
        self, code: int, instr: int, *, owner: int | None = None, checksum: int | None = None
    ) -> PythonFrame | Unresolved:
        """Name the code object at `code` and the line that the frame's instruction field `instr` stands at.

        `owner` is the frame's owner byte (3.11+); with it, frames that are no Python call are told apart.
        `checksum` is `code_checksum` as the kernel read it with the stack; with it, an address that has been
        reused since is told apart, and a name known already costs no read.
        """
        lasti = self._layout.lasti(code, instr)
        known = self._codes.get(code)
        frame = known.frames.get(lasti) if known is not None and known.head.checksum == checksum else None
        if frame is not None and code not in self._doubted:
            return frame
        try:
            return self._resolve(code, lasti, owner, checksum)
        except ProcessGoneError:
            # It cannot be looked at again, and the kernel saw the checksum of what is known.
            return frame or Unresolved.GONE
        except MemoryFault:
            return Unresolved.UNREADABLE

    def _resolve(self, code: int, lasti: int, owner: int | None, checksum: int | None) -> PythonFrame | Unresolved:
        head = self._head(code)
        if isinstance(head, Unresolved):
            return head
        if checksum is not None and head.checksum != checksum:
            return Unresolved.STALE
        if self._has_owners and owner is not None and owner != OWNER_GENERATOR and lasti < 2 * head.first_traceable:
            return Unresolved.INCOMPLETE
        known = self._codes.pop(code, None)
        if known is not None:
            self._size_bytes -= known.size_bytes
        if known is None or known.head != head:
            known = self._read(head)
            # Freed memory stays readable: only an object that outlived the read has the name that was read.
            if self._head(code) != head:
                return Unresolved.STALE
            if known is None:
                return Unresolved.MALFORMED
        frame = known.frames.get(lasti)
        if frame is None:
            line = line_at(self._layout.line_table, known.table, head.first_line, lasti)
            frame = PythonFrame(known.qualname, known.filename, line, head.first_line)
            # The shortcut in resolve() does not look at the owner, so what the owner may hide is not kept.
            if lasti >= 2 * head.first_traceable and len(known.frames) < _MAX_FRAMES:
                known.frames[lasti] = frame
        self._remember(code, known)
        return frame

    def _remember(self, code: int, known: _Code) -> None:
        self._codes[code] = known
        self._doubted.discard(code)
        self._size_bytes += known.size_bytes
        while self._size_bytes > self._budget_bytes:
            oldest = next(iter(self._codes))
            self._size_bytes -= self._codes.pop(oldest).size_bytes
            self._doubted.discard(oldest)

    def _head(self, code: int) -> _Head | Unresolved:
        layout = self._layout
        raw = self._memory.read(code, self._head_size)
        if self._code_type and _u64(raw, layout.object_type) != self._code_type:
            return Unresolved.NOT_CODE
        if not _is_alive(raw):
            return Unresolved.STALE
        argcount, kwonly = _i32(raw, layout.code_argcount), _i32(raw, layout.code_kwonly)
        flags = _i32(raw, layout.code_flags)
        first_line = _i32(raw, layout.code_first_line)
        first_traceable = 0
        if layout.code_first_traceable != PY_ABSENT:
            first_traceable = _i32(raw, layout.code_first_traceable)
        if min(argcount, kwonly, flags, first_traceable) < 0:
            return Unresolved.NOT_CODE
        return _Head(
            checksum=code_checksum(argcount, kwonly, flags, first_line),
            first_line=first_line,
            first_traceable=first_traceable,
            filename=_u64(raw, layout.code_filename),
            name=_u64(raw, layout.code_name),
            line_table=_u64(raw, layout.code_line_table),
        )

    def _read(self, head: _Head) -> _Code | None:
        qualname = self._string(head.name)
        filename = self._string(head.filename)
        if qualname is None or filename is None:
            return None
        return _Code(head, qualname, sys.intern(filename), self._bytes(head.line_table))

    def _string(self, address: int) -> str | None:
        """Read a compact str (PEP 393); None where there is none."""
        layout = self._layout
        raw = self._memory.read(address, _STR_STATE + 4)
        length, state = _u64(raw, _STR_LENGTH), _i32(raw, _STR_STATE)
        kind, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        if not _is_alive(raw) or (self._str_type and _u64(raw, layout.object_type) != self._str_type):
            return None
        if length > _MAX_LENGTH or kind not in _CODECS or not is_compact or (is_ascii and kind != 1):
            return None
        data = self._memory.read(
            address + (layout.str_ascii if is_ascii else layout.str_other), min(length, _MAX_CHARACTERS) * kind
        )
        if is_ascii and not data.isascii():
            return None
        # Lone surrogates (undecodable file names) cannot be exported as UTF-8, nor shown.
        text = data.decode(_CODECS[kind], "replace")
        text = _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text)
        return text if length <= _MAX_CHARACTERS else text + "…"

    def _bytes(self, address: int) -> bytes:
        """Read a bytes object; an absurd one counts as empty, which costs the line and keeps the name."""
        size = _u64(self._memory.read(address, _BYTES_DATA), _BYTES_SIZE)
        return self._memory.read(address + _BYTES_DATA, size) if size <= _MAX_TABLE_BYTES else b""


@service(PythonProcess, CodeRequest, list[PythonFrame | Unresolved])
def code_objects(
    files: Sequence[OpenFile], python: PythonProcess
) -> Callable[[CodeRequest], list[PythonFrame | Unresolved]]:
    """Return what names the code objects of a process, whose memory the file is."""
    codes = CodeObjects(ProcessMemory(files[0].descriptor), python.layout, python.code_type)

    def answer(question: CodeRequest) -> list[PythonFrame | Unresolved]:
        if files[0].descriptor < 0:
            return [Unresolved.GONE] * len(question.asked)
        if question.doubt:
            codes.doubt()
        return [codes.resolve(a.code, a.instr, owner=a.owner, checksum=a.checksum) for a in question.asked]

    return answer


def _is_alive(raw: bytes) -> bool:
    """Tell an object from a freed one, whose reference count pymalloc overwrites with NULL or a heap address.

    Counts, immortal ones too, fit 32 bits; 3.14 keeps flags in the top 16.
    """
    return 0 < _u64(raw, 0) & 0xFFFF_FFFF_FFFF < 1 << 32


def _u64(raw: bytes, offset: int) -> int:
    value: int = _U64.unpack_from(raw, offset)[0]
    return value


def _i32(raw: bytes, offset: int) -> int:
    return int.from_bytes(raw[offset : offset + 4], "little", signed=True)
