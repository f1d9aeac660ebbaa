"""`naiad build plan`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from naiad_build.cli import app
from tests.harness.published_models import CONFIGS


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Llama-3.1-8B"]), encoding="utf-8")
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(
        app, ["plan", *map(str, arguments)], env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    )


def test_what_fits_is_shown_with_speed_and_cost(checkpoint: Path) -> None:
    done = run(checkpoint, "--profile", "h100_fp8")
    assert done.exit_code == 0
    assert "8.03 B parameters, on H100 SXM 80 GB" in done.stdout
    assert "fits" in done.stdout
    assert "65,536 B each in fp8" in done.stdout
    assert "at most (roofline; steps wait for memory)" in done.stdout
    assert "at $3.5 an hour" in done.stdout


def test_what_does_not_fit_ends_with_1_and_the_nearest_that_does(checkpoint: Path) -> None:
    done = run(checkpoint, "--gpu", "l40s", "--kv-precision", "bfloat16", "--batch", 130)
    assert done.exit_code == 1
    assert "does not fit" in done.stdout
    assert "tokens/s" not in done.stdout
    lines = done.stderr.splitlines()
    assert lines[0] == "it does not fit; with all else as it is, these do:"
    assert lines[1:] == ["  a batch of 62", "  prompts of 928 tokens", "  2 GPUs"]


def test_nothing_near_is_said_so(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text(json.dumps(CONFIGS["Llama-3.1-405B"]), encoding="utf-8")
    done = run(checkpoint, "--gpu", "l40s", "--precision", "int4_awq", "--batch", 60_000)
    assert done.exit_code == 1
    assert "nothing near to it does: choose a smaller model" in done.stderr


def test_a_price_is_of_its_own_machine_unless_stated(checkpoint: Path) -> None:
    assert "$ a million" not in run(checkpoint, "--gpu", "h200").stdout
    assert "at $9 an hour" in run(checkpoint, "--gpu", "h200", "--hourly-price", 9).stdout


def test_json_has_all_figures(checkpoint: Path) -> None:
    found = json.loads(
        run(
            checkpoint, "--gpus", 2, "--batch", 8, "--input-tokens", 100, "--output-tokens", 28, "--json"
        ).stdout
    )
    assert (found["gpus"], found["tensor_parallel"], found["pipeline_parallel"]) == (2, 2, 1)
    assert found["fits"] is True
    assert found["bytes_per_gpu"]["kv_needed"] == 8 * 128 * 32_768
    assert found["kv_bytes_per_token"] == 65_536
    assert found["usd_per_million_tokens"] is None
    assert found["alternatives"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "h10"], "--gpu: 'h10' is none of a100_80gb"),
        (["--precision", "fp7"], "--precision: 'fp7' is none of float16"),
        (["--kv-precision", "int3"], "--kv-precision: 'int3' is none of float16"),
        (["--profile", "cpu"], "profile cpu names no GPU to plan for; these do: "),
        (["--profile", "nosuch"], "there is no profile nosuch; known are: "),
        (["--gpu", "a100_80gb"], "cannot compute in fp8"),
        (["--input-tokens", "131072"], "more than the 131,072 positions"),
        (["--gpus", "7"], ""),
    ],
)
def test_what_is_wrong_is_said(checkpoint: Path, arguments: list[str], said: str) -> None:
    done = run(checkpoint, *arguments)
    assert said in done.stderr
    assert done.exit_code == (1 if said else 0)


def test_a_folder_without_a_configuration_is_named(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.exit_code == 1
    assert f"there is no {tmp_path}/config.json" in done.stderr
