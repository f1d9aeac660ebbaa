"""Servers shared by the integration tests of a session; tests that break one start their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.repository import ROOT, write_repository
from tests.harness.server import LiveServer, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration" in item.path.parts:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Echoes the prompt's tokens, 5 ms a token."""
    folder = tmp_path_factory.mktemp("synthetic")
    repository = write_repository(folder / "models", tensorrt_llm={"synthetic_step_ms": 5})
    with serving(repository, folder / "artifacts") as server:
        yield server


@pytest.fixture(scope="session")
def unary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The non-decoupled profile, echoing."""
    folder = tmp_path_factory.mktemp("unary")
    repository = write_repository(folder / "models", decoupled=False)
    with serving(repository, folder / "artifacts") as server:
        yield server


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The committed repository as it is: the real model on the CPU engine."""
    folder: Path = tmp_path_factory.mktemp("real")
    with serving(ROOT / "model_repository", folder / "artifacts") as server:
        yield server
