"""A server of gRPC for Python, whose calls do GPU work: `/work.Work/Do`, `Stream`, `Gather`, `Chat`; a request is `ID/TIMES`.

`Gather` works in an executor of its own, `Chat` takes a number at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent import futures

import gpu
import grpc

_pool = futures.ThreadPoolExecutor(4)


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


def _gather(request: bytes, _context: grpc.ServicerContext) -> bytes:
    number, times = map(int, request.split(b"/"))
    futures.wait([_pool.submit(gpu.launch, number) for _ in range(times)])
    return b"done"


def _chat(requests: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
    for request in requests:
        gpu.launch(int(request))
        yield b"part"


class Work(grpc.GenericRpcHandler):
    """Finds who answers."""

    def service(self, handler_call_details: grpc.HandlerCallDetails):
        match handler_call_details.method:
            case "/work.Work/Do":
                return grpc.unary_unary_rpc_method_handler(_do)
            case "/work.Work/Gather":
                return grpc.unary_unary_rpc_method_handler(_gather)
            case "/work.Work/Stream":
                return grpc.unary_stream_rpc_method_handler(_stream)
            case "/work.Work/Chat":
                return grpc.stream_stream_rpc_method_handler(_chat)
        return None


def main() -> None:
    gpu.start()
    gpu.say_launches_at_end()
    server = grpc.server(futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((Work(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    gpu.say(event="ready", port=port)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
