"""How does a program take profiles of itself or of others?

from otel_gpu import Recorder, profiles

with Recorder(4711, types=("launch", "wait")) as recorder:
time.sleep(10)
profiles.write(recorder.stop(), "waits.html")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..receivers.cuda.settings import CudaSettings
from ..receivers.profiles.settings import ProfileSettings
from ..signals.profiles import CHOICES, Profile, ProfileType, chosen_types

if TYPE_CHECKING:
    from .recording import Recording


class Recorder:
    """Takes profiles of running processes. A context manager, of which every `with` is a recording of its own."""

    def __init__(
        self,
        pids: int | Iterable[int],
        types: str | Iterable[str] = ("launch",),
        *,
        cuda: CudaSettings | None = None,
        stacks_per_second: int = ProfileSettings().stacks_per_second,
        table_rows: int = ProfileSettings().table_rows,
    ) -> None:
        """Say what is recorded; nothing is touched before `with`. ConfigError where there is no such type, or no process.

        `types` are those of `otel-gpu record --type`; `cuda` says how probes are placed. Of one thread and type so many
        `stacks_per_second` are taken, what other calls do is added to them; the kernel holds `table_rows` rows of
        unwinding tables, each 8 bytes.
        """
        self._pids = (pids,) if isinstance(pids, int) else tuple(dict.fromkeys(pids))
        if not self._pids:
            raise ConfigError("no process to record; give its pid, or several")
        self._types = _types_of([types] if isinstance(types, str) else list(types))
        self._cuda = cuda
        self._stacks_per_second = stacks_per_second
        self._table_rows = table_rows
        self._recording: Recording | None = None
        self._found: list[Profile] = []

    def __enter__(self) -> Recorder:
        """Attach, and begin once the first stack can be taken; OtelGpuError where that cannot be."""
        from .recording import Recording

        if self._recording is not None:
            raise ConfigError("this recorder records already; make another one for a recording beside it")
        self._found = []
        self._recording = Recording(
            self._pids,
            self._types,
            self._cuda,
            stacks_per_second=self._stacks_per_second,
            table_rows=self._table_rows,
        )
        try:
            self._recording.prepare()
            self._recording.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self._close()

    def stop(self) -> list[Profile]:
        """End the recording, and return one profile for each process and type of which there is anything; the same again."""
        if self._recording is not None:
            try:
                self._found = self._recording.finish()
            finally:
                self._close()
        return list(self._found)

    def _close(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.close()


def _types_of(names: Sequence[str]) -> tuple[ProfileType, ...]:
    for name in names:
        if name not in CHOICES:
            raise ConfigError(f"there is no profile type {name!r}; choose of {', '.join(CHOICES)}")
    if not names:
        raise ConfigError(f"no profile type to record; choose of {', '.join(CHOICES)}")
    return chosen_types(names)
