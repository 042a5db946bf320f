"""Whose are the entries of a table that programs share? Their keys, or else their values, say it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ...bpf.maps import BpfMap
from ...discovery.processes import Process
from ...discovery.program_id import ProgramId

Removal = Callable[[Collection[ProgramId]], int]
"""Takes all entries of some programs out of a table, and says how many there were."""

_TRIE_OWNER_AT = 4
"""Behind the number of bits with which the keys of tries begin."""


def programs_of(processes: Iterable[Process]) -> set[ProgramId]:
    """Return the programs that processes run, or ran; those that never showed themselves have nothing here."""
    return {p.program for p in processes if p.exec_id is not None}


def are_of(programs: Collection[ProgramId], owners: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Say of each owner, of fields tgid and exec_id, whether it is one of some programs."""
    wanted = np.array([pid << 32 | exec_id for pid, exec_id in programs], np.uint64)
    return np.isin(owners["tgid"].astype(np.uint64) << np.uint64(32) | owners["exec_id"], wanted)


def by_key(table: BpfMap) -> Removal:
    """Return the removal for a table whose keys begin with whose they are."""
    owner = _owner(table.key_size, 0)
    return lambda programs: sum(
        table.delete_many(keys[are_of(programs, keys.view(owner))]) for keys, _ in _entries(table)
    )


def by_value(table: BpfMap, at: int) -> Removal:
    """Return the removal for a table whose values have it behind so many bytes."""
    owner = _owner(table.value_size, at)
    return lambda programs: sum(
        table.delete_many(keys[are_of(programs, values.view(owner))]) for keys, values in _entries(table)
    )


def of_trie(table: BpfMap) -> Removal:
    """Return the removal for a trie, whose keys begin with a number of bits."""
    owner = _owner(table.key_size, _TRIE_OWNER_AT)

    def remove(programs: Collection[ProgramId]) -> int:
        found, read = [], 0
        for keys in table.keys_in_parts():
            found.append(keys[are_of(programs, keys.view(owner))])
            # It begins anew where the key that it stands at is taken out meanwhile, which others may do for ever.
            read += len(keys)
            if read > 2 * table.max_entries:
                break
        return table.delete_many(np.concatenate(found)) if found else 0

    return remove


def _entries(table: BpfMap) -> Iterator[tuple[npt.NDArray[np.void], npt.NDArray[np.void]]]:
    """Yield keys and values as they are: what a layout leaves out, copies would leave out too."""
    return table.read_parts(np.dtype((np.void, table.key_size)), np.dtype((np.void, table.value_size)))


def _owner(size: int, at: int) -> np.dtype[np.void]:
    return np.dtype(
        {"names": ["tgid", "exec_id"], "formats": ["<u4", "<u4"], "offsets": [at, at + 4], "itemsize": size}
    )
