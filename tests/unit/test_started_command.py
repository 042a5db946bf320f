from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gpu.cli.started_command import StartedCommand
from otel_gpu.errors import ConfigError


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -KILL $$", 128 + signal.SIGKILL), (":", 0)])
def test_the_status_of_a_command_is_as_a_shell_has_it(script: str, status: int) -> None:
    with StartedCommand(["sh", "-c", script]) as started:
        started.go()
        assert started.wait() == status


def test_a_command_does_nothing_until_it_is_told_and_has_the_process_that_was_there(tmp_path: Path) -> None:
    with StartedCommand(["sh", "-c", f"echo $$ > {tmp_path}/pid"]) as started:
        os.kill(started.pid, 0)
        assert not list(tmp_path.iterdir())
        started.go()
        started.wait()

    assert int((tmp_path / "pid").read_text()) == started.pid


def test_a_command_that_is_never_told_ends_without_having_run(tmp_path: Path) -> None:
    with StartedCommand(["touch", str(tmp_path / "a")]) as started:
        pass

    assert not list(tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(started.pid, 0)


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    with (
        StartedCommand([str(tmp_path)]) as started,
        pytest.raises(ConfigError, match="cannot be run: Permission denied"),
    ):
        started.go()


def test_a_command_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no name"):
        StartedCommand([""])


_COMMAND = """
import signal, sys
signal.signal(int(sys.argv[1]), lambda *_: sys.exit(9))
print("ready", flush=True)
signal.pause()
"""
_STARTS = """
import signal, sys
from otel_gpu.cli.started_command import StartedCommand
number = int(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)
before = signal.getsignal(number)
with StartedCommand([sys.executable, "-c", sys.argv[2], sys.argv[1]]) as started:
    started.go()
    assert not started.has_ended()
    assert started.wait() == 9
    assert started.has_ended()
assert signal.getsignal(number) == before
"""


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
def test_what_this_process_is_told_while_it_waits_is_passed_on(number: signal.Signals) -> None:
    # Away from a terminal, which would tell both: whoever runs the tests may sit at one.
    command = [sys.executable, "-c", _STARTS, str(int(number)), _COMMAND]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, text=True) as starts:
        assert starts.stdout.readline() == "ready\n"
        starts.send_signal(number)
        assert starts.wait(60) == 0


def test_signals_that_python_ignores_are_not_ignored_by_the_command() -> None:
    script = (
        "from otel_gpu.cli.started_command import StartedCommand\n"
        "with StartedCommand(['grep', 'SigIgn', '/proc/self/status']) as started: started.go()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & 1 << signal.SIGPIPE - 1
