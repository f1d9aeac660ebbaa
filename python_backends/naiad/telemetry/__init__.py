"""What is measured while serving: names and labels in one place, and the recorder between threads."""

from naiad.telemetry.families import FAMILIES, Family, Kind
from naiad.telemetry.recorder import Recorder

__all__ = ["FAMILIES", "Family", "Kind", "Recorder"]
