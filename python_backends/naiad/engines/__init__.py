"""Engines: token ids in, token ids out, many sequences in flight.

`make_engine` chooses by name and imports what that engine needs only then.
"""

from naiad.engines.base import Engine, EngineLimits, EngineStats, Sink
from naiad.engines.observer import EngineObserver, NullObserver
from naiad.engines.step_loop import StepLoop

__all__ = ["Engine", "EngineLimits", "EngineObserver", "EngineStats", "NullObserver", "Sink", "StepLoop"]
