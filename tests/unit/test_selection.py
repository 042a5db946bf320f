"""Only who is meant is observed; of whom too little is known nothing is told."""

from __future__ import annotations

import fnmatch
import os
import pwd
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.config.settings import Discovery
from otel_gpu.discovery import procfs
from otel_gpu.discovery.process_info import ProcessInfo, Unread, kernel_info
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.discovery.selection import Rule, Selection, matches
from otel_gpu.errors import ConfigError
from tests.stopwatch import Stopwatch

CONTAINER = "0123456789abcdef" * 4
PROGRAM = ProcessInfo(
    7,
    comm="python3",
    executable="/usr/bin/python3.11",
    arguments=("python3", "-m", "vllm", "serve", "a\nb[1]"),
    cgroups=(f"0::/kubepods.slice/cri-containerd-{CONTAINER}.scope",),
    user=1000,
)
NOTHING_KNOWN = ProcessInfo(7, unread=Unread.ENDED)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Rule(executable="/usr/bin/python3*"), True),
        (Rule(executable="python3*"), False),
        (Rule(executable="/usr/bin/python3.?1"), True),
        (Rule(executable="/usr/bin/python3.1"), False),
        (Rule(command_line="*vllm serve*"), True),
        (Rule(command_line="*b[1]"), True),
        (Rule(command_line="*b1"), False),
        (Rule(container="0123456789ab*"), True),
        (Rule(container="*"), True),
        (Rule(container=CONTAINER[:-1]), False),
        (Rule(cgroup="/kubepods.slice/*"), True),
        (Rule(cgroup="/user.slice/*"), False),
        (Rule(user="1000"), True),
        (Rule(user="root"), False),
        (Rule(executable="/usr/bin/*", user="1000"), True),
        (Rule(executable="/usr/bin/*", user="1001"), False),
    ],
)
def test_a_rule_says_what_all_is_so(rule: Rule, says: bool) -> None:
    assert rule.says(PROGRAM) is says
    assert Selection([rule]).wants(PROGRAM) is says
    assert Selection(exclude=[rule]).wants(PROGRAM) is not says


@pytest.mark.parametrize("key", ["executable", "command_line", "container", "cgroup", "user"])
def test_who_may_be_meant_is_not_included_but_excluded(key: str) -> None:
    rule = Rule(**{key: "0"})

    assert rule.says(NOTHING_KNOWN) is None
    assert not Selection([rule]).wants(NOTHING_KNOWN)
    assert not Selection(exclude=[rule]).wants(NOTHING_KNOWN)
    assert Selection().wants(NOTHING_KNOWN)


def test_what_is_known_not_to_be_so_is_enough() -> None:
    gone = ProcessInfo(7, executable="/bin/other", unread=Unread.ENDED)

    assert Selection(exclude=[Rule(executable="/usr/*", user="0")]).wants(gone)


def test_outside_of_any_container_no_rule_of_containers_is_so() -> None:
    outside = ProcessInfo(7, cgroups=("0::/user.slice",))

    assert Rule(container="*").says(outside) is False


def test_exclude_goes_before_include() -> None:
    both = Selection([Rule(executable="*")], [Rule(command_line="*vllm*")])

    assert not both.wants(PROGRAM)
    assert both.wants(ProcessInfo(7, executable="/x", arguments=("x",)))


@given(st.text(), st.text())
def test_whatever_stands_in_a_pattern_is_taken_as_it_is(text: str, other: str) -> None:
    plain = text.replace("*", "").replace("?", "") or "x"

    assert Rule(executable=plain).says(ProcessInfo(7, executable=plain)) is True
    assert Rule(executable=plain).says(ProcessInfo(7, executable=plain + "x")) is False
    assert Rule(executable="*" * 50 + plain).says(ProcessInfo(7, executable=(other + plain))) is True


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_patterns_are_those_of_the_shell(pattern: str, text: str) -> None:
    assert matches(pattern, text) is fnmatch.fnmatchcase(text, pattern)


def test_no_text_makes_a_pattern_slow() -> None:
    watch = Stopwatch()

    assert not matches("*a" * 100 + "b", "a" * 4096)

    assert watch.seconds() < 1


def test_a_process_says_who_runs_it() -> None:
    assert kernel_info(os.getpid()).user == procfs.user(os.getpid()) == os.getuid()
    assert procfs.user(1 << 22) is None
    name = pwd.getpwuid(os.getuid()).pw_name
    assert ProcessTable(selection=Selection([Rule(user=name)])).observe(os.getpid()).resource.is_selected
    assert not ProcessTable(selection=Selection(exclude=[Rule(user=name)])).observe(os.getpid()).resource.is_selected


@pytest.mark.parametrize(
    ("keys", "message"),
    [({}, "a rule says one or more of executable, "), ({"user": "nobody-of-this-name"}, "this host knows no")],
)
def test_a_rule_that_cannot_be_meant_is_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Rule(**keys)


def test_rules_are_read_from_the_configuration() -> None:
    assert Discovery(include=(Rule(user="0"),)).include[0].says(kernel_info(1)) is True


def test_a_program_is_selected_by_the_ancestor_that_names_it() -> None:
    launcher = ProcessInfo(6, executable="/bin/python3", arguments=("python3", "train.py"))
    worker = ProcessInfo(7, executable="/opt/python3", arguments=("python3", "-c", "x"), named_by=launcher)
    assert Rule(command_line="*train.py").says(worker) is True
    assert Rule(command_line="*-c x").says(worker) is True
    assert Rule(executable="/bin/python3", command_line="*train.py").says(worker) is True
    # What a rule says is so of one of them, not of parts of both.
    assert Rule(executable="/opt/python3", command_line="*train.py").says(worker) is False
    assert not Selection(exclude=(Rule(command_line="*train.py"),)).wants(worker)
    assert Rule(command_line="*train.py").says(replace(worker, named_by=None)) is False
