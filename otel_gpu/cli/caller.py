"""The user who became root to run this command, as sudo, pkexec and doas report that user in the environment.

Only a process whose real and effective user is root takes these variables into account: root could become that user anyway.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Mapping

from ..errors import ConfigError
from ..signals.structs import Frozen
from ..text import escaped

_NO_USER = 0xFFFFFFFF
"""The number that setuid(2) takes for "leave it as it is"."""
_MAX_DIGITS = 10
_MAX_SHOWN = 80
ROOT_REPORTS = ("SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME", "PKEXEC_UID", "DOAS_USER")
"""The variables that report how this process became root; they do not hold for a command of the caller."""


class Caller(Frozen):
    """A user, with all that a login would give the user's processes."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str
    shell: str

    def environment(self, started_with: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Return these variables as they are for a process of the user."""
        left_out = {name.encode() for name in ROOT_REPORTS}
        kept = {name: value for name, value in started_with.items() if name not in left_out}
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
        return kept | {name.encode(): os.fsencode(value) for name, value in own.items() if value}

    def become(self) -> None:
        """Make this process the user's, for good; OSError where the kernel refuses."""
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)

    def may_write(self, directory: os.stat_result) -> bool:
        """Say whether the mode of a directory lets the user make files in it."""
        if directory.st_uid == self.uid:
            needed = stat.S_IWUSR | stat.S_IXUSR
        elif directory.st_gid in (self.gid, *self.groups):
            needed = stat.S_IWGRP | stat.S_IXGRP
        else:
            needed = stat.S_IWOTH | stat.S_IXOTH
        return directory.st_mode & needed == needed


def find_caller(environment: Mapping[str, str] = os.environ) -> Caller | None:
    """Return the user who became root; None where this process is not root, or root itself called.

    ConfigError where the environment reports a user that this host does not know.
    """
    if os.getresuid() != (0, 0, 0):
        return None
    for variable in ("SUDO_UID", "PKEXEC_UID", "DOAS_USER"):
        if said := environment.get(variable, ""):
            user = _user(variable, said)
            if user.pw_uid == 0:
                return None
            gid = user.pw_gid
            if variable == "SUDO_UID" and (group := environment.get("SUDO_GID", "")):
                gid = _number("SUDO_GID", group)
            groups = tuple(sorted({gid, *os.getgrouplist(user.pw_name, gid)}))
            return Caller(user.pw_uid, gid, groups, user.pw_name, user.pw_dir, user.pw_shell)
    return None


def _user(variable: str, said: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(said) if variable == "DOAS_USER" else pwd.getpwuid(_number(variable, said))
    except (KeyError, ValueError) as e:
        raise _unknown(variable, said, "this host knows no such user") from e


def _number(variable: str, said: str) -> int:
    """Return the number of a user or a group."""
    if not said.isascii() or not said.isdigit() or len(said) > _MAX_DIGITS or int(said) >= _NO_USER:
        raise _unknown(
            variable, said, "that is no number of a user" if variable != "SUDO_GID" else "that is no number of a group"
        )
    return int(said)


def _unknown(variable: str, said: str, why: str) -> ConfigError:
    return ConfigError(
        f"the command cannot run as its caller: {variable} is {escaped(said, _MAX_SHOWN)}, and {why}; set it right, or run the command "
        "as root by --as-root"
    )
