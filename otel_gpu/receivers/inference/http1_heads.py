"""What is known of the head of an HTTP/1 message? What it says, what of it is missing, and what is doubtful."""

from __future__ import annotations

import enum

from ...signals.structs import Frozen


class Missing(enum.Enum):
    """What of a head was not captured, or has not come yet."""

    NOTHING = "nothing"
    START_LINE = "start line"
    """The first line is not whole: a target may go on."""
    HEADERS = "headers"


class Doubt(enum.Enum):
    """Why servers may disagree on what a message means."""

    BOTH_LENGTHS = "Content-Length beside Transfer-Encoding"
    SEVERAL_LENGTHS = "several values of Content-Length"
    MALFORMED_LENGTH = "a Content-Length that is no number"
    CODING = "a Transfer-Encoding other than chunked in the end, or in HTTP/1.0"
    START_LINE = "a first line with more or other parts"
    BARE_LINE_FEED = "a line that ends without a carriage return"
    BARE_CARRIAGE_RETURN = "a carriage return within a line"
    CONTROL_CHARACTER = "a control character in a value"
    FOLDED_LINE = "a value that goes on in the next line"
    MALFORMED_LINE = "a line that is no header, or blanks before its colon"
    TOO_LONG = "a head of too many bytes or lines"


class Framing(enum.Enum):
    """What tells where the body ends."""

    NONE = "none"
    """There is no body."""
    LENGTH = "length"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"
    TUNNEL = "tunnel"
    """What follows is another protocol."""
    UNKNOWN = "unknown"
    """The head is not whole, or there are doubts."""


class Headers(Frozen):
    """The named headers that were captured whole, in their order, names in lower case."""

    items: tuple[tuple[str, str], ...] = ()

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of a header, one for each line."""
        return tuple([value for key, value in self.items if key == name])

    def members(self, name: str) -> tuple[str, ...]:
        """Return the members of a header that is a list, in lower case."""
        return tuple(m for value in self.values(name) for part in value.lower().split(",") if (m := part.strip(" \t")))


class _Head(Frozen):
    """What the head of a request and that of a response have alike."""

    version: str
    """`1.0` or `1.1`; empty where the start line is missing."""
    headers: Headers
    framing: Framing
    body_bytes: int | None
    """Of a body with a length; chunks are not counted here."""
    size_bytes: int
    """Of the head with its empty line, or of what was captured of it."""
    missing: Missing = Missing.NOTHING
    doubts: tuple[Doubt, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Tell whether all of the head was captured."""
        return self.missing is Missing.NOTHING

    @property
    def is_ambiguous(self) -> bool:
        """Tell whether those who read it may disagree on what this message is."""
        return bool(self.doubts)


class RequestHead(_Head, kw_only=True):
    """The head of a request."""

    method: str
    target: str
    """As it was sent, each byte a character; it may be cut where the start line is missing."""

    @property
    def host(self) -> str:
        """The `Host`, where there is exactly one."""
        hosts = self.headers.values("host")
        return hosts[0] if len(hosts) == 1 else ""


class ResponseHead(_Head, kw_only=True):
    """The head of a response."""

    status: int | None
    """None where the start line is missing."""

    @property
    def is_interim(self) -> bool:
        """Tell whether another response to the same request follows."""
        return self.status is not None and 100 <= self.status < 200 and self.status != 101

    @property
    def is_event_stream(self) -> bool:
        """Tell whether the body is a stream of server-sent events."""
        types = self.headers.values("content-type")
        return len(types) == 1 and types[0].partition(";")[0].strip(" \t").lower() == "text/event-stream"
