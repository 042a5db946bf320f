"""Which pointer will the loader have written at an address?"""

from __future__ import annotations

import struct
from typing import Any

from ....errors import ElfError
from ....sandbox.address_spans import MAX_ADDRESS
from ....sandbox.elf import EM_AARCH64, EM_X86_64, PT_LOAD, SHT_RELA, ElfFile, Section

# By machine: an absolute address, an entry of the global offset table, an address in this file.
_KINDS = {EM_X86_64: (1, 6, 8), EM_AARCH64: (257, 1025, 1027)}
_ET_EXEC = 2
_SHT_RELR = 19
_MAX_RELOCATIONS_BYTES = 96 << 20  # cuBLASLt's take 10 MiB
_MAX_PACKED_BYTES = 1 << 20
_MAX_SYMBOLS_BYTES = 64 << 20
_MAX_IN_PLACE_BYTES = 256 << 20
_ROW = 24
_PIECE = _ROW << 15
_WORD = 8
_BITS = 63
_WINDOW = 64 << 10


class LoadedPointers:
    """The relocated pointers of one file, as link-time addresses; read when first asked for."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._read: tuple[Any, Any] | None = None
        self.refused = 0
        """Tables of relocations that are larger than any library's, and were not read."""

    def read(self, slot: int) -> int | None:
        """Return the pointer at `slot`; None where it is not known before the program runs."""
        import numpy as np

        slots, values = self._relocated()
        at = int(np.searchsorted(slots, slot)) if slot < MAX_ADDRESS else len(slots)
        if at < len(slots) and int(slots[at]) == slot:
            return int(values[at]) or None
        try:
            return int(struct.unpack("<Q", self._elf.read_vaddr(slot, _WORD))[0]) or None
        except ElfError:
            return None

    def values_at(self, slots: Any) -> tuple[Any, Any]:
        """Return (indices of those slots that are known, what each will hold)."""
        import numpy as np

        known, values = self._relocated()
        is_known = np.zeros(len(slots), bool)
        found = np.zeros(len(slots), np.int64)
        if len(known):
            at = np.minimum(np.searchsorted(known, slots), len(known) - 1)
            is_known = known[at] == slots
            found = values[at]
        if self._elf.type == _ET_EXEC:
            # A program that is always at the same address needs no relocations for its own.
            order = np.argsort(slots)
            found[order] = np.where(is_known[order], found[order], self._in_place(slots[order]))
            is_known = found != 0
        which = np.flatnonzero(is_known)
        return which, found[which]

    def slots_of(self, targets: Any) -> tuple[Any, Any]:
        """Return (slots, what each will hold) for all slots that will hold one of the sorted `targets`."""
        import numpy as np

        slots, values = self._relocated()
        if not len(targets):
            return slots[:0], values[:0]
        where = np.minimum(np.searchsorted(targets, values), len(targets) - 1)
        hit = targets[where] == values
        return slots[hit], values[hit]

    def _relocated(self) -> tuple[Any, Any]:
        import numpy as np

        if self._read is None:
            slots, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
            if (section := self._table(".rela.dyn", SHT_RELA, _MAX_RELOCATIONS_BYTES)) is not None:
                self._read_rows(section, slots, values)
            if (section := self._table(".relr.dyn", _SHT_RELR, _MAX_PACKED_BYTES)) is not None:
                slots.append(_unpacked(np.frombuffer(self._elf.section_data(section), "<u8")))
                values.append(self._in_place(slots[-1]))
            slot, value = np.concatenate(slots), np.concatenate(values)
            if not (slot[1:] >= slot[:-1]).all():
                order = np.argsort(slot, kind="stable")
                slot, value = slot[order], value[order]
            self._read = slot, value
        return self._read

    def _table(self, name: str, kind: int, max_bytes: int) -> Section | None:
        section = self._elf.section(name)
        if section is None or section.type != kind:
            return None
        if section.size <= max_bytes:
            return section
        self.refused += 1
        return None

    def _read_rows(self, section: Section, slots: list[Any], values: list[Any]) -> None:
        """Append what a table of relocations says."""
        import numpy as np

        absolute, table_entry, in_file = _KINDS[self._elf.machine]
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

    def _dynamic_symbols(self) -> Any:
        import numpy as np

        section = self._elf.section(".dynsym")
        if section is None or section.size > _MAX_SYMBOLS_BYTES:
            self.refused += section is not None
            return np.zeros(0, np.int64)
        data = self._elf.section_data(section)
        return np.frombuffer(data[: len(data) // _ROW * _ROW], "<i8").reshape(-1, 3)[:, 1].copy()

    def _in_place(self, slots: Any) -> Any:
        """Return what the file has at sorted addresses; 0 where it has nothing."""
        import numpy as np

        values = np.zeros(len(slots), np.int64)
        left = _MAX_IN_PLACE_BYTES
        for segment in self._elf.segments:
            if segment.type != PT_LOAD or segment.vaddr + segment.file_size >= MAX_ADDRESS:
                continue
            end = segment.vaddr + segment.file_size - _WORD
            at, last = (int(n) for n in np.searchsorted(slots, [segment.vaddr, end + 1]))
            while at < last and left > 0:
                start = int(slots[at])
                following = int(np.searchsorted(slots, min(start + _WINDOW, end + 1)))
                size = int(slots[following - 1]) - start + _WORD
                left -= size
                data = np.frombuffer(self._elf.read_vaddr(start, size), np.uint8)
                places = slots[at:following] - start
                values[at:following] = data[places[:, None] + np.arange(_WORD)].view("<i8")[:, 0]
                at = following
        return values


def _unpacked(words: Any) -> Any:
    """Return the addresses that packed relocations (DT_RELR) name.

    An even word is an address; an odd one has a bit for each of the 63 words that follow what was named before.
    """
    import numpy as np

    numbers = np.arange(len(words))
    is_address = (words & np.uint64(1)) == 0
    before = np.maximum.accumulate(np.where(is_address, numbers, -1))
    if not len(words) or before[0] < 0:
        return np.zeros(0, np.int64)
    bases = words[before].astype(np.int64) + _WORD + (numbers - before - 1) * (_BITS * _WORD)
    found = [words[is_address].astype(np.int64)]
    for bit in range(_BITS):
        has = ~is_address & ((words >> np.uint64(bit + 1) & np.uint64(1)) == 1)
        found.append(bases[has] + bit * _WORD)
    return np.sort(np.concatenate(found))
