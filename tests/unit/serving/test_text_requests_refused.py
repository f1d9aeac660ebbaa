"""Text requests that are refused, by the name of the tensor that the caller sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from naiad.contract import TENSORRT_LLM_BLS
from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.tokenization import Tokenizer
from tests.unit.serving.text_rows import PROMPT, TURN, row, rows


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("decoder_text_input", "x"),
        ("image_url_input", "http://x"),
        ("num_draft_tokens", 2),
        ("use_draft_logits", True),
        ("prompt_table_extra_id", 3),
        ("embedding_bias_words", ("a",)),
        ("embedding_bias_weights", (1.0,)),
    ],
)
def test_inputs_that_need_what_is_not_configured_are_refused_by_name(
    tokenizer: Tokenizer, name: str, value: Any
) -> None:
    with pytest.raises(Unsupported, match=f"input {name} is not supported"):
        row(tokenizer, **{name: value})


@pytest.mark.parametrize("name", ["image_input", "image_bytes_input", "video_bytes_input"])
def test_a_black_image_is_still_an_image(tokenizer: Tokenizer, name: str) -> None:
    spec = TENSORRT_LLM_BLS.input(name)
    black = np.zeros(
        (1, *(3 if size == -1 else size for size in spec.dims)), dtype=np.dtype(spec.dtype.numpy)
    )
    with pytest.raises(Unsupported, match=f"input {name} is not supported"):
        row(tokenizer, **{name: black.tolist()})


@pytest.mark.parametrize(
    ("extra", "given"), [({"messages": TURN, "text_input": "x"}, "both"), ({}, "neither")]
)
def test_a_prompt_is_either_text_or_messages(tokenizer: Tokenizer, extra: dict[str, Any], given: str) -> None:
    with pytest.raises(InvalidArgument, match=f"exactly one of text_input and messages; {given} came"):
        rows(tokenizer, max_tokens=8, **extra)


@pytest.mark.parametrize("values", [{"stream": True}, {"num_return_sequences": 2}])
def test_c17_many_responses_need_the_decoupled_profile(tokenizer: Tokenizer, values: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=f"{next(iter(values))}.* needs the decoupled profile"):
        rows(tokenizer, decoupled=False, **{**PROMPT, **values})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("max_tokens", [0, -1, 2**20 + 1, 2**31 - 1]),
        ("temperature", [float("nan"), -1.0]),
        ("top_p", [1.5, float("inf")]),
        ("top_k", [-1]),
        ("beam_width", [0]),
        ("num_return_sequences", [0, 65]),
        ("min_tokens", [9]),
        ("end_id", [-2]),
    ],
)
def test_c05_wrong_values_are_refused_by_the_callers_name_before_the_engine_hears_of_them(
    tokenizer: Tokenizer, name: str, wrong: list[float]
) -> None:
    for value in wrong:
        with pytest.raises(InvalidArgument, match=f"^{name} "):
            row(tokenizer, **{name: value})


def test_max_tokens_is_needed(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidArgument, match="max_tokens is missing"):
        rows(tokenizer, text_input="one")


@pytest.mark.parametrize("name", ["temperature", "seed", "top_k"])
def test_c03_an_empty_value_is_refused_by_name(tokenizer: Tokenizer, name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} is empty; leave it out instead"):
        row(tokenizer, **{name: ()})


@pytest.mark.parametrize(
    ("new", "old", "values"), [("min_tokens", "min_length", (1, 2)), ("seed", "random_seed", (3, 4))]
)
def test_two_spellings_that_disagree_are_refused(
    tokenizer: Tokenizer, new: str, old: str, values: tuple[int, int]
) -> None:
    with pytest.raises(InvalidArgument, match=f"{new} and {old} are the same setting"):
        row(tokenizer, **{new: values[0], old: values[1]})


@pytest.mark.parametrize("name", ["text_input", "stop_words", "bad_words", "messages"])
def test_c04_invalid_utf8_is_refused_by_name(tokenizer: Tokenizer, name: str) -> None:
    values = {"max_tokens": 8, name: b"\xff"} if name == "messages" else {**PROMPT, name: b"\xff"}
    with pytest.raises(InvalidArgument, match=f"{name} is not valid UTF-8"):
        rows(tokenizer, **values)


@pytest.mark.parametrize("words", [tuple("x" * 300), ("y" * 1025,)], ids=["too many", "too long"])
def test_c15_stop_words_beyond_their_limits_are_refused_when_the_request_is_read(
    tokenizer: Tokenizer, words: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidArgument, match="stop string"):
        row(tokenizer, stop_words=words)
