"""Inputs that must be refused, as the tests send them one at a time in an otherwise good request."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.harness.triton_request import floats, ints, text

NAN, INF = float("nan"), float("inf")
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

NO_VALUE = np.zeros((1, 0), dtype=np.float32)
NO_TEXT = np.zeros((1, 0), dtype=object)
NO_IDS = np.zeros((1, 0), dtype=np.int32)

# input, what is sent (None: left out), what the error says beside the input's name
BAD_TOKEN_INPUTS: list[tuple[str, Any, str]] = [
    ("input_ids", None, "missing"),
    ("input_lengths", None, "missing"),
    ("request_output_len", None, "missing"),
    ("unheard_of", ints(1), "unexpected inference input"),
    ("input_ids", NO_IDS, "needs at least one token"),
    ("input_ids", np.array([[1, 2, 3]], dtype=np.int64), "INT32"),
    ("input_ids", np.array([[[1, 2, 3]]], dtype=np.int32), "shape"),
    ("input_ids", np.ones((2, 3), dtype=np.int32), "batch size"),
    ("input_ids", ints(-1, 2, 3), "[0, 49152)"),
    ("input_ids", ints(49152, 2, 3), "[0, 49152)"),
    ("input_lengths", ints(0), "from 1"),
    ("input_lengths", ints(4), "holds 3"),
    ("request_output_len", ints(0), "from 1 to 1048576"),
    ("request_output_len", ints(INT32_MIN), "from 1 to 1048576"),
    ("request_output_len", ints(INT32_MAX), "from 1 to 1048576"),
    ("request_output_len", ints(2, 2), "shape"),
    ("temperature", floats(NAN), "from 0 to 100"),
    ("temperature", floats(INF), "from 0 to 100"),
    ("temperature", floats(-1.0), "from 0 to 100"),
    ("temperature", NO_VALUE, "shape"),
    ("temperature", floats(1.0, 1.0), "shape"),
    ("temperature", ints(1), "FP32"),
    ("runtime_top_p", floats(1.5), "from 0 to 1"),
    ("runtime_top_p", floats(NAN), "from 0 to 1"),
    ("runtime_top_k", ints(-1), "from 0"),
    ("repetition_penalty", floats(0.0), "above 0"),
    ("presence_penalty", floats(-INF), "from -2 to 2"),
    ("frequency_penalty", floats(3.0), "from -2 to 2"),
    ("end_id", ints(-2), "from -1"),
    ("min_tokens", ints(3), "exceeds the 2"),
    ("beam_width", ints(2), "from 1 to 1"),
    ("num_return_sequences", ints(0), "from 1 to 64"),
    ("num_return_sequences", ints(65), "from 1 to 64"),
    ("stop_words_list", np.array([[[1, 2, 3]]], dtype=np.int32), "shape"),
    ("stop_words_list", np.array([[[1, 2, 3], [5, -1, -1]]], dtype=np.int32), "stay within 3"),
    ("bad_words_list", np.array([[[1], [1]]], dtype=np.int32), "not supported"),
]

BAD_TEXT_INPUTS: list[tuple[str, Any, str]] = [
    ("unheard_of", ints(1), "unexpected inference input"),
    ("text_input", None, "exactly one of"),
    ("text_input", text(""), "is empty"),
    ("text_input", NO_TEXT, "shape"),
    ("text_input", text("a", "b"), "shape"),
    ("text_input", np.array([b"x"], dtype=object), "shape"),
    ("text_input", ints(5), "BYTES"),
    ("text_input", text(b"\xff\xfe"), "not valid UTF-8"),
    ("text_input", text(b"cut \xe2\x82"), "not valid UTF-8"),
    ("stop_words", text(b"\xff"), "not valid UTF-8"),
    ("bad_words", text(b"\xff"), "not valid UTF-8"),
    ("max_tokens", ints(0), "from 1 to 1048576"),
    ("max_tokens", ints(INT32_MIN), "from 1 to 1048576"),
    ("max_tokens", ints(INT32_MAX), "from 1 to 1048576"),
    ("max_tokens", np.array([[2]], dtype=np.int64), "INT32"),
    ("temperature", floats(NAN), "from 0 to 100"),
    ("temperature", floats(INF), "from 0 to 100"),
    ("temperature", floats(-0.5), "from 0 to 100"),
    ("temperature", NO_VALUE, "shape"),
    ("top_p", floats(1.5), "from 0 to 1"),
    ("top_k", ints(-1), "from 0"),
    ("repetition_penalty", floats(0.0), "above 0"),
    ("presence_penalty", floats(INF), "from -2 to 2"),
    ("frequency_penalty", floats(-3.0), "from -2 to 2"),
    ("length_penalty", floats(2.0), "not supported"),
    ("min_tokens", ints(3), "exceeds the 2"),
]

# An ensemble's steps name their own tensors.
ENSEMBLE_NAMES = {
    "text_input": "QUERY",
    "stop_words": "STOP_WORDS_DICT",
    "bad_words": "BAD_WORDS_DICT",
    "max_tokens": "request_output_len",
    "top_p": "runtime_top_p",
    "top_k": "runtime_top_k",
    "length_penalty": "len_penalty",
}
