"""A process with memory, and a file, behind something that never answers: `userfaultfd`, or `fuse DIRECTORY` to mount at.

Prints the address of a page that cannot be read, and sleeps. A file system is mounted in a namespace of its own, and goes
with the process.

`mappings DIRECTORY USER` becomes a user whose process holds the lock of its mappings: a thread replaces a mapping that is to
be written back, and the file system does not answer the write. /proc/PID/maps and more of that process keeps every
reader waiting, such as `ps`, and killing the process does not end it. The file system ends, and with it all that, when
the program's input ends, and after a minute.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import stat
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

_SIZE = 1 << 16
_SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}[os.uname().machine]
_UFFDIO_API, _UFFDIO_REGISTER, _UFFD_API, _MISSING = 0xC018AA3F, 0xC020AA00, 0xAA, 1
_CLONE_NEWNS, _MS_PRIVATE, _MS_REC = 0x20000, 1 << 18, 1 << 14

_IN, _OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
_LOOKUP, _GETATTR, _OPEN, _READ, _WRITE, _INIT = 1, 3, 14, 15, 16, 26
_READS = (_READ, 28, 44)
"""Of files, and of directories."""
_READ_SIZE = struct.Struct("<16xI")
_HELD_S = 60
_ROOT, _FILE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    if sys.argv[1] == "mappings":
        _hold_mappings(Path(sys.argv[2]), int(sys.argv[3]))
        return
    mapped = behind_userfaultfd() if sys.argv[1] == "userfaultfd" else _behind_fuse(Path(sys.argv[2]))
    print(mapped, flush=True)
    time.sleep(600)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def behind_userfaultfd() -> int:
    """Return an address at which nothing can be read, nor is it known that nothing can."""
    descriptor = _checked(libc.syscall(_SYS_USERFAULTFD, os.O_CLOEXEC))
    address = _mmap(-1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    fcntl.ioctl(descriptor, _UFFDIO_API, struct.pack("<QQQ", _UFFD_API, 0, 0))
    fcntl.ioctl(descriptor, _UFFDIO_REGISTER, struct.pack("<QQQQ", address, _SIZE, _MISSING, 0))
    return address


def _behind_fuse(directory: Path) -> int:
    _mount(directory, _READS)
    file = os.open(directory / "stalled.so", os.O_RDONLY)
    return _mmap(file, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)


def _hold_mappings(directory: Path, user: int) -> None:
    _mount(directory, (_WRITE,))
    file = os.open(directory / "stalled.so", os.O_RDWR)
    os.setuid(user)
    mapped = _mmap(file, mmap.MAP_SHARED)
    ctypes.memset(mapped, 1, 1)
    # The kernel writes the page back while it replaces the mapping, with the lock held.
    fixed, private = 0x10, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    threading.Thread(target=_mmap, args=(-1, fixed | private), kwargs={"at": mapped}, daemon=True).start()
    print(mapped, flush=True)
    time.sleep(600)


def _mount(directory: Path, unanswered: Sequence[int]) -> None:
    """Mount a file system that does not answer some requests."""
    _checked(libc.unshare(_CLONE_NEWNS))
    _checked(libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    _checked(libc.mount(b"stalled", os.fsencode(directory), b"fuse", ctypes.c_ulong(0), options))
    if not os.fork():
        libc.prctl(1, 9)
        if _WRITE in unanswered:
            signal.alarm(_HELD_S)
            threading.Thread(target=_end_with_input, daemon=True).start()
        _serve(device, unanswered)
    # The file system ends with its server only if nothing else has the device open.
    os.close(device)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def _mmap(file: int, flags: int, protection: int = mmap.PROT_READ | mmap.PROT_WRITE, at: int | None = None) -> int:
    libc.mmap.restype = ctypes.c_void_p
    found = libc.mmap(ctypes.c_void_p(at), ctypes.c_size_t(_SIZE), protection, flags, file, ctypes.c_long(0))
    assert found is not None
    return int(found)


def _serve(device: int, unanswered: Sequence[int]) -> None:
    """Answer everything but some requests."""
    while True:
        request = os.read(device, 1 << 18)
        _, opcode, unique, node, *_ = _IN.unpack_from(request)
        if opcode in unanswered:
            continue
        code, body = 0, b""
        if opcode == _INIT:
            body = struct.pack("<IIIIHHIIHH32x", 7, 31, 0, 0, 8, 8, 4096, 1, 0, 0)
        elif opcode == _LOOKUP:
            body = struct.pack("<QQQQII", _FILE, 0, 60, 60, 0, 0) + _attributes(_FILE)
        elif opcode == _GETATTR:
            body = struct.pack("<QII", 60, 0, 0) + _attributes(node)
        elif opcode == _READ:
            body = bytes(_READ_SIZE.unpack_from(request, _IN.size)[0])
        elif opcode == _OPEN:
            body = struct.pack("<QII", 1, 0, 0)
        else:
            code = -errno.ENOSYS
        os.write(device, _OUT.pack(_OUT.size + len(body), code, unique) + body)


def _attributes(node: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if node == _ROOT else stat.S_IFREG | 0o755
    return struct.pack("<QQQQQQIIIIIIIIII", node, _SIZE, 128, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


if __name__ == "__main__":
    main()
