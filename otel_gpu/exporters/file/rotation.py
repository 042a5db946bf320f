"""When is a file full, what is it called then, and which old ones go? As the Collector's file exporter has it.

The names are lumberjack's, which does this there: `metrics.jsonl` becomes `metrics-2026-11-22T03-24-51.123.jsonl`.
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import datetime, timedelta, timezone

from .settings import RotationSettings

_MEGABYTE = 1 << 20
_FORMAT = "%Y-%m-%dT%H-%M-%S"
_STAMP = re.compile(r"-(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)\.(\d{3})")
_MILLISECOND = timedelta(milliseconds=1)


class Rotation:
    """The old files of one name in one directory."""

    def __init__(self, name: str, settings: RotationSettings) -> None:
        self._name = name
        self._stem, self._suffix = os.path.splitext(name)
        self._settings = settings
        self.max_bytes = settings.max_megabytes * _MEGABYTE

    def rotate(self, directory: int, now_s: float) -> None:
        """Give the file the name of an old one."""
        at = self._time(now_s)
        # Twice in a millisecond, or with a clock that was set back: no old file is overwritten.
        while _exists(backup := self._backup(at), directory):
            at += _MILLISECOND
        os.rename(self._name, backup, src_dir_fd=directory, dst_dir_fd=directory)

    def clean(self, directory: int, now_s: float) -> None:
        """Remove the old files that are too many or too old; OSError where one of them cannot be."""
        oldest = self._time(now_s) - timedelta(days=self._settings.max_days)
        files = sorted(self._old(directory), reverse=True)
        kept = self._settings.max_backups or len(files)
        for position, (at, name) in enumerate(files):
            if position >= kept or (self._settings.max_days and at < oldest):
                with contextlib.suppress(FileNotFoundError):  # another agent removes them too
                    os.unlink(name, dir_fd=directory)

    def _old(self, directory: int) -> list[tuple[datetime, str]]:
        found = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if not (entry.name.startswith(self._stem) and entry.name.endswith(self._suffix)):
                    continue
                stamp = _STAMP.fullmatch(entry.name[len(self._stem) : -len(self._suffix)])
                if stamp is None or not entry.is_file(follow_symlinks=False):
                    continue
                with contextlib.suppress(ValueError):  # digits, but no date
                    at = datetime.strptime(stamp[1], _FORMAT).replace(microsecond=int(stamp[2]) * 1000)  # noqa: DTZ007 - next
                    found.append(
                        (at.astimezone() if self._settings.localtime else at.replace(tzinfo=timezone.utc), entry.name)
                    )
        return found

    def _time(self, now_s: float) -> datetime:
        utc = datetime.fromtimestamp(now_s, timezone.utc)
        return utc.astimezone() if self._settings.localtime else utc

    def _backup(self, at: datetime) -> str:
        return f"{self._stem}-{at.strftime(_FORMAT)}.{at.microsecond // 1000:03}{self._suffix}"


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
