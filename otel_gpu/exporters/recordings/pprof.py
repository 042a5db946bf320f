"""How do profiles look in pprof? One gzipped message with one sample type for each profile type.

Profiles of several processes go into one file; each sample then carries its process as the label
`process`, and the outermost frame says it too, so that `go tool pprof -flame` keeps them apart.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

from ...signals.frame_names import clean, distinct_process_names
from ...signals.profiles import FileMapping, Frame, FrameKind, Profile, SampleKey, Stack, marker
from .pprof_schema import profile_class

_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1


def encode_pprof(profiles: Sequence[Profile]) -> bytes:
    """Encode profiles as a `.pb.gz` file."""
    message = profile_class()()
    tables = _Tables(message)
    types = list(dict.fromkeys(p.type for p in profiles))
    for kind in types:
        message.sample_type.add(type=tables.string(kind.name), unit=tables.string(kind.unit))
    if types and types[0].period_type:
        message.period_type.type = tables.string(types[0].period_type)
        message.period_type.unit = tables.string(types[0].period_unit)
        message.period = types[0].period
    if profiles:
        message.time_nanos = min(p.start_ns for p in profiles)
        message.duration_nanos = max(p.start_ns + p.duration_ns for p in profiles) - message.time_nanos

    names = distinct_process_names(list(profiles))
    for resource, name in names.items():
        _put_executable_first(dict(resource.attributes).get("process.executable.path"), profiles, tables)
        outermost = (marker(name),) if len(names) > 1 else ()
        for (stack, attributes, link), values in _values(profiles, types, resource).items():
            sample = message.sample.add(location_id=tables.stack(stack + outermost), value=values)
            for key, value in attributes:
                tables.label(sample, key, value)
            if link is not None:
                tables.label(sample, "trace_id", link.trace_id.hex())
                tables.label(sample, "span_id", link.span_id.hex())
            if outermost:
                tables.label(sample, "process", name)
    return gzip.compress(message.SerializeToString(), compresslevel=6, mtime=0)


def _values(profiles: Sequence[Profile], types: list[Any], resource: Any) -> dict[SampleKey, list[int]]:
    """Return the samples of one process with one value for each type, as pprof wants them."""
    merged: dict[SampleKey, list[int]] = {}
    for profile in profiles:
        if profile.resource != resource:
            continue
        column = types.index(profile.type)
        for s in profile.samples:
            values = merged.setdefault((s.stack, s.attributes, s.link), [0] * len(types))
            values[column] = max(-_INT64_MAX, min(_INT64_MAX, values[column] + s.value))
    return merged


def _put_executable_first(path: object, profiles: Sequence[Profile], tables: _Tables) -> None:
    """Enter the executable's mapping first, which is the one that pprof names a profile after; else any file's."""
    stacks = [s.stack for p in profiles for s in p.samples]
    files = dict.fromkeys(f.mapping for stack in stacks for f in reversed(stack) if f.mapping is not None)
    first = next((m for m in files if m.path == path), next(iter(files), None))
    if first is not None:
        tables.mapping(first)


def stand_in(frame: Frame) -> FileMapping | None:
    """Return what says of code without a file which kind it is, as `[kernel.kallsyms]` does in perf's profiles."""
    if not frame.kind.is_code or (frame.kind is FrameKind.CPYTHON and frame.filename):
        return None
    return FileMapping(f"[{frame.kind.value}]")


class _Tables:
    """The tables of one file. Ids start at 1; 0 means none."""

    def __init__(self, message: Any) -> None:
        self._message = message
        message.string_table.append("")
        self._strings: dict[str, int] = {"": 0}
        self._mappings: dict[FileMapping, int] = {}
        self._functions: dict[tuple[int, int, int], int] = {}
        self._frames: dict[Frame, int] = {}

    def string(self, text: str) -> int:
        text = clean(text)
        index = self._strings.get(text)
        if index is None:
            index = self._strings[text] = len(self._strings)
            self._message.string_table.append(text)
        return index

    def label(self, sample: Any, key: str, value: object) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            sample.label.add(key=self.string(key), num=max(-_INT64_MAX, min(_INT64_MAX, value)))
        else:
            sample.label.add(key=self.string(key), str=self.string(str(value)))

    def stack(self, stack: Stack) -> list[int]:
        frames = self._frames
        ids = []
        for frame in stack:
            id_ = frames.get(frame)
            if id_ is None:
                id_ = frames[frame] = len(frames) + 1
                self._add_location(id_, frame)
            ids.append(id_)
        return ids

    def mapping(self, mapping: FileMapping) -> int:
        id_ = self._mappings.get(mapping)
        if id_ is None:
            id_ = self._mappings[mapping] = len(self._mappings) + 1
            self._message.mapping.add(
                id=id_,
                memory_start=mapping.start & _UINT64_MAX,
                memory_limit=mapping.end & _UINT64_MAX,
                file_offset=mapping.file_offset & _UINT64_MAX,
                filename=self.string(mapping.path),
                build_id=self.string(mapping.build_id or mapping.htlhash),
                has_functions=True,
            )
        return id_

    def _add_location(self, id_: int, frame: Frame) -> None:
        location = self._message.location.add(id=id_, address=frame.address & _UINT64_MAX)
        mapping = frame.mapping or stand_in(frame)
        if mapping is not None:
            location.mapping_id = self.mapping(mapping)
        if frame.function or frame.mapping is None:
            name = frame.function or ("" if frame.address else "[unknown]")
            line = min(max(frame.line, 0), _INT64_MAX)
            location.line.add(function_id=self._function(frame.kind, name, frame.filename), line=line)
        else:
            # Leaves the rest of this file's symbols to be looked up by pprof.
            self._message.mapping[location.mapping_id - 1].has_functions = False

    def _function(self, kind: FrameKind, name: str, filename: str) -> int:
        # pprof takes names that equal their system name for C++ and drops what is between < and >. That makes
        # C++ legible, but would leave nothing of `<module>` and make one of all instances of a kernel template.
        system_name = name if kind is FrameKind.NATIVE else ""
        key = (self.string(name), self.string(system_name), self.string(filename))
        id_ = self._functions.get(key)
        if id_ is None:
            id_ = self._functions[key] = len(self._functions) + 1
            self._message.function.add(id=id_, name=key[0], system_name=key[1], filename=key[2])
        return id_
