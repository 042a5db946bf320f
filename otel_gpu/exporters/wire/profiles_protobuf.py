"""How do profiles look in OTLP (v1development)? Requests with one dictionary each, split to fit a receiver.

Dictionary rules, from profiles.proto: index 0 of every table is the zero value, no entry is there twice,
none is unreferenced, stacks are leaf first, and every mapping carries a build id.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.profiles.v1development import profiles_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from ...signals.frame_names import clean, label
from ...signals.metrics import AttributeValue, Resource
from ...signals.profiles import FileMapping, Frame, Profile, SpanLink, Stack
from ...version import __version__
from ..delivery.payload import Payload
from ..settings import MAX_REQUEST_BYTES

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SCOPE_NAME = "otel_gpu"

_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1


def encode_profiles(profiles: Iterable[Profile]) -> ExportProfilesServiceRequest:
    """Encode profiles as one request: one ResourceProfiles per resource, one Profile per type."""
    request = ExportProfilesServiceRequest()
    dictionary = _Dictionary(request.dictionary)
    scopes: dict[Resource, pb.ScopeProfiles] = {}
    for profile in profiles:
        if not profile.samples:
            continue
        scope = scopes.get(profile.resource)
        if scope is None:
            resource_profiles = request.resource_profiles.add(schema_url=SCHEMA_URL)
            resource_profiles.resource.CopyFrom(_resource(profile.resource))
            scope = resource_profiles.scope_profiles.add(schema_url=SCHEMA_URL)
            scope.scope.CopyFrom(InstrumentationScope(name=SCOPE_NAME, version=__version__))
            scopes[profile.resource] = scope
        _encode_profile(scope.profiles.add(), profile, dictionary)
    return request


def profile_payloads(profiles: Iterable[Profile], max_bytes: int = MAX_REQUEST_BYTES) -> list[Payload[bytes]]:
    """Encode profiles as serialized requests of at most `max_bytes`; a single larger sample still goes out, alone."""
    pending = [[p for p in profiles if p.samples]]
    payloads: list[Payload[bytes]] = []
    while pending:
        batch = pending.pop()
        if not batch:
            continue
        body = encode_profiles(batch).SerializeToString()
        points = sum(len(p.samples) for p in batch)
        if len(body) <= max_bytes or points == 1:
            payloads.append(Payload(body, points, len(body)))
        else:
            first, second = _halves(batch)
            pending += [second, first]
    return payloads


def _halves(profiles: Sequence[Profile]) -> tuple[list[Profile], list[Profile]]:
    """Split profiles into two lists with the same number of samples, give or take one."""
    wanted = sum(len(p.samples) for p in profiles) // 2
    first: list[Profile] = []
    second: list[Profile] = []
    for profile in profiles:
        n = len(profile.samples)
        if wanted >= n:
            first.append(profile)
        elif wanted > 0:
            first.append(replace(profile, samples=profile.samples[:wanted]))
            second.append(replace(profile, samples=profile.samples[wanted:]))
        else:
            second.append(profile)
        wanted -= min(n, wanted)
    return first, second


def _encode_profile(message: pb.Profile, profile: Profile, dictionary: _Dictionary) -> None:
    kind = profile.type
    message.sample_type.type_strindex = dictionary.string(kind.name)
    message.sample_type.unit_strindex = dictionary.string(kind.unit)
    if kind.period_type:
        message.period_type.type_strindex = dictionary.string(kind.period_type)
        message.period_type.unit_strindex = dictionary.string(kind.period_unit)
        message.period = kind.period
    message.time_unix_nano = profile.start_ns
    message.duration_nano = profile.duration_ns
    message.profile_id = os.urandom(16)
    samples = message.samples
    for sample in profile.samples:
        value = max(-_INT64_MAX, min(_INT64_MAX, sample.value))
        encoded = samples.add(stack_index=dictionary.stack(sample.stack), values=(value,))
        if sample.attributes:
            indices = {dictionary.attribute(key, v) for key, v in sample.attributes}
            encoded.attribute_indices.extend(sorted(indices))
        if sample.link is not None:
            encoded.link_index = dictionary.link(sample.link)


def _resource(resource: Resource) -> ResourceMessage:
    """Encode a resource with its strings inline: Collectors before 0.161 mix up references into the dictionary."""
    return ResourceMessage(attributes=[KeyValue(key=clean(k), value=_any_value(v)) for k, v in resource.attributes])


def _any_value(value: AttributeValue) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=max(-_INT64_MAX, min(_INT64_MAX, value)))
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=clean(value))


class _Dictionary:
    """The tables of one request; every method returns the index of what it is given, adding it when new."""

    def __init__(self, message: pb.ProfilesDictionary) -> None:
        self._message = message
        message.string_table.append("")
        message.mapping_table.add()
        message.location_table.add()
        message.function_table.add()
        message.link_table.add(trace_id=bytes(16), span_id=bytes(8))
        message.attribute_table.add()
        message.stack_table.add()
        self._strings: dict[str, int] = {"": 0}
        self._mappings: dict[tuple[int, ...], int] = {}
        self._functions: dict[tuple[int, int], int] = {(0, 0): 0}
        self._locations: dict[tuple[int, int, int, int, str], int] = {(0, 0, 0, 0, ""): 0}
        self._frames: dict[Frame, int] = {}
        self._links: dict[SpanLink, int] = {SpanLink(bytes(16), bytes(8)): 0}
        self._attributes: dict[tuple[int, type, AttributeValue], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {(): 0}

    def string(self, text: str) -> int:
        text = clean(text)
        index = self._strings.get(text)
        if index is None:
            index = self._strings[text] = len(self._message.string_table)
            self._message.string_table.append(text)
        return index

    def attribute(self, key: str, value: AttributeValue) -> int:
        if isinstance(value, str):
            value = clean(value)
        key_index = self.string(key)
        # 1, 1.0 and True are one key to a dict but three values to OTLP.
        identity = (key_index, type(value), value)
        index = self._attributes.get(identity)
        if index is None:
            index = self._attributes[identity] = len(self._message.attribute_table)
            self._message.attribute_table.add(key_strindex=key_index, value=_any_value(value))
        return index

    def link(self, link: SpanLink) -> int:
        index = self._links.get(link)
        if index is None:
            index = self._links[link] = len(self._message.link_table)
            self._message.link_table.add(trace_id=link.trace_id, span_id=link.span_id)
        return index

    def stack(self, stack: Stack) -> int:
        frames = self._frames
        indices = []
        for frame in stack:
            location = frames.get(frame)
            if location is None:
                location = frames[frame] = self._location(frame)
            indices.append(location)
        key = tuple(indices)
        index = self._stacks.get(key)
        if index is None:
            index = self._stacks[key] = len(self._message.stack_table)
            self._message.stack_table.add(location_indices=indices)
        return index

    def _location(self, frame: Frame) -> int:
        mapping = self._mapping(frame.mapping) if frame.mapping is not None else 0
        # Nobody can look up an address of a file that has no id: the file's name is all there is to say.
        name = label(frame) if frame.mapping is not None and not mapping else frame.function
        function = self._function(name, frame.filename)
        line = min(max(frame.line, 0), _INT64_MAX) if function else 0
        frame_type = frame.kind.value if frame.kind.is_code else ""
        key = (mapping, frame.address & _UINT64_MAX, function, line, frame_type)
        index = self._locations.get(key)
        if index is None:
            index = self._locations[key] = len(self._message.location_table)
            location = self._message.location_table.add(mapping_index=mapping, address=key[1])
            if function:
                location.lines.add(function_index=function, line=line)
            if frame_type:
                location.attribute_indices.append(self.attribute("profile.frame.type", frame_type))
        return index

    def _function(self, name: str, filename: str) -> int:
        key = (self.string(name), self.string(filename))
        index = self._functions.get(key)
        if index is None:
            index = self._functions[key] = len(self._message.function_table)
            self._message.function_table.add(name_strindex=key[0], filename_strindex=key[1])
        return index

    def _mapping(self, mapping: FileMapping) -> int:
        ids = (
            ("process.executable.build_id.gnu", mapping.build_id),
            ("process.executable.build_id.htlhash", mapping.htlhash),
        )
        attributes = [self.attribute(name, value) for name, value in ids if value]
        if not attributes:
            # A mapping without an id breaks the specification, and no backend could look it up.
            return 0
        span = [n & _UINT64_MAX for n in (mapping.start, mapping.end, mapping.file_offset)]
        path = self.string(mapping.path)
        key = (path, *span, *attributes)
        index = self._mappings.get(key)
        if index is None:
            index = self._mappings[key] = len(self._message.mapping_table)
            self._message.mapping_table.add(
                memory_start=span[0],
                memory_limit=span[1],
                file_offset=span[2],
                filename_strindex=path,
                attribute_indices=attributes,
            )
        return index
