"""One small sweep with everything in it: three subjects, two workloads, errors, cancels, and its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad_perf.metrics import Promise, Slos
from naiad_perf.report import Written, write_report
from naiad_perf.results import PointSummary, read_results, summarise
from tests.harness.synthetic_sweep import Engine, Load, write_sweep

ENGINES = (
    Engine("engine", price_usd=0.5),
    Engine("bls", step_ms=12, price_usd=1.0),
    Engine("<img src=x>", step_ms=14, error_share=0.2, cancel_share=0.1, price_usd=None),
)
LOADS = tuple(
    Load(concurrency=streams, requests=12, warm_up=2, output_tokens=tokens)
    for tokens in (6, 12)
    for streams in (1, 4)
)
SCENARIO = (
    "name: small\nsummary: for tests </script>\nslos: {ttft_ms: 50, latency_ms: 400}\nerror_budget: 0.01\n"
)
PROMISE = Promise(Slos(ttft_ms=50, latency_ms=400), 0.01)


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the sweep."""
    folder = tmp_path_factory.mktemp("sweep")
    write_sweep(folder, ENGINES, LOADS, 3, scenario=SCENARIO)
    return folder


@pytest.fixture(scope="session")
def summaries(sweep: Path) -> tuple[PointSummary, ...]:
    """Points of the sweep."""
    return summarise(read_results(sweep, PROMISE.slos))


@pytest.fixture(scope="session")
def written(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The sweep's report."""
    return write_report(sweep, tmp_path_factory.mktemp("report"), PROMISE)
