"""From engine responses to text responses: correct deltas, stop strings held back, one end a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from naiad.contract.generation import FinishReason
from naiad.serving.tensor_inputs import Array
from naiad.serving.text_requests import PERF_METRICS, TextRow
from naiad.tokenization import StopMatcher, Tokenizer

__all__ = ["TextAnswer"]


class TextAnswer:
    """The answer of one row: feed it the engine's responses, send what comes out.

    A response is sent when there is text to send, so tokens that add none yet (half a character, the
    possible beginning of a stop string) travel with the next; every count refers to the response it is in.
    """

    def __init__(
        self, row: TextRow, tokenizer: Tokenizer, *, skip_special_tokens: bool, accumulate: bool
    ) -> None:
        self._row = row
        self._sequences = [
            _SequenceText(
                row, tokenizer, index, skip_special_tokens=skip_special_tokens, accumulate=accumulate
            )
            for index in range(row.sequences)
        ]

    @property
    def done(self) -> bool:
        """Whether every sequence has ended."""
        return all(sequence.done for sequence in self._sequences)

    @property
    def stopped_early(self) -> bool:
        """Whether a stop string ended a sequence that the engine still works on."""
        return any(sequence.stopped_early for sequence in self._sequences)

    @property
    def started(self) -> bool:
        """Whether any text left already."""
        return any(sequence.sent for sequence in self._sequences)

    @property
    def output_tokens(self) -> int:
        """Tokens received so far, of all sequences."""
        return sum(sequence.tokens for sequence in self._sequences)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the first sequence ended."""
        return self._sequences[0].reason

    def feed(self, tensors: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Take one engine response (its output tensors); yield the responses to send, at most one."""
        if "output_ids" not in tensors:
            return
        index = int(tensors["sequence_index"].reshape(-1)[0]) if "sequence_index" in tensors else 0
        sequence = self._sequences[index]
        if not sequence.done:
            response = sequence.feed(tensors)
            if response is not None:
                yield response

    def close(self) -> Iterator[dict[str, Array]]:
        """The engine's stream is over: end the sequences it did not give a reason for."""
        for sequence in self._sequences:
            if not sequence.done:
                yield sequence.end(None)


class _SequenceText:
    def __init__(
        self, row: TextRow, tokenizer: Tokenizer, index: int, *, skip_special_tokens: bool, accumulate: bool
    ) -> None:
        self._row = row
        self._index = index if row.sequences > 1 else None
        self._detokenizer = tokenizer.detokenizer(skip_special_tokens=skip_special_tokens)
        self._stops = StopMatcher(row.stop_words)
        self._accumulate = accumulate and row.streaming
        self._text: list[str] = []  # not sent yet; with accumulate, everything so far
        self._pending_tokens = 0
        self._log_probs: list[float] = []
        self._cumulative: float | None = None
        self._perf: dict[str, Array] = {}
        self.tokens = 0
        self.sent = False
        self.done = False
        self.stopped_early = False
        self.reason: FinishReason | None = None
        if row.echo_prompt:
            self._text.append(self._detokenizer.push(row.prompt_ids))

    def feed(self, tensors: Mapping[str, Array]) -> dict[str, Array] | None:
        length = int(tensors["sequence_length"].reshape(-1)[0])
        ids = tensors["output_ids"].reshape(-1)[:length].tolist()
        self.tokens += length
        self._pending_tokens += length
        if "output_log_probs" in tensors:
            self._log_probs += tensors["output_log_probs"].reshape(-1).tolist()
            self._cumulative = float(tensors["cum_log_probs"].reshape(-1)[0])
        self._perf.update({name: tensors[name] for name in PERF_METRICS if name in tensors})
        result = self._stops.push(self._detokenizer.push(ids))
        self._text.append(result.text)
        if result.stopped:
            self.stopped_early = "finish_reason" not in tensors
            self._finish(FinishReason.STOP)
            return self._response()
        if "finish_reason" in tensors:
            return self.end(FinishReason(bytes(tensors["finish_reason"].reshape(-1)[0]).decode()))
        return self._response() if self._row.streaming and result.text else None

    def end(self, reason: FinishReason | None) -> dict[str, Array]:
        """End the sequence; without a stated reason, by length if it produced all it was asked for."""
        if reason is None:
            reason = FinishReason.LENGTH if self.tokens >= self._row.max_tokens else FinishReason.STOP
        result = self._stops.push(self._detokenizer.flush())
        self._text.append(result.text)
        if result.stopped:
            reason = FinishReason.STOP
        else:
            self._text.append(self._stops.flush())
        self._finish(reason)
        return self._response()

    def _finish(self, reason: FinishReason) -> None:
        self.done = True
        self.reason = reason

    def _response(self) -> dict[str, Array]:
        text = "".join(self._text)
        self._text = [text] if self._accumulate else []
        self.sent = True
        tensors: dict[str, Array] = {"text_output": np.array([text.encode()], dtype=np.object_)}
        if self._cumulative is not None:
            tensors["cum_log_probs"] = np.array([[self._cumulative]], dtype=np.float32)
            tensors["output_log_probs"] = np.array(self._log_probs, dtype=np.float32).reshape(1, 1, -1)
            self._log_probs = []
        if self._row.batch_index is not None:
            tensors["batch_index"] = np.array([[self._row.batch_index]], dtype=np.int32)
        if self._index is not None:
            tensors["sequence_index"] = np.array([[self._index]], dtype=np.int32)
        tensors["num_input_tokens"] = np.array([[len(self._row.prompt_ids)]], dtype=np.int32)
        tensors["num_output_tokens"] = np.array([[self._pending_tokens]], dtype=np.int32)
        self._pending_tokens = 0
        if self.reason is not None:
            tensors["finish_reason"] = np.array([[self.reason.value.encode()]], dtype=np.object_)
            tensors.update(self._perf)
        return {name: array for name, array in tensors.items() if name in self._row.outputs}
