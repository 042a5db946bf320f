"""Receivers of OTLP that note what they get, and answer as they are told to."""

from __future__ import annotations

import gzip
import http.server
import ssl
import sys
import threading
from concurrent import futures
from dataclasses import dataclass, field

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2, profiles_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass
class Sink:
    """What a receiver got, and what it is to answer."""

    url: str = ""
    requests: list[metrics_service_pb2.ExportMetricsServiceRequest] = field(default_factory=list)
    traces: list[trace_service_pb2.ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    """Of requests over HTTP."""
    answers: list[object] = field(default_factory=list)
    """Each is taken once; when none is left, success."""

    def points(self) -> list[int]:
        return sorted(
            p.as_int
            for r in self.requests
            for rm in r.resource_metrics
            for sm in rm.scope_metrics
            for m in sm.metrics
            for p in m.sum.data_points
        )


RESPONSES = {
    metrics_service_pb2.ExportMetricsServiceRequest: metrics_service_pb2.ExportMetricsServiceResponse,
    trace_service_pb2.ExportTraceServiceRequest: trace_service_pb2.ExportTraceServiceResponse,
    profiles_service_pb2.ExportProfilesServiceRequest: profiles_service_pb2.ExportProfilesServiceResponse,
}


class GrpcSink(
    metrics_service_pb2_grpc.MetricsServiceServicer,
    trace_service_pb2_grpc.TraceServiceServicer,
    profiles_service_pb2_grpc.ProfilesServiceServicer,
):
    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def Export(self, request, context):  # noqa: N802 - the service's name
        self.sink.headers.append({k: v for k, v in context.invocation_metadata() if isinstance(v, str)})
        self.sink.paths.append(type(request).__name__)
        answer = self.sink.answers.pop(0) if self.sink.answers else None
        if isinstance(answer, tuple):
            code, details = answer
            if details is not None:
                context.set_trailing_metadata([("grpc-status-details-bin", details)])
            context.abort(code, "told to")
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            self.sink.requests.append(request)
        if isinstance(request, trace_service_pb2.ExportTraceServiceRequest):
            self.sink.traces.append(request)
        return answer or RESPONSES[type(request)]()


def serve_grpc(sink: Sink, credentials: grpc.ServerCredentials | None = None, port: int = 0) -> grpc.Server:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    servicer = GrpcSink(sink)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(servicer, server)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(servicer, server)
    profiles_service_pb2_grpc.add_ProfilesServiceServicer_to_server(servicer, server)
    if credentials is None:
        sink.url = f"http://127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    else:
        sink.url = f"https://127.0.0.1:{server.add_secure_port(f'127.0.0.1:{port}', credentials)}"
    server.start()
    return server


class HttpSink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sink: Sink = self.server.sink  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        sink.headers.append({k.lower(): v for k, v in self.headers.items()})
        sink.paths.append(self.path)
        sink.bodies.append(body)
        is_json = self.headers["Content-Type"] == "application/json"
        status, headers, answer = sink.answers.pop(0) if sink.answers else (200, {}, b"")  # type: ignore[misc]
        if status == 200 and self.path.endswith("/metrics") and not is_json:
            sink.requests.append(metrics_service_pb2.ExportMetricsServiceRequest.FromString(body))
        if status == 200 and self.path.endswith("/traces") and not is_json:
            sink.traces.append(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
        self.send_response(status)
        for name, value in {"Content-Type": "application/x-protobuf", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None: ...


class HttpServer(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that hangs up is no failure here
            super().handle_error(request, client_address)


def serve_http(sink: Sink, context: ssl.SSLContext | None = None, port: int = 0) -> HttpServer:
    server = HttpServer(("127.0.0.1", port), HttpSink)
    server.sink = sink  # type: ignore[attr-defined]
    scheme = "http"
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    sink.url = f"{scheme}://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server
