"""GGUF to OpenVINO IR, and the check that what came out answers.

Both run in a process of their own: the converter is native code that can take the interpreter down and keeps
its memory, and a crash or an out-of-memory kill must become an error message and leave nothing behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naiad_build.errors import ConversionError, UnsupportedModelError
from naiad_build.gguf_weights import matrix_formats, write_gguf_as

__all__ = [
    "IR_FILES",
    "TOKENIZER_IR_FILES",
    "Sample",
    "convert_gguf",
    "export_checkpoint",
    "run_tool",
    "sample",
]

IR_FILES = ("openvino_model.xml", "openvino_model.bin")
TOKENIZER_IR_FILES = (
    "openvino_tokenizer.xml",
    "openvino_tokenizer.bin",
    "openvino_detokenizer.xml",
    "openvino_detokenizer.bin",
)

# Formats of matrices that OpenVINO's reader takes for what they are.
_READ_EXACTLY = frozenset({"f32", "f16", "bf16", "q4_0", "q8_0"})
_CONVERT_LIMIT_S = 3600
_SAMPLE_LIMIT_S = 600
_PROBE = "What is the capital of France?"
_SAMPLE_TOKENS = 12
# KV blocks of 32 tokens: enough for one short probe.
_PROBE_KV_BLOCKS = 32


@dataclass(frozen=True, slots=True)
class Sample:
    """One greedy answer of the built engine: ids as generated, and their text."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    text: str


def convert_gguf(gguf: Path, directory: Path, *, form: str | None = None) -> str | None:
    """Write the IR of `gguf` and of its tokenizer into `directory` (about 15 s for 135M parameters).

    Args:
        gguf: the file.
        directory: where the IR goes.
        form: ggml type that all matrices are rewritten as first. By default only those that OpenVINO would
            read inexactly, or not at all, are: as `q8_0` (see `naiad_build.gguf_weights`).

    Returns:
        What was rewritten to, if anything.

    Raises:
        UnsupportedModelError: they cannot be rewritten.
        ConversionError: OpenVINO refused the file (its quantisation or architecture), crashed or was killed.
    """
    rewritten = None
    # OpenVINO writes beside the path it is given: a link makes that `directory` without copying the weights.
    source = directory / "source.gguf"
    try:
        if form is not None:
            rewritten = form
            write_gguf_as(gguf, form, source)
        elif matrix_formats(gguf).keys() <= _READ_EXACTLY:
            source.symlink_to(gguf.resolve())
        else:
            rewritten = "q8_0"
            write_gguf_as(gguf, rewritten, source, keep=_READ_EXACTLY)
        _run_worker("convert", {"gguf": str(source)}, _CONVERT_LIMIT_S)
    finally:
        source.unlink(missing_ok=True)
    missing = [name for name in (*IR_FILES, *TOKENIZER_IR_FILES) if not (directory / name).is_file()]
    if missing:
        raise ConversionError(f"OpenVINO reported success but did not write {', '.join(missing)}")
    return rewritten


def sample(directory: Path, vocab_size: int) -> Sample:
    """Generate a few tokens with the engine and tokenizer in `directory`.

    Raises:
        ConversionError: no tokens, ids outside the vocabulary, one token repeated, or no readable text.
    """
    result = _run_worker("sample", {"directory": str(directory)}, _SAMPLE_LIMIT_S)
    answer = Sample(tuple(result["prompt_ids"]), tuple(result["ids"]), str(result["text"]))
    check_sample(answer, vocab_size)
    return answer


def check_sample(answer: Sample, vocab_size: int) -> None:
    """Raise `ConversionError` when `answer` could not come from a working model."""
    shown = f"ids {list(answer.ids)}, text {answer.text!r}"
    if not answer.ids:
        raise ConversionError("the built engine produced no token at all")
    outside = [index for index in (*answer.prompt_ids, *answer.ids) if not 0 <= index < vocab_size]
    if outside:
        raise ConversionError(
            f"token ids {outside} lie outside the vocabulary of {vocab_size}: tokenizer mismatch"
        )
    if len(answer.ids) >= _SAMPLE_TOKENS and len(set(answer.ids)) == 1:
        raise ConversionError(f"the built engine only repeats one token ({shown})")
    if not any(character.isalnum() for character in answer.text) or "\ufffd" in answer.text.rstrip("\ufffd"):
        raise ConversionError(f"the built engine's answer is not readable text ({shown})")


def export_checkpoint(checkpoint: Path, directory: Path, *, weights: str = "int8") -> None:
    """Export a safetensors checkpoint to IR with optimum-intel, if it is installed.

    Args:
        checkpoint: its folder.
        directory: where the IR goes.
        weights: optimum-intel's `--weight-format`.

    Raises:
        UnsupportedModelError: optimum-intel is not installed; the message is the recipe.
        ConversionError: the export failed.
    """
    command = [
        sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino",
        "--model", str(checkpoint), "--task", "text-generation-with-past", "--weight-format", weights,
        str(directory),
    ]  # fmt: skip
    if not _can_export():
        raise UnsupportedModelError(
            f"{checkpoint} holds safetensors weights; making an OpenVINO IR of those needs optimum-intel, "
            "which is not part of the serving environment. In an environment of its own:\n"
            "  python -m venv /tmp/export && . /tmp/export/bin/activate\n"
            "  pip install torch==2.13.0   # its CPU build is enough\n"
            "  pip install transformers==5.5.4 nncf==3.4.0 accelerate \\\n"
            "    openvino==2026.4.1 openvino-tokenizers==2026.4.1.0\n"
            "  pip install --no-deps optimum==2.3.0 optimum-intel==2.2.0\n"
            f"  optimum-cli export openvino --model {checkpoint} --weight-format {weights} IR_DIRECTORY\n"
            "then: naiad build prepare dir:IR_DIRECTORY"
        )
    run_tool(command, _CONVERT_LIMIT_S, "optimum-intel")


def _can_export() -> bool:
    from importlib.util import find_spec

    try:
        return find_spec("optimum.intel") is not None
    except ModuleNotFoundError:
        return False


def _run_worker(task: str, arguments: dict[str, str], limit_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="naiad-build-") as scratch:
        result = Path(scratch) / "result.json"
        command = [
            sys.executable,
            "-m",
            "naiad_build.openvino_model",
            task,
            json.dumps(arguments),
            str(result),
        ]
        run_tool(command, limit_s, "OpenVINO")
        content: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return content


def run_tool(command: list[str], limit_s: float, tool: str) -> None:
    """Run a program of `tool` to its end.

    Raises:
        ConversionError: it failed, was killed, or did not end in time; holds the end of what it said.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConversionError(f"{tool} did not finish within {limit_s:.0f} s") from error
    if done.returncode == 0:
        return
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        hint = ": usually too little memory" if name == "SIGKILL" else ""
        raise ConversionError(f"{tool} was ended by {name}{hint}")
    tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
    raise ConversionError(f"{tool} failed (exit {done.returncode}):\n{tail}")


def _convert_worker(arguments: dict[str, str]) -> dict[str, Any]:
    import openvino_genai

    gguf = arguments["gguf"]
    openvino_genai.Tokenizer(gguf, enable_save_ov_model=True)
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = _PROBE_KV_BLOCKS
    openvino_genai.ContinuousBatchingPipeline(gguf, scheduler, "CPU", {"enable_save_ov_model": True})
    return {}


def _sample_worker(arguments: dict[str, str]) -> dict[str, Any]:
    import numpy as np
    import openvino
    import openvino_genai
    from tokenizers import Tokenizer

    directory = arguments["directory"]
    tokenizer = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    prompt = tokenizer.encode(_PROBE).ids
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = _PROBE_KV_BLOCKS
    pipeline = openvino_genai.ContinuousBatchingPipeline(directory, scheduler, "CPU", {})
    settings = openvino_genai.GenerationConfig()
    settings.max_new_tokens = _SAMPLE_TOKENS
    settings.ignore_eos = True  # a bare question may well be followed by the end of the text
    handle = pipeline.add_request(0, openvino.Tensor(np.array([prompt], dtype=np.int64)), settings)
    ids: list[int] = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        while handle.can_read():
            for output in handle.read().values():
                ids.extend(output.generated_ids)
    return {"prompt_ids": prompt, "ids": ids, "text": tokenizer.decode(ids)}


def _main() -> None:
    task, arguments, result = sys.argv[1:]
    worker = {"convert": _convert_worker, "sample": _sample_worker}[task]
    content = worker(json.loads(arguments))
    Path(result).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    _main()
