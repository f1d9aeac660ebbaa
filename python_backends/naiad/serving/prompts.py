"""One way from a request's prompt to token ids, for the preprocessing model and the BLS model alike."""

from __future__ import annotations

from naiad.contract.errors import InvalidArgument
from naiad.serving.tensor_inputs import TensorInputs
from naiad.tokenization import Tokenizer, parse_messages

__all__ = ["encode_prompt"]


def encode_prompt(
    inputs: TensorInputs,
    row: int,
    tokenizer: Tokenizer,
    *,
    text: str,
    messages: str,
    add_special_tokens: bool = True,
) -> list[int]:
    """Return the prompt's token ids; `text` and `messages` are the names of the two tensors.

    Raises:
        InvalidArgument: neither or both are given, or the one given cannot be read.
        Unsupported: messages for a model without a chat template.
    """
    raw_text, raw_messages = inputs.text(text, row), inputs.text(messages, row)
    if (raw_text is None) == (raw_messages is None):
        given = "both" if raw_text is not None else "neither"
        raise InvalidArgument(f"give exactly one of {text} and {messages}; {given} came")
    if raw_messages is not None:
        return tokenizer.encode_messages(parse_messages(raw_messages))
    if not raw_text:
        raise InvalidArgument(f"{text} is empty: the prompt needs at least one token")
    ids = tokenizer.encode(raw_text, add_special_tokens=add_special_tokens)
    if not ids:
        raise InvalidArgument(f"{text} comes to no token: the prompt needs at least one")
    return ids
