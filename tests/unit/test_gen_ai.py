"""Is a request to a model recognised by its path, and the model by the beginning of a body alone?"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as conventions

from otel_gpu.receivers.inference.gen_ai import MAX_BODY, MAX_MODEL, PROVIDER, model_of, operation_of


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


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model": "tiny-llama", "messages": []}', "tiny-llama"),
        (b' \r\n\t{ "stream" : true , "n":-1.5e3,"stop":null,\n"model"\n:\n"a/b" }', "a/b"),
        (b'{"messages":[{"role":"user","content":"\\"model\\":\\"x\\"","model":"inner"}],"model":"outer"}', "outer"),
        (b'{"a":{"model":"inner"},"b":[["model","x"]]}', ""),
        (b'{"a":"model","b":"c"}', ""),
        (b'{"\\u006dodel":"t\\u00e9"}', "té"),
        (b'{"model":"a\\n\\u202e\\u0000"}', "a\\n\\u202e\\x00"),
        (b'{"model":"a","model":"b"}', "a"),
        (b'{"model":5}', ""),
        (b'{"model":{"name":"x"}}', ""),
        (b'{"model"}', ""),
        (b'{"model":', ""),
        (b'{"model":"not whole', ""),
        (b'{"model":"\xff"}', ""),
        (b'{"model":"\\x"}', ""),
        (b'{"\xff":1,"model":"x"}', "x"),
        (b'["model","x"]', ""),
        (b'"model"', ""),
        (b"", ""),
        (b"{", ""),
        (b"{}", ""),
        (b"}", ""),
        (b'{}{"model":"x"}', ""),
        (b"\xef\xbb\xbf{}", ""),
        (b"model=x&y", ""),
        (b"{" * 500, ""),
        (b'{"a":' + b"[" * 400 + b'"model"', ""),
        (b'{"prompt":"' + b"x" * MAX_BODY + b'","model":"x"}', ""),
    ],
)
def test_a_model_is_named_by_the_outermost_object(body: bytes, model: str) -> None:
    assert model_of(body) == model


def test_a_long_name_is_cut() -> None:
    assert len(model_of(json.dumps({"model": "m" * 900}).encode())) == MAX_MODEL


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), _json, max_size=4), st.from_regex(r"[a-z/.-]{1,20}", fullmatch=True))
def test_whatever_else_stands_there(others: dict[str, object], model: str) -> None:
    others.pop("model", None)
    for body in (json.dumps({**others, "model": model}), json.dumps({**others, "model": model}, ensure_ascii=False)):
        found = model_of(body.encode(errors="replace"))
        assert found == (model if len(body.encode(errors="replace")) <= MAX_BODY else found)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_bounded_name(body: bytes) -> None:
    for begin in (b"", b"{", b'{"model":', b'{"model":"'):
        model = model_of(begin + body)
        assert len(model) <= MAX_MODEL
        assert model.isprintable()
