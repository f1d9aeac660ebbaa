"""What the package promises to export, and what it may not pull in."""

from __future__ import annotations

import subprocess
import sys

import naiad_client
from naiad_client import errors

SURFACE = {
    "AsyncClient", "AsyncStream", "Chunk", "Client", "Completion", "DEFAULT_MODEL", "DEFAULT_URL",
    "GenerationRequest", "Health", "Message", "ModelState", "Retries", "Stream", "Timeouts", "Timings",
    "Usage",
}  # fmt: skip


def test_the_exports_are_the_promised_ones_and_exist() -> None:
    assert set(naiad_client.__all__) == SURFACE | set(errors.__all__)
    assert all(hasattr(naiad_client, name) for name in naiad_client.__all__)
    assert len(set(naiad_client.__all__)) == len(naiad_client.__all__)


def test_the_client_needs_nothing_of_the_server_and_no_command_line() -> None:
    script = (
        "import sys, naiad_client\n"
        "wrong = [m for m in sys.modules if m.split('.')[0] in ('typer', 'rich', 'openvino', 'pydantic')\n"
        "         or m.startswith('naiad.') and not m.startswith('naiad.contract')]\n"
        "sys.exit(', '.join(wrong) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
