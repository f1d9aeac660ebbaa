"""`docs/contract.md`: the tables of models, tensors and parameters, written from the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from naiad.contract import MODELS, ModelSpec, TensorSpec

__all__ = ["contract_page"]

_INTRODUCTION = """\
# The serving contract

Written by `naiad build render` from `naiad.contract`; do not edit.

Names, dtypes, dimensions and parameters are those of NVIDIA's TensorRT-LLM 1.2.1 model repository. What Naiad
adds is marked **+**. Dimensions leave out the batch dimension, which every tensor has; *scalar* tensors are
declared `[1]` and reshaped to `[]`. Clients send `[batch, 1]` for both.

## Rules

- **Prompt**: exactly one of `text_input` (`QUERY`) and `messages` (`MESSAGES`): a JSON list of OpenAI
  messages, rendered through the model's chat template; special tokens inside contents are plain text.
- **Streaming** sends a response as tokens come: `output_ids`, `text_output` and all counts are those of this
  response, and the prompt is never echoed. A response may bring several tokens (`max_responses_per_s`): count
  `num_output_tokens`, not responses. Without streaming there is one response; a text prompt is echoed unless
  `exclude_input_in_output` is true, a rendered chat only if it is false.
- **End**: `tensorrt_llm` puts the final flag on its last response; `tensorrt_llm_bls` sends an empty final
  response after it. `finish_reason` is on the last response: `stop`, `length` or `cancelled`.
- **End ids**: an `end_id` that is one of the model's own stands for all of them (generation_config.json); any
  other stands for itself; absent or -1 means that only a stop word or the length ends the answer. The text
  models fill it in. End ids are not part of the answer; stop sequences of `stop_words_list` are. The stop
  strings of `tensorrt_llm_bls` are matched on text and never reach the client, not even in part.
- **Sampling**: `top_k` 0 or 1 without `top_p` is greedy, as in TensorRT-LLM. `temperature` 0 is greedy too.
  `min_length` and `random_seed` are older names of `min_tokens` and `seed`. A seed repeats for a request that
  is alone; beside others, and after its prompt was cached, only with `dynamic_quantization` false.
- **Limits**: prompt plus output tokens beyond the context, or beyond the whole KV cache, are refused before
  the engine, with both numbers.
- **Batches**: decoupled models answer row by row with `batch_index`; a non-decoupled one answers with one
  response whose rows are padded with 0 to the longest (`sequence_length` says how many ids count).
- **Stop**: a request with the same id, `stop` true, and dummies for the required tensors; it is answered by
  an empty final response. An unknown id has no effect, an empty id is refused.
- **Time limit**: Triton's request `timeout`, in microseconds, for the whole request.
- **Cancels**: a client that hangs up or cancels its call stops the engine's work for `tensorrt_llm` and
  `tensorrt_llm_bls`. Triton 2.51 does not pass it on to the steps of an ensemble, nor notices that the caller
  of HTTP `generate` hung up: there a time limit or a stop request ends the work early.
- **Errors** read `[CODE] message`, because Triton drops the status code of an error inside a gRPC stream. The
  codes are INVALID_ARGUMENT, PROMPT_TOO_LONG, UNSUPPORTED, QUEUE_FULL, DRAINING, ENGINE_UNAVAILABLE,
  ENGINE_STALLED, DEADLINE_EXCEEDED, CANCELLED and INTERNAL.
- **Not supported by the CPU engines**, and refused by the tensor's name: beams, drafts, LoRA, prompt tables,
  images, encoders, logits outputs, KV retention, lookahead, guided decoding, embedding bias. Of the
  `return_perf_metrics` outputs the four times are sent; the block and acceptance counts are not known here.
- **Bad words** are avoided as text (any tokenisation of them), at most 64 a request.
"""


def contract_page() -> str:
    """Return the page."""
    return "\n".join([_INTRODUCTION, *(line for spec in MODELS for line in _model(spec))]) + "\n"


def _model(spec: ModelSpec) -> Iterator[str]:
    yield f"## {spec.name}\n\n{spec.summary[0].upper()}{spec.summary[1:]}.\n"
    yield "### Inputs\n"
    yield from _tensors(spec.inputs, with_optional=True)
    yield "### Outputs\n"
    yield from _tensors(spec.outputs, with_optional=False)
    if spec.parameters:
        yield "### Parameters\n"
        yield "| key | default | meaning |\n| --- | --- | --- |"
        for parameter in spec.parameters:
            name = f"`{parameter.name}`{' **+**' if parameter.extension else ''}"
            default = f"`{parameter.default}`" if parameter.default else ""
            yield f"| {name} | {default} | {parameter.meaning} |"
        yield ""


def _tensors(specs: Sequence[TensorSpec], *, with_optional: bool) -> Iterator[str]:
    yield "| name | dtype | dims | |\n| --- | --- | --- | --- |"
    for spec in specs:
        marks = [
            *(["optional" if spec.optional else "required"] if with_optional else []),
            *(["scalar"] if spec.scalar else []),
            *(["ragged"] if spec.ragged else []),
        ]
        name = f"`{spec.name}`{' **+**' if spec.extension else ''}"
        yield f"| {name} | {spec.dtype.wire_name} | {list(spec.dims)} | {', '.join(marks)} |"
    yield ""
