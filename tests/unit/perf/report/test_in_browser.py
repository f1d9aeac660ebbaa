"""The page in a real browser, where there is one: everything is drawn, and nothing is complained about."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH: apt-get install chromium")
def test_a_browser_draws_every_chart_and_complains_about_nothing(written, tmp_path):
    command = [
        str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
        "--enable-logging=stderr", "--virtual-time-budget=20000", "--window-size=1280,2000", "--dump-dom",
        written.page.as_uri(),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert 'data-ready="true"' in result.stdout
    assert len(re.findall(r'<div class="chart [^>]*id="chart-', result.stdout)) == 6
    assert len(re.findall(r"<svg[^>]*class=\"marks\"", result.stdout)) == 6
    assert re.findall(r"CONSOLE.*", result.stderr) == []
