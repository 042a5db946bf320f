"""Do our OTLP profiles keep the rules, whatever goes in?"""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest

from otel_gpu.exporters.wire.profiles_protobuf import encode_profiles, profile_payloads
from otel_gpu.signals.metrics import attributes
from otel_gpu.signals.profiles import (
    CPU,
    GPU_LAUNCHES,
    OFF_CPU,
    FileMapping,
    Frame,
    FrameKind,
    ProfileBuilder,
    SpanLink,
)
from tests.unit.otlp_profile_checker import violations
from tests.unit.profile_examples import HOSTILE_NAMES, START_NS, hostile, native, python, resource, training

names = st.text(max_size=4) | st.sampled_from(HOSTILE_NAMES)
mappings = st.none() | st.builds(
    FileMapping, names, st.sampled_from(["", "ab"]), st.sampled_from(["", "cd"]), st.integers(0, 3), st.integers(0, 3)
)
frames = st.builds(Frame, st.sampled_from(FrameKind), names, names, st.integers(-1, 3), mappings, st.integers(0, 3))
values = st.integers(-(2**70), 2**70) | st.booleans() | st.floats(allow_nan=False) | names
samples = st.tuples(
    st.lists(frames, max_size=4).map(tuple),
    st.integers(-3, 2**70),
    st.dictionaries(names, values, max_size=3),
    st.none() | st.builds(SpanLink, st.sampled_from([bytes(16), b"t" * 16]), st.sampled_from([bytes(8), b"s" * 8])),
)


def profile_of(added, type_=GPU_LAUNCHES, pid=1):
    builder = ProfileBuilder(type_, resource(pid), START_NS)
    for stack, value, attrs, link in added:
        builder.add(stack, value, attributes(attrs), link)
    return builder.build(START_NS + 10)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(samples, max_size=6), max_size=3))
def test_every_request_keeps_the_rules_of_the_dictionary(lists):
    profiles = [profile_of(added, pid=i) for i, added in enumerate(lists)]

    request = encode_profiles(profiles)

    # Two hostile names may look the same once cleaned, which leaves two samples that look the same.
    assert [v for v in violations(request) if not v.startswith("the sample")] == []
    assert ExportProfilesServiceRequest.FromString(request.SerializeToString()) == request


def test_a_training_loop_arrives_as_it_was():
    profile = training()

    request = encode_profiles([profile])

    assert violations(request) == []
    d = request.dictionary
    (resource_profiles,) = request.resource_profiles
    (message,) = resource_profiles.scope_profiles[0].profiles
    assert d.string_table[message.sample_type.type_strindex] == "gpu_launches"
    assert (message.period, message.duration_nano) == (1, 30_000_000_000)
    assert sum(s.values[0] for s in message.samples) == profile.total
    sample = next(s for s in message.samples if s.link_index)
    locations = [d.location_table[i] for i in d.stack_table[sample.stack_index].location_indices]
    functions = [d.string_table[d.function_table[x.lines[0].function_index].name_strindex] for x in locations]
    assert functions[0] == "flash_fwd_kernel"
    assert functions[-1] == "_start"
    assert d.link_table[sample.link_index].trace_id.hex() == "0102030405060708090a0b0c0d0e0f10"
    attrs = {d.string_table[d.attribute_table[i].key_strindex] for i in sample.attribute_indices}
    assert attrs == {"thread.id", "thread.name"}
    service = {a.key: a.value.string_value for a in resource_profiles.resource.attributes}["service.name"]
    assert service == "train"


def test_frames_carry_their_type_and_markers_none():
    request = encode_profiles([training()])
    d = request.dictionary

    types = {}
    for location in d.location_table[1:]:
        name = (
            d.string_table[d.function_table[location.lines[0].function_index].name_strindex] if location.lines else ""
        )
        types[name] = [d.attribute_table[i].value.string_value for i in location.attribute_indices]

    assert types["flash_fwd_kernel"] == ["cuda"]
    assert types["train_step"] == ["cpython"]
    assert types["cuLaunchKernel"] == types[""] == ["native"]
    assert types["[backward, called from]"] == types["[truncated: no unwind row]"] == []


def test_an_unsymbolised_frame_keeps_build_id_and_address():
    unknown = native("", 0x1234, FileMapping("/opt/lib.so", build_id="abcd", start=0x1000, end=0x2000))

    d = encode_profiles([profile_of([((unknown,), 1, {}, None)])]).dictionary

    (location,) = d.location_table[1:]
    assert not location.lines
    assert location.address == 0x1234
    mapping = d.mapping_table[location.mapping_index]
    (attribute,) = (d.attribute_table[i] for i in mapping.attribute_indices)
    assert d.string_table[attribute.key_strindex] == "process.executable.build_id.gnu"
    assert attribute.value.string_value == "abcd"


def test_a_mapping_without_any_id_is_not_sent():
    frame = native("f", 0x10, FileMapping("/anon"))

    d = encode_profiles([profile_of([((frame,), 1, {}, None)])]).dictionary

    assert len(d.mapping_table) == 1


def test_an_unnamed_frame_of_a_file_without_any_id_is_named_after_the_file():
    frame = native("", 0x12, FileMapping("/lib/libx.so"))

    d = encode_profiles([profile_of([((frame,), 1, {}, None)])]).dictionary

    assert d.string_table[d.function_table[1].name_strindex] == "libx.so+0x12"


def test_off_cpu_has_no_period_and_cpu_has_its_own():
    off, cpu = (profile_of([((python("f", 1),), 5, {}, None)], t) for t in (OFF_CPU, CPU.every(20_408_163)))

    request = encode_profiles([off, cpu])

    first, second = request.resource_profiles[0].scope_profiles[0].profiles
    strings = request.dictionary.string_table
    assert (first.period, first.HasField("period_type")) == (0, False)
    assert second.period == 20_408_163
    assert [strings[second.period_type.type_strindex], strings[second.sample_type.type_strindex]] == ["cpu", "samples"]


def test_hostile_names_are_bounded_and_valid():
    request = encode_profiles([hostile()])

    assert violations(request) == []
    assert max(len(s) for s in request.dictionary.string_table) <= 4096


def test_a_large_recording_is_split_without_loss():
    frames_ = [python(f"function_{i}", i) for i in range(200)]
    stacks = [((frames_[i % 200], frames_[i % 199], frames_[i % 7]), i + 1, {"n": i}, None) for i in range(1000)]
    profiles = [profile_of(stacks), profile_of(stacks[:300], CPU), profile_of(stacks[:1], pid=2)]

    payloads = profile_payloads(profiles, max_bytes=10_000)

    assert len(payloads) > 3
    assert all(p.size_bytes == len(p.body) <= 10_000 for p in payloads)
    requests = [ExportProfilesServiceRequest.FromString(p.body) for p in payloads]
    assert all(not violations(r) for r in requests)
    messages = [p for r in requests for rp in r.resource_profiles for s in rp.scope_profiles for p in s.profiles]
    assert sum(s.values[0] for m in messages for s in m.samples) == sum(p.total for p in profiles)
    assert sum(p.points for p in payloads) == sum(len(p.samples) for p in profiles)


def test_one_sample_larger_than_a_request_goes_out_alone():
    huge = profile_of([((python(os.urandom(2000).hex(), 1),), 1, {}, None), ((python("b", 1),), 1, {}, None)])

    assert [p.points for p in profile_payloads([huge], max_bytes=1000)] == [1, 1]


def test_nothing_recorded_is_nothing_sent():
    assert profile_payloads([profile_of([])]) == []
