"""perf_analyzer's files, and what is made of its real exports and endings.

The exports in ``data`` are perf_analyzer 2.60.0's own, from runs against a synthetic engine that sends
several tokens a response. What is expected was worked out by hand from the numbers in them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from naiad_perf.drivers.perf_analyzer_driver import PerfAnalyzerDriver, records
from naiad_perf.drivers.perf_analyzer_files import read_export, write_input, write_intervals
from naiad_perf.errors import LoadAborted, LoadError, UnsupportedLoad
from naiad_perf.processes import tool_run as process
from naiad_perf.records import Outcome
from naiad_perf.tools import perf_analyzer
from naiad_perf.workload.load import ClosedLoop, LoadTask, OpenLoop, Prompt
from tests.harness.load_tasks import load_task, prompts

DATA = Path(__file__).parents[1] / "data"


class TestClosedLoop:
    """Six requests of seven tokens, two at a time: two threads with a place each, prompts 0 2 4 and 1 3 5."""

    @pytest.fixture
    def task(self, tmp_path: Path) -> LoadTask:
        return load_task(tmp_path, prompts(6), ClosedLoop(2), warm_up=1)

    def test_every_request_is_there_once_in_order(self, task: LoadTask) -> None:
        found = records(task, read_export(DATA / "perf_analyzer_closed.json", takes_ids=False))
        assert [record.index for record in found] == [0, 1, 2, 3, 4, 5]
        assert [record.outcome for record in found] == [Outcome.OK] * 6
        assert [record.warm_up for record in found] == [True, False, False, False, False, False]
        assert [record.input_tokens for record in found] == [5] * 6

    def test_a_response_counts_its_tokens_and_the_empty_last_message_only_ends(self, task: LoadTask) -> None:
        found = records(task, read_export(DATA / "perf_analyzer_closed.json", takes_ids=False))
        assert [record.response_tokens for record in found] == [
            (1, 6), (1, 5, 1), (1, 4, 2), (1, 4, 2), (1, 5, 1), (1, 4, 2),
        ]  # fmt: skip
        assert found[4].response_ns == (
            1796032627094528331, 1796032627133730160, 1796032627138419090,
        )  # fmt: skip
        assert found[4].ended_ns == 1796032627141904285
        assert [record.output_tokens for record in found] == [7] * 6

    def test_a_request_is_intended_when_its_threads_last_one_ended(self, task: LoadTask) -> None:
        found = records(task, read_export(DATA / "perf_analyzer_closed.json", takes_ids=False))
        assert [record.sent_ns for record in found] == [
            1796032626966693155, 1796032626966959622, 1796032627013498839,
            1796032627021698432, 1796032627072426403, 1796032627094701770,
        ]  # fmt: skip
        assert [record.sent_ns - record.intended_ns for record in found] == [
            0, 0, 66229, 86398, 76043, 73330,
        ]  # fmt: skip

    def test_equal_prompts_are_told_apart_by_thread(self, task: LoadTask) -> None:
        """The same export, as if all prompts had been alike."""
        same = Prompt("again", (1,), 7)
        alike = replace(task, prompts=(same,) * 6)
        export = read_export(DATA / "perf_analyzer_closed.json", takes_ids=False)
        answers = [replace(answer, asked=("again", 7)) for answer in export]
        told_apart = records(task, export)
        assert [record.sent_ns for record in records(alike, answers)] == [
            record.sent_ns for record in told_apart
        ]

    def test_an_export_of_another_load_is_refused(self, task: LoadTask) -> None:
        export = read_export(DATA / "perf_analyzer_closed.json", takes_ids=False)
        other = replace(task, prompts=(*task.prompts[:5], Prompt("something else", (1,), 7)))
        with pytest.raises(LoadError, match="another request where number 5 should be"):
            records(other, export)

    def test_a_missing_answer_is_not_passed_over(self, task: LoadTask) -> None:
        export = read_export(DATA / "perf_analyzer_closed.json", takes_ids=False)
        with pytest.raises(LoadError, match="given 6 requests and exported 5"):
            records(task, export[:-1])

    def test_one_stream_that_took_several_at_once_is_refused(self, task: LoadTask) -> None:
        """Two at a time in truth, so as one stream's export it cannot be."""
        export = sorted(
            read_export(DATA / "perf_analyzer_closed.json", takes_ids=False), key=lambda one: str(one.asked)
        )
        with pytest.raises(LoadError, match="did not keep its concurrency"):
            records(replace(task, load=ClosedLoop(1)), export)

    def test_an_answer_that_the_server_cut_is_no_success(self, task: LoadTask) -> None:
        export = read_export(DATA / "perf_analyzer_closed.json", takes_ids=False)
        cut = [replace(export[0], finish_reason="cancelled"), *export[1:]]
        found = records(task, cut)
        assert (found[0].outcome, found[0].error) == (Outcome.ERROR, "CANCELLED")
        assert [record.outcome for record in found[1:]] == [Outcome.OK] * 5


def test_open_loop_times_count_from_the_schedule(tmp_path: Path) -> None:
    """Due every 15 ms: request 0 was the most punctual, and request 1 was 1.2 ms late."""
    task = load_task(
        tmp_path, prompts(4, tokens=5), OpenLoop(tuple(index * 15_000_000 for index in range(4)))
    )
    found = records(task, read_export(DATA / "perf_analyzer_open.json", takes_ids=False))
    assert [record.intended_ns for record in found] == [
        1796032628605319556, 1796032628620319556, 1796032628635319556, 1796032628650319556,
    ]  # fmt: skip
    assert [record.sent_ns - record.intended_ns for record in found] == [0, 1226064, 24128, 3087]


def test_the_engine_model_answers_with_ids(tmp_path: Path) -> None:
    task = load_task(tmp_path, prompts(3, tokens=4), ClosedLoop(2), model="tensorrt_llm")
    found = records(task, read_export(DATA / "perf_analyzer_ids.json", takes_ids=True))
    assert [record.response_tokens for record in found] == [(1, 3)] * 3
    assert [record.input_tokens for record in found] == [4, 4, 4]
    assert [record.ended_ns for record in found] == [
        1796032630175223717, 1796032630174999844, 1796032630196544651,
    ]  # fmt: skip
    assert [record.sent_ns - record.intended_ns for record in found] == [0, 0, 90515]


def test_a_prompt_of_one_id_is_one_too(tmp_path: Path) -> None:
    """The export writes a tensor of one value as that value."""
    whole = json.loads((DATA / "perf_analyzer_ids.json").read_text())
    for request in whole["experiments"][0]["requests"]:
        request["request_inputs"] |= {
            "input_ids": request["request_inputs"]["input_ids"][0],
            "input_lengths": 1,
        }
    path = tmp_path / "export.json"
    path.write_text(json.dumps(whole))
    task = load_task(tmp_path / "run", prompts(3, words=1, tokens=4), ClosedLoop(2), model="tensorrt_llm")
    found = records(task, read_export(path, takes_ids=True))
    assert [record.input_tokens for record in found] == [1, 1, 1]


@pytest.mark.parametrize("text", ["", "{}", '{"experiments": []}', '{"experiments": [{"requests": [{}]}]}'])
def test_a_file_that_is_no_export_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "export.json"
    path.write_text(text)
    with pytest.raises(LoadError, match=r"export\.json is not an export of perf_analyzer"):
        read_export(path, takes_ids=False)


class TestInput:
    def test_text_asks_for_an_exact_length_and_for_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "in.json"
        write_input(path, [Prompt('Grüße "a"\n', (1, 2), 9)], takes_ids=False)
        assert json.loads(path.read_text()) == {
            "data": [
                {
                    "text_input": ['Grüße "a"\n'],
                    "max_tokens": [9],
                    "min_tokens": [9],
                    "stream": [True],
                    "return_num_input_tokens": [True],
                    "return_num_output_tokens": [True],
                }
            ]
        }

    def test_ids_never_end_early(self, tmp_path: Path) -> None:
        path = tmp_path / "in.json"
        write_input(path, [Prompt("x", (7, 8, 9), 2)], takes_ids=True)
        assert json.loads(path.read_text())["data"] == [
            {
                "input_ids": {"content": [7, 8, 9], "shape": [3]},
                "input_lengths": [3],
                "request_output_len": [2],
                "end_id": [-1],
                "streaming": [True],
                "return_num_output_tokens": [True],
            }
        ]

    def test_a_schedule_becomes_steps_in_microseconds_that_do_not_drift(self, tmp_path: Path) -> None:
        """Thirds of a microsecond: rounded at each time, not at each step. The first step is the lead-in."""
        path = tmp_path / "steps"
        write_intervals(path, OpenLoop(tuple(round(index * 1e6 / 3) for index in range(7))))
        steps = [int(line) for line in path.read_text().split()]
        assert steps == [100_000, 333, 334, 333, 333, 334, 333]


class TestRun:
    """The driver with a shell script in perf_analyzer's place."""

    @pytest.fixture
    def driver(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], PerfAnalyzerDriver]:
        def make(script: str) -> PerfAnalyzerDriver:
            program = tmp_path / "artifacts" / "perf_analyzer" / perf_analyzer.VERSION / "perf_analyzer"
            program.parent.mkdir(parents=True)
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            monkeypatch.setattr(perf_analyzer, "_glibc", lambda: (2, 41))
            monkeypatch.setattr(process, "_GRACE_S", 0.2)
            monkeypatch.setattr(process, "_LOOK_S", 0.05)
            return PerfAnalyzerDriver(tmp_path / "artifacts")

        return make

    @pytest.fixture
    def task(self, tmp_path: Path) -> LoadTask:
        return load_task(tmp_path / "run", prompts(6), ClosedLoop(2), grpc_url="127.0.0.1:8001")

    def test_the_command_and_the_records(
        self, driver: Callable[[str], PerfAnalyzerDriver], task: LoadTask
    ) -> None:
        export = task.folder / "profile_export.json"
        driven = driver(f"cp {DATA / 'perf_analyzer_closed.json'} {export}").run(task)
        assert list(driven.command[1:]) == [
            "-m", "tensorrt_llm_bls", "-u", "127.0.0.1:8001", "-i", "grpc", "--streaming", "--async",
            "--concurrency-range", "2", "--input-data", str(task.folder / "input.json"),
            "--request-count", "6", "--max-threads", "2", "--request-parameter", "timeout:30000000:int",
            "--profile-export-file", str(export),
        ]  # fmt: skip
        assert len(driven.requests) == 6
        assert driven.client_cpu_s is not None

    def test_the_export_stays_packed(
        self, driver: Callable[[str], PerfAnalyzerDriver], task: LoadTask
    ) -> None:
        export = task.folder / "profile_export.json"
        driver(f"cp {DATA / 'perf_analyzer_closed.json'} {export}").run(task)
        assert not export.exists()
        packed = gzip.decompress((task.folder / "profile_export.json.gz").read_bytes())
        assert packed == (DATA / "perf_analyzer_closed.json").read_bytes()

    def test_no_more_threads_than_requests(
        self, driver: Callable[[str], PerfAnalyzerDriver], tmp_path: Path
    ) -> None:
        """Else perf_analyzer sends without end."""
        task = load_task(
            tmp_path / "run", prompts(4, tokens=5), OpenLoop((0, 15_000_000, 30_000_000, 45_000_000))
        )
        export = task.folder / "profile_export.json"
        command = driver(f"cp {DATA / 'perf_analyzer_open.json'} {export}").run(task).command
        assert command[command.index("--max-threads") + 1] == "4"
        assert command[command.index("--request-intervals") + 1] == str(task.folder / "intervals_us.txt")

    def test_a_refused_request_aborts_the_whole_run(
        self, driver: Callable[[str], PerfAnalyzerDriver], task: LoadTask
    ) -> None:
        """The words are perf_analyzer's own."""
        log = DATA / "perf_analyzer_refused.log"
        with pytest.raises(LoadAborted, match=r"\[PROMPT_TOO_LONG\] prompt of 7 tokens plus 100000"):
            driver(f"cat {log}; exit 99").run(task)

    def test_a_server_that_goes_down_is_worth_another_attempt(
        self, driver: Callable[[str], PerfAnalyzerDriver], task: LoadTask
    ) -> None:
        log = DATA / "perf_analyzer_drained.log"
        with pytest.raises(LoadError, match=r"the server said: \[DRAINING\] the server is") as caught:
            driver(f"cat {log}; exit 99").run(task)
        assert not isinstance(caught.value, LoadAborted)

    def test_a_hang_after_a_failure_is_ended(
        self, driver: Callable[[str], PerfAnalyzerDriver], task: LoadTask
    ) -> None:
        said = "Failed to retrieve results from inference request."
        with pytest.raises(LoadError, match="nothing that perf_analyzer passed on"):
            driver(f"echo '{said}'; sleep 300").run(task)

    def test_any_other_end_is_told_in_its_own_words(
        self, driver: Callable[[str], PerfAnalyzerDriver], task: LoadTask
    ) -> None:
        with pytest.raises(
            LoadError, match="status 99; its last words:\nerror: failed to get model metadata"
        ):
            driver("echo 'error: failed to get model metadata'; exit 99").run(task)

    def test_it_cannot_hang_up(self, driver: Callable[[str], PerfAnalyzerDriver], task: LoadTask) -> None:
        with pytest.raises(UnsupportedLoad, match=r"perf_analyzer cannot hang up .* use the driver locust"):
            driver("exit 1").run(replace(task, cancel_after_s=0.1))

    def test_nothing_to_send_is_nothing_started(
        self, driver: Callable[[str], PerfAnalyzerDriver], task: LoadTask
    ) -> None:
        assert driver("exit 1").run(replace(task, prompts=())).requests == ()
