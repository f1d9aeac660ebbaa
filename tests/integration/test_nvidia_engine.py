"""The text models above an engine model that has what NVIDIA's backend has, and no more.

That backend is not here. Its place is taken by the synthetic engine behind the configuration that is rendered
for it: no `finish_reason`, no error in band, no token channel, so every token is a response of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf import text_format

from naiad.contract import MODELS
from naiad.tokenization import Tokenizer
from naiad_build.profile import Profile
from naiad_build.render import model_config
from tests.harness.prompts import TEXT_MODELS, text_inputs
from tests.harness.repository import MODEL_DIRECTORY, ROOT
from tests.harness.server import LiveServer, serving
from tests.harness.triton_request import Array, TritonStream, flag, infer_request, text

PROFILE = Profile(
    name="test",
    summary="an engine that has what NVIDIA's has",
    backend="tensorrtllm",
    decoupled=True,
    model_directory=str(MODEL_DIRECTORY.resolve()),
)
PROMPT = "one two three four five"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("nvidia")
    for spec in MODELS:
        config = model_config(spec, PROFILE)
        if spec.name == "tensorrt_llm":
            config.backend = "python"
            config.parameters["engine"].string_value = "synthetic"
            config.parameters["synthetic_step_ms"].string_value = "2"
        model = folder / "models" / spec.name
        model.mkdir(parents=True)
        (model / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")
        (model / "1").symlink_to(ROOT / "model_repository" / spec.name / "1")
    with serving(folder / "models", folder / "artifacts") as running:
        yield running


@pytest.fixture(scope="module")
def tokens() -> int:
    return len(Tokenizer.load(MODEL_DIRECTORY).encode(PROMPT))


@pytest.mark.parametrize("model", TEXT_MODELS)
@pytest.mark.parametrize("streaming", [False, True])
def test_text_comes_back_whole(server: LiveServer, tokens: int, model: str, streaming: bool) -> None:
    with TritonStream(server.grpc) as stream:
        answer = stream.ask(infer_request(model, text_inputs(PROMPT, tokens, stream=flag(streaming))))
    assert (answer.error, answer.text) == (None, PROMPT)


@pytest.mark.parametrize(
    ("limit", "stop", "reason"), [(2, None, "length"), (5, text(" three"), "stop")], ids=["length", "stop"]
)
def test_why_an_answer_ended_is_told_though_the_engine_does_not_say(
    server: LiveServer, limit: int, stop: Array | None, reason: str
) -> None:
    inputs = text_inputs(PROMPT, limit, stop_words=stop, stream=flag())
    with TritonStream(server.grpc) as stream:
        answer = stream.ask(infer_request("tensorrt_llm_bls", inputs))
    assert (answer.error, answer.text, answer.finish_reason) == (None, "one two", reason)


def test_an_engines_error_is_an_error_of_the_text_model(server: LiveServer) -> None:
    with TritonStream(server.grpc) as stream:
        answer = stream.ask(infer_request("tensorrt_llm_bls", text_inputs("word " * 9000, 8, stream=flag())))
    assert answer.error is not None
    assert answer.text == ""


def test_many_streams_at_once_each_get_their_own_text(server: LiveServer, tokens: int) -> None:
    def ask(_: int) -> str:
        with TritonStream(server.grpc) as stream:
            return stream.ask(
                infer_request("tensorrt_llm_bls", text_inputs(PROMPT, tokens, stream=flag()))
            ).text

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, range(64))) == {PROMPT}
