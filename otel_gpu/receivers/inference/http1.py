"""What does the head of an HTTP/1 message say? Its first line, few named headers, and how long its body is (RFC 9112).

Heads come from strangers, and only as far as they were captured. What is missing is said, and where servers may
disagree on what a message means, as attackers have them do to smuggle requests, the doubts are named and the length of
the body is not known: nothing is guessed.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

MAX_HEAD = 1 << 16
"""Bytes of a head; servers take 8 to 64 KiB."""
MAX_LINES = 256
_MAX_METHOD = 32
_MAX_EMPTY_LINES = 4
"""Before a request, which clients of old sent after a body."""
_MAX_DIGITS = 18
"""Of a length: more than any body has, and no 64-bit number overflows."""

_NAMED = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "traceparent",
        "tracestate",
        "transfer-encoding",
        "upgrade",
    }
)
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_METHOD = re.compile(_TOKEN + rb"{1,%d}\Z" % _MAX_METHOD)
_NAME = re.compile(_TOKEN + rb"+\Z")
_VERSION = re.compile(rb"HTTP/(1\.[0-9])\Z")
_STATUS_LINE = re.compile(rb"HTTP/(1\.[0-9]) ([1-9][0-9]{2})(?: |\Z)")
_BEGUN_STATUS_LINE = re.compile(rb"H(T(T(P(/(1(\.([0-9]( ([1-9][0-9]?)?)?)?)?)?)?)?)?)?\Z")
_CONTROL = re.compile(rb"[\0-\x08\x0a-\x1f\x7f]")
_OUTSIDE_TARGET = re.compile(rb"[\0-\x20\x7f]")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


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


@dataclass(frozen=True, slots=True)
class Headers:
    """The named headers that were captured whole, in their order, names in lower case."""

    items: tuple[tuple[str, str], ...] = ()

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of a header, one for each line."""
        return tuple(value for key, value in self.items if key == name)

    def members(self, name: str) -> tuple[str, ...]:
        """Return the members of a header that is a list, in lower case."""
        return tuple(m for value in self.values(name) for part in value.lower().split(",") if (m := part.strip(" \t")))


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request."""

    method: str
    target: str
    """As it was sent, each byte a character; it may be cut where the start line is missing."""
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
        """Tell whether servers may disagree on what this request is."""
        return bool(self.doubts)

    @property
    def host(self) -> str:
        """The `Host`, where there is exactly one."""
        hosts = self.headers.values("host")
        return hosts[0] if len(hosts) == 1 else ""

    @property
    def expects_continue(self) -> bool:
        """Tell whether the body waits for an interim response."""
        return self.version != "1.0" and "100-continue" in self.headers.members("expect")

    @property
    def is_persistent(self) -> bool:
        """Tell whether another request may follow on the connection."""
        return _is_persistent(self.version, self.headers)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a response."""

    status: int | None
    """None where the start line is missing."""
    version: str
    headers: Headers
    framing: Framing
    body_bytes: int | None
    size_bytes: int
    missing: Missing = Missing.NOTHING
    doubts: tuple[Doubt, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Tell whether all of the head was captured."""
        return self.missing is Missing.NOTHING

    @property
    def is_ambiguous(self) -> bool:
        """Tell whether clients may disagree on what this response is."""
        return bool(self.doubts)

    @property
    def is_interim(self) -> bool:
        """Tell whether another response to the same request follows."""
        return self.status is not None and 100 <= self.status < 200 and self.status != 101

    @property
    def is_event_stream(self) -> bool:
        """Tell whether the body is a stream of server-sent events."""
        types = self.headers.values("content-type")
        return len(types) == 1 and types[0].partition(";")[0].strip(" \t").lower() == "text/event-stream"

    @property
    def is_persistent(self) -> bool:
        """Tell whether another response may follow on the connection."""
        return self.framing is not Framing.UNTIL_CLOSE and _is_persistent(self.version, self.headers)


def is_http2(data: bytes) -> bool:
    """Tell whether a connection begins as HTTP/2 does, as far as it goes; `PRI` is no method of HTTP/1."""
    return len(data) >= 3 and _PREFACE.startswith(data[: len(_PREFACE)])


def parse_request(data: bytes) -> RequestHead | None:
    """Return what stands at the beginning of these bytes, or None where that is no request of HTTP/1."""
    lines = _Lines(data)
    line = lines.first()
    if line is None:
        return _begun_request(data, lines.at)
    doubts = set(lines.doubts)
    parts = line.split(b" ")
    version = _VERSION.match(parts[-1])
    if len(parts) < 3 or version is None or _METHOD.match(parts[0]) is None:
        return None
    if len(parts) > 3 or not parts[1] or _OUTSIDE_TARGET.search(parts[1]):
        doubts.add(Doubt.START_LINE)
    headers, missing = _headers(lines, doubts)
    text = version[1].decode()
    framing, length = Framing.UNKNOWN, None
    if missing is Missing.NOTHING:
        framing, length = _request_body(text, headers, doubts)
    return RequestHead(
        parts[0].decode(),
        parts[1].decode("latin-1"),
        text,
        headers,
        framing,
        length,
        lines.at,
        missing,
        _sorted(doubts),
    )


def parse_response(data: bytes, method: str) -> ResponseHead | None:
    """Return what stands at the beginning of these bytes as an answer to a method, or None where it is no response."""
    lines = _Lines(data)
    line = lines.next()
    if line is None:
        return _begun_response(data)
    if (match := _STATUS_LINE.match(line)) is None:
        return None
    doubts = set(lines.doubts)
    headers, missing = _headers(lines, doubts)
    version, status = match[1].decode(), int(match[2])
    framing, length = Framing.UNKNOWN, None
    if missing is Missing.NOTHING:
        framing, length = _response_body(version, status, method, headers, doubts)
    return ResponseHead(status, version, headers, framing, length, lines.at, missing, _sorted(doubts))


def final_response(data: bytes, method: str) -> tuple[ResponseHead | None, int]:
    """Return the first response that is not interim, and where it begins; the last one seen where none has come yet."""
    at = 0
    while True:
        head = parse_response(data[at : at + MAX_HEAD + 1], method)
        if head is None or not (head.is_interim and head.is_whole) or at + head.size_bytes >= len(data):
            return head, at
        at += head.size_bytes


class _Lines:
    """Takes a head's lines one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self.doubts: set[Doubt] = set()

    def next(self) -> bytes | None:
        """Return the next line without its end, or None where it is not whole."""
        end = self._data.find(b"\n", self.at, MAX_HEAD)
        if end < 0:
            return None
        line = self._data[self.at : end]
        self.at = end + 1
        if not line.endswith(b"\r"):
            self.doubts.add(Doubt.BARE_LINE_FEED)
            return line
        line = line[:-1]
        if b"\r" in line:
            self.doubts.add(Doubt.BARE_CARRIAGE_RETURN)
        return line

    def first(self) -> bytes | None:
        """Return the first line that is not empty."""
        for _ in range(_MAX_EMPTY_LINES + 1):
            if (line := self.next()) != b"":
                return line
        return b""

    @property
    def is_too_long(self) -> bool:
        """Tell whether more than a head's bytes are there, so that no more would help."""
        return len(self._data) >= MAX_HEAD

    @property
    def may_be_folded(self) -> bool:
        """Tell whether the line that has not come yet may go on with the one before."""
        return self._data[self.at : self.at + 1] in {b"", b" ", b"\t"}

    def take_rest(self) -> None:
        """Leave nothing."""
        self.at = min(len(self._data), MAX_HEAD)


def _begun_request(data: bytes, at: int) -> RequestHead | None:
    """Return what is known of a request whose first line is not whole."""
    begun = data[at:]
    method, blank, rest = begun.partition(b" ")
    if not begun or _METHOD.match(method) is None or b"\r" in rest[:-1] or len(begun) > MAX_HEAD:
        return None
    target = rest.partition(b" ")[0] if blank else b""
    return RequestHead(
        method.decode() if blank else "",
        target.decode("latin-1"),
        "",
        Headers(),
        Framing.UNKNOWN,
        None,
        len(data),
        Missing.START_LINE,
    )


def _begun_response(data: bytes) -> ResponseHead | None:
    """Return what is known of a response whose first line is not whole."""
    match = _STATUS_LINE.match(data)
    if len(data) > MAX_HEAD or (match is None and _BEGUN_STATUS_LINE.match(data) is None):
        return None
    status, version = (int(match[2]), match[1].decode()) if match else (None, "")
    return ResponseHead(status, version, Headers(), Framing.UNKNOWN, None, len(data), Missing.START_LINE)


def _headers(lines: _Lines, doubts: set[Doubt]) -> tuple[Headers, Missing]:
    """Take the headers and the empty line behind them."""
    found: list[tuple[str, list[bytes]]] = []
    missing = Missing.HEADERS
    named = False
    for _ in range(MAX_LINES):
        line = lines.next()
        if line is None:
            if lines.is_too_long:
                doubts.add(Doubt.TOO_LONG)
            if named and lines.may_be_folded:
                found.pop()
            lines.take_rest()
            break
        if not line:
            missing = Missing.NOTHING
            break
        if line[0] in b" \t":
            doubts.add(Doubt.FOLDED_LINE)
            if named:
                found[-1][1].append(line.strip(b" \t"))
            continue
        name, colon, value = line.partition(b":")
        named = False
        if not colon or _NAME.match(name) is None:
            doubts.add(Doubt.MALFORMED_LINE)
            continue
        if _CONTROL.search(value):
            doubts.add(Doubt.CONTROL_CHARACTER)
        key = name.decode().lower()
        if named := key in _NAMED:
            found.append((key, [value.strip(b" \t")]))
    else:
        doubts.add(Doubt.TOO_LONG)
    doubts |= lines.doubts
    return Headers(tuple((key, b" ".join(parts).decode("latin-1")) for key, parts in found)), missing


def _request_body(version: str, headers: Headers, doubts: set[Doubt]) -> tuple[Framing, int | None]:
    codings, length = headers.members("transfer-encoding"), _length(headers, doubts)
    if headers.values("transfer-encoding"):
        if headers.values("content-length"):
            doubts.add(Doubt.BOTH_LENGTHS)
        if version == "1.0" or not _is_chunked(codings):
            doubts.add(Doubt.CODING)
    if doubts:
        return Framing.UNKNOWN, None
    if codings:
        return Framing.CHUNKED, None
    return (Framing.LENGTH, length) if length else (Framing.NONE, None)


def _response_body(
    version: str, status: int, method: str, headers: Headers, doubts: set[Doubt]
) -> tuple[Framing, int | None]:
    if status == 101 or (method == "CONNECT" and 200 <= status < 300):
        return (Framing.UNKNOWN, None) if doubts else (Framing.TUNNEL, None)
    if method == "HEAD" or status < 200 or status in {204, 304}:
        return (Framing.UNKNOWN, None) if doubts else (Framing.NONE, None)
    codings, length = headers.members("transfer-encoding"), _length(headers, doubts)
    if headers.values("transfer-encoding"):
        if headers.values("content-length"):
            doubts.add(Doubt.BOTH_LENGTHS)
        if version == "1.0" or codings.count("chunked") > 1 or not all(map(_is_token, codings)) or not codings:
            doubts.add(Doubt.CODING)
    if doubts:
        return Framing.UNKNOWN, None
    if codings:
        return (Framing.CHUNKED if _is_chunked(codings) else Framing.UNTIL_CLOSE), None
    if length is None:
        return Framing.UNTIL_CLOSE, None
    return (Framing.LENGTH, length) if length else (Framing.NONE, None)


def _length(headers: Headers, doubts: set[Doubt]) -> int | None:
    values = headers.values("content-length")
    if len(values) > 1 or any("," in value for value in values):
        doubts.add(Doubt.SEVERAL_LENGTHS)
        return None
    if not values:
        return None
    if not (values[0].isascii() and values[0].isdigit() and len(values[0]) <= _MAX_DIGITS):
        doubts.add(Doubt.MALFORMED_LENGTH)
        return None
    return int(values[0])


def _is_chunked(codings: tuple[str, ...]) -> bool:
    """Tell whether `chunked` is the last coding, and applied once."""
    return codings[-1:] == ("chunked",) and codings.count("chunked") == 1 and all(map(_is_token, codings))


def _is_token(text: str) -> bool:
    return _NAME.match(text.encode("latin-1")) is not None


def _is_persistent(version: str, headers: Headers) -> bool:
    options = headers.members("connection")
    return "close" not in options and (version > "1.0" or "keep-alive" in options)


def _sorted(doubts: set[Doubt]) -> tuple[Doubt, ...]:
    return tuple(doubt for doubt in Doubt if doubt in doubts)
