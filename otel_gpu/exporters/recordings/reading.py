"""What does a recorded file hold? Profiles again, to be compared or converted, with what its format has room for.

A file may come from anywhere, so sizes are bounded and every index is checked: what does not fit is a
ConfigError that names the file.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...errors import ConfigError
from ...signals.metrics import AttributeValue, Resource, attributes
from ...signals.profiles import (
    PROFILE_TYPES,
    FileMapping,
    Frame,
    FrameKind,
    Profile,
    ProfileBuilder,
    ProfileType,
    SpanLink,
    Stack,
    merge,
)
from .tables import entry

MAX_FILE_BYTES = 1 << 28
_MAX_UNPACKED_BYTES = 1 << 29
_STAND_INS = {f"[{kind.value}]": kind for kind in FrameKind}
"""What our pprof files have in place of a mapping, for code without a file."""


def read_profiles(path: str | os.PathLike[str], type_of_folded: ProfileType | None = None) -> list[Profile]:
    """Read a recording; folded stacks do not say of what type they are."""
    name = os.fspath(path)
    decode = _decoder(name, type_of_folded)
    try:
        with open(name, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"cannot read {name}: it is no file; name one that otel-gpu record wrote")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}; name a file that otel-gpu record wrote") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"cannot read {name}: it is larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        return merge(decode(data))
    except Exception as error:  # protobuf raises its own types, and a hostile file may raise any of Python's
        reason = f"{type(error).__name__}: {error}"[:200]
        raise ConfigError(f"cannot read {name}: not a profile ({reason}); give one that was recorded") from error


def _decoder(name: str, type_of_folded: ProfileType | None) -> Callable[[bytes], list[Profile]]:
    """Return the decoder of a suffix; imported here because each brings its own libraries."""
    if name.endswith(".otlp.json"):
        return _from_otlp_json
    if name.endswith(".jsonl"):
        return _from_growing_lines
    if name.endswith((".pb.gz", ".pprof")):
        return _from_pprof
    if name.endswith(".folded"):
        from .folded import UNKNOWN, decode_folded

        return partial(decode_folded, type=type_of_folded or UNKNOWN)
    if name.endswith(".json"):
        from .speedscope import decode_speedscope

        return decode_speedscope
    if name.endswith(".html"):
        from .html import decode_html

        return decode_html
    raise ConfigError(
        f"cannot read {name}: its name should end in .otlp.json, .jsonl, .pb.gz, .folded, .json (speedscope) or .html"
    )


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _from_otlp_json(data: bytes) -> list[Profile]:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest

    profiles: list[Profile] = []
    for line in data.splitlines():
        if not line.strip():
            continue
        document = json.loads(line, object_hook=_with_base64_ids)
        request = json_format.ParseDict(document, ExportProfilesServiceRequest(), ignore_unknown_fields=True)
        profiles += from_otlp(request)
    return profiles


def _from_growing_lines(data: bytes) -> list[Profile]:
    """Read a file that a running agent may append to; a last line that is not written to its end yet is left out."""
    end = data.rfind(b"\n") + 1
    try:
        json.loads(data[end:] or b"{}")
    except ValueError:
        if not end:
            raise
        data = data[:end]
    return _from_otlp_json(data)


def _with_base64_ids(node: dict[str, Any]) -> dict[str, Any]:
    for key in ("traceId", "spanId", "profileId"):
        if isinstance(node.get(key), str):
            node[key] = base64.b64encode(bytes.fromhex(node[key])).decode()
    return node


def from_otlp(request: Any) -> list[Profile]:
    """Return the profiles of an export request; ValueError for what points nowhere."""
    d = request.dictionary
    strings = d.string_table
    tables = _OtlpTables(d)
    stacks: dict[int, Stack] = {}
    profiles = []
    for resource_profiles in request.resource_profiles:
        resource = Resource(attributes(dict(map(tables.pair, resource_profiles.resource.attributes))))
        for scope in resource_profiles.scope_profiles:
            for message in scope.profiles:
                kind = _type(
                    entry(strings, message.sample_type.type_strindex),
                    entry(strings, message.sample_type.unit_strindex),
                    message.period,
                )
                builder = ProfileBuilder(kind, resource, message.time_unix_nano)
                for sample in message.samples:
                    stack = stacks.get(sample.stack_index)
                    if stack is None:
                        stack = stacks[sample.stack_index] = tables.stack(sample.stack_index)
                    link = entry(d.link_table, sample.link_index) if sample.link_index else None
                    builder.add(
                        stack,
                        # A sample without values is one event at each of its times.
                        sum(sample.values) if sample.values else len(sample.timestamps_unix_nano),
                        attributes(tables.attributes(sample.attribute_indices)),
                        SpanLink(link.trace_id, link.span_id) if link is not None else None,
                    )
                profiles.append(builder.build(message.time_unix_nano + message.duration_nano))
    return profiles


class _OtlpTables:
    """Looks up the dictionary of one request."""

    def __init__(self, dictionary: Any) -> None:
        self._d = dictionary
        self._frames: dict[int, Frame] = {}

    def stack(self, index: int) -> Stack:
        return tuple(self._frame(i) for i in entry(self._d.stack_table, index).location_indices)

    def attributes(self, indices: Sequence[int]) -> dict[str, AttributeValue]:
        entries = (entry(self._d.attribute_table, i) for i in indices)
        return {entry(self._d.string_table, a.key_strindex): self._value(a.value) for a in entries}

    def pair(self, attribute: Any) -> tuple[str, AttributeValue]:
        """Return a resource's attribute; the Collector moves its strings into the dictionary, we do not."""
        key = entry(self._d.string_table, attribute.key_strindex) if attribute.key_strindex else attribute.key
        return key, self._value(attribute.value)

    def _value(self, value: Any) -> AttributeValue:
        which = value.WhichOneof("value")
        if which == "string_value_strindex":
            return str(entry(self._d.string_table, value.string_value_strindex))
        if which in {"string_value", "int_value", "double_value", "bool_value"}:
            found: AttributeValue = getattr(value, which)
            return found
        return str(value)

    def _frame(self, index: int) -> Frame:
        frame = self._frames.get(index)
        if frame is None:
            location = entry(self._d.location_table, index)
            name = filename = ""
            line = 0
            if location.lines:
                function = entry(self._d.function_table, location.lines[0].function_index)
                name = entry(self._d.string_table, function.name_strindex)
                filename = entry(self._d.string_table, function.filename_strindex)
                line = location.lines[0].line
            mapping = self._mapping(location.mapping_index) if location.mapping_index else None
            kind = _kind(str(self.attributes(location.attribute_indices).get("profile.frame.type", "")), name, mapping)
            frame = self._frames[index] = Frame(kind, name, filename, line, mapping, location.address)
        return frame

    def _mapping(self, index: int) -> FileMapping:
        m = entry(self._d.mapping_table, index)
        ids = self.attributes(m.attribute_indices)
        return FileMapping(
            entry(self._d.string_table, m.filename_strindex),
            str(ids.get("process.executable.build_id.gnu", "")),
            str(ids.get("process.executable.build_id.htlhash", "")),
            m.memory_start,
            m.memory_limit,
            m.file_offset,
        )


def _from_pprof(data: bytes) -> list[Profile]:
    from .pprof_schema import profile_class

    message = profile_class().FromString(_unpacked(data))
    strings = message.string_table
    mappings = {
        m.id: FileMapping(
            entry(strings, m.filename),
            entry(strings, m.build_id),
            start=m.memory_start,
            end=m.memory_limit,
            file_offset=m.file_offset,
        )
        for m in message.mapping
    }
    functions = {f.id: (entry(strings, f.name), entry(strings, f.filename)) for f in message.function}
    frames: dict[int, tuple[Frame, ...]] = {}
    for location in message.location:
        mapping = mappings[location.mapping_id] if location.mapping_id else None
        lines = [(*functions[line.function_id], line.line) for line in location.line] or [("", "", 0)]
        frames[location.id] = tuple(
            _pprof_frame(name, filename, line, mapping, location.address) for name, filename, line in lines
        )
    resource = Resource(attributes({"process.executable.path": _first_path(mappings)}))
    builders = [
        ProfileBuilder(
            _type(entry(strings, t.type), entry(strings, t.unit), message.period), resource, message.time_nanos
        )
        for t in message.sample_type
    ]
    for sample in message.sample:
        if len(sample.value) != len(builders):
            raise ValueError("a sample without one value for each type")
        stack = tuple(frame for i in sample.location_id for frame in frames[i])
        labels = {
            entry(strings, label.key): entry(strings, label.str) if label.str else label.num for label in sample.label
        }
        for builder, value in zip(builders, sample.value):
            builder.add(stack, value, attributes(labels))
    return [b.build(message.time_nanos + max(message.duration_nanos, 0)) for b in builders]


def _pprof_frame(name: str, filename: str, line: int, mapping: FileMapping | None, address: int) -> Frame:
    if mapping is not None and mapping.path in _STAND_INS:
        return Frame(_STAND_INS[mapping.path], name, filename, line, None, address)
    return Frame(_kind("", name, mapping, filename), name, filename, line, mapping, address)


def _first_path(mappings: dict[int, FileMapping]) -> str | None:
    return next((m.path for m in mappings.values() if m.path not in _STAND_INS), None)


def _unpacked(data: bytes) -> bytes:
    if data[:2] != b"\x1f\x8b":
        return data
    unpacker = zlib.decompressobj(wbits=31)
    unpacked = unpacker.decompress(data, _MAX_UNPACKED_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {_MAX_UNPACKED_BYTES >> 20} MiB")
    if not unpacker.eof:
        raise ValueError("it ends early")
    return unpacked


def _type(name: str, unit: str, period: int) -> ProfileType:
    known = PROFILE_TYPES.get(name)
    if known is not None and known.unit == unit:
        return known.every(period) if known.period else known
    return ProfileType(name, unit, name, unit, period, name, "")


def _kind(frame_type: str, name: str, mapping: FileMapping | None, filename: str = "") -> FrameKind:
    """Return a frame's kind as it was written, or what its parts say where a format has no place for it."""
    if frame_type:
        return FrameKind(frame_type) if frame_type in {k.value for k in FrameKind} else FrameKind.NATIVE
    if name.startswith("[truncated: "):
        return FrameKind.TRUNCATED
    if mapping is not None:
        return FrameKind.NATIVE
    return FrameKind.CPYTHON if filename else FrameKind.MARKER
