"""Waiting for what another thread does, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["poll"]


def poll(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Look every millisecond until `condition` holds; an AssertionError after `within_s`."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"it never held within {within_s:g} s"
        time.sleep(0.001)
