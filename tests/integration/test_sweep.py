"""Sweeps with the real load generator on real servers: what is counted, and what they survive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from naiad_perf.errors import PerfError
from naiad_perf.records import Outcome, read_run
from naiad_perf.servers.bench_server import GivenServer
from naiad_perf.workload.scenario import ExistingServer
from tests.harness.repository import ROOT
from tests.harness.server import LiveServer, wait_until

OWN_SERVER = """\
name: survival
subjects:
  - {name: engine, model: tensorrt_llm, profile: synthetic}
  - {name: bls, profile: synthetic}
load: {request_rate: 5}
lengths: {input: 8, output: 4}
requests: 12
warm_up: 2
repeats: 1
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `naiad bench sweep`; whatever it left running ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(scenario: Path, out: Path, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "naiad", "bench", "sweep", str(scenario), "--out", str(out)]
        command += words or ("--no-report",)
        with (out.parent / "output.txt").open("ab") as output:
            process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()  # its guard ends the server
        process.wait()


def tritonserver_of(sweep: subprocess.Popen[bytes]) -> psutil.Process:
    (found,) = [
        process
        for process in psutil.Process(sweep.pid).children(recursive=True)
        if process.name() == "tritonserver"
    ]
    return found


def test_a_sweep_survives_a_dead_server_and_an_interrupt_and_goes_on(tmp_path: Path, start: Start):
    scenario, out = tmp_path / "survival.yaml", tmp_path / "out"
    scenario.write_text(OWN_SERVER, encoding="utf-8")
    first, second = (out / f"r5-i8-o4__{name}__000.parquet" for name in ("engine", "bls"))
    said = tmp_path / "output.txt"

    sweep = start(scenario, out)
    logs = [out / "drivers" / path.stem / "1" / "perf_analyzer.log" for path in (first, second)]
    wait_until(logs[0].exists, 90, "the first run started")
    os.kill(tritonserver_of(sweep).pid, signal.SIGKILL)
    wait_until(first.exists, 90, f"the run was made anew: {said.read_text()}")
    wait_until(
        (out / "drivers" / second.stem / "1" / "perf_analyzer.log").exists, 30, "the second run started"
    )
    family = psutil.Process(sweep.pid).children(recursive=True)
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(timeout=60) == 130
    assert "went away during the run; trying again" in said.read_text()
    assert f"finished runs are kept in {out}: 1" in said.read_text()
    assert not second.exists()
    wait_until(lambda: not any(process.is_running() for process in family), 20, "nothing is left running")

    assert start(scenario, out).wait(timeout=120) == 0
    assert "1 of 2 runs are finished already" in said.read_text()
    runs = [read_run(path) for path in (first, second)]
    assert [run.facts.attempts for run in runs] == [2, 2]
    assert [run.facts.model for run in runs] == ["tensorrt_llm", "tensorrt_llm_bls"]
    for run in runs:
        assert [record.outcome for record in run.requests] == [Outcome.OK] * 14
        assert [record.output_tokens for record in run.requests] == [4] * 14
        assert [record.warm_up for record in run.requests] == [True] * 2 + [False] * 12
        # I14: the server counts what the client counts, and nothing else was asked of it meanwhile.
        assert (run.facts.server.requests, run.facts.server.failed) == (14, 0)
        assert run.facts.server.cpu_s
        assert 20e6 < (run.facts.server.memory_bytes or 0) < 20e9
        assert run.facts.server.engine_ns


def test_a_server_that_somebody_else_runs_is_measured_and_left_alone(
    tmp_path: Path, start: Start, synthetic: LiveServer
):
    config = synthetic.config
    addresses = (
        f"grpc: '{synthetic.grpc}', http: '127.0.0.1:{config.http_port}', "
        f"metrics: '127.0.0.1:{config.metrics_port}'"
    )
    (tmp_path / "given.yaml").write_text(
        f"name: given\nsubjects: [{{name: there, server: {{{addresses}}}}}]\n"
        "load: {concurrency: 2}\nlengths: {input: 40, output: 6}\nrequests: 8\nrepeats: 1\n",
        encoding="utf-8",
    )
    assert start(tmp_path / "given.yaml", tmp_path / "out", "--report").wait(timeout=110) == 0
    assert "c2-i40-o6" in (tmp_path / "out" / "report" / "report.html").read_text(encoding="utf-8")
    run = read_run(tmp_path / "out" / "c2-i40-o6__there__000.parquet")
    assert [record.outcome for record in run.requests] == [Outcome.OK] * 10
    assert run.facts.profile is None
    assert run.facts.server.kv_tokens_max
    assert (run.facts.server.cpu_s, run.facts.server.memory_bytes) == (None, None)
    assert synthetic.ready


@pytest.mark.parametrize("model", ["tensorrt_llm", "tensorrt_llm_bls", "ensemble"])
def test_a_servers_models_are_known_by_their_inputs(synthetic: LiveServer, model: str):
    server = GivenServer(ExistingServer(grpc=synthetic.grpc, http="127.0.0.1:1"))
    facts = server.wait_healthy(model, print)
    server.stop(politely=True)
    assert (facts.takes_ids, facts.ensemble) == (model == "tensorrt_llm", model == "ensemble")


@pytest.mark.parametrize("model", ["nonsense", "preprocessing"])
def test_a_model_that_cannot_be_measured_is_refused_at_once(synthetic: LiveServer, model: str):
    server = GivenServer(ExistingServer(grpc=synthetic.grpc, http="127.0.0.1:1"))
    with pytest.raises(PerfError, match=f"{model} on the server at {synthetic.grpc} cannot be measured"):
        server.wait_healthy(model, print)
    server.stop(politely=True)


def test_a_profile_that_does_not_start_ends_the_sweep_with_what_the_server_said(tmp_path: Path, start: Start):
    (tmp_path / "no.yaml").write_text(OWN_SERVER.replace("synthetic", "nonsense"), encoding="utf-8")
    assert start(tmp_path / "no.yaml", tmp_path / "out").wait(timeout=60) == 1
    said = (tmp_path / "output.txt").read_text()
    assert "the server for profile nonsense does not start" in said
    assert "Traceback" not in said
