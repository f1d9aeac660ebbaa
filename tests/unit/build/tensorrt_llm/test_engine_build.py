"""The script that builds an engine: its commands, and what it does where the tools answer this or that.

TensorRT-LLM itself is not here: programs of the same names write down what they were called with.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from naiad_build.plan.deployment import Deployment, Load, Split
from naiad_build.plan.machines import GPUS
from naiad_build.plan.precisions import PRECISIONS
from naiad_build.profile import EngineBuild
from naiad_build.tensorrt_llm.engine_build import build_script, engine_commands, llm_args
from naiad_build.tensorrt_llm.schema import schema
from tests.harness.published_models import architecture

DEPLOYMENT = Deployment(
    architecture("Llama-3.1-70B"),
    GPUS["h200"],
    Split(2),
    PRECISIONS["fp8"],
    "fp8",
    Load(64, 3000, 1000, 8192),
)


def build(**more: object) -> EngineBuild:
    return EngineBuild.model_validate(
        {"precision": "fp8", "max_batch_size": 1, "max_input_len": 1, "max_seq_len": 2, **more}
    )


def options(words: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in itertools.pairwise(words) if name.startswith("--")}


def test_the_commands_say_what_was_planned() -> None:
    commands = engine_commands(DEPLOYMENT, build(flags={"use_fp8_context_fmha": "enable"}))
    quantize = options(commands.quantize)
    assert quantize["--qformat"] in schema()["quantize_qformats"]
    assert (quantize["--qformat"], quantize["--kv_cache_dtype"], quantize["--tp_size"]) == ("fp8", "fp8", "2")
    assert commands.build[0] == "trtllm-build"
    assert options(commands.build) == {
        "--checkpoint_dir": "checkpoint",
        "--output_dir": "engine.making",
        "--max_batch_size": "64",
        "--max_input_len": "3000",
        "--max_seq_len": "4000",
        "--max_num_tokens": "8192",
        "--kv_cache_type": "paged",
        "--workers": "2",
        "--use_fp8_context_fmha": "enable",
    }


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_format_is_one_that_quantize_knows(precision: str) -> None:
    quantize = options(
        engine_commands(replace(DEPLOYMENT, precision=PRECISIONS[precision]), build()).quantize
    )
    assert quantize["--qformat"] in schema()["quantize_qformats"]
    assert ("--calib_size" in quantize) == (precision not in ("float16", "bfloat16", "int8_wo"))


def test_a_full_kv_cache_is_not_named() -> None:
    commands = engine_commands(replace(DEPLOYMENT, kv_precision="float16"), build())
    assert "--kv_cache_dtype" not in commands.quantize


def test_the_llm_api_is_told_the_same_limits() -> None:
    settings = llm_args(DEPLOYMENT, build(llm_args={"enable_chunked_prefill": True}))
    assert settings == {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "max_batch_size": 64,
        "max_input_len": 3000,
        "max_seq_len": 4000,
        "max_num_tokens": 8192,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.9, "dtype": "fp8"},
        "enable_chunked_prefill": True,
    }


class Stage:
    """A folder with the script, a checkpoint, and programs that write down their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "with space"
        self.out.mkdir()
        self.checkpoint = folder / "it's a checkpoint"
        self.checkpoint.mkdir()
        self.script = self.out / "build_engine.sh"
        commands = engine_commands(DEPLOYMENT, build())
        self.script.write_text(build_script(commands, DEPLOYMENT, str(self.checkpoint)), encoding="utf-8")
        (folder / "bin").mkdir()
        self.program("nvidia-smi", "echo 9.0; echo 9.0")
        self.program("python3", self.steps("quantize"))
        self.program("trtllm-build", self.steps("build"))

    def steps(self, name: str) -> str:
        return f"""
if [[ ${{1:-}} == -c ]]; then echo '[TensorRT-LLM] hello'; echo "${{VERSION:-1.2.1}}"; exit; fi
printf '%s|' "$@" >> "{self.folder}/calls"; echo >> "{self.folder}/calls"
while [[ $1 != --output_dir ]]; do shift; done
mkdir "$2"
[[ ${{FAILS:-}} != {name} ]]"""

    def program(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", str(self.script), *arguments],
            env={"PATH": path, **environment}, capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_script_quantises_then_builds_beside_itself(stage: Stage) -> None:
    done = stage.run()
    assert (done.returncode, done.stderr) == (0, "")
    quantise, build_engine = stage.calls()
    assert f"|--model_dir|{stage.checkpoint}|--output_dir|checkpoint.making|--qformat|fp8|" in quantise
    assert "--checkpoint_dir|checkpoint|--output_dir|engine.making|--max_batch_size|64|" in build_engine
    assert sorted(path.name for path in stage.out.iterdir()) == ["build_engine.sh", "checkpoint", "engine"]


def test_a_machine_of_many_gpus_is_asked_to_the_end(stage: Stage) -> None:
    """A reader that stops at the first line would end nvidia-smi by a signal, and the script with it."""
    stage.program("nvidia-smi", "for _ in {1..20000}; do echo 9.0; done")
    assert stage.run().returncode == 0


def test_another_checkpoint_can_be_named(stage: Stage) -> None:
    other = stage.folder / "other"
    other.mkdir()
    done = stage.run(str(other))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"--model_dir|{other}|" in stage.calls()[0]


def test_after_a_failure_it_goes_on_behind_what_was_completed(stage: Stage) -> None:
    assert stage.run(FAILS="build").returncode == 1
    assert not (stage.out / "engine").exists()
    assert stage.run().returncode == 0
    assert ["trtllm" if call.startswith("--checkpoint_dir") else "quantize" for call in stage.calls()] == [
        "quantize", "trtllm", "trtllm",
    ]  # fmt: skip


def test_a_failed_quantisation_leaves_no_checkpoint(stage: Stage) -> None:
    assert stage.run(FAILS="quantize").returncode == 1
    assert not (stage.out / "checkpoint").exists()
    assert len(stage.calls()) == 1


def test_another_version_is_refused_before_anything_is_done(stage: Stage) -> None:
    done = stage.run(VERSION="1.3.0rc1")
    assert done.returncode == 1
    assert done.stderr == "error: this needs TensorRT-LLM 1.2.1; here is 1.3.0rc1\n"
    assert stage.calls() == []


def test_another_gpu_is_refused_before_anything_is_done(stage: Stage) -> None:
    stage.program("nvidia-smi", "echo 8.0")
    done = stage.run()
    assert done.returncode == 1
    assert done.stderr == "error: this is for compute capability 9.0 (H200 SXM 141 GB); here is 8.0\n"
    assert stage.calls() == []
