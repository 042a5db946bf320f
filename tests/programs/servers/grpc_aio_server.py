"""A server of gRPC on asyncio, whose calls do GPU work: `/work.Work/Do`, `Stream`, `Gather`, `Chat`; a request is `ID/TIMES`.

Calls wait between their launches, so that those of several are mixed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import gpu
import grpc
import grpc.aio

PAUSE_S = 0.0005


async def _launch(number: int, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(PAUSE_S)
        gpu.launch(number)


async def _do(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    number, times = map(int, request.split(b"/"))
    if times == 0:
        await context.abort(grpc.StatusCode.NOT_FOUND, "nothing is asked for")
    await _launch(number, times)
    return b"done"


async def _gather(request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
    number, times = map(int, request.split(b"/"))
    await asyncio.gather(*(_launch(number, 1) for _ in range(times)))
    return b"done"


async def _stream(request: bytes, _context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
    number, times = map(int, request.split(b"/"))
    for _ in range(times):
        await _launch(number, 1)
        yield b"part"


async def _chat(requests: AsyncIterator[bytes], _context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
    async for request in requests:
        await _launch(int(request), 1)
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


async def main() -> None:
    gpu.start()
    gpu.say_launches_at_end()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Work(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    gpu.say(event="ready", port=port)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
