from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from naiad.server import tritonserver, wheel
from naiad.server.errors import InstallError
from naiad.server.libpython import find_libpython
from naiad.server.shared_memory import STUB_NAME
from naiad.server.tritonserver import install, installed_folder, locate, locate_or_install

MINOR = f"3.{sys.version_info.minor}"
STUBS = "pytriton/tritonserver/python_backend_stubs"


@pytest.fixture(autouse=True)
def no_other_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tritonserver, "_CONTAINER_BINARY", Path("/nowhere/tritonserver"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    # This Python may be a static one; what is found is tested with `find_libpython`.
    monkeypatch.setattr(tritonserver, "find_libpython", lambda library: Path("/lib/of") / library)


def write_wheel(folder: Path, minor: str = MINOR, name: str = "pytriton") -> Path:
    """Write a wheel laid out as pytriton's, with stubs of two Python versions."""
    path = folder / f"nvidia_{name}-0.7.0-py3-none-any.whl"
    stub = f"\x7fELF libpython{minor}.so.1.0\0".encode()
    members = {
        "pytriton/tritonserver/bin/tritonserver": (0o777, b"server"),
        "pytriton/tritonserver/backends/python/libtriton_python.so": (0o666, b"backend"),
        "pytriton/tritonserver/caches/local/libtritoncache_local.so": (0o666, b"cache"),
        f"{STUBS}/{MINOR}/{STUB_NAME}": (0o755, stub),
        f"{STUBS}/3.8/{STUB_NAME}": (0o755, b"libpython3.8.so.1.0"),
        "nvidia_pytriton.libs/libx.so": (0o644, b"x"),
        "pytriton/__init__.py": (0o644, b"not wanted"),
        f"nvidia_{name}-0.7.0.dist-info/METADATA": (
            0o644,
            f"Metadata-Version: 2.1\nName: nvidia-{name}\nVersion: 0.7.0\n".encode(),
        ),
        f"nvidia_{name}-0.7.0.dist-info/WHEEL": (
            0o644,
            b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
        f"nvidia_{name}-0.7.0.dist-info/RECORD": (0o644, b""),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, (mode, data) in members.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)
    return path


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have downloads copy a wheel of ours; returns what was asked for."""
    source = write_wheel(tmp_path)
    asked: list[str] = []

    def download(requirement: str, sha256: str, folder: Path) -> Path:
        asked.append(requirement)
        return Path(shutil.copy(source, folder))

    monkeypatch.setattr(wheel, "download", download)
    return asked


def test_an_installed_server_has_this_pythons_stub_beside_its_backend(
    tmp_path: Path, fetched: list[str]
) -> None:
    said: list[str] = []
    installation = install(tmp_path / "artifacts", said.append)
    root = installed_folder(tmp_path / "artifacts")
    assert installation.binary == root / "pytriton" / "tritonserver" / "bin" / "tritonserver"
    assert f"libpython{MINOR}" in (installation.backends / "python" / STUB_NAME).read_text()
    assert os.access(installation.backends / "python" / STUB_NAME, os.X_OK)
    assert installation.caches == root / "pytriton" / "tritonserver" / "caches"
    assert (root / "nvidia_pytriton.libs" / "libx.so").is_file()
    assert not (root / "pytriton" / "__init__.py").exists()
    assert not (root / STUBS / "3.8").exists()
    assert any("downloading" in line for line in said)


def test_nothing_installed_is_writable_by_others(tmp_path: Path, fetched: list[str]) -> None:
    install(tmp_path)
    modes = {path: path.stat().st_mode for path in installed_folder(tmp_path).rglob("*") if path.is_file()}
    assert modes
    assert not any(mode & 0o022 for mode in modes.values())


def test_an_installed_server_is_reused(tmp_path: Path, fetched: list[str]) -> None:
    first = install(tmp_path)
    assert install(tmp_path) == first
    assert locate(tmp_path) == first
    assert locate_or_install(tmp_path) == first
    assert len(fetched) == 1


def test_a_failed_installation_leaves_nothing_behind(
    tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, folder: Path, wanted: Callable[[str], bool]) -> None:
        folder.mkdir()
        (folder / "half").touch()
        raise InstallError("the disk filled up", "free some space")

    monkeypatch.setattr(wheel, "unpack", fail)
    with pytest.raises(InstallError, match="filled up"):
        install(tmp_path / "artifacts")
    assert list((tmp_path / "artifacts" / "tritonserver").iterdir()) == []


def test_no_server_at_all_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"no tritonserver here(.|\n)*naiad serve"):
        locate(tmp_path)


def test_the_containers_server_comes_first(
    tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path)
    container = tmp_path / "opt"
    shutil.copytree(installed_folder(tmp_path) / "pytriton" / "tritonserver", container)
    binary = container / "bin" / "tritonserver"
    monkeypatch.setattr(tritonserver, "_CONTAINER_BINARY", binary)
    assert locate(tmp_path).binary == binary
    assert locate_or_install(tmp_path / "other").binary == binary
    assert len(fetched) == 1


def test_a_server_on_the_path_is_used(
    tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = install(tmp_path).binary
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", f"{binary.parent}:/usr/bin:/bin")
    assert locate(tmp_path / "other").binary == binary


def test_a_stub_of_another_python_is_refused_with_the_python_to_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_wheel(tmp_path, minor="3.7")
    monkeypatch.setattr(wheel, "download", lambda requirement, sha256, folder: source)
    with pytest.raises(
        InstallError, match=rf"built for Python 3\.7; this is Python {MINOR}(.|\n)*with Python 3\.7"
    ):
        install(tmp_path / "artifacts")


def test_a_stub_with_a_bundled_library_loads_the_running_pythons_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = f"libpython3-419a3a08.{sys.version_info.minor}.so.1.0"
    source = write_wheel(tmp_path, minor=f"3-419a3a08.{sys.version_info.minor}")
    with zipfile.ZipFile(source, "a") as archive:
        archive.writestr(f"nvidia_pytriton.libs/{bundled}", b"another build of Python")
    own = tmp_path / "lib" / f"libpython{MINOR}.so.1.0"
    own.parent.mkdir()
    own.write_bytes(b"the running Python")
    monkeypatch.setattr(wheel, "download", lambda requirement, sha256, folder: source)
    monkeypatch.setattr(tritonserver, "find_libpython", lambda library: find_libpython(library, [own.parent]))
    installation = install(tmp_path / "artifacts")
    loaded = installed_folder(tmp_path / "artifacts") / "nvidia_pytriton.libs" / bundled
    assert loaded.read_bytes() == b"the running Python"
    assert installation.environment({})["LD_LIBRARY_PATH"].split(os.pathsep)[0] == str(own.parent)


def test_a_stub_that_names_the_running_pythons_library_gets_no_link(
    tmp_path: Path, fetched: list[str]
) -> None:
    install(tmp_path)
    libraries = installed_folder(tmp_path) / "nvidia_pytriton.libs"
    assert [path.name for path in libraries.iterdir()] == ["libx.so"]


@pytest.mark.parametrize(
    ("attribute", "value", "text"),
    [
        ("platform.machine", "aarch64", "for linux on aarch64"),
        ("platform.libc_ver", ("glibc", "2.31"), r"needs glibc 2\.35; here is glibc 2\.31"),
        ("platform.libc_ver", ("", ""), r"here is another libc"),
    ],
)
def test_a_machine_that_cannot_run_it_is_told_before_any_download(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fetched: list[str],
    attribute: str,
    value: object,
    text: str,
) -> None:
    monkeypatch.setattr(f"naiad.server.tritonserver.{attribute}", lambda: value)
    with pytest.raises(InstallError, match=text) as caught:
        install(tmp_path)
    assert "container" in caught.value.remedy
    assert fetched == []


def test_a_python_without_a_stub_is_told_which_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: list[str]
) -> None:
    monkeypatch.setattr(tritonserver, "_PYTHONS", ("3.8", "3.9"))
    with pytest.raises(InstallError, match=rf"no Python stub for Python {MINOR}, only for 3\.8, 3\.9"):
        install(tmp_path)


def test_too_little_space_is_told_before_any_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: list[str]
) -> None:
    class Usage:
        free = 399 << 20

    monkeypatch.setattr("naiad.server.tritonserver.shutil.disk_usage", lambda path: Usage)
    with pytest.raises(InstallError, match="399 MiB free"):
        install(tmp_path)
    assert fetched == []


def test_the_environment_puts_this_python_and_its_library_first(
    tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = install(tmp_path)
    environment = installation.environment(
        {"PATH": "/a", "LD_LIBRARY_PATH": "/b", "PYTHONHOME": "/c", "X": "1"}
    )
    assert environment["PATH"] == f"{Path(sys.executable).parent}:/a"
    assert environment["LD_LIBRARY_PATH"] == f"/lib/of/libpython{MINOR}.so.1.0:/b"
    assert environment["X"] == "1"
    assert "PYTHONHOME" not in environment


def pip_finds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_a_download_is_pips_and_is_checked_against_the_pinned_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_wheel(tmp_path)
    pip_finds(tmp_path, monkeypatch)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    target = tmp_path / "target"
    target.mkdir()
    assert wheel.download("nvidia-pytriton==0.7.0", digest, target).read_bytes() == source.read_bytes()
    with pytest.raises(InstallError, match="not the file that was pinned"):
        wheel.download("nvidia-pytriton==0.7.0", "0" * 64, target)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (
            "ERROR: ... NewConnectionError('...: Failed to establish a new connection",
            "no connection to the package",
        ),
        ("ERROR: Could not install: [Errno 28] No space left on device", "disk filled up"),
        ("/usr/bin/python3: No module named pip", "has no pip"),
        ("ERROR: odd\nERROR: really odd", r"could not download .*: ERROR: odd \| ERROR: really odd"),
    ],
)
def test_pips_failure_is_told_in_one_sentence_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, text: str
) -> None:
    def fail(command: list[str], **settings: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, stdout=output)

    monkeypatch.setattr("naiad.server.wheel.subprocess.run", fail)
    with pytest.raises(InstallError, match=text):
        wheel.download("nvidia-pytriton==0.7.0", "0" * 64, tmp_path)


def test_a_damaged_wheel_and_one_that_climbs_out_do_no_harm(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.whl"
    damaged.write_bytes(b"no zip")
    with pytest.raises(InstallError, match="damaged"):
        wheel.unpack(damaged, tmp_path / "a", lambda name: True)
    climbing = tmp_path / "climbing.whl"
    with zipfile.ZipFile(climbing, "w") as archive:
        archive.writestr("../escaped", "x")
        archive.writestr("inside", "x")
    wheel.unpack(climbing, tmp_path / "b" / "c", lambda name: True)
    assert [path.name for path in (tmp_path / "b").rglob("*") if path.is_file()] == ["inside"]
