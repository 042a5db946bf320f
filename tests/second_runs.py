"""Second runs of failed end-to-end tests: each alone, after all others (`pytest -p tests.second_runs`).

A test that passes then is listed as unstable, with the output of both runs. It is a defect to mend, not a failure of the
run. Unit tests, and more than `MOST` failures, are never run again.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from _pytest.terminal import TerminalReporter

MOST = 10
_FOLDER = "tests/e2e/"
_TIMEOUT_S = 600


# Last, so that the terminal reporter is there.
@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_SecondRuns(config), "second-runs")


class _SecondRuns:
    """The part in the process that reports: with pytest-xdist its controller, not its workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._directory = config.rootpath
        self._reporter: TerminalReporter = config.pluginmanager.get_plugin("terminalreporter")
        self._failed: dict[str, list[pytest.TestReport]] = {}
        self._unstable: dict[str, str] = {}
        """The second run's output, by the test's id."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, []).append(report)

    # Inside of the terminal reporter's wrapper, which prints the summary, and after pytest-xdist has ended its workers.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> object:
        result = yield
        again = [test for test in self._failed if test.startswith(_FOLDER)]
        if exitstatus == pytest.ExitCode.TESTS_FAILED and len(self._failed) <= MOST:
            for test in again:
                self._run(test)
            if len(self._unstable) == len(self._failed):
                session.exitstatus = pytest.ExitCode.OK
        return result

    def _run(self, test: str) -> None:
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-rA", test]
        try:
            done = subprocess.run(
                command,
                cwd=self._directory,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return
        if done.returncode == pytest.ExitCode.OK:
            self._unstable[test] = done.stdout
            stats = self._reporter.stats
            for outcome in ("failed", "error"):
                stats[outcome] = [report for report in stats.get(outcome, []) if report.nodeid != test]
            stats.setdefault("unstable", []).append(self._failed[test][0])

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if not self._unstable:
            return
        terminalreporter.section("unstable: failed beside others, passed alone")
        for test, output in self._unstable.items():
            for report in self._failed[test]:
                terminalreporter.write_sep("_", f"{test}, first run, {report.when}")
                terminalreporter.write_line(report.longreprtext)
                for title, text in report.sections:
                    terminalreporter.write_sep("-", title)
                    terminalreporter.write_line(text)
            terminalreporter.write_sep("_", f"{test}, second run, alone")
            terminalreporter.write_line(output)
        for test in self._unstable:
            terminalreporter.write_line(f"UNSTABLE {test}", yellow=True)
