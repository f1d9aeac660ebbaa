"""The commands against a real gRPC server in this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from naiad_client.cli import app
from tests.unit.client.triton_server import ScriptedTriton, Visit, eventually, running


@pytest.fixture
def triton() -> Iterator[ScriptedTriton]:
    with running() as server:
        yield server


def run(triton: ScriptedTriton | None, *words: str, stdin: str | None = None) -> Result:
    env = {"NAIAD_URL": "127.0.0.1:1" if triton is None else triton.address, "COLUMNS": "200"}
    return CliRunner().invoke(app, list(words), input=stdin, env=env)


def started(triton: ScriptedTriton, *words: str) -> subprocess.Popen[bytes]:
    """The command as a process of its own, to be read while it runs and interrupted."""
    return subprocess.Popen(
        [sys.executable, "-c", "from naiad_client.cli import app; app()", *words],
        env={**os.environ, "NAIAD_URL": triton.address, "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def sent(visit: Visit) -> dict[str, bytes]:
    request = visit.request
    return {tensor.name: raw for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)}


def messages(visit: Visit) -> Any:
    return json.loads(sent(visit)["messages"][4:])


def test_ask_writes_the_answer_to_stdout_and_one_line_of_figures_to_stderr(triton: ScriptedTriton) -> None:
    result = run(triton, "ask", "words")
    assert result.exit_code == 0, result.output
    assert result.stdout == "Héllo 🌍 世界\n"
    (line,) = result.stderr.splitlines()
    assert line.startswith("prompt 5 tokens | output 5 tokens | TTFT ")
    assert line.endswith(" tokens/s")
    assert "ITL" in line


def test_ask_shows_each_piece_when_it_arrives(triton: ScriptedTriton) -> None:
    with started(triton, "ask", "one token") as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == b"one", "although the answer is not complete"
        process.send_signal(signal.SIGINT)
        rest, problem = process.communicate(timeout=20)
    assert process.returncode == 130
    assert rest == b"\n"
    assert problem == b"cancelled\n"
    assert eventually(lambda: triton.visits[0].cancelled)


def test_ask_as_json_is_one_object_and_nothing_else(triton: ScriptedTriton) -> None:
    result = run(triton, "ask", "words", "--json")
    answer = json.loads(result.stdout)
    assert result.stderr == ""
    assert answer["text"] == "Héllo 🌍 世界"
    assert answer["finish_reason"] == "stop"
    assert answer["usage"] == {"num_input_tokens": 5, "num_output_tokens": 5}
    assert answer["ttft_ms"] > 0
    assert answer["tokens_per_s"] > 0


def test_every_option_of_ask_reaches_the_server(triton: ScriptedTriton) -> None:
    triton.behaviours["q"] = triton.behaviours["words"]
    result = run(
        triton, "ask", "q", "--model", "ensemble", "--max-tokens", "9", "--temperature", "0.5",
        "--top-k", "3", "--top-p", "0.25", "--seed", "7", "--stop", "a", "--stop", "b",
        "--system", "Be brief.", "--timeout", "8",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (visit,) = triton.visits
    tensors = sent(visit)
    assert visit.request.model_name == "ensemble"
    assert messages(visit) == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}]
    assert tensors["max_tokens"] == b"\x09\0\0\0"
    assert tensors["temperature"] == b"\0\0\0\x3f"
    assert tensors["top_k"] == b"\x03\0\0\0"
    assert tensors["top_p"] == b"\0\0\x80\x3e"
    assert tensors["seed"] == b"\x07" + b"\0" * 7
    assert tensors["stop_words"] == b"\x01\0\0\0a\x01\0\0\0b"
    assert 7_000_000 < visit.request.parameters["timeout"].int64_param <= 8_000_000


def test_a_raw_prompt_goes_without_template_and_may_come_from_stdin(triton: ScriptedTriton) -> None:
    assert run(triton, "ask", "--raw", "-", stdin="words").exit_code == 0
    assert sent(triton.visits[0])["text_input"][4:] == b"words"
    assert "messages" not in sent(triton.visits[0])


@pytest.mark.parametrize(
    "words",
    [
        ["ask"],
        ["ask", " "],
        ["ask", "q", "--top-p", "1.5"],
        ["ask", "q", "--max-tokens", "0"],
        ["ask", "q", "--nonsense"],
        ["ask", "q", "--raw", "--system", "s"],
        ["nonsense"],
    ],
)
def test_wrong_usage_exits_with_2(words: list[str]) -> None:
    result = run(None, *words)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("words", "said", "advised"),
    [
        (["ask", "refused"], "9000 prompt tokens, at most 2048 [PROMPT_TOO_LONG]", "shorten the prompt"),
        (["ask", "unknown model", "-m", "zzz"], "'zzz' is not found [MODEL_NOT_FOUND]", "`models`"),
        (["ask", "truncated"], "(the answer is incomplete)", "try again"),
        (["ask", "slow", "--timeout", "0.2"], "[TOTAL_TIMEOUT]", "--timeout"),
        (["ask", "q", "--seed", str(2**64)], "seed must be between 0 and", "correct the request"),
        (["ask", "q", "--url", "http://x"], "must look like host:port", "correct the request"),
        (["ask", "never scripted"], "no behaviour", "server's log"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(
    words: list[str], said: str, advised: str, triton: ScriptedTriton
) -> None:
    result = run(triton, *words)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), "a wanted end, not an escaped error"
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert advised in line
    assert result.stdout == "" or result.stdout.endswith("\n")


@pytest.mark.parametrize("words", [["ask", "q"], ["models"], ["health"]])
def test_without_a_server_each_command_fails_in_one_line(words: list[str]) -> None:
    result = run(None, *words)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "no Triton gRPC server answers at 127.0.0.1:1" in line
    assert "--url or NAIAD_URL" in line


def test_chat_keeps_the_conversation_until_reset(triton: ScriptedTriton) -> None:
    result = run(
        triton, "chat", "--system", "S", stdin="words\n\nwords\n/reset\nwords\n/what\n/exit\nwords\n"
    )
    assert result.exit_code == 0, result.output
    assert [len(messages(visit)) for visit in triton.visits] == [2, 4, 2]
    assert messages(triton.visits[1]) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "words"},
        {"role": "assistant", "content": "Héllo 🌍 世界"},
        {"role": "user", "content": "words"},
    ]
    assert "unknown command /what" in result.stderr


def test_chat_goes_on_after_an_error_and_forgets_the_failed_turn(triton: ScriptedTriton) -> None:
    result = run(triton, "chat", stdin="refused\nwords\n")
    assert result.exit_code == 0, "end of input leaves"
    assert "PROMPT_TOO_LONG" in result.stderr
    assert [message["content"] for message in messages(triton.visits[1])] == ["words"]


def test_ctrl_c_stops_the_answer_but_not_the_chat(triton: ScriptedTriton) -> None:
    with started(triton, "chat") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one token\n")
        process.stdin.flush()
        assert process.stdout.read(5) == b"> one", "the answer has begun and been taken in"
        process.send_signal(signal.SIGINT)
        assert eventually(lambda: triton.visits[0].cancelled)
        rest, problem = process.communicate(b"words\n/exit\n", timeout=20)
    assert process.returncode == 0, problem
    assert "Héllo 🌍 世界\n" in rest.decode()
    assert b"cancelled\n" in problem
    assert messages(triton.visits[1]) == [
        {"role": "user", "content": "one token"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "words"},
    ]


def test_a_turn_stopped_before_its_first_token_is_forgotten(triton: ScriptedTriton) -> None:
    with started(triton, "chat") as process:
        assert process.stdin is not None
        process.stdin.write(b"no token\n")
        process.stdin.flush()
        assert eventually(lambda: bool(triton.visits), within_s=20)
        process.send_signal(signal.SIGINT)
        _, problem = process.communicate(b"words\n", timeout=20)
    assert process.returncode == 0, problem
    assert [message["content"] for message in messages(triton.visits[1])] == ["words"]


def test_models_is_a_table_or_json(triton: ScriptedTriton) -> None:
    rows = [line.split() for line in run(triton, "models").stdout.splitlines()]
    assert rows == [
        ["model", "version", "ready", "state"],
        ["broken", "2", "no", "UNAVAILABLE:", "no", "tokenizer", "[x]"],
        ["idle", "-", "no", "NOT", "LOADED"],
        ["tensorrt_llm_bls", "1", "yes", "READY"],
    ]
    found = json.loads(run(triton, "models", "--json").stdout)["models"]
    assert found[0] == {
        "name": "broken", "version": "2", "ready": False,
        "state": "UNAVAILABLE", "reason": "no tokenizer [x]",
    }  # fmt: skip


def test_health_tells_by_its_exit_status(triton: ScriptedTriton) -> None:
    well = run(triton, "health")
    assert well.exit_code == 0, well.output
    assert "canary  one token in" in well.stdout
    triton.behaviours["Hi"] = triton.behaviours["dies"]
    ill = run(triton, "health")
    assert ill.exit_code == 1
    assert "canary  failed" in ill.stdout
    state = json.loads(run(triton, "health", "--json").stdout)
    assert (state["healthy"], state["live"], state["ready"]) == (False, True, True)
    assert "ENGINE_UNAVAILABLE" in state["problem"]


def test_a_canary_that_never_answers_is_not_waited_for(triton: ScriptedTriton) -> None:
    triton.behaviours["Hi"] = triton.behaviours["no token"]
    assert run(triton, "health", "--timeout", "0.2").exit_code == 1


@pytest.mark.parametrize("command", ["ask", "chat", "models", "health"])
def test_help_has_examples(command: str) -> None:
    result = run(None, command, "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"naiad {command}" in result.stdout


def test_the_commands_can_be_mounted_at_the_top_of_another_app(triton: ScriptedTriton) -> None:
    outer = typer.Typer()
    outer.command("serve")(lambda: None)
    outer.add_typer(app)
    result = CliRunner().invoke(outer, ["ask", "words", "--url", triton.address])
    assert result.stdout == "Héllo 🌍 世界\n"
