"""For people: numbers of the few digits that matter, a dash for what is undefined, lines of small print."""

from __future__ import annotations

from rich.console import Console

from naiad_perf.comparison.compare import Compared
from naiad_perf.metrics import Unit

__all__ = ["DASH", "KEY_FIGURES", "interval_text", "number", "print_line", "quantity", "ratio_text"]

DASH = "–"

KEY_FIGURES = (
    "tokens_per_s",
    "requests_per_s",
    "goodput_share",
    "ttft_ms_p50",
    "ttft_ms_p99",
    "itl_ms_p50",
    "itl_ms_p99",
    "tpot_ms_p50",
    "tokens_per_s_per_user_p50",
    "latency_ms_p50",
    "latency_ms_p99",
    "latency_from_sent_ms_p99",
    "error_rate",
    "cancel_rate",
    "client_cpu_share",
    "usd_per_million_tokens",
)
"""Figures that are shown when nobody asks for others."""


def print_line(console: Console, line: str) -> None:
    """Print a line that is not the matter itself; paths and brackets in it stay as they are."""
    console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def number(value: float | None) -> str:
    """Write a number with three digits, more where they stand before the point; a dash for None."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.0995:
        return f"{value:.2f}"
    return f"{value:.2g}"


def quantity(value: float | None, unit: Unit) -> str:
    """Write a number with its unit."""
    return number(value) if value is None or not unit.symbol else f"{number(value)} {unit.symbol}"


def ratio_text(compared: Compared) -> str:
    """Write a ratio, for example "1.080"."""
    return DASH if compared.ratio is None else _ratio(compared.ratio)


def interval_text(compared: Compared) -> str:
    """Write the interval of a ratio, for example "1.020 to 1.151"."""
    interval = compared.interval
    if interval is None:
        return DASH
    return f"{_ratio(interval.low)} to {_ratio(interval.high)}"


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"
