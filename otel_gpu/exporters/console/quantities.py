"""How are numbers shown to a person? With units, scaled to be read."""

from __future__ import annotations

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def quantity(value: float, unit: str) -> str:
    """Write a number with its UCUM unit, scaled to be read; annotations such as {call} are left out."""
    if unit == "By":
        return _bytes(value)
    if unit == "s":
        return _seconds(value)
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return number if unit in ("", "1") or unit.startswith("{") else f"{number} {unit}"


def _bytes(value: float) -> str:
    for unit in _BYTES:
        if abs(value) < 1024 or unit == _BYTES[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _seconds(value: float) -> str:
    for scale, unit in _SECONDS:
        if abs(value) >= scale:
            return f"{value / scale:,.3g} {unit}" if value < 1000 else f"{value:,.0f} s"
    return "0 s"
