"""Which pointer will the loader have written at an address?"""

from __future__ import annotations

import struct
from typing import Any

from ..elf import EM_AARCH64, EM_X86_64, SHT_RELA, ElfFile
from ..errors import ElfError

# By machine: an absolute address, an entry of the global offset table, an address in this file.
_KINDS = {EM_X86_64: (1, 6, 8), EM_AARCH64: (257, 1025, 1027)}
_MAX_RELOCATIONS_BYTES = 512 << 20
_ROW = 24
_PIECE = _ROW << 15


class LoadedPointers:
    """The relocated pointers of one file, as link-time addresses; read when first asked for."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._slots: Any = None
        self._values: Any = None

    def read(self, slot: int) -> int | None:
        """Return the pointer at `slot`; None where it is not known before the program runs."""
        import numpy as np

        if self._slots is None:
            self._slots, self._values = self._relocations()
        at = int(np.searchsorted(self._slots, slot))
        if at < len(self._slots) and int(self._slots[at]) == slot:
            return int(self._values[at]) or None
        # Packed relocations (DT_RELR) keep their value in place.
        try:
            return int(struct.unpack("<Q", self._elf.read_vaddr(slot, 8))[0]) or None
        except ElfError:
            return None

    def slots_of(self, targets: Any) -> tuple[Any, Any]:
        """Return (slots, what each will hold) for all slots that will hold one of the sorted `targets`."""
        import numpy as np

        if self._slots is None:
            self._slots, self._values = self._relocations()
        if not len(targets):
            return self._slots[:0], self._values[:0]
        where = np.minimum(np.searchsorted(targets, self._values), len(targets) - 1)
        hit = targets[where] == self._values
        return self._slots[hit], self._values[hit]

    def _relocations(self) -> tuple[Any, Any]:
        import numpy as np

        slots, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        section = self._elf.section(".rela.dyn")
        absolute, table_entry, in_file = _KINDS[self._elf.machine]
        if section is not None and section.type == SHT_RELA and section.size <= _MAX_RELOCATIONS_BYTES:
            addresses = self._dynamic_symbols()
            # Piece by piece: a large library has a million of them, and numpy's steps would multiply that.
            for at in range(0, section.size - section.size % _ROW, _PIECE):
                size = min(_PIECE, section.size - section.size % _ROW - at)
                rows = np.frombuffer(self._elf.read(section.offset + at, size), "<i8").reshape(-1, 3)
                kind, symbol = rows[:, 1] & 0xFFFF_FFFF, rows[:, 1] >> 32
                relative = kind == in_file
                named = ((kind == table_entry) | (kind == absolute)) & (symbol >= 0) & (symbol < len(addresses))
                slots += [rows[relative, 0], rows[named, 0]]
                values += [rows[relative, 2], addresses[symbol[named]] + rows[named, 2]]
        slot = np.concatenate(slots)
        slots.clear()
        value = np.concatenate(values)
        values.clear()
        if not (slot[1:] >= slot[:-1]).all():
            order = np.argsort(slot, kind="stable")
            slot, value = slot[order], value[order]
        return slot, value

    def _dynamic_symbols(self) -> Any:
        import numpy as np

        section = self._elf.section(".dynsym")
        if section is None:
            return np.zeros(0, np.int64)
        data = self._elf.section_data(section)
        return np.frombuffer(data[: len(data) // _ROW * _ROW], "<i8").reshape(-1, 3)[:, 1].copy()
