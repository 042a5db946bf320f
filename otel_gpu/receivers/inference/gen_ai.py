"""Recognises requests to a language model by their paths, as OpenAI has them."""

from __future__ import annotations

import re
from functools import lru_cache

PROVIDER = "openai"
"""Whose interface it is, as `gen_ai.provider.name` has it; who serves it is the resource."""
_MAX_PATHS = 1024
"""That are remembered, since most come again."""

_PATHS = (
    (re.compile(r"/chat/completions/?\Z"), "chat"),
    (re.compile(r"/(?:v[0-9]+|deployments/[^/]+|engines/[^/]+)/completions/?\Z"), "text_completion"),
    (re.compile(r"/(?:v[0-9]+|deployments/[^/]+|engines/[^/]+)/embeddings/?\Z"), "embeddings"),
    (re.compile(r"/(?:v[0-9]+|openai)/responses/?\Z"), "chat"),
)


def operation_of(method: str, path: str) -> str:
    """Return the `gen_ai.operation.name` of a request, or "" where it is none to a model."""
    return _operation(path) if method == "POST" else ""


@lru_cache(_MAX_PATHS)
def _operation(path: str) -> str:
    return next((operation for pattern, operation in _PATHS if pattern.search(path)), "")
