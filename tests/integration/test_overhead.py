"""`naiad bench overhead` on a real server: all stages, all processes, and a way that adds up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from naiad_perf.overhead.stations import STATIONS
from naiad_perf.records import read_run
from tests.harness.repository import ROOT

pytestmark = pytest.mark.integration


def test_every_stage_is_measured_and_the_stations_add_up(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "naiad", "bench", "overhead", "--profile", "synthetic", "--streams", "1,4",
        "--rounds", "1", "--tokens", "16", "--out", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {(row["stage"], row["streams"]): row for row in found["stages"]}
    assert set(rows) == {(stage, load) for stage in ("tensorrt_llm", "tensorrt_llm_bls") for load in (1, 4)}
    assert all(row["tokens_per_s"] > 0 and row["ttft_ms_p50"] > 0 for row in rows.values())
    assert all(row["tokens_per_response"] == 1 for row in rows.values())
    for row in found["processor_ms_per_token"]:
        assert {"client", "tritonserver", "text model", "engine model"} <= set(row)
    for row in found["stations_ms"]:
        assert all(row[name] >= 0 for name in STATIONS)
        assert row["requests"] == 8
    for record in (tmp_path / "out").glob("*.parquet"):
        run = read_run(record)
        assert all(request.output_tokens == 16 for request in run.requests)


def test_a_wrong_load_is_refused_by_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "naiad", "bench", "overhead", "--streams", "1,many"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "many" in done.stderr
