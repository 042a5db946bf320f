"""What does the head of an HTTP/1 message say? Its first line, few named headers, and how long its body is (RFC 9112).

Heads come from strangers, and only as far as they were captured. What is missing is said, and where servers may
disagree on what a message means, as attackers have them do to smuggle requests, the doubts are named and the length of
the body is not known: nothing is guessed.
"""

from __future__ import annotations

import re

from .http1_heads import Doubt, Framing, Headers, Missing, RequestHead, ResponseHead

MAX_HEAD = 1 << 16
"""Bytes of a head; servers take 8 to 64 KiB."""
MAX_LINES = 256
_MAX_METHOD = 32
_MAX_EMPTY_LINES = 4
"""Before a request, which clients of old sent after a body."""
_MAX_INTERIM = 16
"""Responses before the final one."""
_MAX_DIGITS = 18
"""Of a length: more than any body has, and no 64-bit number overflows."""

_NAMED = frozenset(
    {
        "content-length",
        "content-type",
        "host",
        "traceparent",
        "tracestate",
        "transfer-encoding",
    }
)
_NOTHING = Missing.NOTHING
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_METHOD = re.compile(_TOKEN + rb"{1,%d}\Z" % _MAX_METHOD)
_NAME = re.compile(_TOKEN + rb"+\Z")
_VERSION = re.compile(rb"HTTP/(1\.[0-9])\Z")
_STATUS_LINE = re.compile(rb"HTTP/(1\.[0-9]) ([1-9][0-9]{2})(?: |\Z)")
_BEGUN_STATUS_LINE = re.compile(rb"H(T(T(P(/(1(\.([0-9]( ([1-9][0-9]?)?)?)?)?)?)?)?)?)?\Z")
_CONTROL = re.compile(rb"[\0-\x08\x0a-\x1f\x7f]")
_OUTSIDE_TARGET = re.compile(rb"[\0-\x20\x7f]")
_LINES = rb"\r\n(?:%b+:[^\0-\x08\x0a-\x1f\x7f]*\r\n)*\r\n" % _TOKEN
_PLAIN_REQUEST = re.compile(rb"(%b{1,%d}) ([!-~\x80-\xff]+) HTTP/(1\.[0-9])" % (_TOKEN, _MAX_METHOD) + _LINES)
_PLAIN_RESPONSE = re.compile(rb"HTTP/(1\.[0-9]) ([1-9][0-9]{2})(?: [^\r\n]*)?" + _LINES)
"""Heads that are whole and beyond doubt but for their bodies' lengths, as nearly all are."""
_PLAIN_HEADERS = re.compile(rb"(?i)\n(%b):([^\r]*)" % b"|".join(sorted(name.encode() for name in _NAMED)))
_KEYS = {shape: name for name in _NAMED for shape in (name.encode(), name.title().encode())}
"""Names as they are written as a rule."""


def parse_request(data: bytes) -> RequestHead | None:
    """Return what stands at the beginning of these bytes, or None where that is no request of HTTP/1."""
    if (plain := _PLAIN_REQUEST.match(data, 0, MAX_HEAD)) is not None and _has_few_lines(data, plain.end()):
        method, target, version = plain.groups()
        headers, doubts = _plain_headers(data, plain.end()), set[Doubt]()
        text = version.decode()
        framing, length = _request_body(text, headers, doubts)
        return RequestHead(
            text,
            headers,
            framing,
            length,
            plain.end(),
            _NOTHING,
            _sorted(doubts),
            method=method.decode(),
            target=target.decode("latin-1"),
        )
    return _read_request(data)


def _read_request(data: bytes) -> RequestHead | None:
    """Read a request line by line."""
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
        text,
        headers,
        framing,
        length,
        lines.at,
        missing,
        _sorted(doubts),
        method=parts[0].decode(),
        target=parts[1].decode("latin-1"),
    )


def parse_response(data: bytes, method: str) -> ResponseHead | None:
    """Return what stands at the beginning of these bytes as an answer to a method, or None where it is no response."""
    if (plain := _PLAIN_RESPONSE.match(data, 0, MAX_HEAD)) is not None and _has_few_lines(data, plain.end()):
        headers, doubts = _plain_headers(data, plain.end()), set[Doubt]()
        version, status = plain[1].decode(), int(plain[2])
        framing, length = _response_body(version, status, method, headers, doubts)
        return ResponseHead(version, headers, framing, length, plain.end(), _NOTHING, _sorted(doubts), status=status)
    return _read_response(data, method)


def _read_response(data: bytes, method: str) -> ResponseHead | None:
    """Read a response line by line."""
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
    return ResponseHead(version, headers, framing, length, lines.at, missing, _sorted(doubts), status=status)


def final_response(data: bytes, method: str) -> tuple[ResponseHead | None, int]:
    """Return the first response that is not interim, and where it begins; the last one seen where none has come yet."""
    head, at = parse_response(data, method), 0
    for _ in range(_MAX_INTERIM):
        if head is None or not (head.is_interim and head.is_whole) or at + head.size_bytes >= len(data):
            break
        at += head.size_bytes
        head = parse_response(data[at : at + MAX_HEAD + 1], method)
    return head, at


def _has_few_lines(data: bytes, end: int) -> bool:
    return end < MAX_LINES or data.count(b"\n", 0, end) <= MAX_LINES


def _plain_headers(data: bytes, end: int) -> Headers:
    """Return the named headers of a head that is beyond doubt."""
    return Headers(
        tuple(
            (_KEYS.get(name) or name.lower().decode(), value.strip(b" \t").decode("latin-1"))
            for name, value in _PLAIN_HEADERS.findall(data, 0, end)
        )
    )


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
        "",
        Headers(),
        Framing.UNKNOWN,
        None,
        len(data),
        Missing.START_LINE,
        method=method.decode() if blank else "",
        target=target.decode("latin-1"),
    )


def _begun_response(data: bytes) -> ResponseHead | None:
    """Return what is known of a response whose first line is not whole."""
    match = _STATUS_LINE.match(data)
    if len(data) > MAX_HEAD or (match is None and _BEGUN_STATUS_LINE.match(data) is None):
        return None
    status, version = (int(match[2]), match[1].decode()) if match else (None, "")
    return ResponseHead(version, Headers(), Framing.UNKNOWN, None, len(data), Missing.START_LINE, status=status)


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
    length = _length(headers, doubts)
    codings: tuple[str, ...] = ()
    if headers.values("transfer-encoding"):
        codings = headers.members("transfer-encoding")
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
    length = _length(headers, doubts)
    codings: tuple[str, ...] = ()
    if headers.values("transfer-encoding"):
        codings = headers.members("transfer-encoding")
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


def _sorted(doubts: set[Doubt]) -> tuple[Doubt, ...]:
    return () if not doubts else tuple(doubt for doubt in Doubt if doubt in doubts)
