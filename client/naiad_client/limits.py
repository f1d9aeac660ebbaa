"""How long to wait and how often to try: the two promises a caller states up front."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from naiad_client.errors import InvalidArgument

__all__ = ["Retries", "Timeouts"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of one call, in seconds; None means no limit.

    Attributes:
        connect_s: for one attempt to reach the server (TCP and HTTP/2 handshake). Belongs to the channel, so
            only the value given to the client counts.
        first_token_s: from the start of the call to its first token, all attempts together.
        between_tokens_s: from one response to the next.
        total_s: for the whole call. Also sent to the server, as gRPC deadline and as Triton's ``timeout``.

    Raises:
        InvalidArgument: a limit is not a positive number.
    """

    connect_s: float = 5.0
    first_token_s: float | None = 60.0
    between_tokens_s: float | None = 30.0
    total_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name != "connect_s":
                continue
            if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
                raise InvalidArgument(f"{field.name} must be a positive number of seconds, not {value!r}")


@dataclass(frozen=True, slots=True)
class Retries:
    """When the client repeats a request by itself: only before the first token, only for retryable errors.

    The pause before attempt n+1 is ``backoff_s * multiplier ** (n-1)``, at most `max_backoff_s`, of which a
    random part of up to `jitter` (0..1) is taken off so that many clients do not come back at the same
    moment.

    Attributes:
        attempts: tries in all; 1 means never repeat.

    Raises:
        InvalidArgument: a value is out of its range.
    """

    attempts: int = 3
    backoff_s: float = 0.2
    multiplier: float = 2.0
    max_backoff_s: float = 5.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidArgument(f"attempts must be at least 1, not {self.attempts}")
        if self.backoff_s < 0 or self.max_backoff_s < 0 or self.multiplier < 1:
            raise InvalidArgument("backoff_s and max_backoff_s must not be negative, multiplier not below 1")
        if not 0 <= self.jitter <= 1:
            raise InvalidArgument(f"jitter must be between 0 and 1, not {self.jitter}")

    def pause_s(self, attempt: int, chance: float) -> float:
        """Return the pause after failed attempt `attempt` (from 1); `chance` is a draw from [0, 1)."""
        whole = min(self.backoff_s * self.multiplier ** (attempt - 1), self.max_backoff_s)
        return whole * (1 - self.jitter * chance)
