"""Whose child is a request? What its `traceparent` and `tracestate` say, by W3C Trace Context, Level 2, to the letter.

OpenTelemetry's own propagator is not used, because it is less strict than this has to be: of several `traceparent`
headers it takes the first where the recommendation wants none, it takes blanks around the value, and it keeps bits of
the flags that mean nothing yet. It refuses keys of `tracestate` that Level 2 has, and takes 8,192 characters of it. It
also makes an object of the SDK for every request. That the two agree on what both take is tested.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from functools import cache

from ...signals.spans import SAMPLED, SPAN_ID_BYTES, TRACE_ID_BYTES, SpanContext

RANDOM = 2
"""The bit of the flags that says that the trace id is random, of Level 2."""
MAX_STATE = 512
"""Characters of `tracestate` that are kept: as many as whoever hands it on should at least."""
MAX_MEMBERS = 32
_LONG_MEMBER = 128
"""Members that are longer go first where there is too much."""
_MAX_READ = 16_448
"""Characters of 32 members of the longest kind."""

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_MEMBER = re.compile(
    r"([a-z0-9][a-z0-9_\-*/@]{0,255})=([\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e])"
)


def parent_of(traceparents: Sequence[str], tracestates: Sequence[str] = ()) -> SpanContext | None:
    """Return what the values of a request's headers name, or None where they name nothing that can be trusted."""
    if len(traceparents) != 1 or (match := _PARENT.fullmatch(traceparents[0])) is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    known = SAMPLED | RANDOM if version == "00" else SAMPLED
    try:
        return SpanContext(
            bytes.fromhex(trace_id), bytes.fromhex(span_id), state_of(tracestates), int(flags, 16) & known
        )
    except ValueError:
        return None  # an id of zeros


def state_of(tracestates: Sequence[str]) -> str:
    """Return the one value that several headers `tracestate` have together, cut by whole members, or "" if it is malformed."""
    if not tracestates or sum(map(len, tracestates)) > _MAX_READ:
        return ""
    members: dict[str, str] = {}
    for text in ",".join(tracestates).split(","):
        member = text.strip(" \t")
        if not member:
            continue
        match = _MEMBER.fullmatch(member)
        if match is None or match[1] in members or len(members) == MAX_MEMBERS:
            return ""
        members[match[1]] = member
    return _fitting(list(members.values()))


def _fitting(members: list[str]) -> str:
    size = sum(map(len, members)) + len(members) - 1
    for at in reversed(range(len(members))):
        if size <= MAX_STATE:
            break
        if len(members[at]) > _LONG_MEMBER:
            size -= len(members.pop(at)) + 1
    while size > MAX_STATE:
        size -= len(members.pop()) + 1
    return ",".join(members)


def child_of(parent: SpanContext | None) -> SpanContext:
    """Return a new span's name: in its parent's trace, or in a new one that is recorded."""
    if parent is None:
        return SpanContext(_new_id(TRACE_ID_BYTES), _new_id(SPAN_ID_BYTES), "", SAMPLED | RANDOM)
    return SpanContext(parent.trace_id, _new_id(SPAN_ID_BYTES), parent.trace_state, parent.flags)


@cache
def _ids() -> random.Random:
    # The operating system's take longer than all else that a span is made of.
    made = random.Random()  # noqa: S311 - ids have to be different, not secret
    os.register_at_fork(after_in_child=made.seed)
    return made


def _new_id(size: int) -> bytes:
    while not (made := _ids().getrandbits(8 * size)):
        pass
    return made.to_bytes(size, "little")
