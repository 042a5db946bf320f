from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gpu import __version__
from otel_gpu.cli import VERBS, main, whole_parser
from otel_gpu.cli.doctor.host_checks import check_host
from otel_gpu.cli.inspect import render, summary
from otel_gpu.cli.inspection import InspectedProbe
from otel_gpu.cli.signals import stop_signals
from otel_gpu.config.model import Config
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.exporters.otlp.trial import tried


@pytest.fixture(autouse=True)
def no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("OTEL_")]:
        monkeypatch.delenv(name)


class TestUsage:
    def test_help_names_every_verb(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as exit_:
            main(["--help"])

        text = capsys.readouterr().out
        assert exit_.value.code == 0
        assert all(re.search(rf"\n    {verb}\s", text) for verb in VERBS)

    @pytest.mark.parametrize(
        ("words", "children"), [([], True), (["--subprocesses"], True), (["-s"], True), (["--no-children"], False)]
    )
    def test_descendants_are_recorded_unless_they_are_left_out(self, words: list[str], children: bool) -> None:
        assert whole_parser().parse_args(["record", "-o", "a.html", *words, "4711"]).children is children

    def test_the_version_is_the_packages(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["--version"])

        assert capsys.readouterr().out == f"otel-gpu {__version__}\n"

    @pytest.mark.parametrize(
        ("argv", "says"),
        [
            ([], "arguments are required: COMMAND"),
            (["rnu"], "invalid choice: 'rnu'"),
            (["run", "--pid", "x"], "x is no pid"),
            (["run", "--pid", "0"], "0 is no pid"),
            (["run", "--pid"], "expected at least one argument"),
            (["run", "--duration", "soon"], "--duration soon"),
            (["run", "--duration", "nan"], "--duration nan"),
            (["run", "--duration", "-1"], "--duration"),
            (["run", "--output", "paper"], "--output paper"),
            (["run", "--config", "/nowhere/x.yaml"], "/nowhere/x.yaml: cannot be read"),
            (["inspect"], "arguments are required: PID"),
            (["view", "--keep", "1x"], "--keep 1x is no time"),
            (["dump", "4711", "--timeout", "1x"], "--timeout 1x is no time"),
            (["top", "--interval", "1x"], "--interval 1x is no time"),
            (["record", "-d", "1x"], "--duration 1x is no time"),
            (
                ["record", "4711", "-o", "a.svg", "--rate", "9"],
                "unrecognized arguments: --rate 9; see otel-gpu record --help",
            ),
            (["doctor", "--config", "/nowhere/x.yaml"], "/nowhere/x.yaml: cannot be read"),
        ],
    )
    def test_a_mistake_is_one_line_and_exit_code_2(
        self, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(argv) == 2

        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("otel-gpu: ")
        assert err.count("\n") == 1
        assert says in err

    def test_the_traceback_is_shown_on_request(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "--debug", "--output", "paper"]) == 2

        assert "Traceback" in capsys.readouterr().err

    def test_a_process_that_is_not_there_is_exit_code_1(self, capsys: pytest.CaptureFixture[str]) -> None:
        child = subprocess.Popen(["true"])
        child.wait()

        assert main(["run", "--pid", str(child.pid)]) == 1
        assert f"process {child.pid}: there is no such process" in capsys.readouterr().err

    def test_a_disabled_sdk_observes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

        assert main(["run"]) == 0

    def test_starting_it_loads_nothing_heavy(self) -> None:
        program = (
            "import sys, otel_gpu.cli.run, otel_gpu.config.loading; "
            "print([m for m in ('grpc', 'requests', 'numpy', 'rich', 'google.protobuf', 'capstone') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

        assert done.stdout == "[]\n"


class TestStopping:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_the_first_signal_asks_and_the_second_ends(self, number: signal.Signals) -> None:
        before = signal.getsignal(number)
        with stop_signals() as told:
            os.kill(os.getpid(), number)

            assert told.is_set()
            assert signal.getsignal(number) == signal.SIG_DFL
        after = signal.signal(number, before)
        # On the way out nothing that would end the program at once does so.
        assert after == (signal.SIG_IGN if before == signal.SIG_DFL else before)

    @pytest.mark.parametrize(("timeout_s", "code"), [(0.1, 0), (60, 1)])
    def test_what_stopped_in_time_is_not_ended_later(self, timeout_s: float, code: int) -> None:
        program = (
            "import sys, time\n"
            "from otel_gpu.cli.signals import LastResort\n"
            "with LastResort(0.1) as last_resort:\n"
            "    last_resort.arm()\n"
            f"    time.sleep({timeout_s} if {code} else 0)\n"
            "time.sleep(1)\n"
        )
        assert (
            subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, check=False).returncode == code
        )


class TestDoctor:
    def test_every_check_that_fails_says_what_to_do(self) -> None:
        checks = list(check_host(Config()))

        assert {"btf", "bpf", "capabilities", "libbpf", "bpf objects"} <= {c.check for c in checks}
        assert all((c.fix is None) == c.ok for c in checks)

    def test_json_holds_the_same_and_the_exit_code_follows_the_required_ones(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code = main(["doctor", "--json"])

        checks = json.loads(capsys.readouterr().out)
        assert all(set(c) == {"check", "ok", "required", "detail", "fix"} for c in checks)
        assert code == int(any(c["required"] and not c["ok"] for c in checks))

    def test_the_text_shows_fixes(self, capsys: pytest.CaptureFixture[str]) -> None:
        main(["doctor"])

        text = capsys.readouterr().out
        assert "btf" in text
        assert text.rstrip().endswith(("ready to run", "check fails", "checks fail"))

    @pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
    def test_who_listens_and_speaks_no_otlp_is_no_collector(self, protocol) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
            settings = OtlpSettings(endpoint=endpoint, protocol=protocol, timeout_s=0.5)
            silent = tried("otlp", settings, "metrics")
        gone = tried("otlp", settings, "metrics")

        assert not silent.ok
        assert not gone.ok
        assert "by OTEL_EXPORTER_OTLP_ENDPOINT" in str(gone.fix)
        assert not gone.required

    def test_the_endpoints_of_the_file_are_checked(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "config.yaml"
        file.write_text("exporters: {otlp/there: {endpoint: '127.0.0.1:1'}}")

        main(["doctor", "--json", "--config", str(file)])

        assert "endpoint otlp/there" in {c["check"] for c in json.loads(capsys.readouterr().out)}


class TestInspect:
    ATTACHED = InspectedProbe(
        "/l/libcuda.so.1", "CUDA driver", "cuInit", 0x3FF1A, "je 0x3ff28", 10, "emulated", attached=True, why=None
    )

    def test_every_function_is_a_line(self) -> None:
        slow = dataclasses.replace(
            self.ATTACHED, symbol="cuMemAlloc_v2", site=0, cost="single_stepped", attached=None, why="no cheaper place"
        )
        alias = dataclasses.replace(
            self.ATTACHED, symbol="cuFree", offset=None, site=None, cost="none", attached=False, why="the same code"
        )

        assert list(render("/l/libcuda.so.1", "CUDA driver", [self.ATTACHED, slow, alias])) == [
            "/l/libcuda.so.1 (CUDA driver): 3 functions, 2 can be probed, 1 attached",
            "  symbol         at   offset   instruction  cost            state",
            "  cuInit         +10  0x3ff1a  je 0x3ff28   emulated        attached",
            "  cuMemAlloc_v2  +0   0x3ff1a  je 0x3ff28   single-stepped  no cheaper place",
            "  cuFree                       je 0x3ff28   none            not attached: the same code",
        ]

    def test_it_begins_with_what_it_all_comes_to(self) -> None:
        slow = dataclasses.replace(self.ATTACHED, symbol="cuMemAlloc_v2", cost="single_stepped")
        alias = dataclasses.replace(
            self.ATTACHED, symbol="cuFree", offset=None, cost="none", attached=False, why="same"
        )
        gone = [dataclasses.replace(p, attached=False) for p in (self.ATTACHED, slow)]

        assert list(summary(7, [self.ATTACHED, slow, alias])) == [
            "process 7: 2 of 3 functions of 1 library can be probed (1 emulated, 1 single-stepped)",
            "observed now: every one of them is attached",
            "not probed: 1 function: same",
            "",
        ]
        assert "not observed now: run `otel-gpu run --pid 7`" in list(summary(7, gone))

    def test_a_library_without_probes_says_why(self) -> None:
        runtime = InspectedProbe("/l/libcudart.so", "CUDA runtime", *[None] * 5, attached=False, why="the driver is")

        assert list(render("/l/libcudart.so", "CUDA runtime", [runtime])) == [
            "/l/libcudart.so (CUDA runtime): not probed: the driver is"
        ]

    def test_a_process_without_cuda_has_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["inspect", str(os.getpid())]) == 0
        assert "maps no CUDA library" in capsys.readouterr().out

    def test_json_is_a_list(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["inspect", "--json", str(os.getpid())]) == 0
        assert json.loads(capsys.readouterr().out) == []

    def test_a_process_that_is_not_there_is_exit_code_1(self, capsys: pytest.CaptureFixture[str]) -> None:
        child = subprocess.Popen(["true"])
        child.wait()

        assert main(["inspect", str(child.pid)]) == 1
        assert f"process {child.pid}: there is no such process" in capsys.readouterr().err
