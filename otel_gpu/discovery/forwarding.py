"""Does this file only hand calls of CUDA or HIP on to the library that executes them?

Such files export what a driver exports: the stubs in TensorFlow and JAX that find the driver and call on, shims of vGPUs and
checkpointing that are preloaded, and those that take the driver's place in LD_LIBRARY_PATH. A call through one of them is
executed once, by the driver, and is counted there; what a shim refuses is executed nowhere.
"""

from __future__ import annotations

from ..sandbox.elf import PT_LOAD, ElfFile

_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME = 1, 5, 10, 14
_MAX_STRINGS = 64 << 20
_MAX_NAME = 4_096
_MAX_SHIM = 8 << 20
"""Bytes of the largest file whose strings are looked at: NVIDIA's own driver, which names no other one, is larger."""
_FINDS = (b"dlsym", b"dlvsym", b"dlopen", b"dlmopen")
_OPENS = (b"dlopen", b"dlmopen")


def forwards(elf: ElfFile, name: str, stem: str) -> bool:
    """Say whether a file that exports what `stem` exports, as `libcuda.so`, finds another one that executes the calls.

    `name` is the file's own, which counts where it says none inside. A file called otherwise forwards if it can look functions
    up, or is linked against the library; one with the library's name, if it is linked against another one, opens one in a
    namespace of its own, or says which one it opens. What it learns from a variable or a file, nobody sees here.
    """
    tags = elf.dynamic()
    strings = _strings(elf, tags)
    soname = next((_at(strings, at) for tag, at in tags if tag == _DT_SONAME), b"") or name.encode(errors="replace")
    needed = [_at(strings, at) for tag, at in tags if tag == _DT_NEEDED]
    if any(_is_called(n, stem) and n != soname for n in needed):
        return True
    if not _is_called(soname, stem):
        return any(_has(strings, f) for f in _FINDS)
    if not any(_has(strings, f) for f in _OPENS) or elf.size > _MAX_SHIM:
        return False
    return _has(strings, b"dlmopen") or _names_another(elf, soname, stem)


def _strings(elf: ElfFile, tags: list[tuple[int, int]]) -> bytes:
    values = dict(tags)
    if _DT_STRTAB not in values:
        return b""
    return elf.peek(elf.to_offset(values[_DT_STRTAB]), min(values.get(_DT_STRSZ, 0), _MAX_STRINGS))


def _at(strings: bytes, at: int) -> bytes:
    return strings[at : at + _MAX_NAME].partition(b"\0")[0]


def _has(strings: bytes, name: bytes) -> bool:
    return b"\0" + name + b"\0" in strings


def _is_called(name: bytes, stem: str) -> bool:
    return name == stem.encode() or name.startswith(stem.encode() + b".")


def _names_another(elf: ElfFile, soname: bytes, stem: str) -> bool:
    """Say whether a string names a library of this kind that is not the file itself: a path, or another version."""
    library = stem.encode().removesuffix(b".so")
    own = {soname, stem.encode(), stem.encode() + b".1"}
    for s in elf.segments:
        if s.type == PT_LOAD:
            data = elf.peek(s.offset, min(s.file_size, _MAX_SHIM))
            at = data.find(library)
            while at >= 0:
                begin = data.rfind(b"\0", max(at - _MAX_NAME, 0), at) + 1
                end = data.find(b"\0", at, at + _MAX_NAME)
                said = data[begin : end if end >= 0 else at + _MAX_NAME]
                if b".so" in said[at - begin :] and said not in own and said.isascii():
                    return True
                at = data.find(library, at + 1)
    return False
