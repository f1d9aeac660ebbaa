"""The hosts of the stateless models: one response a request, and a request that fails does so alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from naiad.contract import POSTPROCESSING, PREPROCESSING, ModelSpec
from naiad.contract.errors import NaiadError
from naiad.serving.preprocessing import preprocess
from naiad.tokenization import Tokenizer
from naiad.triton import batch_host
from naiad.triton.batch_host import PostprocessingHost, PreprocessingHost
from tests.harness.fake_triton import InferenceRequest
from tests.harness.fake_triton_data import InferenceResponse, Tensor, TritonError
from tests.harness.tensors import arrays_of
from tests.harness.tiny_model import END
from tests.unit.triton.conftest import LogLines

ASK: dict[str, Any] = {"QUERY": "one two", "REQUEST_OUTPUT_LEN": 8}
Start = Callable[..., Any]


@pytest.fixture
def preprocessing(start: Start, model_directory: Path) -> PreprocessingHost:
    host: PreprocessingHost = start(PreprocessingHost, "preprocessing", tokenizer_dir=str(model_directory))
    return host


def request(spec: ModelSpec, values: dict[str, Any], outputs: list[str]) -> InferenceRequest:
    inputs = [Tensor(name, array) for name, array in arrays_of(spec, **values).items()]
    return InferenceRequest(inputs=inputs, requested_output_names=outputs)


def asked(*, outputs: tuple[str, ...] = ("INPUT_ID", "REQUEST_INPUT_LEN"), **values: Any) -> InferenceRequest:
    return request(PREPROCESSING, {**ASK, **values}, list(outputs))


def tensors(response: InferenceResponse) -> dict[str, Any]:
    assert not response.has_error()
    return {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()}


def test_each_request_has_its_response_in_order(
    preprocessing: PreprocessingHost, tokenizer: Tokenizer
) -> None:
    words = ["one", "two three", "four"]
    responses = preprocessing.execute([asked(QUERY=word) for word in words])
    assert [tensors(response)["INPUT_ID"] for response in responses] == [
        [tokenizer.encode(word)] for word in words
    ]


def test_only_requested_outputs_are_sent(preprocessing: PreprocessingHost) -> None:
    (response,) = preprocessing.execute([asked(outputs=("OUT_END_ID",))])
    assert tensors(response) == {"OUT_END_ID": [[END]]}


def test_a10_b20_one_bad_prompt_fails_alone(preprocessing: PreprocessingHost) -> None:
    good, bad, also_good = preprocessing.execute([asked(), asked(QUERY=b"\xff"), asked()])
    assert tensors(good) == tensors(also_good)
    error = bad.error()
    assert error.message() == "[INVALID_ARGUMENT] QUERY is not valid UTF-8: byte 0 cannot be decoded"
    assert error.code() == TritonError.INVALID_ARG


def test_g05_an_unexpected_error_fails_alone_and_leaks_nothing(
    preprocessing: PreprocessingHost, log: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    real = preprocess

    def broken(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyError("/srv/secret")
        return real(*arguments, **options)

    monkeypatch.setattr(batch_host, "preprocess", broken)
    bad, good = preprocessing.execute([asked(), asked()])
    assert bad.error().message().startswith("[INTERNAL] internal error, incident ")
    assert "secret" not in bad.error().message()
    assert log.about("/srv/secret")
    assert tensors(good)


@pytest.mark.parametrize(("flag", "shown"), [("true", [b"one"]), ("false", [b"one<|im_end|>"])])
def test_postprocessing_decodes_as_its_parameter_says(
    start: Start, model_directory: Path, tokenizer: Tokenizer, flag: str, shown: list[bytes]
) -> None:
    host = start(
        PostprocessingHost, "postprocessing", tokenizer_dir=str(model_directory), skip_special_tokens=flag
    )
    ids = [*tokenizer.encode("one"), END]
    values = {"TOKENS_BATCH": [[ids]], "SEQUENCE_LENGTH": [[len(ids)]]}
    (response,) = host.execute([request(POSTPROCESSING, values, ["OUTPUT"])])
    assert tensors(response) == {"OUTPUT": shown}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tokenizer_dir": "/no/such"}, "no prepared model"),
        ({"tokeniser_dir": "x"}, "did you mean tokenizer_dir"),
    ],
)
def test_b03_a_wrong_setting_refuses_the_load(start: Start, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(NaiadError, match=message):
        start(PreprocessingHost, "preprocessing", **parameters)


@pytest.mark.parametrize("host", [PreprocessingHost, PostprocessingHost])
def test_b03_a_flag_that_is_none_refuses_the_load(start: Start, model_directory: Path, host: Any) -> None:
    model = host.spec.name
    flag = "add_special_tokens" if model == "preprocessing" else "skip_special_tokens"
    with pytest.raises(NaiadError, match=flag):
        start(host, model, tokenizer_dir=str(model_directory), **{flag: "perhaps"})
