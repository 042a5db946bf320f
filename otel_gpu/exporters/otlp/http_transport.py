"""How is one OTLP request sent over HTTP? A POST of protobuf or JSON, compressed once however often it is tried."""

from __future__ import annotations

import gzip
import re
import zlib

import requests
import urllib3
import zstandard

from ..delivery.retry import RETRYABLE_HTTP, retry_after_s
from ..delivery.sender import Accepted, Refused, no_answer
from ..delivery.statistics import OTHER_ERROR
from ..wire.identity import USER_AGENT
from .connections import Connections
from .endpoint import Target
from .http_connections import Adapter
from .responses import MAX_RESPONSE_BYTES, accepted, accepted_json, not_taken
from .rpc_status import read_status
from .settings import OtlpSettings
from .tls import check_readable

_GZIP_LEVEL = 1
"""Level 6 takes three times as long to save a tenth: requests repeat the same keys over and over."""
_ZSTD_LEVEL = 3
_GZIP_FORMAT = 31
_PROTOBUF = "application/x-protobuf"
_JSON = "application/json"
_CAUSES = re.compile(
    r"\[Errno -?\d+\] ([^'\")\]]+)|(certificate verify failed[^'\")(]*)|Error\(\d+, '([^']+)'|Disconnected\('([^']+)'"
    r"|new connection: ([^'\")\[]+)"
)


class HttpTransport:
    """A session with one URL, its connection kept open between attempts."""

    def __init__(self, target: Target, settings: OtlpSettings) -> None:
        check_readable(settings)
        self._target = target
        self._connections = Connections()
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, Adapter(self._connections))
        # Proxies from the environment are wanted; ~/.netrc, which comes with them, would replace our headers.
        self._session.auth = lambda request: request
        self._session.headers.clear()
        self._is_json = settings.protocol == "http/json"
        content = _JSON if self._is_json else _PROTOBUF
        self._session.headers.update({**dict(target.headers), "Content-Type": content, "User-Agent": USER_AGENT})
        self._compression = settings.compression
        if self._compression != "none":
            self._session.headers["Content-Encoding"] = self._compression
        self._verify: bool | str = settings.ca_file or True
        if settings.insecure_skip_verify:
            self._verify = False
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        if settings.cert_file:
            self._session.cert = (settings.cert_file, settings.key_file) if settings.key_file else settings.cert_file
        self._plain: bytes | None = None
        self._packed = b""

    def send(self, body: bytes, timeout_s: float) -> Accepted | Refused:
        if self._compression != "none":
            if body is not self._plain:
                self._plain, self._packed = body, self._compressed(body)
            body = self._packed
        kind = OTHER_ERROR
        with self._connections.within(timeout_s):
            try:
                answer = self._post(body, timeout_s)
                if self._connections.left_s:
                    return answer
                # What was cut looks like an answer that has come to its end.
                return no_answer(timeout_s)
            except requests.exceptions.InvalidURL:
                # Its words quote what stands for the host: part of the password, where that holds a slash.
                reason, retryable = "the URL of the endpoint, or of the proxy in the environment, cannot be used", False
            except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
                reason, retryable, kind = self._target.shown(_cause(error)), True, type(error).__qualname__
            except requests.RequestException as error:
                kind = type(error).__qualname__
                reason, retryable = f"{kind}: {self._target.shown(str(error))}", False
            except OSError as error:
                # The file of a certificate that is being exchanged may be missing for a moment.
                kind = type(error).__qualname__
                reason, retryable = self._target.shown(str(error)), True
            except Exception as error:  # noqa: BLE001 - what is cut in the middle of an operation may raise anything
                kind = type(error).__qualname__
                reason, retryable = f"{kind}: {self._target.shown(str(error))}", False
            if not self._connections.left_s:
                return no_answer(timeout_s)
            return Refused(reason, retryable, error_type=kind)

    def close(self) -> None:
        self._connections.cut()
        self._session.close()

    def _compressed(self, body: bytes) -> bytes:
        if self._compression == "zstd":
            return zstandard.ZstdCompressor(_ZSTD_LEVEL).compress(body)
        return gzip.compress(body, _GZIP_LEVEL, mtime=0)

    def _post(self, body: bytes, timeout_s: float) -> Accepted | Refused:
        # `verify` is given here because REQUESTS_CA_BUNDLE would override the session's.
        with self._session.post(
            self._target.address, body, timeout=timeout_s, verify=self._verify, allow_redirects=False, stream=True
        ) as response:
            answer = response.raw.read(MAX_RESPONSE_BYTES, decode_content=False)
        if response.headers.get("Content-Encoding"):
            answer = _unpacked(answer)
        if response.status_code == requests.codes.ok:
            # A receiver answers as it was asked; one that does not is believed in what it says of itself.
            if response.headers.get("Content-Type", _JSON if self._is_json else _PROTOBUF).startswith(_JSON):
                return accepted_json(answer, self._target.shown)
            return accepted(answer, self._target.shown)
        return self._refused(response, answer)

    def _refused(self, response: requests.Response, body: bytes) -> Refused:
        status_code = response.status_code
        reason = f"HTTP {status_code} {self._target.shown(response.reason or '')}".rstrip()
        if response.headers.get("Content-Type", "").startswith(_PROTOBUF):
            status = read_status(body)
            text = status.message if status is not None else ""
        else:
            text = body.decode(errors="replace")
        if 300 <= status_code < 400:
            text = f"redirected to {response.headers.get('Location', '')}; set the endpoint to where it really is"
        if text:
            reason = f"{reason}: {self._target.shown(text)}"
        if status_code == requests.codes.not_found:
            reason = f"{reason}; {not_taken(self._target.signal)}"
        retryable = status_code in RETRYABLE_HTTP
        delay_s = retry_after_s(response.headers.get("Retry-After")) if retryable else None
        return Refused(reason, retryable, delay_s, str(status_code))


def _unpacked(answer: bytes) -> bytes:
    """Unpack an answer that was packed although nobody asked for it; no more of it than is read of any other."""
    try:
        return zlib.decompressobj(_GZIP_FORMAT).decompress(answer, MAX_RESPONSE_BYTES)
    except zlib.error:
        return b""


def _cause(error: Exception) -> str:
    """Name what went wrong below the wrappers that requests and urllib3 put around it."""
    found = _CAUSES.search(str(error))
    if found is not None and found.lastindex is not None:
        return found[found.lastindex]
    return f"{type(error).__name__}: {error}"
