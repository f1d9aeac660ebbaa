"""The ends of an engine in a process of its own: deaths, failed steps, failed loads, cancels and closing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from naiad.contract.errors import DeadlineExceeded, EngineUnavailable
from naiad.contract.generation import FinishReason
from naiad.engines import worker
from naiad.engines.openvino_settings import OpenVinoSettings
from naiad.engines.worker import WorkerStepper
from tests.harness.polling import poll
from tests.harness.recording_sink import RecordingSink
from tests.harness.synthetic_worker import BREAKS_STEP, DIES_AT_START, HANGS
from tests.harness.worker_bench import LIMITS, WorkerBench, child_processes, request

ROOT = Path(__file__).parents[4]
LENGTH, CANCELLED = FinishReason.LENGTH, FinishReason.CANCELLED


def gone(pid: int) -> bool:
    """Whether a process has ended; whoever adopted it may not have claimed it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_workers_death_fails_what_was_live_and_another_takes_over(bench: WorkerBench) -> None:
    for _ in range(2):
        live = [bench.running("a"), bench.running("b")]
        dead = bench.process.pid
        os.kill(dead, signal.SIGKILL)
        for sink in live:
            error = sink.failure()
            assert type(error) is EngineUnavailable
            assert error.retryable
            assert error.partial, "some of its tokens were delivered"
        poll(lambda: bench.loop.stats().generation == bench.loop.stats().kv_blocks_used == 0)
        assert bench.answers()
        assert bench.process.pid != dead
        assert gone(dead)


def test_a_hung_workers_death_is_noticed_and_costs_nothing_that_was_not_sent(bench: WorkerBench) -> None:
    hung = bench.submit("hangs", (HANGS,), 4)
    poll(lambda: bench.loop.stats().scheduled == 1)
    bench.process.kill()
    error = hung.failure()
    assert type(error) is EngineUnavailable
    assert not error.partial


def test_what_waits_for_a_place_survives_the_workers_death(settings: OpenVinoSettings) -> None:
    bench = WorkerBench(replace(settings, max_sequences=1))
    try:
        running = bench.running("running")
        waiting = bench.submit("waiting", (8, 9), 3)
        bench.process.kill()
        assert type(running.failure()) is EngineUnavailable
        assert waiting.reason() is LENGTH
        assert waiting.ids == [8, 9, 8]
    finally:
        bench.loop.close()


def test_the_death_of_a_worker_at_rest_costs_at_most_the_next_request(bench: WorkerBench) -> None:
    assert bench.answers()
    bench.process.kill()
    error = bench.submit("next", (5,), 3).failure()
    assert type(error) is EngineUnavailable
    assert error.retryable
    assert bench.answers()


def test_a_failed_step_fails_what_was_live_reveals_nothing_and_is_recovered_from(bench: WorkerBench) -> None:
    neighbour = bench.running("neighbour")
    broken = bench.submit("broken", (BREAKS_STEP,), 4)
    for sink, partial in ((neighbour, True), (broken, False)):
        error = sink.failure()
        assert type(error) is EngineUnavailable
        assert (error.retryable, error.partial) == (True, partial)
        assert "secret" not in error.message
    assert bench.answers()


def steps(stepper: WorkerStepper) -> None:
    """Step until it raises; each waits for a tenth of a second at most."""
    for _ in range(100):
        stepper.step()


def test_a_stopped_worker_keeps_no_deadline_waiting(bench: WorkerBench) -> None:
    bench.running("other")
    sink = RecordingSink()
    bench.process.suspend()
    deadline_s = time.monotonic() + 0.3
    bench.loop.submit(replace(request("overdue", (5,), 3), deadline_s=deadline_s), sink)
    assert type(sink.failure()) is DeadlineExceeded
    assert time.monotonic() - deadline_s < 2


def test_a_worker_that_is_silent_for_too_long_is_replaced(
    bench: WorkerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_SILENCE_LIMIT_S", 0.3)
    live = bench.running("live")
    bench.process.suspend()
    error = live.failure()
    assert type(error) is EngineUnavailable
    assert error.partial
    assert bench.answers()


def test_a_stopped_worker_that_takes_no_more_commands_is_replaced(
    settings: OpenVinoSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_SILENCE_LIMIT_S", 1.0)
    bench = WorkerBench(settings)
    try:
        live = bench.running("live")
        bench.process.suspend()
        more_than_the_socket_holds = [bench.submit(f"{n}", (5,) * 200_000, 2) for n in range(4)]
        for sink in (live, *more_than_the_socket_holds):
            assert type(sink.failure()) is EngineUnavailable
        assert bench.answers()
    finally:
        bench.loop.close()


def test_a_worker_that_dies_while_it_loads_is_followed_by_another(
    bench: WorkerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []
    start = WorkerStepper._start

    def unlucky(stepper: WorkerStepper) -> None:
        starts.append(1)
        if len(starts) < 3:
            raise EngineUnavailable("the engine's process ended while it loaded the model")
        start(stepper)

    monkeypatch.setattr(WorkerStepper, "_start", unlucky)
    live = bench.running("live")
    bench.process.kill()
    assert type(live.failure()) is EngineUnavailable
    assert bench.answers()
    assert len(starts) == 3


def test_a_step_says_whether_the_worker_failed_or_died(settings: OpenVinoSettings) -> None:
    """Only the log shows it, and only it tells a defect from a kill."""
    before = child_processes()
    stepper = WorkerStepper(settings, LIMITS)
    try:
        stepper.add(1, request("broken", (BREAKS_STEP,), 4))
        with pytest.raises(RuntimeError, match="step failed: RuntimeError"):
            steps(stepper)
        stepper.rebuild()
        (pid,) = child_processes() - before
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="process died"):
            steps(stepper)
    finally:
        stepper.close()


def test_a_worker_that_cannot_be_replaced_makes_the_engine_unavailable(
    bench: WorkerBench, settings: OpenVinoSettings
) -> None:
    live = bench.running("live")
    shutil.rmtree(settings.directory)
    bench.process.kill()
    assert type(live.failure()) is EngineUnavailable

    def refused() -> bool:
        try:
            bench.submit("late", (5,), 3).failure()
        except EngineUnavailable as error:
            return "could not be rebuilt" in error.message
        return False

    poll(refused)
    assert bench.gone
    bench.loop.close()
    assert bench.gone


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("absent", "could not load the model: no model in absent$"),
        (DIES_AT_START, "process ended while it loaded the model$"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_unavailable_and_leaves_no_process(
    settings: OpenVinoSettings, model: str, said: str
) -> None:
    before = child_processes()
    with pytest.raises(EngineUnavailable, match=said):
        WorkerStepper(replace(settings, directory=settings.directory.with_name(model)), LIMITS)
    assert child_processes() <= before


@pytest.mark.parametrize("by_sink", [True, False], ids=["the caller goes away", "a stop request"])
def test_a_cancel_ends_one_request_in_the_worker_too_and_no_other(bench: WorkerBench, by_sink: bool) -> None:
    first, second = bench.running("first"), bench.running("second")
    poll(lambda: bench.loop.stats().generation == 2)
    if by_sink:
        first.cancel()
    else:
        bench.loop.stop("first")
    assert first.reason() is CANCELLED
    poll(lambda: bench.loop.stats().generation == 1)
    so_far = len(second.ids)
    poll(lambda: len(second.ids) > so_far)
    assert not second.ended
    assert first.violations == []
    bench.loop.stop("second")
    assert second.reason() is CANCELLED
    assert bench.rests()


def test_nothing_of_an_aborted_sequence_is_reported_though_the_worker_was_ahead(
    settings: OpenVinoSettings,
) -> None:
    stepper = WorkerStepper(settings, LIMITS)
    try:
        stepper.add(1, request("aborted", (5,), 10**5))
        stepper.add(2, request("kept", (6,), 10**5))
        seen: set[int] = set()
        while seen != {1, 2}:
            seen |= {result.key for result in stepper.step()}
        poll(stepper._socket.poll)
        stepper.abort(1)
        stepper.abort(99)
        assert {result.key for _ in range(100) for result in stepper.step()} == {2}
    finally:
        stepper.close()


def test_an_engine_at_rest_counts_nothing_in_use_and_keeps_its_sizes(bench: WorkerBench) -> None:
    assert bench.loop.stats().max_active == 8, "known before the first step"
    bench.running("long", range(10, 110))
    poll(lambda: bench.loop.stats().generation == 1)
    busy = bench.loop.stats()
    assert (busy.active, busy.scheduled) == (1, 1)
    assert busy.kv_blocks_used >= 4
    bench.loop.stop("long")
    poll(lambda: bench.loop.stats().generation == 0)
    idle = bench.loop.stats()
    assert (idle.active, idle.scheduled, idle.waiting, idle.context, idle.context_tokens) == (0, 0, 0, 0, 0)
    assert idle.kv_blocks_used == 0
    assert (idle.max_active, idle.kv_blocks_max) == (busy.max_active, busy.kv_blocks_max)
    assert idle.kv_blocks_max > 0


@pytest.mark.parametrize("doing", ["nothing", "steps", "a step that hangs", "being stopped by a signal"])
def test_closing_ends_the_process_whatever_it_does_and_leaves_no_child(
    bench: WorkerBench, doing: str
) -> None:
    live = []
    if doing == "a step that hangs":
        live.append(bench.submit("hangs", (HANGS,), 4))
        poll(lambda: bench.loop.stats().scheduled == 1)
    elif doing != "nothing":
        live.append(bench.running("live"))
    process = bench.process
    if doing == "being stopped by a signal":
        process.suspend()
    bench.loop.close()
    assert gone(process.pid)
    assert bench.gone
    for sink in live:
        assert type(sink.failure(timeout_s=1)) is EngineUnavailable
    with pytest.raises(EngineUnavailable, match="shutting down"):
        bench.submit("late", (5,), 1)


@pytest.mark.parametrize("asked", [0, 10**5], ids=["at rest", "at work"])
def test_a_worker_ends_when_the_process_that_started_it_is_killed(
    settings: OpenVinoSettings, asked: int
) -> None:
    code = f"""
import sys
from pathlib import Path
sys.executable = {sys.executable!r}
from naiad.engines.openvino_settings import OpenVinoSettings
from naiad.engines.worker import WorkerStepper
from tests.harness.worker_bench import LIMITS, child_processes, request
stepper = WorkerStepper(OpenVinoSettings(Path({str(settings.directory)!r}), kv_tokens=1024), LIMITS)
if {asked}:
    stepper.add(1, request("live", (5,), {asked}))
    stepper.step()
print(*child_processes(), flush=True)
sys.stdin.read()
"""
    python = Path(sys.prefix) / "bin" / "python"
    with subprocess.Popen(
        [python, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert not gone(worker)
        parent.kill()
    poll(lambda: gone(worker))


def test_an_interrupt_of_the_terminal_does_not_end_the_worker(bench: WorkerBench) -> None:
    running, process = bench.running("running"), bench.process
    process.send_signal(signal.SIGINT)
    assert bench.answers()
    assert bench.process == process
    assert not running.ended


def test_inside_tritons_stub_the_worker_runs_on_the_python_of_path(
    settings: OpenVinoSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "triton_python_backend_stub"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineUnavailable, match="no python3 on PATH"):
        WorkerStepper(settings, LIMITS)
    (tmp_path / "python-synthetic").rename(tmp_path / "python3")
    bench = WorkerBench(settings)
    try:
        assert bench.answers()
    finally:
        bench.loop.close()
