"""The names that programs have of themselves: by their variables, their executable, or the script of their interpreter."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from .process_info import ProcessInfo
from .resource_variables import own_attributes

MAX_TEXT = 4096
"""Characters of a path or a command line that are compared."""
_PYTHON = re.compile(r"(python|pypy)[0-9.]*(t|d)?$")


def service_name(executable: str, arguments: Sequence[str]) -> str:
    """Name a program: the executable, or the script or module that an interpreter runs."""
    return _script(executable, arguments) or os.path.basename(executable)


def name_of(info: ProcessInfo) -> str:
    """Return the name that a program has, by its variables or by what it runs."""
    return _said(info) or service_name(info.executable or info.comm, info.arguments)


def may_need_name(info: ProcessInfo) -> bool:
    """Report whether a program may turn out to be an interpreter without a script, by what the kernel knows."""
    return _PYTHON.match(os.path.basename(info.executable or info.comm)) is not None


def needs_name(info: ProcessInfo) -> bool:
    """Report whether a program is an interpreter without a script, and its variables do not name it either."""
    return info.unread is None and may_need_name(info) and not names_others(info)


def names_others(info: ProcessInfo) -> bool:
    """Report whether a program names its nameless descendants: it runs a script of Python's, or its variables name it."""
    if info.unread is not None:
        return False
    return bool(_said(info) or _script(info.executable or info.comm, info.arguments))


def shortened(info: ProcessInfo) -> ProcessInfo:
    """Return of a program what names and selects others, and no more of its words than is compared."""
    arguments, left = [], MAX_TEXT
    for argument in info.arguments:
        arguments.append(argument[: max(left, 0)])
        left -= len(argument) + 1
        if left <= 0:
            break
    said = _said(info)
    return replace(info, arguments=tuple(arguments), variables=(("OTEL_SERVICE_NAME", said),) if said else ())


def _said(info: ProcessInfo) -> str:
    return str(dict(own_attributes(dict(info.variables), {}).attributes).get("service.name", ""))


def _script(executable: str, arguments: Sequence[str]) -> str:
    """Return the name of the script or module that an interpreter runs; empty for none."""
    if not _PYTHON.match(os.path.basename(executable)):
        return ""
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "-":
            break
        if not argument.startswith("-"):
            return os.path.basename(argument.rstrip("/")).removesuffix(".py")
        if argument == "--check-hash-based-pycs":
            next(rest, None)
        elif not argument.startswith("--"):
            option, value = _last_option(argument)
            if option == "c":
                break
            if option == "m":
                return value or next(rest, "")
            if option and not value:
                next(rest, None)
    return ""


def _last_option(argument: str) -> tuple[str, str]:
    """Return the option that ends a word of short options because it takes a value, and what the word has of that."""
    found = re.search("[cmWX]", argument)
    return (found[0], argument[found.end() :]) if found else ("", "")
