"""aiperf's files, and what is made of its real raw records.

``data/aiperf_raw.jsonl`` is aiperf 0.13.0's own, from a run of six requests, two at a time, against a
synthetic engine that sends several tokens a response and refused the fifth. What is expected was worked out
by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from naiad_perf.drivers.aiperf_driver import AiperfDriver, aiperf_environment, records
from naiad_perf.drivers.aiperf_files import raw_files, read_raw, template, write_input, write_tokenizer
from naiad_perf.errors import LoadError, UnsupportedLoad
from naiad_perf.records import Outcome
from naiad_perf.workload.load import ClosedLoop, LoadTask, OpenLoop
from tests.harness.load_tasks import load_task, prompts

RAW = Path(__file__).parents[1] / "data" / "aiperf_raw.jsonl"


@pytest.fixture
def task(tmp_path: Path) -> LoadTask:
    return load_task(tmp_path / "run", prompts(6), ClosedLoop(2), warm_up=1, http_url="127.0.0.1:8000")


@pytest.fixture
def rewrite(tmp_path: Path) -> Callable[..., list[Path]]:
    """Writes the records again, one of them changed."""

    def write(index: int, change: Callable[[dict[str, Any]], None]) -> list[Path]:
        path = tmp_path / "raw.jsonl"
        rows = [json.loads(line) for line in RAW.read_text().splitlines()]
        for row in rows:
            if row["metadata"]["conversation_id"] == str(index):
                change(row)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return [path]

    return write


class TestRecords:
    def test_each_request_by_its_index(self, task: LoadTask) -> None:
        found = records(task, read_raw([RAW], 6))
        assert [record.index for record in found] == [0, 1, 2, 3, 4, 5]
        assert [record.warm_up for record in found] == [True] + [False] * 5
        assert [record.input_tokens for record in found] == [5, 5, 5, 5, None, 5]
        assert [record.sent_ns for record in found] == [
            1796032642802256295, 1796032642810842134, 1796032642873529063,
            1796032642884685804, 1796032642956052462, 1796032643006661285,
        ]  # fmt: skip

    def test_a_response_counts_its_tokens_at_its_arrival(self, task: LoadTask) -> None:
        found = records(task, read_raw([RAW], 6))
        assert [record.response_tokens for record in found] == [
            (1, 6), (1, 5, 1), (1, 6), (1, 4, 2), (), (1, 4, 2),
        ]  # fmt: skip
        assert [at - found[1].sent_ns for at in found[1].response_ns] == [30719003, 56729487, 60900655]
        assert found[1].ended_ns == 1796032642871742789

    def test_a_refusal_is_an_error_with_its_code_and_no_known_end(self, task: LoadTask) -> None:
        found = records(task, read_raw([RAW], 6))
        assert [record.outcome for record in found] == [Outcome.OK] * 4 + [Outcome.ERROR, Outcome.OK]
        assert [record.error for record in found] == ["", "", "", "", "PROMPT_TOO_LONG", ""]
        assert found[4].ended_ns is None

    def test_a_request_is_intended_when_a_place_became_free(self, task: LoadTask) -> None:
        found = records(task, read_raw([RAW], 6))
        assert [record.intended_ns for record in found] == [
            1796032642802256295, 1796032642810842134,  # both places were free
            1796032642866820181, 1796032642871742789,  # ends of 0 and 1
            1796032642926103386, 1796032642983500669,  # ends of 2 and 3
        ]  # fmt: skip

    def test_open_loop_times_count_from_the_schedule(self, task: LoadTask) -> None:
        """Due every 40 ms. Sent less due is least for request 3, which so tells the start."""
        due = tuple(index * 40_000_000 for index in range(6))
        found = records(replace(task, load=OpenLoop(due)), read_raw([RAW], 6))
        start = 1796032642884685804 - 3 * 40_000_000
        assert [record.intended_ns for record in found] == [start + at for at in due]
        assert found[3].sent_ns == found[3].intended_ns

    def test_a_loop_that_was_not_closed_is_refused(self, task: LoadTask) -> None:
        with pytest.raises(LoadError, match="aiperf did not keep its concurrency"):
            records(replace(task, load=ClosedLoop(1)), read_raw([RAW], 6))


class TestOutcomes:
    def test_an_error_inside_a_stream_that_began_well_is_one(
        self, rewrite: Callable[..., list[Path]]
    ) -> None:
        def fail(row: dict[str, Any]) -> None:
            told = {"error": "[ENGINE_STALLED] no token for 10 s (partial answer was delivered)"}
            row["responses"][-1]["packets"][0]["value"] = json.dumps(told)

        answer = read_raw(rewrite(0, fail), 6)[0]
        assert (answer.outcome, answer.error) == (Outcome.ERROR, "ENGINE_STALLED")
        assert answer.response_tokens == (1,)

    def test_an_answer_that_the_server_cut_is_no_success(self, rewrite: Callable[..., list[Path]]) -> None:
        def cut(row: dict[str, Any]) -> None:
            packet = row["responses"][-1]["packets"][0]
            packet["value"] = json.dumps({**json.loads(packet["value"]), "finish_reason": "cancelled"})

        answer = read_raw(rewrite(0, cut), 6)[0]
        assert (answer.outcome, answer.error) == (Outcome.ERROR, "CANCELLED")

    @pytest.mark.parametrize(
        ("told", "code"),
        [
            ({"type": "TimeoutError", "message": "TimeoutError()"}, "TOTAL_TIMEOUT"),
            ({"type": "ClientConnectorError", "message": "Cannot connect"}, "CONNECT_FAILED"),
            ({"code": 404, "type": "Not Found", "message": "Request for unknown model: 'x' is not found"},
             "MODEL_NOT_FOUND"),
            ({"type": "ServerDisconnectedError", "message": "Server\n disconnected"}, "Server disconnected"),
        ],
    )  # fmt: skip
    def test_the_clients_own_errors(
        self, rewrite: Callable[..., list[Path]], told: dict[str, Any], code: str
    ) -> None:
        answer = read_raw(rewrite(0, lambda row: row.update(error=told)), 6)[0]
        assert (answer.outcome, answer.error) == (Outcome.ERROR, code)

    def test_hanging_up_is_not_an_error(self, rewrite: Callable[..., list[Path]]) -> None:
        def hang_up(row: dict[str, Any]) -> None:
            row["metadata"]["was_cancelled"] = True
            row["error"] = {"type": "RequestCancellationError", "code": 499}

        answer = read_raw(rewrite(0, hang_up), 6)[0]
        assert (answer.outcome, answer.error) == (Outcome.CANCELLED, "")

    def test_no_data_is_no_success(self, rewrite: Callable[..., list[Path]]) -> None:
        answer = read_raw(rewrite(0, lambda row: row.update(responses=[])), 6)[0]
        assert (answer.outcome, answer.error) == (Outcome.ERROR, "no data")


class TestFiles:
    def test_a_missing_request_is_not_passed_over(self, tmp_path: Path) -> None:
        path = tmp_path / "raw.jsonl"
        path.write_text("".join(RAW.read_text().splitlines(keepends=True)[:5]))
        with pytest.raises(LoadError, match="given 6 requests and reported 5"):
            read_raw([path], 6)

    @pytest.mark.parametrize("text", ["{", "{}\n", '{"metadata": {"conversation_id": "x"}}\n'])
    def test_another_form_is_named(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "raw.jsonl"
        path.write_text(text)
        with pytest.raises(LoadError, match=r"raw\.jsonl is not a raw export of aiperf"):
            read_raw([path], 6)

    def test_when_every_request_failed_the_records_lie_elsewhere(self, tmp_path: Path) -> None:
        parts = tmp_path / "raw_records"
        parts.mkdir()
        for name in ("raw_records_b.jsonl", "raw_records_a.jsonl"):
            (parts / name).write_text("")
        assert [path.name for path in raw_files(tmp_path)] == ["raw_records_a.jsonl", "raw_records_b.jsonl"]
        whole = tmp_path / "profile_export_raw.jsonl"
        whole.write_text("")
        assert raw_files(tmp_path) == [whole]

    def test_text_asks_for_an_exact_length_and_for_counts(self, task: LoadTask, tmp_path: Path) -> None:
        path = tmp_path / "in.jsonl"
        write_input(path, task)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(lines) == 6
        assert lines[2] == {
            "session_id": "2",
            "text": "p2 a a a",
            "extra": {
                "max_tokens": 7,
                "min_tokens": 7,
                "stream": True,
                "return_num_input_tokens": True,
                "return_num_output_tokens": True,
            },
        }

    def test_ids_never_end_early(self, tmp_path: Path) -> None:
        path = tmp_path / "in.jsonl"
        write_input(path, load_task(tmp_path / "run", prompts(1), model="tensorrt_llm"))
        assert json.loads(path.read_text())["extra"] == {
            "input_ids": [100, 100, 100, 100],
            "input_lengths": 4,
            "request_output_len": 7,
            "end_id": -1,
            "streaming": True,
            "return_num_input_tokens": True,
            "return_num_output_tokens": True,
        }

    def test_a_schedule_is_in_milliseconds(self, task: LoadTask, tmp_path: Path) -> None:
        path = tmp_path / "in.jsonl"
        write_input(path, replace(task, load=OpenLoop((0, 1_500_000, 2, 3, 4, 20_000_000))))
        assert [json.loads(line)["timestamp"] for line in path.read_text().splitlines()] == [
            0, 1.5, 2e-6, 3e-6, 4e-6, 20,
        ]  # fmt: skip

    def test_the_tokenizer_is_one(self, tmp_path: Path) -> None:
        from tokenizers import Tokenizer

        write_tokenizer(tmp_path / "tokenizer")
        loaded = Tokenizer.from_file(str(tmp_path / "tokenizer" / "tokenizer.json"))
        assert len(loaded.encode("three words, here").ids) == 3

    def test_the_template_has_no_comma_at_which_aiperf_would_split_it(self) -> None:
        assert "," not in template(takes_ids=False)
        assert json.loads(template(takes_ids=True)) == {}


class TestDriver:
    def test_it_does_not_hang_up(self, task: LoadTask, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedLoad, match=r"aiperf forgets .* use the driver locust"):
            AiperfDriver(tmp_path).run(replace(task, cancel_after_s=0.1))

    def test_nothing_to_send_is_nothing_started(self, task: LoadTask, tmp_path: Path) -> None:
        assert AiperfDriver(tmp_path).run(replace(task, prompts=())).requests == ()

    def test_a_start_that_failed_is_told_in_its_own_words(self, task: LoadTask, tmp_path: Path) -> None:
        python = tmp_path / "tools" / "aiperf" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho 'no module named aiperf'; exit 1\n")
        python.chmod(0o755)
        with pytest.raises(LoadError, match="status 1; its last words:\nno module named aiperf"):
            AiperfDriver(tmp_path).run(task)

    def test_the_command(self, task: LoadTask, tmp_path: Path) -> None:
        python = tmp_path / "tools" / "aiperf" / "bin" / "python"
        python.parent.mkdir(parents=True)
        export = task.folder / "export"
        python.write_text(f"#!/bin/sh\nmkdir {export}; cp {RAW} {export}/profile_export_raw.jsonl\n")
        python.chmod(0o755)
        driven = AiperfDriver(tmp_path).run(task)
        told = " ".join(driven.command[1:])
        assert told.startswith("-m aiperf profile --model tensorrt_llm_bls --url http://127.0.0.1:8000")
        assert "--endpoint /v2/models/tensorrt_llm_bls/generate_stream --endpoint-type template" in told
        assert "--no-fixed-schedule --concurrency 2 --request-count 6" in told
        assert len(driven.requests) == 6

    def test_a_server_here_is_reached_without_a_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("no_proxy", "internal")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert aiperf_environment("127.0.0.1:8000")["no_proxy"] == "internal,127.0.0.1"
        assert aiperf_environment("far.example:8000")["no_proxy"] == "internal"
        assert "HF_HUB_OFFLINE" not in aiperf_environment()
