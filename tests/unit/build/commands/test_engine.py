"""`naiad build engine`: what it writes, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from naiad_build.cli import app
from naiad_build.tensorrt_llm.schema import check_llm_args
from tests.harness.published_models import CONFIGS


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS["Llama-3.1-8B"]), encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(
            app, ["engine", "--out", str(tmp_path / "out"), *map(str, arguments)], env={"COLUMNS": "300"}
        )

    return invoke


@pytest.mark.parametrize("profile", ["h100_fp8", "h200_fp8", "h200_fp8_tp2", "a100_int8_sq", "l40s_fp8"])
def test_without_the_tool_a_script_is_written_and_said_not_to_be_run(run, checkpoint, tmp_path, profile):
    done = run(checkpoint, "--profile", profile)
    assert done.exit_code == 0, done.output
    assert "is written and not run; there is no trtllm-build here" in done.output
    script = tmp_path / "out" / "build_engine.sh"
    assert script.stat().st_mode & 0o111
    assert "NOT RUN" in script.read_text(encoding="utf-8")


def test_a_profile_of_the_llm_api_gets_its_settings(run, checkpoint, tmp_path):
    done = run(checkpoint, "--profile", "llmapi_h200_fp8")
    assert done.exit_code == 0, done.output
    settings = yaml.safe_load((tmp_path / "out" / "llm_api.yaml").read_text(encoding="utf-8"))
    check_llm_args(settings)
    assert settings["max_batch_size"] == 256
    assert settings["kv_cache_config"]["dtype"] == "fp8"


def test_the_tool_is_run_where_it_is(run, checkpoint, tmp_path, monkeypatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "trtllm-build").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    (tools / "python3").write_text("#!/bin/sh\necho 1.0.0\n", encoding="utf-8")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    done = run(checkpoint, "--profile", "h200_fp8")
    assert done.exit_code == 1
    assert "build_engine.sh failed with status 1" in done.output
    assert run(checkpoint, "--profile", "h200_fp8", "--script-only").exit_code == 0


@pytest.mark.parametrize(
    ("model", "profile", "said"),
    [
        ("Llama-3.1-70B", "h100_fp8", "does not fit this model; these would: a batch of 13, 4 GPUs"),
        ("Llama-2-7B", "h200_fp8_tp2", "more than the 4,096 positions"),
        ("Llama-3.1-8B", "cpu", "profile cpu names no GPU"),
        ("Llama-3.1-8B", "nosuch", "there is no profile nosuch"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    run, checkpoint, tmp_path, model, profile, said
):
    (checkpoint / "config.json").write_text(json.dumps(CONFIGS[model]), encoding="utf-8")
    done = run(checkpoint, "--profile", profile)
    assert done.exit_code == 1
    assert said in done.output
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_is_not_there_is_named(run, tmp_path):
    done = run(tmp_path / "absent", "--profile", "h200_fp8")
    assert done.exit_code == 1
    assert f"there is no folder {tmp_path}/absent" in done.output
