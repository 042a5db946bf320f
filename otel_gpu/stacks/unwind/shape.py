"""The layout of a file in memory: its loaded segments, and the size of its unwinding information."""

from __future__ import annotations

from ...signals.structs import Frozen

_PAGE = 4096


class Load(Frozen):
    """A loaded segment; sizes and addresses in bytes."""

    offset: int
    vaddr: int
    file_size: int
    is_executable: bool


class Shape(Frozen):
    """How a file is laid out in memory."""

    is_elf: bool
    loads: tuple[Load, ...] = ()
    frames_bytes: int = 0
    """How large its unwinding information is."""
    reason: str = ""

    @property
    def base(self) -> int:
        """Where the first segment wants to lie: what unwinding rows count from."""
        return min((load.vaddr for load in self.loads), default=0)

    def code_vaddr(self, offset: int) -> int | None:
        """Convert the file offset at which an executable mapping begins; None where no segment can be behind it.

        Mappings begin at whole pages, where segments need not (see ElfFile.code_vaddr).
        """
        for load in self.loads:
            if load.is_executable and load.offset & -_PAGE <= offset < load.offset + load.file_size:
                return offset - load.offset + load.vaddr
        for load in self.loads:
            if load.offset <= offset < load.offset + load.file_size:
                return offset - load.offset + load.vaddr
        return None
