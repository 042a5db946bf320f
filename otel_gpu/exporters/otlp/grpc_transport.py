"""How is one OTLP request sent over gRPC? As bytes that are already serialized, through a plain unary call."""

from __future__ import annotations

import os
import time
from typing import Any

from ...errors import ConfigError
from ...runtime.quiet_grpc import grpc
from ..delivery.retry import RETRYABLE_GRPC
from ..delivery.sender import Accepted, Refused, no_answer
from ..wire.identity import USER_AGENT
from .endpoint import METHODS, Target
from .grpc_relay import Relay
from .responses import MAX_RESPONSE_BYTES, accepted, not_taken
from .rpc_status import read_status
from .settings import OtlpSettings
from .tls import authorities, check_readable, client_certificate, shown_certificate, stamp

_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.primary_user_agent", USER_AGENT),
    ("grpc.enable_retries", 0),  # the sender retries, and counts it
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    # gRPC's own back-off goes to two minutes, in which it would fail our attempts without making any.
    ("grpc.max_reconnect_backoff_ms", 5_000),
)
_GRACE_S = 0.25
"""How late the library may be with what it promises."""
_STATUS_DETAILS = "grpc-status-details-bin"
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""Variables that gRPC follows by itself, and only on connections of its own."""


class GrpcTransport:
    """A channel to one target, opened at the first attempt; it reconnects by itself."""

    def __init__(self, target: Target, settings: OtlpSettings) -> None:
        self._target = target
        check_readable(settings)
        self._settings = settings
        self._stamp = stamp(settings)
        """Of the certificates that the channel has."""
        self._trust_any = target.tls and settings.insecure_skip_verify
        self._metadata = tuple((k, v.encode() if k.endswith("-bin") else v) for k, v in target.headers)
        self._compression = grpc.Compression.Gzip if settings.compression == "gzip" else grpc.Compression.NoCompression
        self._relay: Relay | None = None
        self._relay_timeout_s = settings.timeout_s
        self._channel: grpc.Channel | None = None
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] | None = None

    def send(self, body: bytes, timeout_s: float) -> Accepted | Refused:
        deadline = time.monotonic() + timeout_s
        now = stamp(self._settings)
        if now != self._stamp and None not in now:
            self.close()
        try:
            call = self._call or self._open(timeout_s)
            if self._relay is not None:
                self._relay.begin()
            left_s = max(deadline - time.monotonic(), 0.001)
            pending = call.future(body, timeout=left_s, metadata=self._metadata, compression=self._compression)
            # Its own deadline may be late: while it writes to a receiver that does not read, for ever.
            answer = pending.result(left_s + _GRACE_S)
        except (grpc.FutureTimeoutError, grpc.FutureCancelledError):
            self._disconnect()
            return no_answer(timeout_s)
        except grpc.RpcError as error:
            refused = self._refused(error)
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED or self._trust_any:
                self._disconnect()  # also as the server may have a new certificate by now
            elif error.code() is grpc.StatusCode.UNAVAILABLE and self._stamp:
                self.close()  # a channel keeps certificates that may have been half-written, or exchanged as they were read
            return refused
        except ConfigError as error:
            return Refused(str(error), retryable=True, error_type=type(error).__qualname__)
        except OSError as error:
            if time.monotonic() >= deadline:
                return no_answer(timeout_s)
            return Refused(
                f"TLS to {self._target.address}: {self._target.shown(str(error))}",
                retryable=True,
                error_type=type(error).__qualname__,
            )
        return accepted(answer, self._target.shown)

    def close(self) -> None:
        channel, relay = self._channel, self._relay
        self._channel = self._call = self._relay = None
        if relay is not None:
            relay.close()
        if channel is not None:
            channel.close()

    def _disconnect(self) -> None:
        """End the connection, and with it whatever the receiver keeps waiting."""
        if self._relay is not None and not self._trust_any:
            self._relay.cut()
        else:
            self.close()

    def _open(self, timeout_s: float) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        address = self._target.address
        host, _, port = address.rpartition(":")
        options = list(_OPTIONS)
        name = None
        self._stamp = stamp(self._settings)
        roots, client = authorities(self._settings), client_certificate(self._settings)
        if self._trust_any:
            roots, name = shown_certificate(address, timeout_s)
        if not address.startswith("unix:") and not any(map(os.environ.get, _PROXIES)):
            self._relay = Relay(host.strip("[]"), int(port), self._relay_timeout_s)
            options.append(("grpc.default_authority", address))
            address, name = self._relay.address, name or host.strip("[]")
        if self._target.tls:
            if name is not None:
                options.append(("grpc.ssl_target_name_override", name))
            credentials = grpc.ssl_channel_credentials(roots, *client)
            self._channel = grpc.secure_channel(address, credentials, options)
        else:
            self._channel = grpc.insecure_channel(address, options)
        self._call = self._channel.unary_unary(METHODS[self._target.signal])
        return self._call

    def _refused(self, error: Any) -> Refused:
        code = error.code().name
        why = self._relay.failure if self._relay is not None else None
        reason = f"gRPC {code}: {self._target.shown(why or error.details() or 'no details')}"
        if code == "UNIMPLEMENTED":
            reason = f"{reason}; {not_taken(self._target.signal)}"
        details = dict(error.trailing_metadata() or ()).get(_STATUS_DETAILS)
        status = read_status(details) if isinstance(details, bytes) else None
        delay_s = status.retry_delay_s if status is not None else None
        retryable = code in RETRYABLE_GRPC or (code == "RESOURCE_EXHAUSTED" and delay_s is not None)
        return Refused(reason, retryable, delay_s, code)
