"""One answer on its way: the engine's tokens in, from whatever thread has them, text responses out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from naiad.contract.errors import NaiadError
from naiad.contract.generation import TokenChunk
from naiad.serving.text_answers import TextAnswer
from naiad.serving.text_requests import TextRow
from naiad.telemetry import Recorder
from naiad.triton.responses import as_naiad_error
from naiad.triton.watchdog import LiveCall

__all__ = ["TextDelivery"]


class TextDelivery:
    """The answer to one row.

    `take` is called by one thread at a time; `fail` and `finish` by any. Whichever ends it, `on_end` is
    called once, with this and the error, after the last response was sent.

    Attributes:
        row: what was asked.
        text: the answer so far.
        call: the engine's call behind it.
        arrival_s: of the request, on the monotonic clock.
    """

    def __init__(
        self,
        row: TextRow,
        text: TextAnswer,
        call: LiveCall,
        arrival_s: float,
        recorder: Recorder,
        on_end: Callable[[TextDelivery, NaiadError | None], None],
    ) -> None:
        self.row = row
        self.text = text
        self.call = call
        self.arrival_s = arrival_s
        self._recorder = recorder
        self._on_end = on_end
        self._lock = threading.Lock()
        self._ended = False
        self._streamed = False

    @property
    def ended(self) -> bool:
        """Whether the answer is complete, or failed."""
        return self._ended

    def take(self, chunk: TokenChunk) -> None:
        """Send what these tokens make sendable."""
        if self._ended:
            return
        self.call.heard()
        try:
            for outgoing in self.text.feed(chunk):
                if self.row.streaming and not self._streamed:
                    self._recorder.first_token(time.monotonic() - self.arrival_s)
                    self._streamed = True
                self.call.answer.send(self.row.batch_index or 0, outgoing, last=self.text.done)
        except Exception as error:  # noqa: BLE001 - the thread may serve other answers too
            self.fail(as_naiad_error(error, f"answering call {self.call.engine_id}"))
            return
        if self.text.done:
            self._end(None)

    def fail(self, error: NaiadError) -> None:
        """End the answer with an error."""
        self._end(error)

    def finish(self) -> None:
        """The engine has nothing more: end what it gave no reason for."""
        if not self._ended:
            for outgoing in self.text.close():
                self.call.answer.send(self.row.batch_index or 0, outgoing, last=self.text.done)
            self._end(None)

    def _end(self, error: NaiadError | None) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
        if error is not None:
            error.partial = self.text.started  # the engine only knows what it delivered to this model
            self.call.answer.fail(self.row.batch_index or 0, error)
        self._on_end(self, error)
