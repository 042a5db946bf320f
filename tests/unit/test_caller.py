"""Tests of the user who became root: whom the environment names, and what is refused."""

from __future__ import annotations

import dataclasses
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gpu.cli.caller import ROOT_REPORTS, Caller, find_caller
from otel_gpu.cli.started_command import StartedCommand
from otel_gpu.errors import ConfigError
from otel_gpu.runtime.trusted_paths import open_directory, replace_file

as_root = pytest.mark.skipif(os.getresuid() != (0, 0, 0), reason="needs root, which alone has a caller")
USER = next(user for user in reversed(pwd.getpwall()) if user.pw_uid)
OTHER = USER.pw_uid + 1
CALLER = Caller(USER.pw_uid, USER.pw_gid, (USER.pw_gid, 7), USER.pw_name, "/home/of user", "/bin/sh")


@as_root
@pytest.mark.parametrize(
    "environment",
    [
        {"SUDO_UID": str(USER.pw_uid), "SUDO_GID": str(USER.pw_gid)},
        {"SUDO_UID": str(USER.pw_uid)},
        {"PKEXEC_UID": str(USER.pw_uid)},
        {"DOAS_USER": USER.pw_name},
    ],
    ids="+".join,
)
def test_the_caller_is_found(environment: dict[str, str]) -> None:
    caller = find_caller(environment)

    assert caller is not None
    assert (caller.uid, caller.gid, caller.name, caller.home) == (*USER[2:4], USER.pw_name, USER.pw_dir)
    assert set(caller.groups) == set(os.getgrouplist(USER.pw_name, USER.pw_gid))


@as_root
def test_the_group_of_the_caller_is_the_one_that_sudo_reports() -> None:
    caller = find_caller({"SUDO_UID": str(USER.pw_uid), "SUDO_GID": "12321"})

    assert caller is not None
    assert caller.gid == 12321
    assert 12321 in caller.groups


@as_root
@pytest.mark.parametrize(
    "environment", [{}, {"SUDO_UID": "0", "SUDO_GID": "0"}, {"SUDO_UID": ""}, {"DOAS_USER": "root"}], ids=str
)
def test_root_itself_has_no_caller(environment: dict[str, str]) -> None:
    assert find_caller(environment) is None


@as_root
@pytest.mark.parametrize(
    "environment",
    [
        {"SUDO_UID": "-1"},
        {"SUDO_UID": "1e3"},
        {"SUDO_UID": "٣"},
        {"SUDO_UID": "4294967295"},
        {"SUDO_UID": "9" * 5000},
        {"SUDO_UID": "3999999999"},
        {"SUDO_UID": str(USER.pw_uid), "SUDO_GID": "wheel"},
        {"PKEXEC_UID": "0x10"},
        {"DOAS_USER": "no such user"},
        {"DOAS_USER": "a\0b"},
    ],
    ids=lambda environment: str(environment)[:40],
)
def test_a_caller_that_cannot_be_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"cannot run as its caller: .*--as-root"):
        find_caller(environment)


@as_root
def test_only_root_has_a_caller() -> None:
    script = "from otel_gpu.cli.caller import find_caller; print(find_caller({'SUDO_UID': '3999999999'}))"
    become = f"import os; os.setresuid(0, {USER.pw_uid}, {USER.pw_uid})"

    # The modules are loaded before: another user may not read this tree.
    whole = f"import otel_gpu.cli.caller; {become}; {script}"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True)

    assert done.stdout == "None\n"


def test_the_environment_is_that_of_a_login() -> None:
    started_with = {
        b"PATH": b"/bin",
        b"HOME": b"/root",
        b"USER": b"root",
        b"DATA": b"\xff",
        **{name.encode(): b"1" for name in ROOT_REPORTS},
    }

    assert CALLER.environment(started_with) == {
        b"PATH": b"/bin",
        b"DATA": b"\xff",
        b"HOME": b"/home/of user",
        b"USER": USER.pw_name.encode(),
        b"LOGNAME": USER.pw_name.encode(),
        b"SHELL": b"/bin/sh",
    }


@as_root
def test_a_command_has_the_caller_and_no_right_to_become_root_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = 'echo "$(id -u) $(id -g) $(id -G) $HOME"; grep -E "^(Uid|Gid|CapEff|CapPrm|CapAmb)" /proc/self/status'

    stdout = os.dup(1)
    try:
        # The caller has no way to the file.
        with out.open("wb") as file:
            os.dup2(file.fileno(), 1)
            with StartedCommand(["sh", "-c", script], caller=CALLER) as started:
                started.go()
                assert started.wait() == 0
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)

    ids, *status = out.read_text().splitlines()
    uid, gid = str(CALLER.uid), str(CALLER.gid)
    assert ids.split(" ", 2)[:2] == [uid, gid]
    assert sorted(ids.split()[2:4], key=int) == sorted({gid, "7"}, key=int)
    assert ids.endswith(CALLER.home)
    assert dict(line.split(":\t") for line in status) == {
        "Uid": "\t".join([uid] * 4),
        "Gid": "\t".join([gid] * 4),
        "CapPrm": "0" * 16,
        "CapEff": "0" * 16,
        "CapAmb": "0" * 16,
    }


@as_root
def test_a_caller_that_the_kernel_refuses_is_said() -> None:
    # A number that setresuid takes for "no change" is refused by setgroups.
    impossible = dataclasses.replace(CALLER, groups=(0xFFFFFFFF,))

    with StartedCommand(["true"], caller=impossible) as started, pytest.raises(ConfigError, match=r"as .*--as-root"):
        started.go()


def _put(directory: Path, name: str = "a", owner: Caller = CALLER) -> int:
    at = open_directory(directory)
    try:
        replace_file(name, at, [b"x"], owner=owner)
    finally:
        os.close(at)
    return (directory / name).lstat().st_uid


@as_root
@pytest.mark.parametrize(
    ("mode", "uid", "gid", "given"),
    [
        (0o755, CALLER.uid, 0, True),
        (0o1777, 0, 0, True),
        (0o775, 0, 7, True),
        (0o755, 0, 0, False),
        (0o755, 0, 7, False),
        (0o555, CALLER.uid, 0, False),
        (0o757, 0, 7, False),
    ],
)
def test_a_file_is_given_where_the_caller_could_have_made_it(
    tmp_path: Path, mode: int, uid: int, gid: int, given: bool
) -> None:
    os.chown(tmp_path, uid, gid)
    tmp_path.chmod(mode)

    assert _put(tmp_path) == (CALLER.uid if given else 0)


@as_root
@pytest.mark.parametrize(("before", "given"), [(CALLER.uid, True), (0, False), (OTHER, False)])
def test_what_takes_the_place_of_another_users_file_is_not_given(tmp_path: Path, before: int, given: bool) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "a").touch()
    os.chown(tmp_path / "a", before, 0)

    assert _put(tmp_path) == (CALLER.uid if given else 0)


@as_root
def test_what_a_link_leads_to_is_not_given(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "of root").write_text("kept")
    (tmp_path / "a").symlink_to("of root")
    os.chown(tmp_path / "a", CALLER.uid, 0, follow_symlinks=False)

    assert _put(tmp_path) == CALLER.uid
    assert ((tmp_path / "of root").stat().st_uid, (tmp_path / "of root").read_text()) == (0, "kept")
    assert not (tmp_path / "a").is_symlink()
