"""A server of gRPC for Python, whose calls do GPU work: `/work.Work/Do`, `/work.Work/Stream`; the request is `ID/TIMES`."""

from __future__ import annotations

import time
from concurrent import futures

import gpu
import grpc


def _do(request: bytes, context: grpc.ServicerContext) -> bytes:
    number, times = map(int, request.split(b"/"))
    if times == 0:
        context.abort(grpc.StatusCode.NOT_FOUND, "nothing is asked for")
    gpu.launch(number, times=times)
    return b"done"


def _stream(request: bytes, context: grpc.ServicerContext):
    number, times = map(int, request.split(b"/"))
    for _ in range(times):
        gpu.launch(number)
        yield b"part"


class Work(grpc.GenericRpcHandler):
    """Finds who answers."""

    def service(self, handler_call_details: grpc.HandlerCallDetails):
        match handler_call_details.method:
            case "/work.Work/Do":
                return grpc.unary_unary_rpc_method_handler(_do)
            case "/work.Work/Stream":
                return grpc.unary_stream_rpc_method_handler(_stream)
        return None


def main() -> None:
    gpu.start()
    gpu.say_launches_at_end()
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((Work(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    gpu.say(event="ready", port=port)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
