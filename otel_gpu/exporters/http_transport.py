"""How is one OTLP request sent over HTTP? A POST of protobuf, compressed once however often it is tried."""

from __future__ import annotations

import gzip
import re

import requests
import urllib3

from .endpoint import Target
from .identity import USER_AGENT
from .responses import MAX_RESPONSE_BYTES, accepted
from .retry import RETRYABLE_HTTP, retry_after_s
from .rpc_status import read_status
from .sender import Accepted, Refused
from .settings import OtlpSettings
from .tls import check_readable

_GZIP_LEVEL = 1
"""Level 6 takes three times as long to save a tenth: requests repeat the same keys over and over."""
_PROTOBUF = "application/x-protobuf"
_CAUSES = re.compile(
    r"\[Errno -?\d+\] ([^'\")\]]+)|(certificate verify failed[^'\")(]*)|Error\(\d+, '([^']+)'|Disconnected\('([^']+)'"
)


class HttpTransport:
    """A session with one URL, its connection kept open between attempts."""

    def __init__(self, target: Target, settings: OtlpSettings) -> None:
        check_readable(settings)
        self._target = target
        self._session = requests.Session()
        # Proxies from the environment are wanted; ~/.netrc, which comes with them, would replace our headers.
        self._session.auth = lambda request: request
        self._session.headers.clear()
        self._session.headers.update({**dict(target.headers), "Content-Type": _PROTOBUF, "User-Agent": USER_AGENT})
        self._gzip = settings.compression == "gzip"
        if self._gzip:
            self._session.headers["Content-Encoding"] = "gzip"
        self._verify: bool | str = settings.ca_file or True
        if settings.insecure_skip_verify:
            self._verify = False
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        if settings.cert_file:
            self._session.cert = (settings.cert_file, settings.key_file) if settings.key_file else settings.cert_file
        self._plain: bytes | None = None
        self._packed = b""

    def send(self, body: bytes, timeout_s: float) -> Accepted | Refused:
        if self._gzip:
            if body is not self._plain:
                self._plain, self._packed = body, gzip.compress(body, _GZIP_LEVEL, mtime=0)
            body = self._packed
        try:
            # `verify` is given here because REQUESTS_CA_BUNDLE would override the session's.
            with self._session.post(
                self._target.address, body, timeout=timeout_s, verify=self._verify, allow_redirects=False, stream=True
            ) as response:
                answer = response.raw.read(MAX_RESPONSE_BYTES, decode_content=True)
        except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
            return Refused(self._target.shown(_cause(error, timeout_s)), retryable=True)
        except requests.exceptions.InvalidURL:
            # Its words quote what stands for the host: part of the password, where that holds a slash.
            return Refused(
                "the URL of the endpoint, or of the proxy in the environment, cannot be used", retryable=False
            )
        except (requests.RequestException, OSError) as error:
            return Refused(f"{type(error).__name__}: {self._target.shown(str(error))}", retryable=False)
        if response.status_code == requests.codes.ok:
            return accepted(answer, self._target.shown)
        return self._refused(response, answer)

    def close(self) -> None:
        self._session.close()

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
        retryable = status_code in RETRYABLE_HTTP
        return Refused(reason, retryable, retry_after_s(response.headers.get("Retry-After")) if retryable else None)


def _cause(error: Exception, timeout_s: float) -> str:
    """Name what went wrong below the wrappers that requests and urllib3 put around it."""
    if isinstance(error, requests.Timeout):
        return f"no answer within {timeout_s:.3g} s"
    found = _CAUSES.search(str(error))
    if found is not None and found.lastindex is not None:
        return found[found.lastindex]
    return f"{type(error).__name__}: {error}"
