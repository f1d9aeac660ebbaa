"""The engine's worker process without a model: the real far end over a stepper that does what prompts say.

`write_python` makes an interpreter that runs this module when it is asked for `naiad.engines.worker`; with
it as `sys.executable`, `WorkerStepper` starts real processes that are up in a moment.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from pathlib import Path
from types import ModuleType

from naiad.contract.errors import Unsupported
from naiad.contract.generation import GenerationRequest
from naiad.engines import worker
from naiad.engines.base import EngineLimits
from naiad.engines.openvino_settings import OpenVinoSettings
from naiad.engines.stepper import StepResult
from naiad.engines.synthetic import SyntheticStepper, SyntheticTiming

__all__ = ["BREAKS_STEP", "DIES_AT_START", "HANGS", "RAISES", "REFUSED", "PromptedStepper", "write_python"]

REFUSED, RAISES, BREAKS_STEP, HANGS = 901, 902, 903, 904  # a prompt's first id says what happens to it
DIES_AT_START = "dies at start"  # a model directory of this name ends the process
STEP_S = 0.002


class PromptedStepper(SyntheticStepper):
    """Echoes; a model directory that is not there cannot be loaded."""

    def __init__(self, settings: OpenVinoSettings, limits: EngineLimits) -> None:
        if settings.directory.name == DIES_AT_START:
            os._exit(3)
        if not settings.directory.is_dir():
            raise FileNotFoundError(f"first line\nno model in {settings.directory.name}")
        super().__init__(limits, SyntheticTiming(step_s=STEP_S), max_sequences=settings.max_sequences)
        self._first_ids: dict[int, int] = {}

    def add(self, key: int, request: GenerationRequest) -> None:
        """Take a sequence in unless its prompt says otherwise."""
        first = request.prompt_ids[0]
        if first == REFUSED:
            raise Unsupported("bad_words_list is refused here")
        if first == RAISES:
            raise ValueError("/srv/secret/path")
        self._first_ids[key] = first
        super().add(key, request)

    def step(self) -> list[StepResult]:
        """Step, break or hang."""
        if BREAKS_STEP in self._first_ids.values():
            raise RuntimeError("/srv/secret/path")
        if HANGS in self._first_ids.values():
            threading.Event().wait()
        return super().step()

    def abort(self, key: int) -> None:
        """Forget a sequence."""
        self._first_ids.pop(key, None)
        super().abort(key)


def write_python(path: Path) -> Path:
    """Write the interpreter, an executable file."""
    root = Path(__file__).parents[2]
    command = f"{shlex.quote(sys.executable)} -W error -m {__name__}"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(root))} exec {command} "$3"\n')
    path.chmod(0o755)
    return path


def main() -> None:
    """Be the far end."""
    stand_in = ModuleType("naiad.engines.openvino")
    stand_in.OpenVinoStepper = PromptedStepper  # type: ignore[attr-defined]
    sys.modules[stand_in.__name__] = stand_in
    worker.main()


if __name__ == "__main__":
    main()
