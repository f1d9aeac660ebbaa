"""Every load generator against a server whose timeline is known: out comes what was worked out by hand.

The engine prefills one prompt token a millisecond and decodes a step in 20 ms, for all sequences of the step
together. A request that is alone so gets token k (from 0) of its answer

    prompt tokens * 1 ms + k * 20 ms

after the engine has it, and a client sees it a little later: never earlier, in the median at most `ABOVE_MS`
later.
"""

from __future__ import annotations

import csv
import itertools
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from naiad_client.grpc_sync import GrpcTransport
from naiad_perf.drivers.base import Driver
from naiad_perf.drivers.locust_driver import LOCUSTFILE
from naiad_perf.drivers.registry import DRIVERS, make_driver
from naiad_perf.errors import InstallError, LoadAborted
from naiad_perf.records import Outcome, RequestRecord, ServerFigures
from naiad_perf.servers.figures import ModelFacts, ServerWatch, read_metrics
from naiad_perf.workload.load import ClosedLoop, LoadTask, OpenLoop, Prompt
from tests.harness.load_tasks import load_task, prompts
from tests.harness.repository import ROOT, write_repository
from tests.harness.server import LiveServer, serving, wait_until

STEP_MS = 20.0
PREFILL_MS = 1.0
ABOVE_MS = {"perf_analyzer": 15.0, "locust": 15.0, "aiperf": 30.0}
CLOCK_MS = 0.2
"""What the system's clock may be slewed against the monotonic one, over some hundred milliseconds."""

pytestmark = pytest.mark.timeout(900)  # aiperf is installed the first time

Make = Callable[..., LoadTask]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("timeline")
    engine: dict[str, object] = {
        "synthetic_step_ms": STEP_MS,
        "synthetic_prefill_tokens_per_s": 1000 / PREFILL_MS,
        "max_num_tokens": 8192,
        "max_responses_per_s": 0,
    }
    repository = write_repository(folder / "models", tensorrt_llm=engine)
    # A canary of the supervisor would be among the requests that the server counts.
    with serving(repository, folder / "artifacts", canary=None) as running:
        yield running


@pytest.fixture(params=sorted(DRIVERS), scope="module")
def driver(request: pytest.FixtureRequest) -> Driver:
    return installed(request.param)


@pytest.fixture
def make(server: LiveServer, tmp_path: Path) -> Make:
    return partial(load_task, tmp_path / "run", **addresses(server))


@dataclass(frozen=True)
class Seen:
    """A run as its client and as the server saw it."""

    driver: Driver
    requests: tuple[RequestRecord, ...]
    figures: ServerFigures


@pytest.fixture(scope="module")
def one_stream(server: LiveServer, driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Four requests of six tokens, one after the other; the first only warms up."""
    folder = tmp_path_factory.mktemp("one") / "run"
    task = load_task(folder, prompts(4, tokens=6), ClosedLoop(1), warm_up=1, **addresses(server))
    triton = GrpcTransport(server.grpc, connect_s=5)
    try:
        facts = ModelFacts.ask(triton, task.model)
        metrics = f"127.0.0.1:{server.config.metrics_port}"
        with ServerWatch(triton, facts, lambda: read_metrics(metrics), lambda: None) as watching:
            found = driver.run(task).requests
        return Seen(driver, found, watching.figures(len(found)))
    finally:
        triton.close()


def addresses(server: LiveServer) -> dict[str, Any]:
    return {"grpc_url": server.grpc, "http_url": server.http.removeprefix("http://")}


def installed(name: str) -> Driver:
    made = make_driver(name, ROOT / ".artifacts")
    try:
        made.prepare(lambda _line: None)
    except InstallError as error:
        if "runs on Python" in str(error):
            pytest.skip(str(error))
        raise
    return made


def above_ms(record: RequestRecord) -> list[float]:
    """Return how much later than its timeline each response of a request that was alone came."""
    assert record.input_tokens is not None
    first = record.input_tokens * PREFILL_MS
    return [
        (at - record.sent_ns) / 1e6 - (first + position * STEP_MS)
        for position, at in enumerate(record.response_ns)
    ]


def most_at_once(records: Sequence[RequestRecord]) -> int:
    """Return how many requests were under way at once; one that ends as another is sent is not."""
    events = [(record.sent_ns, 1) for record in records]
    events += [(record.ended_ns, -1) for record in records if record.ended_ns is not None]
    return max(itertools.accumulate(change for _, change in sorted(events)))


class TestOneStream:
    def test_counts(self, one_stream: Seen) -> None:
        found = one_stream.requests
        assert [record.index for record in found] == [0, 1, 2, 3]
        assert [record.outcome for record in found] == [Outcome.OK] * 4
        assert [record.error for record in found] == [""] * 4
        assert [record.input_tokens for record in found] == [5] * 4
        assert [record.response_tokens for record in found] == [(1,) * 6] * 4
        assert [record.warm_up for record in found] == [True, False, False, False]

    def test_times(self, one_stream: Seen) -> None:
        most_ms = ABOVE_MS[one_stream.driver.name]
        later = [late for record in one_stream.requests[1:] for late in above_ms(record)]
        assert min(later) >= -CLOCK_MS
        assert statistics.median(later) <= most_ms
        for record in one_stream.requests[1:]:
            assert record.ended_ns is not None
            assert 0 <= record.ended_ns - record.response_ns[-1] <= most_ms * 1e6

    def test_a_place_becomes_free_when_its_answer_ends(self, one_stream: Seen) -> None:
        found = one_stream.requests
        assert [record.intended_ns for record in found[1:]] == [record.ended_ns for record in found[:-1]]
        assert most_at_once(found) == 1

    def test_the_server_counts_the_same(self, one_stream: Seen) -> None:
        """Its engine had each request for 5 * 1 ms + 5 * 20 ms; the client saw a little more."""
        figures = one_stream.figures
        assert (figures.requests, figures.failed) == (4, 0)
        assert figures.engine_ns is not None
        client_ns = sum(record.response_ns[-1] - record.sent_ns for record in one_stream.requests)
        assert 4 * (5 * PREFILL_MS + 5 * STEP_MS) * 1e6 <= figures.engine_ns <= client_ns + CLOCK_MS * 1e6
        connecting = 4  # the first request has its connection to make
        overhead_ms = (4 + connecting) * ABOVE_MS[one_stream.driver.name]
        assert client_ns - figures.engine_ns <= overhead_ms * 1e6


def test_three_streams_are_never_more(driver: Driver, make: Make) -> None:
    """The next request of a stream follows the final message of its last one, not its first response."""
    task = make(prompts(9, tokens=5), ClosedLoop(3))
    found = driver.run(task).requests
    assert [record.index for record in found] == list(range(9))
    assert [record.output_tokens for record in found] == [5] * 9
    assert most_at_once(found) == 3
    assert all(record.intended_ns <= record.sent_ns for record in found)


def test_a_stall_is_not_hidden_by_a_client_that_waits(driver: Driver, make: Make) -> None:
    """Due every 100 ms; number 3 has a prompt that takes the engine 800 ms, in which nobody gets anything.

    Those due within the stall are sent on time and wait for its end: their latency counts from then.
    """
    long = Prompt("stall" + " a" * 794, (), 2)
    asked = [*prompts(12, tokens=2)]
    asked[3] = long
    task = make(tuple(asked), OpenLoop(tuple(index * 100_000_000 for index in range(12))))
    found = driver.run(task).requests
    start = found[0].intended_ns
    assert [record.intended_ns - start for record in found] == [index * 100_000_000 for index in range(12)]
    assert [record.output_tokens for record in found] == [2] * 12
    stall_ns = (found[3].input_tokens or 0) * PREFILL_MS * 1e6
    assert stall_ns >= 700e6
    stalled = [record for record in found[4:] if record.sent_ns < found[3].sent_ns + stall_ns]
    assert len(stalled) >= 5
    over_ns = found[3].sent_ns + stall_ns
    assert all(record.response_ns[0] >= over_ns - CLOCK_MS * 1e6 for record in stalled)
    waits = [record.response_ns[0] - record.intended_ns for record in stalled]
    assert max(waits) >= stall_ns - 200e6


class TestErrors:
    """Three of ten requests ask for more than the context holds."""

    WRONG = (2, 5, 6)

    @pytest.fixture
    def asked(self) -> tuple[Prompt, ...]:
        return tuple(
            Prompt(prompt.text, prompt.ids, 100_000 if index in self.WRONG else 4)
            for index, prompt in enumerate(prompts(10))
        )

    @pytest.mark.parametrize("name", ["aiperf", "locust"])
    def test_they_are_neither_lost_nor_successes(
        self, name: str, make: Make, asked: tuple[Prompt, ...]
    ) -> None:
        found = installed(name).run(make(asked, ClosedLoop(2))).requests
        assert [record.index for record in found if record.outcome is Outcome.ERROR] == list(self.WRONG)
        assert {record.error for record in found if record.outcome is Outcome.ERROR} == {"PROMPT_TOO_LONG"}
        assert sum(record.output_tokens for record in found) == 7 * 4

    def test_perf_analyzer_cannot_go_on_and_says_so(self, make: Make, asked: tuple[Prompt, ...]) -> None:
        with pytest.raises(LoadAborted, match=r"\[PROMPT_TOO_LONG\]"):
            installed("perf_analyzer").run(make(asked, ClosedLoop(2)))


@pytest.mark.parametrize("name", ["perf_analyzer", "aiperf", "locust"])
def test_the_engine_model_takes_ids(name: str, make: Make) -> None:
    task = make(prompts(3, words=7, tokens=4), ClosedLoop(1), model="tensorrt_llm")
    found = installed(name).run(task).requests
    assert [record.input_tokens for record in found] == [7] * 3
    assert [record.response_tokens for record in found] == [(1,) * 4] * 3
    later = [late for record in found for late in above_ms(record)]
    assert min(later) >= -CLOCK_MS


def test_hanging_up_is_neither_an_error_nor_a_success_and_frees_the_engine(
    server: LiveServer, make: Make
) -> None:
    """Tokens at 5, 25, 45, 65, 85, 105, ... ms; the client hangs up at 100 ms: five at most."""
    task = make(prompts(4, tokens=500), ClosedLoop(2), cancel_after_s=0.1)
    found = installed("locust").run(task).requests
    assert [record.outcome for record in found] == [Outcome.CANCELLED] * 4
    assert all(record.output_tokens <= 5 for record in found)
    assert sum(record.output_tokens for record in found) >= 4
    assert all((record.ended_ns or 0) - record.sent_ns >= 100e6 - CLOCK_MS * 1e6 for record in found)
    wait_until(lambda: server.active() == 0, 5, "the engine has nothing left to do")


def locust_command(server: LiveServer, folder: Path, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--host", server.grpc]
    return [*command, "--headless", "--only-summary", "--csv", str(folder / "seen"), *arguments]


def locust_alone(server: LiveServer, folder: Path, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Run the locustfile by itself for a while; return its status and the rows of its statistics by type."""
    command = locust_command(server, folder, "--users", "1", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    with (folder / "seen_stats.csv").open(newline="") as file:
        return done.returncode, {row["Type"]: row for row in csv.DictReader(file)}


def test_the_locustfile_alone_tells_requests_first_tokens_and_the_others_apart(
    server: LiveServer, tmp_path: Path
) -> None:
    """Six tokens a request: one TTFT and five ITLs; a step of 20 ms is seen as that."""
    status, rows = locust_alone(
        server, tmp_path, "--answer-tokens", "6", "--prompt-tokens", "4", "--run-time", "3s"
    )
    assert status == 0
    requests = int(rows["gRPC"]["Request Count"])
    assert requests >= 3
    assert int(rows["TTFT"]["Request Count"]) == requests
    assert int(rows["ITL"]["Request Count"]) == 5 * requests
    assert float(rows["ITL"]["Average Response Time"]) >= STEP_MS - ABOVE_MS["locust"] / 5
    assert float(rows["TTFT"]["Min Response Time"]) >= 4 * PREFILL_MS
    assert [rows[kind]["Failure Count"] for kind in ("gRPC", "TTFT", "ITL")] == ["0"] * 3


def test_the_locustfile_alone_counts_failures_by_code(server: LiveServer, tmp_path: Path) -> None:
    status, rows = locust_alone(server, tmp_path, "--model", "nobody", "--run-time", "3s")
    assert status == 1
    assert rows["gRPC"]["Failure Count"] == rows["gRPC"]["Request Count"] != "0"
    with (tmp_path / "seen_failures.csv").open(newline="") as file:
        assert {row["Error"] for row in csv.DictReader(file)} == {"RequestFailed('MODEL_NOT_FOUND')"}


def test_ctrl_c_ends_the_locustfile_with_its_summary(server: LiveServer, tmp_path: Path) -> None:
    """Wherever it arrives: with four users reading, mostly inside the thread of one of them."""
    command = locust_command(server, tmp_path, "--users", "4", "--spawn-rate", "4")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: server.active() > 0, 30, "requests run")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Traceback" not in said
    assert "Response time percentiles" in said
