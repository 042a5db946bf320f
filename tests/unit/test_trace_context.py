"""Is whose child a request is read as W3C Trace Context has it, and nothing else believed?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_gpu.receivers.inference.trace_context import MAX_STATE, RANDOM, child_of, parent_of, state_of
from otel_gpu.signals.spans import SAMPLED

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_parent_has_the_ids_flags_and_state_of_its_headers() -> None:
    parent = parent_of([GOOD], ["rojo=00f067aa0ba902b7, congo=t61rcWkgMzE"])

    assert parent is not None
    assert (parent.trace_id.hex(), parent.span_id.hex()) == (TRACE, SPAN)
    assert parent.is_sampled
    assert parent.trace_state == "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"


@pytest.mark.parametrize(
    ("flags", "kept"), [("00", 0), ("01", SAMPLED), ("02", RANDOM), ("03", 3), ("09", SAMPLED), ("ff", 3), ("fc", 0)]
)
def test_flags_that_mean_nothing_are_not_kept(flags: str, kept: int) -> None:
    parent = parent_of([f"00-{TRACE}-{SPAN}-{flags}"])

    assert parent is not None
    assert parent.flags == kept


@pytest.mark.parametrize("more", ["", "-", "-what-the-future-will-be-like"])
def test_of_a_later_version_what_this_one_has_is_read(more: str) -> None:
    parent = parent_of([f"cc-{TRACE}-{SPAN}-03{more}"])

    assert parent is not None
    assert parent.flags == SAMPLED


@pytest.mark.parametrize(
    "value",
    [
        "",
        GOOD + "-",
        GOOD + "-what",
        GOOD + "0",
        GOOD + "\n",
        " " + GOOD,
        GOOD + " ",
        GOOD[:-1],
        GOOD.upper(),
        GOOD.replace("a", "A"),
        GOOD.replace("-", "_"),
        f"ff-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01what",
        f"cc-{TRACE}-{SPAN}-01.what",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{TRACE[:-1]}\N{ARABIC-INDIC DIGIT ONE}-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"{GOOD},{GOOD}",
    ],
)
def test_what_is_no_traceparent_names_no_parent(value: str) -> None:
    assert parent_of([value], ["a=b"]) is None


def test_of_several_traceparents_none_is_believed() -> None:
    assert parent_of([GOOD, GOOD]) is None
    assert parent_of([GOOD, "nonsense"]) is None
    assert parent_of([]) is None


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ([], ""),
        ([""], ""),
        (["a=1"], "a=1"),
        (["a=1", "b=2"], "a=1,b=2"),
        (["a=1,,  ,\tb=2 \t"], "a=1,b=2"),
        (["a=1", "", "b=2"], "a=1,b=2"),
        (["fw529a3039@dt=FfdwEYQ"], "fw529a3039@dt=FfdwEYQ"),
        (["0tenant@sys-tem/*_=v v"], "0tenant@sys-tem/*_=v v"),
        (["a@b@c=1"], "a@b@c=1"),
        (["a= 1"], "a= 1"),
        (["k" * 256 + "=1"], "k" * 256 + "=1"),
        (["a=" + "v" * 256], "a=" + "v" * 256),
        (["k" * 257 + "=1"], ""),
        (["a=" + "v" * 257], ""),
        (["A=1"], ""),
        (["a=1,A=2"], ""),
        (["a=1,a=2"], ""),
        (["a=1", "a=1"], ""),
        (["a=1=2"], ""),
        (["a ="], ""),
        (["a"], ""),
        (["=1"], ""),
        (["a="], ""),
        (["-a=1"], ""),
        (["a=\x7f"], ""),
        (["a=ü"], ""),
        (["a=1\0"], ""),
        ([",".join(f"k{n}=1" for n in range(32))], ",".join(f"k{n}=1" for n in range(32))),
        ([",".join(f"k{n}=1" for n in range(33))], ""),
        (["a=1," * 20_000], ""),
    ],
)
def test_a_state_is_whole_or_not_there(values: list[str], state: str) -> None:
    assert state_of(values) == state


def test_a_long_state_loses_its_long_members_first_and_then_its_last() -> None:
    long, short = "long=" + "v" * 200, [f"k{n:02}=" + "v" * 26 for n in range(16)]

    assert state_of([",".join([short[0], long, *short[1:14]])]) == ",".join(short[:14])
    assert state_of([",".join(short)]) == ",".join(short)
    assert state_of([",".join([*short, "z=" + "v" * 20])]) == ",".join(short)
    assert len(state_of([",".join(short)])) <= MAX_STATE


@given(
    st.one_of(st.text(), st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", fullmatch=True)),
    st.one_of(st.text(max_size=600), st.lists(st.from_regex(r"[a-z]{1,3}=[a-z]{1,9}", fullmatch=True)).map(",".join)),
)
def test_what_is_believed_the_sdk_believes_too(traceparent: str, tracestate: str) -> None:
    ours = parent_of([traceparent], [tracestate])
    carrier = {"traceparent": traceparent, "tracestate": tracestate}
    theirs = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()

    if ours is not None:
        assert int.from_bytes(ours.trace_id, "big") == theirs.trace_id
        assert int.from_bytes(ours.span_id, "big") == theirs.span_id
        assert ours.is_sampled == theirs.trace_flags.sampled
        if len(tracestate) <= MAX_STATE:
            assert ours.trace_state == theirs.trace_state.to_header()


def test_a_child_is_in_its_parents_trace_under_a_name_of_its_own() -> None:
    parent = parent_of([f"00-{TRACE}-{SPAN}-00"], ["a=1"])
    child = child_of(parent)

    assert parent is not None
    assert (child.trace_id, child.trace_state, child.flags) == (parent.trace_id, "a=1", 0)
    assert child.span_id != parent.span_id


def test_a_span_without_a_parent_begins_a_trace_that_is_recorded() -> None:
    made = [child_of(None) for _ in range(100)]

    assert all(context.is_sampled and context.flags & RANDOM for context in made)
    assert len({context.trace_id for context in made}) == len({context.span_id for context in made}) == 100
