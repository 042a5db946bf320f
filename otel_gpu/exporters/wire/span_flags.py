"""What do the flags of a span say in OTLP? W3C's trace flags, and whether the parent is of another process.

`SpanFlags` of trace.proto: the lowest eight bits are W3C's, one says that it is known where the parent is, and one
that it is remote. Of what a link leads to nobody knows that.
"""

from __future__ import annotations

from ...signals.spans import Link, Span

W3C_MASK = 0xFF
HAS_IS_REMOTE = 0x100
IS_REMOTE = 0x200


def span_flags(span: Span) -> int:
    """Return the flags of a span."""
    remote = IS_REMOTE if span.parent_id and span.is_parent_remote else 0
    return span.context.flags & W3C_MASK | HAS_IS_REMOTE | remote


def link_flags(link: Link) -> int:
    """Return the flags of a link."""
    return link.context.flags & W3C_MASK
