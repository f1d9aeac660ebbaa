"""`naiad bench sweep` and `scenarios` on scripted servers and a scripted driver: output and exit status."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import pytest
from typer.testing import CliRunner, Result

from naiad_perf.cli import app
from naiad_perf.commands import sweep as sweep_command
from naiad_perf.drivers.registry import DRIVERS
from naiad_perf.errors import LoadError
from naiad_perf.metrics import Promise, Slos
from naiad_perf.records import RequestRecord, RunFacts, read_run
from naiad_perf.report import Written
from naiad_perf.results import read_results
from naiad_perf.workload.load import LoadTask
from naiad_perf.workload.scenario import Subject
from tests.harness.scripted_sweep import Behaviour, ScriptedDriver, ScriptedServer, answers

SCENARIO = """\
name: lab
driver: scripted
subjects: [{name: bls, profile: lab}]
load: {concurrency: [1, 2]}
lengths: {input: 6, output: 4}
requests: 5
repeats: 2
error_budget: 0.1
"""


class Pool:
    """Scripted servers in the place of real ones; remembers whether they were stopped."""

    made: list[Pool]

    def __init__(self, subjects: Sequence[Subject], artifacts: Path, logs: Path) -> None:
        self.subjects = subjects
        self.server = ScriptedServer()
        self.stopped = False
        Pool.made.append(self)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped = True

    def of(self, subject: Subject) -> ScriptedServer:
        return self.server


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run `naiad bench sweep lab.yaml --out OUT` with further words, on a driver with a script."""
    monkeypatch.setattr(sweep_command, "Servers", Pool)
    monkeypatch.setattr("naiad_perf.sweep.runner._FAULT_SHOWS_S", 0.0)
    monkeypatch.setattr("naiad_perf.servers.figures._SETTLE_S", 0.0)
    Pool.made = []
    (tmp_path / "lab.yaml").write_text(SCENARIO, encoding="utf-8")

    def run(*words: str, script: Sequence[Behaviour] = (), text: str | None = None) -> Result:
        driver = ScriptedDriver(script)
        monkeypatch.setitem(DRIVERS, "scripted", lambda artifacts: driver)
        if text is not None:
            (tmp_path / "lab.yaml").write_text(text, encoding="utf-8")
        command = ["sweep", str(tmp_path / "lab.yaml"), "--out", str(tmp_path / "out")]
        command += ["--no-report", *words]  # it takes seconds; the last word counts
        result = CliRunner().invoke(app, command, env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
        assert all(pool.stopped for pool in Pool.made)
        return result

    return run


def finished(tmp_path: Path) -> list[str]:
    return sorted(path.stem for path in (tmp_path / "out").glob("*.parquet"))


def facts_of(tmp_path: Path) -> list[RunFacts]:
    return [read_run(path).facts for path in sorted((tmp_path / "out").glob("*.parquet"))]


def test_a_sweep_ends_with_a_table_and_status_0(sweep, tmp_path: Path):
    result = sweep()
    assert result.exit_code == 0
    rows = [line.split()[:3] for line in result.stdout.splitlines()]
    assert ["c1-i6-o4", "bls", "2"] in rows
    assert ["c2-i6-o4", "bls", "2"] in rows
    assert len(finished(tmp_path)) == 4
    assert (tmp_path / "out" / "scenario.yaml").read_text() == SCENARIO
    assert not (tmp_path / "out" / "report").exists()


def test_a_report_is_written_unless_it_is_declined(sweep, tmp_path: Path, monkeypatch):
    """The real one takes seconds; the integration tests write it."""
    out = tmp_path / "out"
    written: list[tuple[Path, Path, Promise, str]] = []

    def write(
        folder: Path, target: Path, promise: Promise, *, title: str, report: Callable[[str, int, int], None]
    ) -> Written:
        report("reading runs", 1, 4)
        written.append((folder, target, promise, title))
        return Written(target / "report.html", (), read_results(folder, promise.slos))

    monkeypatch.setattr("naiad_perf.report.write_report", write)
    result = sweep("--report", text=SCENARIO + "slos: {ttft_ms: 9}\n")
    assert result.exit_code == 0
    assert result.stdout.strip().endswith(f"report: {out / 'report' / 'report.html'}")
    assert written == [(out, out / "report", Promise(Slos(ttft_ms=9.0), 0.1), "lab")]


def test_the_same_command_again_starts_nothing_and_shows_the_table(sweep):
    sweep()
    Pool.made.clear()
    result = sweep()
    assert result.exit_code == 0
    assert "c1-i6-o4" in result.stdout
    assert not Pool.made


def test_an_interrupt_says_how_to_go_on_and_going_on_works(
    sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(task: LoadTask) -> Sequence[RequestRecord]:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["naiad", "bench", "sweep", "my lab.yaml", "--anew"])
    result = sweep(script=[answers, answers, interrupted])
    assert result.exit_code == 130
    assert f"finished runs are kept in {tmp_path / 'out'}: 2" in result.stderr
    assert result.stderr.strip().endswith("to go on from there: naiad bench sweep 'my lab.yaml'")
    assert len(finished(tmp_path)) == 2

    result = sweep()
    assert result.exit_code == 0
    assert "2 of 4 runs are finished already" in result.stderr
    assert len(finished(tmp_path)) == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_an_interrupt_does(sweep, tmp_path: Path, number: signal.Signals):
    def signalled(task: LoadTask) -> Sequence[RequestRecord]:
        os.kill(os.getpid(), number)
        signal.pause()  # until the handler has run
        raise AssertionError("the signal was ignored")

    before = signal.getsignal(number)
    result = sweep(script=[answers, signalled])
    assert result.exit_code == 128 + number
    assert len(finished(tmp_path)) == 1
    assert signal.getsignal(number) is before


def test_more_errors_than_the_budget_allows_are_named_with_status_3(sweep, tmp_path: Path):
    script = [answers, lambda task: answers(task, failed=1), answers, answers]
    result = sweep(script=script)
    assert result.exit_code == 3
    assert (
        "bls at c2-i6-o4, repeat 0: 1 of 5 requests failed (20 %), the error budget is 10 %" in result.stderr
    )
    assert "Errors" in result.stdout
    assert len(finished(tmp_path)) == 4


def test_errors_within_the_budget_are_no_failure(sweep):
    script = [lambda task: answers(task, failed=1)] * 4
    result = sweep(script=script, text=SCENARIO.replace("0.1", "0.2"))
    assert result.exit_code == 0


def test_a_run_that_cannot_be_measured_is_named_with_status_1(sweep, tmp_path: Path):
    def crashing(task: LoadTask) -> Sequence[RequestRecord]:
        raise LoadError("the generator crashed")

    result = sweep(script=[answers, crashing, crashing, crashing])
    assert result.exit_code == 1
    assert "not measured: c2-i6-o4__bls__000: the generator crashed" in result.stderr
    assert len(finished(tmp_path)) == 3


def test_another_scenario_in_the_same_folder_is_refused_with_status_2_and_anew_takes_it(
    sweep, tmp_path: Path
):
    sweep()
    changed = SCENARIO.replace("requests: 5", "requests: 7")
    result = sweep(text=changed)
    assert result.exit_code == 2
    assert "requests: 5 -> 7" in result.stderr
    assert sweep("--anew").exit_code == 0
    assert len(read_run(tmp_path / "out" / f"{finished(tmp_path)[0]}.parquet").measured) == 7


def test_going_on_with_something_else_than_before_is_pointed_out(sweep, monkeypatch):
    machine = {"cpu": "fast", "commit": "abc"}
    monkeypatch.setattr(sweep_command, "describe_environment", lambda: dict(machine))
    sweep("--repeats", "1")
    assert "careful" not in sweep("--repeats", "2").stderr
    machine["commit"] = "def"
    result = sweep("--repeats", "3")
    assert result.exit_code == 0
    assert "finished runs were made with commit abc, now it is def; --anew" in result.stderr
    assert "cpu" not in result.stderr.replace("profile cpu", "")


def test_records_that_cannot_be_written_are_known_before_anything_starts(sweep, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = sweep()
    assert result.exit_code == 1
    assert "records of runs need pyarrow, of the extra naiad[bench]" in result.stderr
    assert not Pool.made


def test_repeats_may_be_added_later(sweep, tmp_path: Path):
    sweep()
    assert sweep("--repeats", "3").exit_code == 0
    assert len(finished(tmp_path)) == 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SCENARIO.replace("repeats", "repaets"), "did you mean 'repeats'?"),
        (SCENARIO.replace("driver: scripted", "driver: scriptd"), "scripted"),
        (SCENARIO.replace("[1, 2]", "[1, 1]"), "c1-i6-o4 is there twice"),
        ("- no mapping", "must be a mapping"),
    ],
)
def test_a_wrong_scenario_has_status_2_and_starts_nothing(sweep, text: str, said: str):
    result = sweep(text=text)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not Pool.made
    assert "Traceback" not in result.output


def test_a_scenario_that_is_not_there_lists_those_that_are():
    result = CliRunner().invoke(app, ["sweep", "nonsense"])
    assert result.exit_code == 2
    assert "cpu_concurrency" in result.stderr


def test_a_trace_that_is_too_short_is_refused_before_anything_starts(sweep, tmp_path: Path):
    (tmp_path / "trace.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n", encoding="utf-8"
    )
    text = SCENARIO.replace("lengths: {input: 6, output: 4}", "trace: {format: azure}")
    result = sweep("--trace", str(tmp_path / "trace.csv"), text=text)
    assert result.exit_code == 2
    assert "the trace has 1 rows for 5 requests" in result.stderr
    assert not Pool.made


def test_a_replay_states_its_trace_and_scale_in_every_run(sweep, tmp_path: Path):
    rows = "".join(f"2023-11-16 18:15:4{second}.0000000,374,44\n" for second in range(9))
    (tmp_path / "trace.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}", encoding="utf-8")
    text = SCENARIO.replace("lengths: {input: 6, output: 4}", "trace: {format: azure, divide_lengths_by: 4}")
    text = text.replace("{concurrency: [1, 2]}", "{replay: true}")
    assert sweep("--trace", str(tmp_path / "trace.csv"), text=text).exit_code == 0
    said = {facts.environment["trace"] for facts in facts_of(tmp_path)}
    assert said == {
        "trace.csv (Azure/AzurePublicDataset, LLM inference 2023, CC-BY (Splitwise, ISCA'24)), "
        "lengths divided by 4, arrivals stretched as named by the point"
    }


def test_a_dry_run_shows_the_plan_and_starts_nothing(sweep, tmp_path: Path):
    result = sweep("--dry-run", "--repeats", "7")
    assert result.exit_code == 0
    assert ["c2-i6-o4", "5", "2", "6", "4"] in [line.split() for line in result.stdout.splitlines()]
    assert "runs: 14 in 7 interleaved repeats" in result.stdout
    assert "bls (tensorrt_llm_bls, lab, scripted)" in result.stdout
    assert not Pool.made
    assert not (tmp_path / "out").exists()


def test_a_driver_given_takes_the_place_of_all_others(sweep, tmp_path: Path):
    text = SCENARIO.replace("driver: scripted", "driver: perf_analyzer").replace(
        "profile: lab", "profile: lab, driver: perf_analyzer"
    )
    assert sweep("--driver", "scripted", text=text).exit_code == 0
    drivers = {facts.driver for facts in facts_of(tmp_path)}
    assert drivers == {"scripted"}


def test_prices_come_from_the_subject_or_else_from_the_profile(
    sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sweep_command, "hourly_price_usd", {"lab": 0.5, "free": None}.get)
    text = SCENARIO.replace(
        "[{name: bls, profile: lab}]",
        "[{name: bls, profile: lab}, {name: dear, profile: lab, hourly_price_usd: 9}, "
        "{name: free, profile: free}, {name: far, server: {grpc: 'h:1', http: 'h:2'}}]",
    )
    assert sweep(text=text).exit_code == 0
    assert {each.subject: each.hourly_price_usd for each in facts_of(tmp_path)} == {
        "bls": 0.5, "dear": 9.0, "free": None, "far": None,
    }  # fmt: skip


def test_the_supplied_scenarios_are_listed_with_their_size():
    result = CliRunner().invoke(app, ["scenarios"])
    assert result.exit_code == 0
    assert "cpu_concurrency  24 x 1 x 5" in result.stdout


def test_help_has_examples_and_every_exit_status():
    result = CliRunner().invoke(app, ["sweep", "--help"], env={"COLUMNS": "120", "TERM": "dumb"})
    assert "naiad bench sweep quick" in result.stdout
    for status in ("0 all measured", "1 something", "2 the scenario", "3 more requests", "130 interrupted"):
        assert status in " ".join(result.stdout.split())
