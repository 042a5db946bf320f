"""Can files be written where they are to be? Tried without leaving anything behind."""

from __future__ import annotations

import contextlib
import os

from ...bpf.needs import Check, check
from ...runtime.trusted_paths import check_file, open_directory, try_out
from ...signals import SIGNALS
from .settings import FileSettings

_FIX = "name a directory of this user's that can be written to, or remove what a stranger has put there"


def tried(component: str, settings: FileSettings) -> Check:
    """Say whether the directory is there, or can be made, and whether lines can be written to its files."""
    name = f"output {component}"
    there = os.path.abspath(settings.path)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    is_made = there == os.path.abspath(settings.path)
    directory = None
    try:
        directory = open_directory(there)
        try_out(directory)
        if is_made:
            for signal in SIGNALS:
                check_file(f"{signal}.jsonl", directory)
    except OSError as e:
        where = f"{e.filename}: " if e.filename and str(e.filename) != there else ""
        detail = f"{settings.path}: {where}{e.strerror or e}"
        return check(name, False, detail, f"{_FIX}: exporters.{component}.path, or --output file:DIR", required=False)
    finally:
        if directory is not None:
            with contextlib.suppress(OSError):
                os.close(directory)
    can = "can be written to" if is_made else f"can be made in {there}"
    return Check(name, ok=True, required=False, detail=f"{settings.path} {can}")
