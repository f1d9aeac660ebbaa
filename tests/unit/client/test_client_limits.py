"""Limits and retries as data."""

from __future__ import annotations

from typing import Any

import pytest

from naiad_client import Client, InvalidArgument, Retries, Timeouts


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "5"])
@pytest.mark.parametrize("name", ["connect_s", "first_token_s", "between_tokens_s", "total_s"])
def test_a_limit_is_a_positive_number(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=name):
        Timeouts(**{name: value})


def test_only_connecting_always_has_a_limit() -> None:
    Timeouts(first_token_s=None, between_tokens_s=None, total_s=None)
    with pytest.raises(InvalidArgument, match="connect_s"):
        Timeouts(connect_s=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"backoff_s": -1}, {"multiplier": 0.5}, {"jitter": 1.5}])
def test_retries_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Retries(**wrong)


def test_pauses_grow_to_their_most_and_jitter_only_shortens() -> None:
    retries = Retries(backoff_s=0.5, multiplier=2, max_backoff_s=3, jitter=0.5)
    assert [retries.pause_s(attempt, 0.0) for attempt in (1, 2, 3, 4, 5)] == [0.5, 1, 2, 3, 3]
    assert retries.pause_s(1, 1.0) == 0.25


@pytest.mark.parametrize("url", ["http://h:8001", "localhost", ":8001", "h:grpc", ""])
def test_an_address_that_is_not_host_and_port_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidArgument, match="host:port"):
        Client(url)
