"""Which torch the peers get, from a package index of a few empty wheels."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from naiad_perf.errors import InstallError
from naiad_perf.peers import environment as module
from naiad_perf.peers.environment import PeersEnvironment, peers_environment

Index = Callable[..., PeersEnvironment]
MINOR = sys.version_info.minor


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Makes an environment whose locks ask for wheels of one folder, the only place that pip looks into."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(module, "_HERE", tmp_path)

    def wheel(name: str, version: str, *, broken: bool = False) -> str:
        path = folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{name}/__init__.py", f"VERSION = '{version}'\n" + "1 / 0\n" * broken)
            about = f"{name}-{version}.dist-info"
            # What it says it needs is not looked at: the locks are complete.
            needs = "Requires-Dist: torch\n"
            archive.writestr(
                f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
            )
            archive.writestr(
                f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{about}/RECORD", "")
        return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"

    def make(*, cpu_build: bool, marker: str = "", broken: bool = False) -> PeersEnvironment:
        lock = tmp_path / "peers.lock"
        lock.write_text(wheel("transformers", "5.0") + wheel("xllamacpp", "1.0", broken=broken))
        cpu = wheel("torch", "2.13.0+cpu") if cpu_build else "torch==2.13.0+cpu --hash=sha256:00\n"
        (tmp_path / "torch_cpu.lock").write_text(cpu.replace(" --hash", f"{marker} --hash"))
        (tmp_path / "torch.lock").write_text(wheel("torch", "2.13.0") + wheel("cuda", "13.0"))
        return PeersEnvironment("peers", lock, tmp_path / "artifacts", (MINOR, MINOR + 1), 1)

    return make


def installed(environment: PeersEnvironment) -> dict[str, str]:
    (packages,) = environment.home.glob("lib/python3*/site-packages")
    names = ("transformers", "xllamacpp", "torch", "cuda")
    return {
        name: (packages / name / "__init__.py").read_text().split("'")[1]
        for name in names
        if (packages / name).exists()
    }


def test_a_cpu_build_that_pip_knows_is_all_of_torch(index: Index) -> None:
    environment = index(cpu_build=True)
    lines: list[str] = []
    environment.install(lines.append)
    assert installed(environment) == {"transformers": "5.0", "xllamacpp": "1.0", "torch": "2.13.0+cpu"}
    assert environment.is_installed
    assert len(lines) == 1


@pytest.mark.parametrize("marker", ["", ' ; sys_platform == "elsewhere"'])
def test_else_the_index_s_own_build_comes_with_its_libraries_and_a_word(index: Index, marker: str) -> None:
    environment = index(cpu_build=False, marker=marker)
    lines: list[str] = []
    environment.install(lines.append)
    assert installed(environment) == {
        "transformers": "5.0", "xllamacpp": "1.0", "torch": "2.13.0", "cuda": "13.0"
    }  # fmt: skip
    assert "about 3 GB" in lines[-1]


def test_what_does_not_import_is_not_installed(index: Index) -> None:
    environment = index(cpu_build=True, broken=True)
    with pytest.raises(InstallError, match="ZeroDivisionError"):
        environment.install(lambda _: None)
    assert not environment.home.exists()


@pytest.mark.parametrize("name", ["peers.lock", "torch_cpu.lock", "torch.lock"])
def test_a_change_of_any_lock_is_another_installation(index: Index, name: str, tmp_path: Path) -> None:
    environment = index(cpu_build=True)
    environment.install(lambda _: None)
    assert environment.is_installed
    with (tmp_path / name).open("a") as lock:
        lock.write("# changed\n")
    assert not environment.is_installed


def test_the_locks_that_come_with_it_pin_every_package_by_digest(tmp_path: Path) -> None:
    environment = peers_environment(tmp_path)
    for lock in environment._locks:
        text = lock.read_text()
        blocks = [block for block in text.replace("\\\n", " ").splitlines() if block and block[0] not in " #"]
        assert blocks, lock
        assert all("==" in block and "--hash=sha256:" in block for block in blocks), lock
        assert "//" not in text, "an index is the installer's choice"
    names = {line.split("==")[0] for line in environment.lock.read_text().splitlines() if "==" in line}
    assert {"xllamacpp", "transformers", "accelerate", "gguf", "sympy"} <= names
    assert not any(name.startswith(("torch", "nvidia", "cuda", "triton")) for name in names)
