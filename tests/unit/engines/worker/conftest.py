"""An engine over a worker process without a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.engines.openvino_settings import OpenVinoSettings
from tests.harness.worker_bench import WorkerBench, with_synthetic_worker


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OpenVinoSettings:
    return with_synthetic_worker(monkeypatch, tmp_path)


@pytest.fixture
def bench(settings: OpenVinoSettings) -> Iterator[WorkerBench]:
    made = WorkerBench(settings)
    yield made
    made.loop.close()
