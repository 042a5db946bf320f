"""Is a request to a model recognised by its path?"""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as conventions

from otel_gpu.receivers.inference.gen_ai import PROVIDER, operation_of


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/chat/completions", "chat"),
        ("/api/v1/chat/completions/", "chat"),
        ("/openai/deployments/gpt-4o/chat/completions", "chat"),
        ("/v1/completions", "text_completion"),
        ("/openai/deployments/x/completions", "text_completion"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/responses", "chat"),
        ("/v1/models", ""),
        ("/completions", ""),
        ("/survey/responses", ""),
        ("/v1/responses/resp_1", ""),
        ("/v1/chat/completions/x", ""),
        ("/v1/chat/completionsx", ""),
        ("", ""),
    ],
)
def test_an_operation_is_told_by_its_path(path: str, operation: str) -> None:
    assert operation_of("POST", path) == operation
    assert operation_of("GET", path) == ""


def test_names_are_the_conventions() -> None:
    values = {value.value for value in conventions.GenAiOperationNameValues}

    assert {"chat", "text_completion", "embeddings"} <= values
    assert PROVIDER in {value.value for value in conventions.GenAiProviderNameValues}
