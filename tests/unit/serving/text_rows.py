"""Short ways to read text requests in tests."""

from __future__ import annotations

import json
from typing import Any

from naiad.contract import TENSORRT_LLM_BLS
from naiad.serving.text_requests import TextRow, read_text_rows
from naiad.tokenization import Tokenizer
from tests.harness.tensors import inputs_of

TURN = json.dumps([{"role": "user", "content": "one two"}])


PROMPT: dict[str, Any] = {"text_input": "one two", "max_tokens": 8}


def rows(
    tokenizer: Tokenizer, *, batch_size: int = 1, outputs: tuple[str, ...] = (), decoupled: bool = True,
    **values: Any,
) -> list[TextRow]:  # fmt: skip
    inputs = inputs_of(TENSORRT_LLM_BLS, batch_size=batch_size, **values)
    return read_text_rows(inputs, tokenizer, requested_outputs=outputs, decoupled=decoupled)


def row(tokenizer: Tokenizer, **values: Any) -> TextRow:
    (only,) = rows(tokenizer, **{**PROMPT, **values})
    return only


def written(only: TextRow) -> dict[str, Any]:
    return {name: array.tolist() for name, array in only.engine_inputs.items()}
