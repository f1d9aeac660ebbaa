"""Model `postprocessing`: token ids to text."""

from __future__ import annotations

import numpy as np

from naiad.contract.errors import InvalidArgument
from naiad.serving.tensor_inputs import Array, TensorInputs
from naiad.tokenization import Tokenizer

__all__ = ["postprocess"]


def postprocess(inputs: TensorInputs, tokenizer: Tokenizer, *, skip_special_tokens: bool) -> dict[str, Array]:
    """Decode the first `SEQUENCE_LENGTH` ids of every batch item and beam.

    TOKENS_BATCH is `[batch, beams, n]`, SEQUENCE_LENGTH `[batch, beams]`, OUTPUT one-dimensional, batch times
    beams strings: clients of the upstream model rely on that.

    Raises:
        InvalidArgument: shapes disagree or an id is outside the vocabulary.
    """
    tokens, lengths = inputs.tensors["TOKENS_BATCH"], inputs.tensors["SEQUENCE_LENGTH"]
    if tokens.ndim != 3 or lengths.shape != tokens.shape[:2]:
        raise InvalidArgument(
            f"TOKENS_BATCH must be [batch, beams, n] and SEQUENCE_LENGTH [batch, beams], not "
            f"{list(tokens.shape)} and {list(lengths.shape)}"
        )
    if lengths.size and (lengths.min() < 0 or lengths.max() > tokens.shape[2]):
        raise InvalidArgument(
            f"SEQUENCE_LENGTH must be from 0 to {tokens.shape[2]}, the ids that TOKENS_BATCH holds"
        )
    sequences = tokens.reshape(lengths.size, tokens.shape[2])  # an answer of no tokens has n = 0
    texts = [
        tokenizer.decode(ids[:length].tolist(), skip_special_tokens=skip_special_tokens).encode()
        for ids, length in zip(sequences, lengths.reshape(-1), strict=True)
    ]
    return {"OUTPUT": np.array(texts, dtype=np.object_)}
