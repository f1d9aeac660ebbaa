"""Model `preprocessing`: prompts, words and biases to tensors of the declared shapes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from naiad.contract import PREPROCESSING
from naiad.contract.errors import InvalidArgument, NaiadError, Unsupported
from naiad.serving.preprocessing import preprocess
from naiad.serving.prompts import encode_prompt
from naiad.tokenization import Tokenizer, parse_messages
from tests.harness.tensors import inputs_of
from tests.harness.tiny_model import END, OTHER_END

TURN = json.dumps([{"role": "user", "content": "one two"}])


def run(tokenizer: Tokenizer, *, batch_size: int = 1, **values: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"REQUEST_OUTPUT_LEN": [[8]] * batch_size, **values}
    inputs = inputs_of(PREPROCESSING, batch_size=batch_size, **given)
    return preprocess(inputs, tokenizer, add_special_tokens=True)


def test_every_output_has_the_contracts_dtype_and_number_of_dimensions(tokenizer: Tokenizer) -> None:
    outputs = run(
        tokenizer, batch_size=2, QUERY=[["one"], ["one two three"]], STOP_WORDS_DICT=[["stop"], ["six"]],
        EMBEDDING_BIAS_WORDS=[["one"], ["two"]], EMBEDDING_BIAS_WEIGHTS=[[1.0], [2.0]],
    )  # fmt: skip
    for name, array in outputs.items():
        spec = PREPROCESSING.output(name)
        assert array.dtype == np.dtype(spec.dtype.numpy), name
        assert array.ndim == 1 + len(spec.dims), name
        assert array.shape[0] == 2, name


def test_what_is_not_asked_for_is_empty_or_the_tokenizers_own(tokenizer: Tokenizer) -> None:
    outputs = run(tokenizer, QUERY="one two")
    ids = tokenizer.encode("one two")
    assert outputs["INPUT_ID"].tolist() == [ids]
    assert outputs["REQUEST_INPUT_LEN"].tolist() == [[len(ids)]]
    assert outputs["REQUEST_OUTPUT_LEN"].tolist() == [[8]]
    assert outputs["STOP_WORDS_IDS"].shape == outputs["BAD_WORDS_IDS"].shape == (1, 2, 0)
    assert outputs["EMBEDDING_BIAS"].shape == (1, 0)
    assert (outputs["OUT_END_ID"].tolist(), outputs["OUT_PAD_ID"].tolist()) == ([[END]], [[tokenizer.pad_id]])
    assert "DECODER_INPUT_ID" not in outputs


def test_shorter_prompts_of_a_batch_are_padded_with_their_own_pad_id(tokenizer: Tokenizer) -> None:
    prompts = ["one", "one two three", "one two"]
    outputs = run(tokenizer, batch_size=3, QUERY=[[text] for text in prompts], PAD_ID=[[5], [6], [7]])
    encoded = [tokenizer.encode(text) for text in prompts]
    width = max(map(len, encoded))
    assert outputs["REQUEST_INPUT_LEN"].tolist() == [[len(ids)] for ids in encoded]
    padded = [ids + [pad] * (width - len(ids)) for ids, pad in zip(encoded, (5, 6, 7), strict=True)]
    assert outputs["INPUT_ID"].tolist() == padded
    assert outputs["OUT_PAD_ID"].tolist() == [[5], [6], [7]]


def test_end_and_pad_ids_pass_through(tokenizer: Tokenizer) -> None:
    outputs = run(tokenizer, QUERY="one", END_ID=OTHER_END, PAD_ID=9)
    assert (outputs["OUT_END_ID"].tolist(), outputs["OUT_PAD_ID"].tolist()) == ([[OTHER_END]], [[9]])
    assert run(tokenizer, QUERY="one", END_ID=-1)["OUT_END_ID"].tolist() == [[-1]]
    with pytest.raises(InvalidArgument, match="END_ID must be from -1"):
        run(tokenizer, QUERY="one", END_ID=-2)


def test_words_are_encoded_without_a_frame_and_empty_ones_skipped(tokenizer: Tokenizer) -> None:
    outputs = run(tokenizer, QUERY="one", STOP_WORDS_DICT=("six", "", "stop"), BAD_WORDS_DICT=("two",))
    six, stop, two = tokenizer.encode_words(["six", "stop", "two"])
    flat, offsets = outputs["STOP_WORDS_IDS"][0].tolist()
    assert flat == six + stop
    assert [offset for offset in offsets if offset >= 0] == [len(six), len(six) + len(stop)]
    assert outputs["BAD_WORDS_IDS"][0][0].tolist() == two


def test_messages_are_rendered_with_the_chat_template(tokenizer: Tokenizer) -> None:
    outputs = run(tokenizer, MESSAGES=TURN)
    assert outputs["INPUT_ID"].tolist() == [tokenizer.encode_messages(parse_messages(TURN))]


@pytest.mark.parametrize(
    ("values", "given"),
    [({"QUERY": "one", "MESSAGES": TURN}, "both"), ({}, "neither")],
)
def test_a_prompt_is_either_text_or_messages(
    tokenizer: Tokenizer, values: dict[str, Any], given: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"give exactly one of QUERY and MESSAGES; {given} came"):
        run(tokenizer, **values)


def test_c12_an_empty_prompt_is_refused_and_a_blank_one_is_served(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidArgument, match="QUERY is empty"):
        run(tokenizer, QUERY="")
    assert run(tokenizer, QUERY="  ")["REQUEST_INPUT_LEN"].item() > 0


def test_c12_a_prompt_that_comes_to_no_token_is_refused_by_the_callers_name(tokenizer: Tokenizer) -> None:
    class Deaf:
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return []

    inputs = inputs_of(PREPROCESSING, QUERY=" ")
    deaf: Any = Deaf()
    with pytest.raises(InvalidArgument, match="QUERY comes to no token"):
        encode_prompt(inputs, 0, deaf, text="QUERY", messages="MESSAGES")


@pytest.mark.parametrize("raw", [b"\xff", b"[{", b"{}", b"[]", b'[{"role": "robot", "content": "x"}]'])
def test_c09_messages_that_cannot_be_read_are_refused(tokenizer: Tokenizer, raw: bytes) -> None:
    with pytest.raises(InvalidArgument):
        run(tokenizer, MESSAGES=raw)


def test_c04_a_nul_byte_in_a_prompt_is_a_token_like_any_other(tokenizer: Tokenizer) -> None:
    assert run(tokenizer, QUERY="a\x00b")["INPUT_ID"].tolist() == [tokenizer.encode("a\x00b")]


@pytest.mark.parametrize(
    "name", ["IMAGE_BYTES", "IMAGE_URL", "IMAGES", "VIDEO_BYTES", "PROMPT_TABLE_EXTRA_ID"]
)
def test_vision_inputs_are_refused_by_name(tokenizer: Tokenizer, name: str) -> None:
    spec = PREPROCESSING.input(name)
    black = np.zeros(
        (1, *(2 if size == -1 else size for size in spec.dims)), dtype=np.dtype(spec.dtype.numpy)
    )
    value: Any = "http://x" if spec.dtype.wire_name == "BYTES" else black.tolist()
    with pytest.raises(Unsupported, match=f"input {name} is not supported"):
        run(tokenizer, QUERY="one", **{name: value})


def test_a_bias_adds_a_words_weight_to_each_of_its_tokens(tokenizer: Tokenizer) -> None:
    outputs = run(
        tokenizer, QUERY="one", EMBEDDING_BIAS_WORDS=("dog", "dogs"), EMBEDDING_BIAS_WEIGHTS=(2.0, -0.5)
    )
    expected = np.zeros(tokenizer.vocab_size, dtype=np.float32)
    for ids, weight in zip(tokenizer.encode_words(["dog", "dogs"]), (2.0, -0.5), strict=True):
        expected[list(set(ids))] += weight
    assert np.array_equal(outputs["EMBEDDING_BIAS"], expected[np.newaxis])


def test_a_shorter_list_of_bias_words_is_padded_with_empty_words(tokenizer: Tokenizer) -> None:
    outputs = run(
        tokenizer, batch_size=2, QUERY=[["one"], ["two"]],
        EMBEDDING_BIAS_WORDS=[["six", "ten"], ["six", ""]], EMBEDDING_BIAS_WEIGHTS=[[1.0, 2.0], [3.0, 0.0]],
    )  # fmt: skip
    (six,) = tokenizer.encode_words(["six"])
    (ten,) = tokenizer.encode_words(["ten"])
    assert outputs["EMBEDDING_BIAS"][1].nonzero()[0].tolist() == sorted(set(six))
    assert outputs["EMBEDDING_BIAS"][0].nonzero()[0].tolist() == sorted({*six, *ten})


def test_a_bias_word_that_comes_to_no_token_changes_nothing(tokenizer: Tokenizer) -> None:
    class Deaf:
        vocab_size, eos_ids, pad_id = 8, (0,), 0

        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return [1]

        def encode_words(self, words: list[str]) -> list[list[int]]:
            return [[3] for word in words if word != " "]

    deaf: Any = Deaf()
    outputs = run(deaf, QUERY="x", EMBEDDING_BIAS_WORDS=(" ", "a"), EMBEDDING_BIAS_WEIGHTS=(5.0, 1.0))
    assert outputs["EMBEDDING_BIAS"].tolist() == [[0, 0, 0, 1.0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    "values",
    [
        {"EMBEDDING_BIAS_WORDS": ("one", "two"), "EMBEDDING_BIAS_WEIGHTS": (1.0,)},
        {"EMBEDDING_BIAS_WORDS": ("one",)},
        {"EMBEDDING_BIAS_WEIGHTS": (1.0,)},
    ],
)
def test_bias_words_and_weights_come_in_pairs(tokenizer: Tokenizer, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"EMBEDDING_BIAS_WORDS holds .* EMBEDDING_BIAS_WEIGHTS"):
        run(tokenizer, QUERY="one", **values)


def test_a_decoder_prompt_is_encoded_beside_the_prompt(tokenizer: Tokenizer) -> None:
    outputs = run(tokenizer, QUERY="one", DECODER_QUERY="two three")
    ids = tokenizer.encode("two three")
    assert outputs["DECODER_INPUT_ID"].tolist() == [ids]
    assert outputs["REQUEST_DECODER_INPUT_LEN"].tolist() == [[len(ids)]]


def test_c10_one_bad_prompt_names_itself_and_nothing_internal(tokenizer: Tokenizer) -> None:
    with pytest.raises(NaiadError) as caught:
        run(tokenizer, batch_size=2, QUERY=[["fine"], [b"\xff"]])
    assert caught.value.message == "QUERY is not valid UTF-8: byte 0 cannot be decoded"
