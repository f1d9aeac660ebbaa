"""From checkpoint to TensorRT-LLM engine: the commands, as a script for the container that will serve it.

An engine runs only on the kind of GPU and the version of TensorRT-LLM it was built with, so the script checks
both. What it does was not run by us: there was no GPU.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from naiad_build.plan.deployment import Deployment
from naiad_build.plan.memory import KV_FRACTION
from naiad_build.profile import EngineBuild
from naiad_build.tensorrt_llm.schema import check_build_flags, check_llm_args, schema

__all__ = ["VERSION", "EngineCommands", "build_script", "engine_commands", "llm_args"]

VERSION = "1.2.1"
"""Last release with the engine path; in containers 26.04 to 26.07."""
_QUANTIZE = "/app/examples/quantization/quantize.py"
_FULL_PRECISIONS = ("float16", "bfloat16")
_NO_CALIBRATION = ("int8_wo",)
_CALIBRATION_TEXTS = 512


@dataclass(frozen=True, slots=True)
class EngineCommands:
    """The two steps, as words of their command lines.

    Attributes:
        quantize: checkpoint of Hugging Face to checkpoint of TensorRT-LLM.
        build: that to an engine.
    """

    quantize: tuple[str, ...]
    build: tuple[str, ...]


def engine_commands(deployment: Deployment, engine: EngineBuild) -> EngineCommands:
    """Return the commands that build a deployment's engine, as `build_script` runs them.

    Args:
        deployment: model, machine and formats; its load is the engine's limits.
        engine: what else the build is told.

    Raises:
        InvalidArgument: a flag is unknown, deprecated or wrongly typed.
    """
    split, load = deployment.split, deployment.load
    quantize = [
        "python3", _QUANTIZE, "--model_dir", "$checkpoint", "--output_dir", "checkpoint.making",
        "--qformat", _qformat(deployment.precision.name), "--dtype", _dtype(deployment.precision.name),
        "--tp_size", str(split.tensor_parallel), "--pp_size", str(split.pipeline_parallel),
    ]  # fmt: skip
    if deployment.kv_precision not in _FULL_PRECISIONS:
        quantize += ["--kv_cache_dtype", deployment.kv_precision]
    if deployment.precision.name not in (*_FULL_PRECISIONS, *_NO_CALIBRATION):
        quantize += ["--calib_size", str(_CALIBRATION_TEXTS)]
    flags = {
        "checkpoint_dir": "checkpoint",
        "output_dir": "engine.making",
        "max_batch_size": load.batch,
        "max_input_len": load.input_tokens,
        "max_seq_len": load.sequence_tokens,
        "max_num_tokens": load.max_num_tokens,
        "kv_cache_type": "paged",
        "workers": split.gpus,
        **engine.flags,
    }
    return EngineCommands(tuple(quantize), ("trtllm-build", *check_build_flags(flags)))


def build_script(commands: EngineCommands, deployment: Deployment, checkpoint: str) -> str:
    """Return the bash script that runs the commands where TensorRT-LLM and the GPU are.

    Run again after a failure, it goes on behind the last step that was completed.

    Args:
        commands: from `engine_commands`.
        deployment: what they build.
        checkpoint: folder of the Hugging Face checkpoint, unless the script is given another.
    """
    gpu = deployment.gpu
    major, minor = gpu.compute_capability
    return f"""\
#!/usr/bin/env bash
# Builds a TensorRT-LLM {VERSION} engine for {deployment.split.gpus} x {gpu.title}, in `engine` beside this script.
# NOT RUN when it was written.
#
#     ./build_engine.sh [CHECKPOINT]
#
# Run it on the GPU that will serve the engine, in the container that will: NVIDIA's tritonserver with the tag
# 26.07-trtllm-python-py3, or 26.04 to 26.06. Run again after a failure, it goes on where it ended.
set -euo pipefail
usual={shlex.quote(checkpoint)}
checkpoint=$(realpath "${{1:-$usual}}")
cd "$(dirname "$0")"

version=$(python3 -c 'import tensorrt_llm; print(tensorrt_llm.__version__)' | tail -n 1)
if [[ $version != {VERSION} ]]; then
    echo "error: this needs TensorRT-LLM {VERSION}; here is $version" >&2
    exit 1
fi
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sed -n 1p)  # reads it all, unlike head
if [[ $capability != {major}.{minor} ]]; then
    echo "error: this is for compute capability {major}.{minor} ({gpu.title}); here is $capability" >&2
    exit 1
fi

if [[ ! -d checkpoint ]]; then
    rm -rf checkpoint.making
    {_shown(commands.quantize)}
    mv checkpoint.making checkpoint
fi
if [[ ! -d engine ]]; then
    rm -rf engine.making
    {_shown(commands.build)}
    mv engine.making engine
fi
"""  # noqa: E501 - lines of the script are longer than they look


def llm_args(deployment: Deployment, engine: EngineBuild) -> dict[str, object]:
    """Return the settings of `tensorrt_llm.LLM` that serve a deployment, for its YAML.

    Raises:
        InvalidArgument: one of the profile's own is unknown, deprecated or wrongly typed.
    """
    kv = deployment.kv_precision
    settings: dict[str, object] = {
        "tensor_parallel_size": deployment.split.tensor_parallel,
        "pipeline_parallel_size": deployment.split.pipeline_parallel,
        "max_batch_size": deployment.load.batch,
        "max_input_len": deployment.load.input_tokens,
        "max_seq_len": deployment.load.sequence_tokens,
        "max_num_tokens": deployment.load.max_num_tokens,
        "kv_cache_config": {
            "free_gpu_memory_fraction": KV_FRACTION,
            "dtype": kv if kv in schema()["kv_cache_dtypes"]["KvCacheConfig.dtype (pytorch)"] else "auto",
        },
    }
    settings |= engine.llm_args
    check_llm_args(settings)
    return settings


def _qformat(precision: str) -> str:
    return "full_prec" if precision in _FULL_PRECISIONS else precision


def _dtype(precision: str) -> str:
    return precision if precision in _FULL_PRECISIONS else "auto"


def _shown(words: tuple[str, ...]) -> str:
    """Write a command line, an option a line; `$name` stays a variable."""
    lines: list[str] = []
    for word in words:
        quoted = f'"{word}"' if word.startswith("$") else shlex.quote(word)
        if word.startswith("--") or not lines:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n        ".join(lines)
