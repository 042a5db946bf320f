"""By what name does a backend know this file?

The GNU build id where the linker wrote one; always the htlhash of OpenTelemetry's profiles: the first 16 bytes of
SHA-256 over the file's first 4,096 bytes, its last 4,096 and its length (64 bits, big endian).
"""

from __future__ import annotations

import hashlib

from ...sandbox.elf import ElfFile
from ...signals.structs import Frozen

_EDGE = 4096


class BuildId(Frozen):
    """The values of process.executable.build_id.gnu and process.executable.build_id.htlhash, in hexadecimal."""

    gnu: str | None
    htlhash: str


def build_id(elf: ElfFile) -> BuildId:
    """Read both ids."""
    return BuildId(elf.build_id(), htlhash(elf))


def htlhash(elf: ElfFile) -> str:
    """Hash the head, the tail and the length of a file."""
    digest = hashlib.sha256(elf.peek(0, _EDGE))
    digest.update(elf.peek(max(0, elf.size - _EDGE), _EDGE))
    digest.update(elf.size.to_bytes(8, "big"))
    return digest.digest()[:16].hex()
