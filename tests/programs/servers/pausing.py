"""Requests that stop half way, until the test lets them go on."""

from __future__ import annotations

import asyncio
import signal

import gpu


async def pauses(request: int, times: int) -> None:
    """Launch, and again once SIGUSR1 has come; then wait for the device."""
    gpu.launch(request, times=times)
    await _signal(signal.SIGUSR1, "pauses")
    gpu.launch(request, times=times)
    gpu.wait()


async def lingers() -> None:
    """Go on until SIGUSR2."""
    await _signal(signal.SIGUSR2, "lingers")


async def _signal(number: signal.Signals, state: str) -> None:
    """Say where this stands, and wait for a signal."""
    came = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(number, came.set)
    gpu.say(event=state)
    await came.wait()
