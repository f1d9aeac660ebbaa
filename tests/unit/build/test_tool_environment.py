"""Tools in environments of their own: made whole or not at all, once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from naiad_build.errors import InstallError
from naiad_build.tool_environment import ToolEnvironment
from naiad_perf.drivers.aiperf_driver import tool

MINOR = sys.version_info.minor


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolEnvironment:
    """A tool of one module, in a wheel that pip finds in a folder and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "sometool-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sometool.py", "print('sometool at work')\n")
        about = "sometool-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: sometool\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    lock = tmp_path / "sometool.lock"
    lock.write_text(f"sometool==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return ToolEnvironment("sometool", lock, tmp_path / "artifacts", (MINOR, MINOR + 1), 1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[list[str]]]:
    """Puts a script in the place of `venv` and pip; it fails at the call of that number."""

    def stand_in(fails_at: int) -> list[list[str]]:
        made: list[list[str]] = []

        def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            made.append(list(command))
            if "venv" in command:
                Path(command[-1]).mkdir(parents=True)
            failed = len(made) == fails_at
            return subprocess.CompletedProcess(
                command, int(failed), "", "no such package\n" if failed else ""
            )

        monkeypatch.setattr(subprocess, "run", run)
        return made

    return stand_in


def test_it_is_installed_once_and_runs(environment: ToolEnvironment, tmp_path: Path) -> None:
    lines: list[str] = []
    environment.install(lines.append)
    assert lines == [
        f"installing sometool and what it needs (1 packages) into {tmp_path / 'artifacts/tools/sometool'}"
    ]
    done = subprocess.run(
        [environment.python, "-m", "sometool"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "sometool at work\n"
    environment.install(lines.append)
    assert len(lines) == 1


def test_a_changed_lock_is_another_installation(
    environment: ToolEnvironment, calls: Callable[[int], list[list[str]]]
) -> None:
    made = calls(0)
    environment.install(list[str]().append)
    assert (environment.is_installed, len(made)) == (True, 2)
    environment.lock.write_text(environment.lock.read_text() + "# changed\n")
    assert not environment.is_installed
    environment.install(list[str]().append)
    assert (environment.is_installed, len(made)) == (True, 4)


def test_two_installations_at_a_time_make_it_once(
    environment: ToolEnvironment, calls: Callable[[int], list[list[str]]]
) -> None:
    made = calls(0)
    beginning = threading.Barrier(2)

    def both_at_once(_line: str) -> None:
        """Hold the first one while it installs, until the other one waits for it or comes in."""
        with contextlib.suppress(threading.BrokenBarrierError):
            beginning.wait(0.3)

    threads = [threading.Thread(target=environment.install, args=(both_at_once,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (environment.is_installed, len(made)) == (True, 2)


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_failed_installation_leaves_nothing_and_says_why(
    environment: ToolEnvironment, calls: Callable[[int], list[list[str]]], fails_at: int
) -> None:
    calls(fails_at)
    with pytest.raises(InstallError, match=r"sometool could not be installed; .* says:\nno such package"):
        environment.install(list[str]().append)
    assert not environment.home.exists()


def test_a_wheel_with_another_digest_is_refused(environment: ToolEnvironment) -> None:
    environment.lock.write_text(f"sometool==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(InstallError, match=r"(?i)hash"):
        environment.install(list[str]().append)
    assert not environment.is_installed


def test_what_a_killed_installation_left_is_replaced(
    environment: ToolEnvironment, calls: Callable[[int], list[list[str]]]
) -> None:
    environment.home.mkdir(parents=True)
    (environment.home / "half").touch()
    calls(0)
    environment.install(list[str]().append)
    assert not (environment.home / "half").exists()
    assert environment.is_installed


def test_another_python_is_told_which_ones_do(environment: ToolEnvironment) -> None:
    later = replace(environment, pythons=(MINOR + 1, MINOR + 3))
    with pytest.raises(InstallError, match=rf"runs on Python 3\.{MINOR + 1} to 3\.{MINOR + 2}, and this is"):
        later.install(list[str]().append)


def test_a_full_disk_is_named_before_anything_is_fetched(
    environment: ToolEnvironment, calls: Callable[[int], list[list[str]]]
) -> None:
    made = calls(0)
    with pytest.raises(InstallError, match="MB of free disk"):
        replace(environment, needed_bytes=10**18).install(list[str]().append)
    assert made == []


def test_aiperfs_lock_pins_it_and_everything_by_hash() -> None:
    text = tool(Path("x")).lock.read_text(encoding="utf-8")
    pinned = [line for line in text.splitlines() if "==" in line and not line.lstrip().startswith("#")]
    assert any(line.startswith("aiperf==0.13.0 ") for line in pinned)
    assert text.count("--hash=sha256:") >= len(pinned)
    assert "://" not in text
