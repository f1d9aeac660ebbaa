"""The answer of one request that may have several rows: one response stream, ended by the last row."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np

from naiad.contract.errors import NaiadError, format_error
from naiad.serving.tensor_inputs import Array
from naiad.telemetry import Recorder
from naiad.triton.responses import ResponseStream

__all__ = ["Answer"]


class Answer:
    """Shared by the rows of a request, numbered from 0; each ends once, with a `last` response or a `fail`.

    What an ended row still sends is dropped, so that it cannot be taken for the end of another.

    Decoupled models send every row's responses as they come. A non-decoupled one owes exactly one
    response, so there the rows are gathered and stacked, and the first error is the answer.

    Args:
        stream: of the request.
        rows: how many have to end.
        recorder: counts failures.
        decoupled: whether many responses are allowed.
        empty_end: end with an empty message of its own, as the upstream BLS model does.
        errors_in_band: send errors as the `finish_reason` output (see `requests.ERRORS_IN_BAND`).
    """

    def __init__(
        self,
        stream: ResponseStream,
        rows: int,
        recorder: Recorder,
        *,
        decoupled: bool,
        empty_end: bool = False,
        errors_in_band: bool = False,
    ) -> None:
        self._stream = stream
        self._open = set(range(rows))
        self._recorder = recorder
        self._empty_end = empty_end
        self._errors_in_band = errors_in_band
        self._lock = threading.Lock()
        self._gathered: dict[int, Mapping[str, Array]] | None = None if decoupled else {}
        self._started = False

    @property
    def ended(self) -> bool:
        """Whether the terminal message was sent."""
        return self._stream.ended

    @property
    def started(self) -> bool:
        """Whether any part of the answer was delivered."""
        return self._started

    def is_cancelled(self) -> bool:
        """Whether the caller has gone away (asks the server).

        Never for a call from a BLS model, which cannot be cancelled in Triton 2.51: it sends a stop request.
        """
        return not self._errors_in_band and self._stream.is_cancelled()

    def send(self, row: int, tensors: Mapping[str, Array], *, last: bool) -> None:
        """Send a response of a row; `last` ends the row, unless this raises."""
        with self._lock:
            if row not in self._open:
                return
            complete = last and self._open == {row}
            if self._gathered is not None:
                self._gathered[row] = tensors
                if complete:
                    rows = [self._gathered[index] for index in sorted(self._gathered)]
                    self._stream.send(rows[0] if len(rows) == 1 else _stack(rows), final=True)
            else:
                self._started = True
                self._stream.send(tensors, final=complete and not self._empty_end)
                if complete and self._empty_end:
                    self._stream.finish()
            if last:
                self._open.remove(row)

    def fail(self, row: int, error: NaiadError) -> None:
        """End a row with an error; the other rows go on where there can be many responses."""
        with self._lock:
            if self._stream.ended or row not in self._open:
                return
            self._recorder.failed(error.code)
            self._open.remove(row)
            final = not self._open or self._gathered is not None
            if self._errors_in_band:
                reason = np.array([[format_error(error).encode()]], dtype=np.object_)
                self._stream.send({"finish_reason": reason}, final=final)
            else:
                self._stream.fail(error, final=final)

    def abandon(self, error: NaiadError) -> None:
        """End the whole request with an error, whatever its rows still do."""
        with self._lock:
            if not self._stream.ended:
                self._recorder.failed(error.code)
                self._stream.fail(error)


def _stack(rows: list[Mapping[str, Array]]) -> dict[str, Array]:
    """Stack the rows of a non-decoupled batch, padding the last dimension with zeros.

    What only some rows have, because only they asked for it, is all zeros in the others.
    """
    merged: dict[str, Array] = {}
    for name in dict.fromkeys(name for row in rows for name in row if name != "batch_index"):
        one = next(row[name] for row in rows if name in row)
        nothing = np.full_like(one, b"" if one.dtype == np.object_ else 0)
        arrays = [row.get(name, nothing) for row in rows]
        width = max(array.shape[-1] for array in arrays)
        padded = [
            np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, width - array.shape[-1])])
            if array.shape[-1] < width
            else array
            for array in arrays
        ]
        merged[name] = np.concatenate(padded)
    return merged
