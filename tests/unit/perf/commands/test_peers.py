"""`naiad bench peers` as a person meets it: options refused, results shown, statuses. Nothing is started."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from naiad_perf.burst_display import BurstDisplay
from naiad_perf.cli import app
from naiad_perf.commands import peers as peers_command
from naiad_perf.errors import PerfError
from naiad_perf.peers.likeness import Likeness
from naiad_perf.peers.outcome import outcome
from naiad_perf.peers.session import Options, Outcome
from naiad_perf.records import Run
from tests.unit.perf.peers.test_outcome import rounds

Call = Callable[..., Result]


class Stage:
    """Takes the place of the contest: keeps the options, and gives or raises what it was told."""

    def __init__(self) -> None:
        self.seen: list[Options] = []
        self.raises: BaseException | None = None
        self.alike = 8
        self.idle_cores = 0.01

    def hold(self, options: Options, display: BurstDisplay) -> Outcome:
        self.seen.append(options)
        if self.raises is not None:
            raise self.raises
        runs: Sequence[Run] = [*rounds("naiad", 8, [1, 1]), *rounds("llama_cpp", 8, [2, 4])]
        return Outcome(
            results=outcome(runs, "naiad"),
            descriptions={
                "naiad": {"version": "naiad 9"},
                "llama_cpp": {"version": "llama 8", "weights": "q8_0"},
            },
            memory_mb={"naiad": 900.0},
            alike={"llama_cpp": Likeness(self.alike, 8)},
            idle_cores=self.idle_cores,
        )


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage()
    monkeypatch.setattr(peers_command, "hold", made.hold)
    return made


@pytest.fixture
def call(tmp_path: Path) -> Call:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["peers", "--out", str(tmp_path / "out"), *arguments])

    return run


def test_all_but_a_program_that_was_not_named_take_part(stage: Stage, call: Call, tmp_path: Path) -> None:
    result = call()
    assert result.exit_code == 0, result.output
    (options,) = stage.seen
    assert options.names == ("naiad", "bare", "llama_cpp", "transformers")
    assert (options.streams, options.rounds) == ((1, 8, 32), 5)
    assert (options.input_tokens, options.output_tokens) == (64, 128)
    assert options.tune
    program = tmp_path / "llama-server"
    program.touch()
    call("--llama-server", str(program), "--streams", "4,2,4", "--no-tune", "--tokens", "7")
    _, options = stage.seen
    assert options.names == ("naiad", "bare", "llama_cpp", "llama_cpp_program", "transformers")
    assert (options.streams, options.tune) == ((2, 4), False)


def test_the_table_has_the_ratios_and_the_words_below_it_the_rest(stage: Stage, call: Call) -> None:
    shown = call().stdout
    assert "3.00 (2.00 to 4.00)" in shown
    assert "llama.cpp, wheel: llama 8; q8_0" in shown
    assert "llama.cpp, wheel goes on with 8 of 8 texts as we do" in shown
    assert "idle contestants kept at most 0.01 of a processor busy" in shown


def test_json_is_all_there_is_on_stdout(stage: Stage, call: Call) -> None:
    content = json.loads(call("--json").stdout)
    assert [row["subject"] for row in content["results"]] == ["naiad", "llama_cpp"]
    assert content["contestants"]["llama_cpp"] == {
        "label": "llama.cpp, wheel", "version": "llama 8", "weights": "q8_0"
    }  # fmt: skip
    assert content["answers_alike"] == {"llama_cpp": {"alike": 8, "of": 8}}


def test_what_makes_the_figures_doubtful_is_said(stage: Stage, call: Call) -> None:
    stage.alike = 3
    differing = call()
    assert "llama.cpp, wheel and we answer differently" in differing.stderr
    stage.alike, stage.idle_cores = 4, 0.2
    busy = call("--json")
    assert "answer differently" not in busy.stderr
    assert "contestants that were idle took processor time" in busy.stderr
    assert (differing.exit_code, busy.exit_code) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--streams", "8,x"], "--streams 8,x: give numbers from 1"),
        (["--streams", "0"], "--streams 0: give numbers from 1"),
        (["--streams", ""], "give numbers from 1"),
        (["--only", "naiad,vllm"], "there is no vllm; there are naiad, bare"),
        (["--only", "llama_cpp_program"], "needs --llama-server"),
        (["--rounds", "0"], "rounds"),
        (["--llama-server", "/nowhere/llama-server"], "llama-server"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    stage: Stage, call: Call, arguments: list[str], message: str, tmp_path: Path
) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert stage.seen == []
    assert not (tmp_path / "out").exists()


def test_results_are_never_mixed_with_older_ones(stage: Stage, call: Call, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "c1__naiad__000.parquet").touch()
    result = call()
    assert (result.exit_code, stage.seen) == (2, [])
    assert "is not empty" in result.stderr


def test_statuses(stage: Stage, call: Call, tmp_path: Path) -> None:
    stage.raises = PerfError("no torch")
    result = call()
    assert (result.exit_code, "no torch" in result.stderr) == (1, True)
    stage.raises = KeyboardInterrupt()
    result = call()
    assert result.exit_code == 130
    assert "finished bursts are kept" in result.stderr
