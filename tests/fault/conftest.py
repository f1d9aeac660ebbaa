"""Fault tests break their servers, so each starts its own."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "fault" in item.path.parts:
            item.add_marker(pytest.mark.integration)
