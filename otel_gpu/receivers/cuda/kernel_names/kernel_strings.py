"""Which of these words are pointers to the name of a kernel that the library has?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from .stub_map import MAX_NAME

ReadTexts = Callable[[Sequence[int], int, int], Mapping[int, bytes]]
"""(addresses, where the last text may end, its greatest length): the texts that begin at the addresses."""


def kernel_strings(
    read: ReadTexts, extent: tuple[int, int], words: Collection[int], names: Iterable[str]
) -> dict[int, str]:
    """Return the kernel names of a mapped library that begin at addresses, which are some of the words."""
    start, end = extent
    known = frozenset(names)
    texts = read([word for word in words if start <= word < end], end, MAX_NAME)
    found = ((address, text.decode("latin-1")) for address, text in texts.items())
    return {address: name for address, name in found if name in known}
