"""Is a request one to a language model, and to which? Told by paths as OpenAI has them, and by what stands in the body.

Bodies are not looked into unless that is asked for; then the model's name is taken from their first kilobyte, and nothing
else is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache

from ...printable import escaped

PROVIDER = "openai"
"""Whose interface it is, as `gen_ai.provider.name` has it; who serves it is the resource."""
MAX_BODY = 1024
"""Bytes of a body that are looked at."""
MAX_MODEL = 128
"""Characters of a model's name."""
_MAX_DEPTH = 64
_MAX_PATHS = 1024
"""That are remembered, since most come again."""

_PATHS = (
    (re.compile(r"/chat/completions/?\Z"), "chat"),
    (re.compile(r"/(?:v[0-9]+|deployments/[^/]+|engines/[^/]+)/completions/?\Z"), "text_completion"),
    (re.compile(r"/(?:v[0-9]+|deployments/[^/]+|engines/[^/]+)/embeddings/?\Z"), "embeddings"),
    (re.compile(r"/(?:v[0-9]+|openai)/responses/?\Z"), "chat"),
)
_STRING = rb'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9A-Fa-f]{4})*"'
_TOKEN = re.compile(rb"[ \t\r\n]*(" + _STRING + rb"|[\[\]{},:]|-?[0-9][0-9.eE+\-]*|true|false|null)")


def operation_of(method: str, path: str) -> str:
    """Return the `gen_ai.operation.name` of a request, or "" where it is none to a model."""
    return _operation(path) if method == "POST" else ""


@lru_cache(_MAX_PATHS)
def _operation(path: str) -> str:
    return next((operation for pattern, operation in _PATHS if pattern.search(path)), "")


def model_of(body: bytes) -> str:
    """Return the model that a JSON object asks for, printable and bounded, or "" where its beginning does not tell."""
    tokens = _tokens(body)
    if next(tokens, b"") != b"{":
        return ""
    depth, is_key = 1, True
    for token in tokens:
        if token in b"[{":
            depth += 1
        elif token in b"]}":
            depth -= 1
        elif depth == 1 and token == b",":
            is_key = True
        elif depth == 1 and is_key:
            is_key = False
            if _text(token) == "model":
                return _name(next(tokens, b""), next(tokens, b""))
        if not 0 < depth <= _MAX_DEPTH:
            break
    return ""


def _tokens(body: bytes) -> Iterator[bytes]:
    """Yield the tokens that stand whole in the beginning."""
    at, end = 0, min(len(body), MAX_BODY)
    while (match := _TOKEN.match(body, at, end)) is not None:
        yield match[1]
        at = match.end()


def _name(colon: bytes, value: bytes) -> str:
    return escaped(_text(value), MAX_MODEL) if colon == b":" else ""


def _text(token: bytes) -> str:
    """Return a string's text, or "" where it is none."""
    if not token.startswith(b'"'):
        return ""
    try:
        return str(json.loads(token))
    except ValueError:  # bytes that are no UTF-8
        return ""
