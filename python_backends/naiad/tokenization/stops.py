"""Stop strings in streamed text: cut exactly before the first one, leak nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from naiad.contract.errors import InvalidArgument

__all__ = ["MAX_STOP_STRINGS", "MAX_STOP_STRING_CHARACTERS", "StopMatcher", "StopResult"]

MAX_STOP_STRINGS = 256
MAX_STOP_STRING_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class StopResult:
    """What one push released.

    Attributes:
        text: safe to send: no part of it can belong to a stop string.
        stopped: a stop string was met, in this push or before; the text ends before it.
        stop: the stop string that was met.
    """

    text: str
    stopped: bool = False
    stop: str | None = None


class _Node:
    """A prefix of some stop strings: one state of the automaton, made when text first reaches it."""

    __slots__ = ("candidates", "children", "depth", "fallback", "stop")

    def __init__(self, candidates: Sequence[str], depth: int) -> None:
        self.depth = depth
        self.candidates: dict[str, list[str]] = {}  # next character -> stops that go on with it
        self.stop: str | None = None  # the longest stop string that ends here
        for stop in candidates:
            if len(stop) == depth:
                self.stop = stop
            else:
                self.candidates.setdefault(stop[depth], []).append(stop)
        self.children: dict[str, _Node] = {}
        self.fallback = self  # the longest shorter prefix that ends the same way; the root's is itself


class StopMatcher:
    """Watches one stream of text for stop strings. For one thread at a time.

    The stop that is complete first wins; of several complete at the same character, the longest. So the
    result does not depend on the chunking, and equals that of a model stopped the moment a stop appears.

    An Aho-Corasick automaton whose states are made only as text reaches them: setting up costs a look at each
    stop string, and each character amortised constant time, however long the stops are.
    """

    __slots__ = ("_held", "_root", "_state", "_stop")

    def __init__(self, stop_strings: Sequence[str]) -> None:
        """Watch for `stop_strings`; empty ones are skipped.

        Raises:
            InvalidArgument: over 256 stop strings, one of over 1,024 characters, or one that is no text.
        """
        self._root = _Node(_checked(stop_strings), 0)
        self._state = self._root
        self._held = ""
        self._stop: str | None = None

    def push(self, text: str) -> StopResult:
        """Take the next text; return what can be sent. After a stop, everything more is discarded."""
        if self._stop is not None:
            return StopResult("", True, self._stop)
        root = self._root
        if not root.candidates:
            return StopResult(text)
        state = self._state
        start = len(self._held)
        for position, char in enumerate(text, start + 1):
            if char in state.children:
                state = state.children[char]
            elif state is not root or char in root.candidates:
                state = self._next(state, char)
            if state.stop is not None:
                self._stop = state.stop
                released = (self._held + text)[: position - len(state.stop)]
                self._held, self._state = "", root
                return StopResult(released, True, self._stop)
        self._state = state
        pending = self._held + text
        keep_from = len(pending) - state.depth
        self._held = pending[keep_from:]
        return StopResult(pending[:keep_from])

    def flush(self) -> str:
        """End of the stream: return what was held back, which after all begins no stop string."""
        held, self._held, self._state = self._held, "", self._root
        return held

    def _next(self, state: _Node, char: str) -> _Node:
        """The state for the longest suffix of (prefix + char) that begins a stop string, made if need be."""
        root = self._root
        made: list[_Node] = []
        while True:
            child = state.children.get(char)
            if child is not None:
                target = child
                break
            candidates = state.candidates.get(char)
            if candidates is not None:
                child = state.children[char] = _Node(candidates, state.depth + 1)
                made.append(child)
            if state is root:
                target = root
                break
            state = state.fallback
        # Each new state falls back to the next shorter one; the last to one that is already complete.
        for node in reversed(made):
            node.fallback = target
            node.stop = node.stop or target.stop
            target = node
        return target


def _checked(stop_strings: Sequence[str]) -> list[str]:
    if isinstance(stop_strings, str):
        raise InvalidArgument("stop strings must be a list of strings, not one string")
    for position, stop in enumerate(stop_strings):
        if not isinstance(stop, str):
            raise InvalidArgument(f"stop string {position} is a {type(stop).__name__}, not text")
        if len(stop) > MAX_STOP_STRING_CHARACTERS:
            raise InvalidArgument(
                f"stop string {position} has {len(stop)} characters,"
                f" the limit is {MAX_STOP_STRING_CHARACTERS}"
            )
    stops = [stop for stop in stop_strings if stop]
    if len(stops) > MAX_STOP_STRINGS:
        raise InvalidArgument(f"{len(stops)} stop strings were given, the limit is {MAX_STOP_STRINGS}")
    return stops
