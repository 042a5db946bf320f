"""Which programs are observed, of all that use a GPU? Those that the operator includes, but for those that are excluded.

What is not known of a program, as of one that has ended before it was looked at, includes it nowhere and excludes it: nothing
is told of whom it might have been.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache

from ..errors import ConfigError
from .containers import container_id, paths, pod_uid
from .kubernetes.pod import Pod
from .process_info import ProcessInfo
from .program_names import MAX_TEXT

FindPod = Callable[[str], Pod | None]
"""Returns what Kubernetes says of a pod, by its id; None where it has not said anything."""


def knows_no_pod(_uid: str) -> Pod | None:
    """Say so."""
    return None


@dataclass(frozen=True, slots=True)
class Rule:
    """What all has to be so of a program. In texts `*` stands for any characters and `?` for one."""

    executable: str | None = None
    """The path of its executable, as it sees it."""
    command_line: str | None = None
    """Its arguments, the program first, with blanks between them."""
    container: str | None = None
    """The id of its container, 64 hexadecimal digits."""
    cgroup: str | None = None
    """The path of its control group."""
    user: str | None = None
    """Who runs it: a name of this host's, or a number."""
    namespace: str | None = None
    """That of its pod."""
    pod_labels: dict[str, str] = field(default_factory=dict)
    """Labels that its pod has all of, and what they say."""

    def __post_init__(self) -> None:
        keys = [f.name for f in fields(self)]
        if not any(getattr(self, key) for key in keys):
            raise ConfigError(f"a rule says one or more of {', '.join(keys)}; one that says nothing cannot be meant")
        if self.user is not None and _number(self.user) is None:
            raise ConfigError(f"user: this host knows no {self.user!r}; write the number")

    @property
    def needs_pods(self) -> bool:
        """Whether it is about pods."""
        return self.namespace is not None or bool(self.pod_labels)

    def says(self, info: ProcessInfo, find_pod: FindPod = knows_no_pod) -> bool | None:
        """Return whether it is so; None where too little is known."""
        answers = (
            self._says_of_command(info),
            _is_any(self.cgroup, paths(info.cgroups)),
            _is_in(self.container, info.cgroups),
            self.user is None or (None if info.user is None else info.user == _number(self.user)),
            self._says_of_pod(info, find_pod),
        )
        return False if False in answers else None if None in answers else True

    def _says_of_command(self, info: ProcessInfo) -> bool | None:
        """Return whether it is so of the program, or of the ancestor that names it."""
        answers: list[bool | None] = []
        for one in (info, info.named_by):
            if one is not None:
                command_line = " ".join(one.arguments) if one.arguments and one.unread is None else None
                both = (_is(self.executable, one.executable or None), _is(self.command_line, command_line))
                answers.append(False if False in both else None if None in both else True)
        return True if True in answers else None if None in answers else False

    def _says_of_pod(self, info: ProcessInfo, find_pod: FindPod) -> bool | None:
        if not self.needs_pods:
            return True
        uid = pod_uid(info.cgroups)
        if uid is None:
            # Who has control groups, and none of a pod, is outside of any.
            return False if info.cgroups else None
        pod = find_pod(uid)
        if pod is None:
            return None
        labels = ((pod.labels.get(key), pattern) for key, pattern in self.pod_labels.items())
        return _is(self.namespace, pod.namespace) is True and all(
            value is not None and matches(pattern, value) for value, pattern in labels
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules; without any, every program is observed."""

    include: Sequence[Rule] = ()
    exclude: Sequence[Rule] = ()

    @property
    def needs_pods(self) -> bool:
        """Whether any rule is about pods."""
        return any(rule.needs_pods for rule in (*self.include, *self.exclude))

    @property
    def needs_users(self) -> bool:
        """Whether any rule is about users."""
        return any(rule.user is not None for rule in (*self.include, *self.exclude))

    def wants(self, info: ProcessInfo, find_pod: FindPod = knows_no_pod) -> bool:
        """Say whether a program is observed."""
        if any(rule.says(info, find_pod) is not False for rule in self.exclude):
            return False
        return not self.include or any(rule.says(info, find_pod) for rule in self.include)


EVERYTHING = Selection()


def _is(pattern: str | None, text: str | None) -> bool | None:
    if pattern is None:
        return True
    return None if text is None else matches(pattern, text[:MAX_TEXT])


def _is_any(pattern: str | None, texts: Sequence[str]) -> bool | None:
    if pattern is None:
        return True
    return any(_is(pattern, text) for text in texts) if texts else None


def _is_in(pattern: str | None, cgroups: Sequence[str]) -> bool | None:
    if pattern is None:
        return True
    # Who has control groups, and none of a container, is outside of any.
    container = container_id(cgroups)
    return _is(pattern, container) if container else False if cgroups else None


def matches(pattern: str, text: str) -> bool:
    """Say whether a text is as a pattern of `*` and `?` has it, in a time that no text can make long."""
    first, *others = pattern.split("*")
    if not others:
        return _part(first).fullmatch(text) is not None
    if _part(first).match(text) is None:
        return False
    *middle, last = others
    position = len(first)
    for part in middle:
        # Where it comes first there is most room for what follows: nothing has to be tried twice.
        found = _part(part).search(text, position)
        if found is None:
            return False
        position = found.end()
    end = len(text) - len(last)
    return end >= position and _part(last).match(text, end) is not None


@lru_cache(maxsize=1024)
def _part(part: str) -> re.Pattern[str]:
    return re.compile("".join("." if c == "?" else re.escape(c) for c in part), re.DOTALL)


@lru_cache(maxsize=1024)
def _number(user: str) -> int | None:
    if user.isascii() and user.isdigit():
        return int(user[:20])
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, OSError):
        return None
