"""The CPU engine in a process of its own, so that it steps on while its tokens are being sent.

OpenVINO's `step()` holds the interpreter's lock throughout. `WorkerStepper` is the near end: a `Stepper`
whose steps happen over there; `main` is the far end. They exchange tuples over a private socket pair:

    to the worker      ("add", key, request) | ("abort", key)
    from the worker    ("ready", limits) | ("stepped", results, refusals, stats) | ("failed", text)

The worker steps without waiting for the near end, and ends when the socket closes. If it dies, the near
end's next step raises, and `rebuild` starts another.
"""

from __future__ import annotations

import logging
import math
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from naiad.contract.errors import EngineUnavailable, InternalError, NaiadError
from naiad.contract.generation import GenerationRequest
from naiad.engines.base import EngineLimits, EngineStats
from naiad.engines.openvino_settings import OpenVinoSettings
from naiad.engines.stepper import Stepper, StepResult

__all__ = ["WorkerStepper", "main"]

_log = logging.getLogger(__name__)
_LOOK_S = 0.1  # a step that takes longer must not keep the loop from cancels and deadlines
_SILENCE_LIMIT_S = 30.0  # a step of 256 prompt tokens takes a tenth of a second with the default model
_LOADS = 3


class WorkerStepper(Stepper):
    """Starts the worker and waits until its model is loaded.

    Raises:
        EngineUnavailable: the worker could not load the model; its own output says why.
    """

    def __init__(self, settings: OpenVinoSettings, limits: EngineLimits) -> None:
        self._settings = settings
        self._asked = limits
        self._woken = os.eventfd(0, os.EFD_NONBLOCK)
        self._stats = EngineStats(max_active=settings.max_sequences)
        self._keys: set[int] = set()
        self._start()

    def _start(self) -> None:
        self._socket, far = Pipe()
        _limit_sending(self._socket)
        command = [_python(), "-m", "naiad.engines.worker", str(far.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL)
        far.close()
        try:
            self._socket.send((self._settings, self._asked))
            kind, content = self._socket.recv()
        except (EOFError, OSError):
            self.close()
            raise EngineUnavailable("the engine's process ended while it loaded the model") from None
        if kind != "ready":
            self.close()
            raise EngineUnavailable(f"the engine could not load the model: {content}")
        self._limits: EngineLimits = content
        self._heard_s = time.monotonic()

    @property
    def limits(self) -> EngineLimits:
        """The engine's own."""
        return self._limits

    @property
    def max_sequences(self) -> int:
        """As set."""
        return self._settings.max_sequences

    def check(self, request: GenerationRequest) -> None:
        """See `OpenVinoSettings.check`."""
        self._settings.check(request)

    def add(self, key: int, request: GenerationRequest) -> None:
        """Send the request over; a refusal comes back as a result."""
        if not self._keys:
            self._heard_s = time.monotonic()  # it had nothing to say until now
        self._keys.add(key)
        self._send(("add", key, request))

    def abort(self, key: int) -> None:
        """Have the worker forget a sequence."""
        self._keys.discard(key)
        self._send(("abort", key))

    def wake(self) -> None:
        """End a wait in `step`; from any thread."""
        os.eventfd_write(self._woken, 1)

    def step(self) -> list[StepResult]:
        """Wait a moment for the results of the worker's next step; there are none yet, or after a `wake`.

        Raises:
            RuntimeError: the worker failed, died, or was silent for too long.
        """
        ready = wait([self._socket, self._woken], _LOOK_S)
        if self._socket not in ready:
            if ready:
                os.eventfd_read(self._woken)
            if time.monotonic() - self._heard_s > _SILENCE_LIMIT_S:
                raise RuntimeError(f"the engine's process was silent for {_SILENCE_LIMIT_S:.0f} s")
            return []
        self._heard_s = time.monotonic()
        try:
            message = self._socket.recv()
        except (EOFError, OSError):
            raise RuntimeError(f"the engine's process died (status {self._process.poll()})") from None
        if message[0] == "failed":
            raise RuntimeError(f"the engine's step failed: {message[1]}")
        _, results, refusals, stats = message
        self._stats = stats or self._stats
        answers = [StepResult(*result) for result in results]
        answers += [StepResult(key, [], error=error or InternalError()) for key, error in refusals]
        answers = [answer for answer in answers if answer.key in self._keys]  # the others were aborted since
        self._keys.difference_update(answer.key for answer in answers if answer.finish_reason or answer.error)
        return answers

    def rebuild(self) -> None:
        """Start another worker, and if that fails another: it may have been killed while it loaded."""
        self.close()
        self._keys.clear()
        for _ in range(_LOADS - 1):
            try:
                self._start()
            except EngineUnavailable:
                _log.exception("the engine's process could not be started; trying again")
            else:
                return
        self._start()

    def close(self) -> None:
        """End the worker."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def stats(self) -> EngineStats:
        """The worker's counts as of its last step; nothing is in use when it has nothing to do."""
        if self._keys:
            return self._stats
        return replace(self._stats, generation=0, context=0, context_tokens=0, kv_blocks_used=0)

    def _send(self, command: tuple[Any, ...]) -> None:
        try:
            self._socket.send(command)
        except OSError:
            _log.warning("the engine's process does not take commands; its next step will tell")
            self._process.kill()  # it may have half a command, and can make nothing of the next


def _limit_sending(connection: Connection[Any, Any]) -> None:
    """A worker that hangs takes no commands: sending one must not hang with it."""
    with socket.socket(fileno=os.dup(connection.fileno())) as shared:
        shared.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", math.ceil(_SILENCE_LIMIT_S), 0)
        )


def _python() -> str:
    """Return this environment's Python: inside Triton's stub `sys.executable` may be the stub."""
    if Path(sys.executable).name.startswith("python"):
        return sys.executable
    found = shutil.which("python3")
    if found is None:
        raise EngineUnavailable("there is no python3 on PATH to run the engine's process")
    return found


class _Worker:
    """The far end."""

    def __init__(self, near: Connection[Any, Any], stepper: Stepper) -> None:
        self._socket = near
        self._stepper = stepper
        self._keys: set[int] = set()
        self._refusals: list[tuple[int, NaiadError | None]] = []

    def run(self) -> None:
        """Take commands and step until the near end is gone."""
        while True:
            # With nothing to step, wait for a command; otherwise take only what is there.
            while self._socket.poll(None if not self._keys and not self._refusals else 0):
                self._obey(self._socket.recv())
            results = self._step() if self._keys else []
            self._await_room()
            self._socket.send(("stepped", results, self._refusals, self._stepper.stats()))
            self._refusals = []

    def _await_room(self) -> None:
        """Wait until the near end has read enough; it may itself be waiting for its commands to be taken."""
        room = select.poll()
        room.register(self._socket.fileno(), select.POLLIN | select.POLLOUT)
        while not room.poll()[0][1] & select.POLLOUT:
            self._obey(self._socket.recv())

    def _obey(self, command: tuple[Any, ...]) -> None:
        kind, key, *rest = command
        if kind == "abort":
            self._keys.discard(key)
            self._stepper.abort(key)
            return
        try:
            self._stepper.add(key, *rest)
            self._keys.add(key)
        except NaiadError as error:
            self._refusals.append((key, error))
        except Exception:  # noqa: BLE001 - the engine stays usable, so the others go on
            _log.exception("the engine refused a request")
            self._refusals.append((key, None))

    def _step(self) -> list[tuple[Any, ...]]:
        results = self._stepper.step()
        self._keys.difference_update(result.key for result in results if result.finish_reason is not None)
        return [(result.key, result.ids, result.log_probs, result.finish_reason) for result in results]


def main() -> None:
    """Load the model that the near end names and serve it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor, which drains first
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s engine: %(message)s")
    from naiad.engines.openvino import OpenVinoStepper

    near: Connection[Any, Any] = Connection(int(sys.argv[1]))
    settings, limits = near.recv()
    try:
        stepper = OpenVinoStepper(settings, limits)
    except Exception as error:  # noqa: BLE001 - the near end reports it
        _log.exception("the model cannot be loaded")
        near.send(("failed", str(error).splitlines()[-1] if str(error) else repr(error)))
        return
    near.send(("ready", stepper.limits))
    try:
        _Worker(near, stepper).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the near end is gone
    except Exception as error:  # noqa: BLE001 - its state is lost: the near end starts another worker
        _log.exception("the engine's step failed")
        near.send(("failed", repr(error)))


if __name__ == "__main__":
    main()
