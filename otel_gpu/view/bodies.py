"""What is in the body of a request? Bytes, unpacked only so far."""

from __future__ import annotations

import zlib

from .losses import Reason

_MAX_MEMBERS = 256
"""Of gzip, in one body; each costs, whatever it holds."""


class RefusedError(Exception):
    """A request is not taken: the status of HTTP that says so, why, and under which reason it is counted."""

    def __init__(self, status: int, why: str, reason: Reason) -> None:
        super().__init__(why)
        self.status = status
        self.reason = reason


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """Return what a body of some content encoding holds; RefusedError for more than the limit, and for what it does not hold."""
    if len(body) > limit:
        raise too_large(limit)
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip":
            return _gunzipped(body, limit)
        case "zstd":
            return _unzstd(body, limit)
    raise RefusedError(
        415, f"content encoding {encoding[:40]!r} is not understood; use gzip, zstd or none", Reason.NOT_UNDERSTOOD
    )


def too_large(limit: int) -> RefusedError:
    """Return what is said of a body that is too large."""
    return RefusedError(413, f"the body is larger than {limit} bytes; send less at a time", Reason.TOO_LARGE)


def _gunzipped(body: bytes, limit: int) -> bytes:
    """Return what all members hold, one after another (RFC 1952, 2.2)."""
    data, rest = bytearray(), body
    for _ in range(_MAX_MEMBERS):
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            data += unpacker.decompress(rest, limit + 1 - len(data))
        except zlib.error as error:
            raise _broken("gzip") from error
        if len(data) > limit:
            raise too_large(limit)
        if not unpacker.eof:
            raise _broken("gzip")
        # Some fill up with zeros.
        rest = unpacker.unused_data.lstrip(b"\0")
        if not rest:
            return bytes(data)
    raise RefusedError(413, f"the body has more than {_MAX_MEMBERS} members of gzip; send fewer", Reason.TOO_LARGE)


def _unzstd(body: bytes, limit: int) -> bytes:
    import zstandard

    try:
        reader = zstandard.ZstdDecompressor(max_window_size=limit).stream_reader(body, read_across_frames=True)
        data = reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise _broken("zstd") from error
    if len(data) > limit:
        raise too_large(limit)
    if body and not data:
        raise _broken("zstd")
    return bytes(data)


def _broken(kind: str) -> RefusedError:
    return RefusedError(400, f"the body is no {kind}, or a part of it is missing", Reason.MALFORMED)
