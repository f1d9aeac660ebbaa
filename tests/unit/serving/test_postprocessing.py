"""Model `postprocessing`: ids to text, one string a sequence."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from naiad.contract.errors import InvalidArgument
from naiad.serving.postprocessing import postprocess
from naiad.serving.tensor_inputs import TensorInputs
from naiad.tokenization import Tokenizer
from tests.harness.tiny_model import END


def run(tokenizer: Tokenizer, tokens: Any, lengths: Any, *, skip: bool = True) -> Any:
    tensors = {
        "TOKENS_BATCH": np.array(tokens, dtype=np.int32),
        "SEQUENCE_LENGTH": np.array(lengths, dtype=np.int32),
    }
    return postprocess(TensorInputs(tensors, len(tokens)), tokenizer, skip_special_tokens=skip)["OUTPUT"]


def test_each_sequence_becomes_one_string_of_a_flat_array(tokenizer: Tokenizer) -> None:
    one, two = tokenizer.encode("one"), tokenizer.encode("one two three")
    width = len(two)
    padded = [*one, *[7] * (width - len(one))]
    output = run(tokenizer, [[padded], [two]], [[len(one)], [len(two)]])
    assert output.dtype == np.object_
    assert output.tolist() == [b"one", b"one two three"]


def test_beams_follow_one_another(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one two")
    assert run(tokenizer, [[ids, ids]], [[len(ids), 1]]).tolist() == [
        b"one two", tokenizer.decode(ids[:1]).encode(),
    ]  # fmt: skip


def test_e05_an_answer_of_no_tokens_is_an_empty_string(tokenizer: Tokenizer) -> None:
    assert run(tokenizer, [[[]]], [[0]]).tolist() == [b""]
    assert run(tokenizer, [[[]], [[]]], [[0], [0]]).tolist() == [b"", b""]
    assert run(tokenizer, [[[5, 6]]], [[0]]).tolist() == [b""]


def test_special_tokens_are_left_out_or_spelled(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("one"), END]
    assert run(tokenizer, [[ids]], [[len(ids)]]).tolist() == [b"one"]
    assert run(tokenizer, [[ids]], [[len(ids)]], skip=False).tolist() == [b"one<|im_end|>"]


@pytest.mark.parametrize("length", [-1, 4])
def test_a_length_beyond_the_ids_is_refused(tokenizer: Tokenizer, length: int) -> None:
    with pytest.raises(InvalidArgument, match="SEQUENCE_LENGTH must be from 0 to 3"):
        run(tokenizer, [[[5, 6, 7]]], [[length]])


@pytest.mark.parametrize(
    ("tokens", "lengths"), [([[5]], [[1]]), ([[[5]]], [1]), ([[[5]]], [[1, 1]]), ([[[5]]], [[1], [1]])]
)
def test_shapes_that_disagree_are_refused_with_both(tokenizer: Tokenizer, tokens: Any, lengths: Any) -> None:
    shapes = re.escape(f"not {list(np.shape(tokens))} and {list(np.shape(lengths))}")
    with pytest.raises(InvalidArgument, match=shapes):
        run(tokenizer, tokens, lengths)


@pytest.mark.parametrize("token", [-1, 100_000])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer: Tokenizer, token: int) -> None:
    with pytest.raises(InvalidArgument, match=f"token id {token} .* is not in the vocabulary"):
        run(tokenizer, [[[token]]], [[1]])
