"""How does a program tell observers who it is and which span is current? In one line, once it has its TracerProvider.

from otel_gpu import context

context.publish()
"""

from .publishing import Published, publish

__all__ = ["Published", "publish"]
