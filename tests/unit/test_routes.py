"""Is a path shown safely, and do few routes stand for many paths?"""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.inference.routes import MAX_PATH, Routes, path_of, template_of
from otel_gpu.signals.telemetry import OTHER


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/", "/"),
        ("/v1/models?key=secret#x", "/v1/models"),
        ("/a#b?c", "/a"),
        ("/?", "/"),
        ("?secret", ""),
        ("http://host:1/a/b?c", "/a/b"),
        ("http://user:secret@host", "/"),
        ("https://host?secret", "/"),
        ("*", "*"),
        ("host:443", "host:443"),
        ("/a b\0\r\n\x1b[31m", "/a%20b%00%0D%0A%1B%5B31m"),
        ('/{id}"<>\\^`|', "/%7Bid%7D%22%3C%3E%5C%5E%60%7C"),
        ("/%2e%2E/%zz%", "/%2e%2E/%25zz%25"),
        ("/\xc3\xbc", "/%C3%BC"),
        ("/\u202e\ud800", "/%E2%80%AE%3F"),
        ("", ""),
    ],
)
def test_a_path_is_shown_without_its_query_and_escaped(target: str, path: str) -> None:
    assert path_of(target) == path


def test_a_long_path_is_cut_between_escapes() -> None:
    assert path_of("/" + "a" * 200) == "/" + "a" * (MAX_PATH - 1)
    assert path_of("/" + "a" * (MAX_PATH - 2) + "%20") == "/" + "a" * (MAX_PATH - 2)
    assert path_of("/" + "a" * (MAX_PATH - 4) + "%20b") == "/" + "a" * (MAX_PATH - 4) + "%20"


@pytest.mark.parametrize(
    ("target", "template"),
    [
        ("/", "/"),
        ("/v1/chat/completions?x=1", "/v1/chat/completions"),
        ("/v1/models/", "/v1/models/"),
        ("//a///b", "/a/b"),
        ("/items/42", "/items/{id}"),
        ("/items/-4.2/x", "/items/{id}/x"),
        ("/on/2026-11-22", "/on/{id}"),
        ("/at/1,2,3", "/at/{id}"),
        ("/%34%32", "/{id}"),
        (f"/u/{uuid.UUID(int=1 << 127)}", "/u/{id}"),
        (f"/u/{str(uuid.UUID(int=1 << 127)).upper()}.json", "/u/{id}.json"),
        ("/c/0123abcd", "/c/{id}"),
        ("/c/0xDEADBEE1", "/c/{id}"),
        ("/c/da39a3ee5e6b4b0d3255bfef95601890afd80709", "/c/{id}"),
        ("/c/abcdefab", "/c/abcdefab"),
        ("/c/abc123", "/c/abc123"),
        ("/c/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/c/{id}"),
        ("/t/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dQw4w9WgXcQ", "/t/{id}"),
        ("/t/dQw4w9WgXcQaB3xZ0Lm1", "/t/{id}"),
        ("/t/k3j9x0q2m4n7p1z5", "/t/{id}"),
        ("/v1/responses/resp_68a1b2c3d4e5f60718293a4b", "/v1/responses/resp_{id}"),
        ("/v1/batches/batch-12345/cancel", "/v1/batches/batch-{id}/cancel"),
        ("/img/12345.png", "/img/{id}.png"),
        ("/who/me@example.com", "/who/{id}"),
        ("/search/hello%20world", "/search/{id}"),
        ("/search/\xc3\xbc", "/search/{id}"),
        ("/a;jsessionid=0123456789abcdef/b", "/a/b"),
        ("/x/" + "word" * 17, "/x/{id}"),
        ("/v1/models/llama-3.1-8b-instruct", "/v1/models/llama-3.1-8b-instruct"),
        ("/v2/ListDevicesV2Async", "/v2/ListDevicesV2Async"),
        ("/chat-completions-with-a-long-name", "/chat-completions-with-a-long-name"),
        ("/api/v1beta1/openapi.json", "/api/v1beta1/openapi.json"),
        ("/package.Service/GetNumberOfThings", "/package.Service/GetNumberOfThings"),
        ("/{id}", "/%7Bid%7D"),
        ("http://host/items/1", "/items/{id}"),
        ("*", "*"),
        ("host:443", ""),
        ("", ""),
    ],
)
def test_what_is_made_up_or_counted_is_left_out_of_a_route(target: str, template: str) -> None:
    assert template_of(target) == template


@pytest.mark.parametrize(
    ("target", "template"),
    [
        ("/items/4", "/items/*"),
        ("/ite", "/*"),
        ("/", "/*"),
        ("/items/4?x", "/items/{id}"),
        ("/a/b/", "/a/b/*"),
        ("", ""),
    ],
)
def test_of_a_path_that_is_cut_the_last_part_is_not_known(target: str, template: str) -> None:
    assert template_of(target, is_cut=True) == template


def test_a_long_route_ends_with_a_star() -> None:
    assert template_of("/part" * 100) == "/part" * 25 + "/*"
    assert template_of("/part" * 25) == "/part" * 25
    assert len(template_of("/a" * 10_000)) <= MAX_PATH


@given(st.text(max_size=300), st.booleans())
def test_whatever_was_asked_for_is_shown_safely_within_bounds(target: str, is_cut: bool) -> None:
    for text in ("/" + target, target):
        path, template = path_of(text), template_of(text, is_cut=is_cut)

        assert len(path) <= MAX_PATH
        assert len(template) <= MAX_PATH
        assert (path + template).isascii()
        assert (path + template).isprintable()
        assert "?" not in path + template
        assert "#" not in path + template
        assert " " not in path + template


@given(st.uuids() | st.integers(0) | st.binary(min_size=4, max_size=30).map(lambda b: b.hex() + "0"))
def test_no_id_makes_a_route_of_its_own(made: object) -> None:
    assert template_of(f"/items/{made}/x") == "/items/{id}/x"


def test_a_process_has_as_many_routes_as_fit_and_the_rest_are_other() -> None:
    routes = Routes(max_routes=2, max_refused=1)

    assert [routes.admit(1, route, 200) for route in ("/a", "/b", "/c", "/a", "")] == ["/a", "/b", OTHER, "/a", ""]
    assert routes.admit(2, "/c", 500) == "/c"


def test_what_is_not_found_takes_no_room_from_routes_that_are() -> None:
    routes = Routes(max_routes=2, max_refused=2)

    assert [routes.admit(1, f"/{n}", 404) for n in "abcd"] == ["/a", "/b", OTHER, OTHER]
    assert routes.admit(1, "/c", 200) == "/c"
    assert routes.admit(1, "/c", 404) == "/c"
    assert routes.admit(1, "/d", None) == OTHER
    assert routes.admit(1, "/a", 200) == "/a"
    assert [routes.admit(1, f"/{n}", 404) for n in "xy"] == ["/x", OTHER]


def test_routes_go_with_their_process() -> None:
    routes = Routes(max_routes=1)
    routes.admit(1, "/a", 200)
    routes.forget(1)

    assert routes.admit(1, "/b", 200) == "/b"
    routes.forget(2)
