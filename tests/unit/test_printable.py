"""Text of strangers reaches a log, a terminal and an error message on one line, printable and bounded."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.bpf.needs import Check
from otel_gpu.cli import logs, main
from otel_gpu.cli.doctor.verb import render as render_check
from otel_gpu.cli.inspect import render as render_library
from otel_gpu.cli.inspection import InspectedProbe
from otel_gpu.errors import ElfError
from otel_gpu.exporters.console.exporter import ConsoleExporter
from otel_gpu.exporters.console.settings import ConsoleSettings
from otel_gpu.signals.metrics import Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes
from otel_gpu.text import escaped, one_line

HOSTILE = "/tmp/\x1b[2Jlib\r\n2026-11-21 ERROR forged\u202e\u2028\x9b31m\udcff\x7f.so"
ANY = st.text(st.characters(codec=None), max_size=40)


def test_what_is_not_printable_is_escaped() -> None:
    assert escaped(HOSTILE) == r"/tmp/\x1b[2Jlib\r\n2026-11-21 ERROR forged\u202e\u2028\x9b31m\xff\x7f.so"
    assert escaped("träin ✓ 日本") == "träin ✓ 日本"


def test_a_message_is_one_line() -> None:
    line = one_line("a\x1b[31m\n\tb" + "x" * 10_000)

    assert line.startswith(r"a\x1b[31m b")
    assert line.isprintable()
    assert len(line) == 300


@given(ANY, st.integers(1, 60))
def test_any_text_is_printable_and_bounded(text: str, limit: int) -> None:
    for shown in (escaped(text, limit), one_line(text, limit)):
        assert shown.isprintable()
        assert len(shown) <= limit


def test_errors_quote_strangers_on_one_line() -> None:
    error = ElfError(f"{HOSTILE}: no ELF file")

    assert str(error).isprintable()
    assert len(str(ElfError("x" * 1_000_000))) <= 2_000


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Callable[[], None]], str]:
    """Return what the log that the command sets up prints meanwhile."""

    def printed(speak: Callable[[], None]) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(logging.getLogger(), "handlers", [])
            patched.setattr(logging.getLogger(), "level", logging.WARNING)
            before = logging.getLogger("otel_gpu").level
            try:
                logs.configure(logging.INFO, timestamps=True)
                speak()
            finally:
                logging.getLogger("otel_gpu").setLevel(before)
        return capsys.readouterr().err

    return printed


def test_the_log_escapes_what_was_forgotten(log: Callable[[Callable[[], None]], str]) -> None:
    printed = log(lambda: logging.getLogger("another.library").warning("attached to %s", HOSTILE))

    assert printed.count("\n") == 1
    assert printed[:-1].isprintable()
    assert printed.endswith(f" WARNING attached to {escaped(HOSTILE)}\n")


def test_a_traceback_keeps_its_lines_but_forges_none(log: Callable[[Callable[[], None]], str]) -> None:
    def fail() -> None:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("another.library").exception("it failed", stack_info=True)

    first, *rest = log(fail).rstrip("\n").split("\n")
    assert first.endswith(" ERROR it failed")
    assert any(line == "  Traceback (most recent call last):" for line in rest)
    assert len(rest) > 8
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_a_program_with_a_log_of_its_own_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = logging.NullHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [own])

    logs.configure(logging.INFO)

    assert logging.getLogger().handlers == [own]


@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize("error", [OSError(2, "gone", HOSTILE), RuntimeError(HOSTILE), KeyError(HOSTILE)])
def test_a_failure_of_the_command_forges_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, debug: list[str]
) -> None:
    def fail(_arguments: object) -> int:
        raise error

    monkeypatch.setattr("otel_gpu.cli.doctor.verb.run", fail)

    assert main(["doctor", *debug]) == 1

    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    assert all(line.isprintable() and line.startswith(("  ", "otel-gpu: ")) for line in lines)
    assert (len(lines) == 1) == (not debug)


def test_inspect_and_doctor_show_strangers_names_escaped() -> None:
    probe = InspectedProbe(HOSTILE, "driver", None, None, None, None, None, attached=False, why="no ELF file")
    shown = [
        *render_library(HOSTILE, "driver", [probe]),
        *render_check(Check("endpoint", ok=False, required=False, detail=HOSTILE, fix=HOSTILE)).split("\n", 1),
    ]

    assert all(line.isprintable() for line in shown)


def test_the_console_shows_strangers_names_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    store = SeriesStore()
    calls = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
    owner = Resource(attributes({"service.name": HOSTILE, HOSTILE: HOSTILE}))
    store.fold([Measurement(owner, calls, attributes({HOSTILE: HOSTILE}), 1)], 1)
    store.fold([Measurement(Resource(attributes({HOSTILE: HOSTILE})), calls, (), 1)], 1)

    ConsoleExporter(ConsoleSettings(), stream=sys.stdout).export_metrics(store, 2)

    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))
