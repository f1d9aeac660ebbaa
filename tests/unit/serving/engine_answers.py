"""What an engine says, in chunks of any size, and the text answer made of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from naiad.contract.generation import FinishReason, TokenChunk
from naiad.serving.text_answers import TextAnswer
from naiad.serving.text_requests import TextRow
from naiad.tokenization import Tokenizer

OUTPUTS = frozenset(
    {"text_output", "cum_log_probs", "output_log_probs", "batch_index", "sequence_index", "finish_reason",
     "num_input_tokens", "num_output_tokens"}
)  # fmt: skip


EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


Response = Mapping[str, Any]


def text_row(**changes: Any) -> TextRow:
    values: dict[str, Any] = {
        "prompt_ids": (), "engine_inputs": {}, "max_tokens": 1000, "sequences": 1, "stop_words": (),
        "batch_index": None, "streaming": True, "echo_prompt": False, "log_probs": False,
        "outputs": OUTPUTS,
    }  # fmt: skip
    return TextRow(**{**values, **changes})


def engine_response(
    ids: Sequence[int], reason: str | None = None, *, sequence: int = 0, log_probs: bool = False
) -> TokenChunk:
    return TokenChunk(
        list(ids),
        [-0.5] * len(ids) if log_probs else [],
        FinishReason(reason) if reason is not None else None,
        sequence=sequence,
    )


def chunked(ids: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Cut `ids` into chunks of these sizes, over and over."""
    chunks: list[list[int]] = []
    start = 0
    for size in itertools.cycle(sizes or [1]):
        if start >= len(ids):
            return chunks
        chunks.append(list(ids[start : start + size]))
        start += size
    return chunks


def answered(
    tokenizer: Tokenizer, row: TextRow, engine: Sequence[TokenChunk], *, accumulate: bool = False
) -> list[Response]:
    """Feed engine responses until the answer is done, as the host does; return all that is sent."""
    answer = TextAnswer(row, tokenizer, skip_special_tokens=True, accumulate=accumulate)
    sent: list[Response] = []
    for chunk in engine:
        sent += answer.feed(chunk)
        if answer.done:
            break
    sent += answer.close()
    assert answer.done
    return sent


def stream(ids: Sequence[int], sizes: Sequence[int], reason: str | None = "length") -> list[TokenChunk]:
    """The engine's responses: the last chunk carries the reason, as the Python engines have it."""
    chunks = chunked(ids, sizes) or [[]]
    return [engine_response(chunk) for chunk in chunks[:-1]] + [engine_response(chunks[-1], reason)]


def text_of(response: Response) -> str:
    (raw,) = response["text_output"]
    assert response["text_output"].shape == (1,)
    return bytes(raw).decode()


def joined(responses: Sequence[Response]) -> str:
    return "".join(map(text_of, responses))


def reason_of(response: Response) -> str | None:
    return response["finish_reason"].item().decode() if "finish_reason" in response else None


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def make(tokenizer: Tokenizer, **changes: Any) -> TextAnswer:
    return TextAnswer(text_row(**changes), tokenizer, skip_special_tokens=True, accumulate=False)


sizes = st.lists(st.integers(1, 4), max_size=6)


spoken = st.text(
    st.one_of(st.sampled_from("aeiou .,STOP\n日本語é👩‍👧🎉🏳️‍🌈"), st.characters(codec="utf-8")), max_size=40
)
