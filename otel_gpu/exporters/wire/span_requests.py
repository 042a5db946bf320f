"""How are spans made into requests of a bounded size? Each is written once, and requests are joined of what was written.

The same for every encoding: a `Form` says how a span and a resource are written, and how they are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from msgspec.structs import replace

from ...signals.metrics import Attributes, AttributeValue, Resource
from ...signals.spans import Span
from ..delivery.payload import Encoded, Payload

MAX_SHORTENED = 1_000
"""Characters that are kept of each text of a span that is too large for a request of its own."""

_Group = tuple[bytes, list[bytes]]
"""A resource and its spans, as they were written."""
Note = Callable[[Exception], None]
"""Is told of each span that could not be encoded, and of each that was shortened."""


class Form(Protocol):
    """How spans are written in one encoding."""

    group_bytes: int
    """By how much a group is longer, at most, than its owner and spans."""
    request_bytes: int
    """By how much a request is longer, at most, than its groups."""

    def owner(self, resource: Resource) -> bytes:
        """Write a resource: how the group of its spans begins."""

    def span(self, span: Span) -> bytes:
        """Write a span, with what parts it from others."""

    def group(self, owner: bytes, spans: list[bytes]) -> bytes:
        """Join the spans of one resource."""

    def request(self, groups: list[bytes]) -> bytes:
        """Join groups to a request."""


class SpanRequests:
    """Encodes spans in one form, as requests of at most `max_bytes`. Used by one thread at a time.

    A span that alone would make a larger request has its texts shortened. One that cannot be encoded costs itself alone.
    """

    def __init__(self, form: Form, max_bytes: int, note: Note = lambda _: None) -> None:
        self._form = form
        self._max_bytes = max_bytes
        self._note = note

    def encode(self, spans: Sequence[Span]) -> Encoded:
        """Return requests that together hold every span once, but for those that are lost."""
        taken = 0
        payloads = []
        for request in self._divided(self._groups(spans)):
            body = self._form.request([self._form.group(owner, written) for owner, written in request])
            points = sum(len(written) for _, written in request)
            taken += points
            payloads.append(Payload(body, points, len(body)))
        return Encoded(payloads, len(spans) - taken)

    def _groups(self, spans: Sequence[Span]) -> list[_Group]:
        """Write the spans of each resource."""
        by_resource: dict[Resource, list[Span]] = {}
        last: tuple[Resource, list[Span]] | None = None
        for span in spans:
            if last is None or span.resource is not last[0]:  # those of one process mostly come together
                try:
                    last = span.resource, by_resource.setdefault(span.resource, [])
                except TypeError as error:  # an attribute that is none
                    self._note(error)
                    continue
            last[1].append(span)
        return [self._written(resource, some) for resource, some in by_resource.items()]

    def _written(self, resource: Resource, spans: list[Span]) -> _Group:
        written: list[bytes] = []
        try:
            owner = self._form.owner(resource)
        except Exception as error:  # noqa: BLE001 - a resource that cannot be encoded costs its own spans
            for _ in spans:
                self._note(error)
            return b"", written
        room = self._max_bytes - len(owner) - self._form.group_bytes - self._form.request_bytes
        for span in spans:
            try:
                one = self._form.span(span)
                if len(one) > room:
                    one = self._shortened(span, room)
            except Exception as error:  # noqa: BLE001 - as above, of one span
                self._note(error)
            else:
                written.append(one)
        return owner, written

    def _shortened(self, span: Span, room: int) -> bytes:
        one = self._form.span(shortened(span))
        if len(one) > room:
            raise ValueError(f"a span does not fit into {self._max_bytes} bytes, and is lost")
        self._note(ValueError(f"a span does not fit into {self._max_bytes} bytes: its texts are shortened"))
        return one

    def _divided(self, groups: Iterable[_Group]) -> Iterator[list[_Group]]:
        """Yield what fits into one request, again and again."""
        request: list[_Group] = []
        size = self._form.request_bytes
        for owner, written in groups:
            begin = len(owner) + self._form.group_bytes
            whole = begin + sum(map(len, written))
            if written and size + whole <= self._max_bytes:
                request.append((owner, written))
                size += whole
                continue
            is_open = False
            for one in written:
                more = len(one) if is_open else begin + len(one)
                if request and size + more > self._max_bytes:
                    yield request
                    request, size, is_open, more = [], self._form.request_bytes, False, begin + len(one)
                if not is_open:
                    request.append((owner, []))
                    is_open = True
                request[-1][1].append(one)
                size += more
        if request:
            yield request


def shortened(span: Span) -> Span:
    """Return a span with none of its texts longer than `MAX_SHORTENED`; a trace state that is longer is left out."""
    context = span.context
    return replace(
        span,
        name=_short(span.name),
        context=replace(context, trace_state=context.trace_state if len(context.trace_state) <= MAX_SHORTENED else ""),
        attributes=_short_values(span.attributes),
        links=tuple(replace(link, attributes=_short_values(link.attributes)) for link in span.links),
        status_message=_short(span.status_message),
    )


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHORTENED else text[: MAX_SHORTENED - 1] + "…"


def _short_values(attributes: Attributes) -> Attributes:
    def short(value: AttributeValue) -> AttributeValue:
        return _short(value) if isinstance(value, str) else value

    return tuple((key, short(value)) for key, value in attributes)
