"""A report of a sweep: one HTML file, the same charts as PNG, all figures as CSV."""

from __future__ import annotations

from naiad_perf.report.writing import Written, write_report

__all__ = ["Written", "write_report"]
