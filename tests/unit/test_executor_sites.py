"""Where do the programs go that follow callbacks? In the stand-in of ROS 2, as a compiler makes it."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from otel_gpu.bpf.abi.requests import CallbackKind as KernelCallback
from otel_gpu.probes.sites import SiteRules
from otel_gpu.receivers.inference.executors import (
    SYMBOLS,
    callback_sites,
    is_of_callbacks,
    runs_callbacks,
    runs_python_callbacks,
)
from otel_gpu.receivers.inference.follow_work import _frames_of
from otel_gpu.sandbox.elf import EM_X86_64, ElfFile
from otel_gpu.stacks.cpython.layout import layout_for

_STANDIN = Path(__file__).parent.parent / "standins" / "ros2"
_EXITS_SEEN = 0x100
_RULES = SiteRules()


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if any(shutil.which(tool) is None for tool in ("gcc", "g++", "make")):
        pytest.skip("no C++ compiler")
    directory = tmp_path_factory.mktemp("ros2")
    libraries = [directory / "librclcpp.so", directory / "before_jazzy" / "librclcpp.so"]
    subprocess.run(["make", "-s", "-C", _STANDIN, f"OUT={directory}", *libraries], check=True, capture_output=True)
    with ElfFile(directory / "librclcpp.so") as elf:
        if elf.machine != EM_X86_64:
            pytest.skip("where frames are torn down is known of x86-64 alone")
    return directory


def sites(library: Path, rules: SiteRules = _RULES) -> dict[str, list[int]]:
    """Return the cookies of every program's sites."""
    found = defaultdict(list)
    with ElfFile(library) as elf:
        known = {symbol.name: symbol for symbol in elf.symbols() if symbol.name in SYMBOLS and symbol.value}
        for site in callback_sites(elf, known, rules):
            found[site.program].append(site.cookie)
    return dict(found)


@pytest.mark.parametrize("version", ["", "before_jazzy"])
def test_callbacks_begin_where_their_end_is_seen(standin: Path, version: str) -> None:
    found = sites(standin / version / "librclcpp.so")

    assert sorted(found.pop("callback_begins")) == sorted(
        [
            KernelCallback.ANY | _EXITS_SEEN,
            KernelCallback.SUBSCRIPTION | _EXITS_SEEN,
            KernelCallback.TIMER,  # goes on in the callback, and returns nowhere
            KernelCallback.SERVICE | _EXITS_SEEN,
            KernelCallback.CLIENT | _EXITS_SEEN,
        ]
    )
    assert len(found.pop("callback_ends")) >= 4
    assert found == {}


def test_messages_are_seen_where_the_middleware_and_rcl_take_them(standin: Path) -> None:
    assert sites(standin / "librmw_standin.so") == {
        "message_wanted": [
            KernelCallback.SUBSCRIPTION | 3 << 16,
            KernelCallback.SERVICE | 1 << 16,
            KernelCallback.CLIENT | 1 << 16,
        ]
    }
    assert set(sites(standin / "librcl.so")) == {"message_taken"}


def test_frames_are_where_each_cpython_has_them() -> None:
    """A generator's frame is told from others by a pointer up to 3.10, Include/cpython/frameobject.h."""
    objects = {minor: _frames_of(layout_for((3, minor))) for minor in (8, 9, 10)}
    assert {minor: f["frame_generator"] for minor, f in objects.items()} == {8: 96, 9: 96, 10: 88}
    assert {(f["state_frame"], f["frame_owner"]) for f in objects.values()} == {(24, 0)}
    for minor, (cframe, current, owner) in {11: (56, 8, 69), 12: (56, 0, 70)}.items():
        found = _frames_of(layout_for((3, minor)))
        assert (found["state_frame"], found["state_cframe"], found["cframe_frame"]) == (0, cframe, current)
        assert (found["frame_owner"], found["frame_generator"]) == (owner, 0)


def test_nothing_is_placed_where_single_steps_are_not_allowed(standin: Path) -> None:
    assert sites(standin / "librclcpp.so", SiteRules(allow_single_step=False)) == {}


def test_only_a_process_with_rclcpp_runs_callbacks() -> None:
    assert runs_callbacks(b"/opt/ros/jazzy/lib/librclcpp.so")
    assert runs_callbacks(b"/opt/ros/rolling/lib/librclcpp.so.29")
    for path in (
        b"/opt/ros/jazzy/lib/librclcpp_action.so",
        b"/opt/ros/jazzy/lib/librcl.so",
        b"/usr/lib/libstdc++.so.6",
    ):
        assert not runs_callbacks(path)
    assert runs_python_callbacks(b"/opt/ros/jazzy/lib/python3.12/site-packages/rclpy/_rclpy_pybind11.cpython-312.so")
    assert not runs_python_callbacks(b"/opt/ros/jazzy/lib/librclcpp.so")
    assert is_of_callbacks(b"/opt/ros/jazzy/lib/librmw_fastrtps_cpp.so")
    assert is_of_callbacks(b"/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.33")
    assert not is_of_callbacks(b"/opt/ros/jazzy/lib/librcl_yaml_param_parser.so")
