"""How is a command started so that nothing it does goes unseen? Its process is there at once, and waits until it is told."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, NoReturn

from ..errors import ConfigError
from ..text import escaped
from .caller import Caller

_NOT_RUN = 127
"""The exit status of shells where a command cannot be run."""
_NOT_THE_CALLER = b"u"
"""Begins what the child reports when it cannot become the caller; an error number follows."""
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_PASSED_ON = (signal.SIGTERM, signal.SIGINT)


class StartedCommand:
    """A child that becomes a command once `go` is called.

    A context manager, which waits for its end; a child that was never told to go ends at once.
    """

    def __init__(
        self,
        command: Sequence[str],
        descriptors: tuple[int, int] | None = None,
        *,
        caller: Caller | None = None,
        says_to_stderr: bool = False,
    ) -> None:
        """Make the child, with the rights of this process, or as the `caller`; to be called before any thread is started.

        `descriptors` are the soft and the hard limit that it shall have of them, where this process has changed its own.
        `says_to_stderr` keeps what it says out of this process's standard output, as `perf record -o -` does.
        """
        if not command[0]:
            raise ConfigError("the command has no name; give one as a shell finds it")
        self._name = command[0]
        self._caller = caller
        told, self._tell = os.pipe()
        self._failed, failing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _become(command, told, self._tell, failing, descriptors, caller, says_to_stderr=says_to_stderr)
        os.close(told)
        os.close(failing)
        self._status: int | None = None
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StartedCommand:
        """Pass on what this process is told, from when the command runs until it has ended, where nobody else handles it."""
        self._earlier = {number: signal.signal(number, self._handle) for number in _PASSED_ON}
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._tell >= 0:
            os.close(self._tell)
            self._tell = -1
        self.wait()
        os.close(self._failed)

    def go(self) -> None:
        """Let the command run; ConfigError where it cannot be."""
        os.write(self._tell, b".")
        os.close(self._tell)
        self._tell = -1
        code = os.read(self._failed, 16)
        if code.startswith(_NOT_THE_CALLER):
            assert self._caller is not None
            why = os.strerror(int(code.removeprefix(_NOT_THE_CALLER)))
            raise ConfigError(
                f"{escaped(self._name)} cannot be run as {escaped(self._caller.name)}: {why}; allow this process to change "
                "its user and groups, or run the command as root by --as-root"
            )
        if code:
            raise ConfigError(
                f"{escaped(self._name)} cannot be run: {os.strerror(int(code))}; give a command as a shell finds it"
            )

    def wait(self) -> int:
        """Wait for the end of the command, and return its exit status as a shell does: 128 and the signal where one ended it."""
        if self._status is None:
            # It keeps its number until its status is fetched, and nobody else can have what is passed on.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self._restore()
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status if self._status >= 0 else 128 - self._status

    def has_ended(self) -> bool:
        """Say whether the command has ended."""
        if self._status is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def pass_on(self, number: int) -> None:
        """Tell the command what this process was told, unless it was a terminal, which tells both."""
        if self._status is None and not (number == signal.SIGINT and _is_at_terminal()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._tell < 0:
            self.pass_on(number)
            return
        self._restore()
        os.kill(os.getpid(), number)

    def _restore(self) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        self._earlier.clear()


def _is_at_terminal() -> bool:
    """Say whether Ctrl-C on a terminal reaches this process, and whatever it has started."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _become(
    command: Sequence[str],
    told: int,
    tell: int,
    failing: int,
    descriptors: tuple[int, int] | None,
    caller: Caller | None,
    *,
    says_to_stderr: bool,
) -> NoReturn:
    reported = b""
    try:
        os.close(tell)
        # The kernel keeps these from a process that has just changed its user.
        environment = _environment()
        if caller is not None:
            environment = caller.environment(environment)
            # At once: the process has its user before the agent looks at it.
            try:
                caller.become()
            except OSError:
                reported = _NOT_THE_CALLER
                os.read(told, 1)
                raise
        if os.read(told, 1):
            for number in _IGNORED_BY_PYTHON:
                signal.signal(number, signal.SIG_DFL)
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, descriptors)
            if says_to_stderr:
                os.dup2(2, 1)
            os.execvpe(command[0], list(command), environment)  # noqa: S606 - without a shell is what is wanted
    except OSError as e:
        os.write(failing, reported + str(e.errno).encode())
    finally:
        os._exit(_NOT_RUN)


def _environment() -> dict[bytes, bytes]:
    """Return the variables that this process was started with: what it has set for itself is not the command's."""
    with open("/proc/self/environ", "rb") as file:
        said = (entry.partition(b"=") for entry in file.read().split(b"\0") if entry)
        return {name: value for name, equals, value in said if equals}
