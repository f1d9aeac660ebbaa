"""From `tensorrt_llm`'s input tensors to generation requests, and from token chunks to its output tensors."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.contract.generation import GenerationRequest, TokenChunk
from naiad.engines.base import EngineLimits
from naiad.serving.engine_responses import perf_metrics
from naiad.serving.sampling import read_sampling, refuse_unsupported
from naiad.serving.tensor_inputs import Array, TensorInputs

__all__ = ["EngineRow", "read_rows", "wants_stop"]

MAX_RETURN_SEQUENCES = 64


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One sequence of a request and how its answer is to be written.

    Attributes:
        request: what to generate.
        batch_index: row of the request; None when it has one row only.
        sequence_index: which of the sequences asked for; None when it is one.
        echo_prompt: put the prompt before the answer (single response only).
        outputs: names of the outputs to send.
    """

    request: GenerationRequest
    batch_index: int | None
    sequence_index: int | None
    echo_prompt: bool
    outputs: frozenset[str]

    @property
    def streaming(self) -> bool:
        """A response as tokens come, or a single one at the end."""
        return self.request.streaming

    def encode(self, chunk: TokenChunk, cumulative_log_prob: float) -> dict[str, Array]:
        """Write a chunk as output tensors `[1, ...]` (beam width 1); only those asked for.

        `cumulative_log_prob` is the sum over the whole answer up to this chunk's last token.
        """
        ids = chunk.ids if not self.echo_prompt else [*self.request.prompt_ids, *chunk.ids]
        tensors: dict[str, Array] = {
            "output_ids": np.array([[ids]], dtype=np.int32).reshape(1, 1, len(ids)),
            "sequence_length": np.array([[len(ids)]], dtype=np.int32),
        }
        if self.request.sampling.log_probs:
            tensors["cum_log_probs"] = np.array([[cumulative_log_prob]], dtype=np.float32)
            log_probs = np.array(chunk.log_probs, dtype=np.float32)
            tensors["output_log_probs"] = log_probs.reshape(1, 1, len(chunk.log_probs))
        if self.batch_index is not None:
            tensors["batch_index"] = np.array([[self.batch_index]], dtype=np.int32)
        if self.sequence_index is not None:
            tensors["sequence_index"] = np.array([[self.sequence_index]], dtype=np.int32)
        if "num_input_tokens" in self.outputs:
            tensors["num_input_tokens"] = np.array([[len(self.request.prompt_ids)]], dtype=np.int32)
        if "num_output_tokens" in self.outputs:
            tensors["num_output_tokens"] = np.array([[len(ids)]], dtype=np.int32)
        if chunk.finish_reason is not None:
            tensors["finish_reason"] = np.array([[chunk.finish_reason.value.encode()]], dtype=np.object_)
        if chunk.times is not None:
            tensors.update(perf_metrics(chunk.times))
        return {name: array for name, array in tensors.items() if name in self.outputs}


def wants_stop(inputs: TensorInputs) -> bool:
    """Whether this is a stop request."""
    return bool(inputs.flag("stop"))


def read_rows(
    inputs: TensorInputs,
    *,
    request_id: str,
    requested_outputs: Collection[str],
    limits: EngineLimits,
    max_beam_width: int,
    exclude_input_by_default: bool,
    decoupled: bool,
    timeout_us: int,
) -> list[EngineRow]:
    """Read every sequence that a request asks for.

    Args:
        inputs: the tensors.
        request_id: the caller's id.
        requested_outputs: output names asked for; empty means all.
        limits: of the engine, for its own end ids.
        max_beam_width: of the model.
        exclude_input_by_default: the model's `exclude_input_in_output`.
        decoupled: whether the model may send more than one response.
        timeout_us: the request's time limit in microseconds; 0 is none.

    Raises:
        InvalidArgument: a tensor is malformed or out of range.
        Unsupported: a tensor, or streaming without decoupled mode, cannot be served.
    """
    refuse_unsupported(inputs, max_beam_width)
    deadline_s = time.monotonic() + timeout_us / 1e6 if timeout_us > 0 else None
    rows: list[EngineRow] = []
    for index in range(inputs.batch_size):
        streaming = inputs.flag("streaming", index) or False
        count = inputs.integer("num_return_sequences", index, minimum=1, maximum=MAX_RETURN_SEQUENCES) or 1
        if not decoupled and (streaming or count > 1):
            what = "streaming" if streaming else "num_return_sequences above 1"
            raise Unsupported(f"{what} needs the decoupled profile of this model")
        exclude = inputs.flag("exclude_input_in_output", index)
        exclude = exclude_input_by_default if exclude is None else exclude
        base = EngineRow(
            request=GenerationRequest(
                request_id,
                _prompt(inputs, index),
                read_sampling(inputs, index, limits.end_ids),
                deadline_s,
                streaming,
            ),
            batch_index=index if inputs.batch_size > 1 else None,
            sequence_index=None,
            echo_prompt=not streaming and not exclude,
            outputs=_outputs(inputs, index, requested_outputs),
        )
        rows.extend([base] if count == 1 else [_sequence(base, number) for number in range(count)])
    return rows


def _prompt(inputs: TensorInputs, row: int) -> tuple[int, ...]:
    ids = inputs.row("input_ids", row)
    length = inputs.integer("input_lengths", row, minimum=1, maximum=2**31 - 1)
    if ids is None:
        raise InvalidArgument("input_ids is empty or missing: the prompt needs at least one token")
    if length is None:
        raise InvalidArgument("input_lengths is missing")
    if length > ids.size:
        raise InvalidArgument(f"input_lengths is {length} but input_ids holds {ids.size} ids")
    return tuple(ids.reshape(-1)[:length].tolist())


def _sequence(row: EngineRow, number: int) -> EngineRow:
    """Return the row's n-th sequence: seeds follow one another, so a given seed repeats the whole set."""
    sampling = row.request.sampling
    if sampling.seed is not None:
        sampling = replace(sampling, seed=(sampling.seed + number) % 2**64)
    return replace(row, request=replace(row.request, sampling=sampling), sequence_index=number)


_ON_DEMAND: Mapping[str, str] = {
    "num_input_tokens": "return_num_input_tokens",
    "num_output_tokens": "return_num_output_tokens",
    # The KV block counts and acceptance figures of the C++ backend are not known here: they stay absent.
    "arrival_time_ns": "return_perf_metrics",
    "first_scheduled_time_ns": "return_perf_metrics",
    "first_token_time_ns": "return_perf_metrics",
    "last_token_time_ns": "return_perf_metrics",
}
_PRODUCED = frozenset(
    {"output_ids", "sequence_length", "cum_log_probs", "output_log_probs", "batch_index", "sequence_index"}
    | {"finish_reason"}
)


def _outputs(inputs: TensorInputs, row: int, requested: Collection[str]) -> frozenset[str]:
    """Return what to send: an absent output is legal, one nobody asked for is waste."""
    on_demand = {output for output, flag in _ON_DEMAND.items() if inputs.flag(flag, row)}
    return frozenset((_PRODUCED | on_demand) & (set(requested) or _PRODUCED | on_demand))
