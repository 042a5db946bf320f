"""How is what strangers made read where it can do no harm? In a child of this process, one for each piece of work.

This process is started by parsers.py and has the agent's rights, but never looks at anything of a stranger's. For each piece of
work it forks: the child opens the files, gives up every right, and only then reads them. A child that crashes, hangs or
takes too much is ended by what it was told, and nothing else is lost.
"""

from __future__ import annotations

import array
import codecs
import gc
import mmap
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

import msgspec

from .confinement import Limits, confine, die_with_parent, keep_only, limit
from .files import FileId, NamedFile, ProcessFolders, RootedFile, open_file
from .folders import open_below, open_named
from .work import HEAD, MAX_DESCRIPTORS, Failed, FrameKind, Opened, OpenFile, Request, Service, Work, frame

_CODECS = ("ascii", "latin-1", "utf-8", "utf-16-le", "utf-32-le", "unicode_escape")
"""Which Python imports when they are first used, and a child cannot import any more."""
_POLL_MS = 1000
_MAX_MESSAGE = 1 << 16
_MAX_REQUEST = 256 << 20


class Start(msgspec.Struct, frozen=True, tag=True):
    """Begin a piece of work; its socket, and the descriptors that it is given, come with the message."""

    id: int
    limits: Limits
    modules: tuple[str, ...] = ()
    """What the work needs: a child cannot import any more once it has given up its rights."""


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Import what work of a kind needs that will be asked for soon."""

    modules: tuple[str, ...]


class Kill(msgspec.Struct, frozen=True, tag=True):
    """End a piece of work, if it has not ended."""

    id: int


def main() -> None:
    """Serve until the other end of the control socket is closed: its descriptor, and modules, are the arguments.

    Not until its parent ends: for the kernel that is the thread that started it, and not the agent.
    """
    control, modules = int(sys.argv[1]), sys.argv[2:]
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a Ctrl-C at the terminal is for the agent, which then ends this process
    for name in _CODECS:
        codecs.lookup(name)
    _import(modules)
    with socket.socket(fileno=control) as line:
        _serve(line)


def _import(modules: Sequence[str]) -> None:
    """Import what is not there yet."""
    new = [name for name in modules if name not in sys.modules]
    for name in new:
        import_module(name)
    if new:
        # What is there now is there for good: a child's collector shall not write to pages that all share.
        gc.freeze()


def _serve(line: socket.socket) -> None:
    children: dict[int, int] = {}
    poll = select.poll()
    poll.register(line, select.POLLIN)
    while True:
        poll.poll(_POLL_MS)
        _reap(children)
        try:
            message, descriptors, _, _ = socket.recv_fds(line, _MAX_MESSAGE, MAX_DESCRIPTORS, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        if not message:
            break
        told = msgspec.msgpack.decode(message, type=Start | Prepare | Kill)
        if isinstance(told, Prepare):
            _import(told.modules)
            continue
        if isinstance(told, Kill):
            if told.id in children:
                os.kill(children[told.id], signal.SIGKILL)
            continue
        _import(told.modules)
        server = os.getpid()
        child = os.fork()
        if not child:
            line.detach()
            _work(server, told.limits, descriptors)
        children[told.id] = child
        for descriptor in descriptors:
            os.close(descriptor)
    for child in children.values():
        os.kill(child, signal.SIGKILL)


def _reap(children: dict[int, int]) -> None:
    """Forget the children that have ended. Until then nobody else is given their numbers."""
    for number, child in list(children.items()):
        if os.waitpid(child, os.WNOHANG)[0]:
            del children[number]


def _work(server: int, limits: Limits, descriptors: list[int]) -> None:
    """Do one piece of work and end."""
    status = 1
    try:
        die_with_parent(server)
        keep_only(descriptors)
        with socket.socket(fileno=descriptors[0]) as line:
            try:
                line.sendall(frame(FrameKind.STARTED, msgspec.msgpack.encode(os.getpid())))
                _answer(line, server, limits, descriptors[1:])
                line.sendall(frame(FrameKind.DONE, b""))
                status = 0
            except BrokenPipeError:
                pass  # nobody waits any more
            except BaseException as e:  # noqa: BLE001 - whatever it is: who asked is told, and this process ends
                failed = Failed(type(e).__name__, str(e)[:4096].encode("utf-8", "replace").decode())
                line.sendall(frame(FrameKind.FAILED, msgspec.msgpack.encode(failed)))
    finally:
        os._exit(status)


def _answer(line: socket.socket, server: int, limits: Limits, given: Sequence[int]) -> None:
    limit(limits)
    asked_for = _receive(line, FrameKind.REQUEST)
    if asked_for is None:
        return
    request = msgspec.msgpack.decode(asked_for, type=Request)
    module, _, name = request.work.partition(":")
    asked = getattr(import_module(module), name)
    files = list(_opened(line, request, given))
    confine(server)
    line.sendall(frame(FrameKind.CONFINED, b""))
    argument = msgspec.msgpack.decode(request.argument, type=asked.argument)
    if isinstance(asked, Service):
        answer_to = asked.function(files, argument)
        while (question := _receive(line, FrameKind.ASK)) is not None:
            answer = answer_to(msgspec.msgpack.decode(question, type=asked.question))
            line.sendall(frame(FrameKind.ANSWER, msgspec.msgpack.encode(answer)))
        return
    assert isinstance(asked, Work)
    for answer in asked.function(files, argument):
        line.sendall(frame(FrameKind.ANSWER, msgspec.msgpack.encode(answer)))


def _opened(line: socket.socket, request: Request, given: Sequence[int]) -> Iterator[OpenFile]:
    """Open the files, with the rights that are then given up, and tell of each as soon as it is open."""
    for descriptor in given:
        yield OpenFile(descriptor, None, 0, f"descriptor {descriptor}")
    for number, file in enumerate(request.files):
        if isinstance(file, ProcessFolders):
            yield from _opened_below(line, number, file)
            continue
        try:
            root = given[file.root] if isinstance(file, RootedFile) and file.root >= 0 else None
            descriptor = open_named(file) if isinstance(file, NamedFile) else open_file(file, root)
            status = os.fstat(descriptor)
            code = None
            if request.execute:
                code = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
            found = OpenFile(descriptor, FileId.of(status), status.st_size, file.shown, code=code)
        except Exception as e:  # noqa: BLE001 - a file that cannot be opened costs itself only
            found = OpenFile(-1, None, 0, file.shown, getattr(e, "strerror", None) or str(e), type(e).__name__)
        opened = Opened(number, found.id, found.size, found.reason, found.error)
        told = frame(FrameKind.OPENED, msgspec.msgpack.encode(opened))
        if request.keep and found.descriptor >= 0:
            _send_with(line, told, found.descriptor)
        else:
            line.sendall(told)
        yield found


def _opened_below(line: socket.socket, number: int, folders: ProcessFolders) -> Iterator[OpenFile]:
    """Open all files below directories, and tell of them as one."""
    reason, error = "", ""
    try:
        for descriptor, name in open_below(folders):
            status = os.fstat(descriptor)
            yield OpenFile(descriptor, FileId.of(status), status.st_size, name)
    except Exception as e:  # noqa: BLE001 - what cannot be opened costs itself only
        reason, error = getattr(e, "strerror", None) or str(e), type(e).__name__
    line.sendall(frame(FrameKind.OPENED, msgspec.msgpack.encode(Opened(number, reason=reason, error=error))))


def _send_with(line: socket.socket, data: bytes, descriptor: int) -> None:
    sent = line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])
    line.sendall(data[sent:])


def _receive(line: socket.socket, kind: FrameKind) -> bytes | None:
    """Return the body of the next frame, which the agent sent; None at the end."""
    head = _exactly(line, HEAD.size)
    if head is None:
        return None
    size, found = HEAD.unpack(head)
    if found != kind or size > _MAX_REQUEST:
        raise ValueError(f"a frame of kind {found} and {size} bytes where {kind.name} was expected")
    body = _exactly(line, size)
    if body is None:
        raise EOFError("the agent went away")
    return body


def _exactly(line: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = line.recv(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)
