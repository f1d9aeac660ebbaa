from __future__ import annotations

import sys
from pathlib import Path

import pytest

from naiad.server.errors import InstallError
from naiad.server.libpython import find_libpython, own_name, search_folders, stub_library


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    return folders


def test_the_first_folder_that_has_the_library_wins(folders: list[Path]) -> None:
    for folder in folders:
        (folder / "libpython3.11.so.1.0").touch()
    assert find_libpython("libpython3.11.so.1.0", folders) == folders[0]


@pytest.mark.parametrize(
    "name", ["libpython3.1.so.1.0", "libpython3.12.so.1.0", "libpython3.11.a", "libpython3.11.so"]
)
def test_another_version_or_kind_of_library_never_matches(folders: list[Path], name: str) -> None:
    (folders[0] / name).touch()
    with pytest.raises(InstallError, match=r"no shared library libpython3\.11\.so\.1\.0"):
        find_libpython("libpython3.11.so.1.0", folders)


def test_folders_that_do_not_exist_are_passed_over(folders: list[Path], tmp_path: Path) -> None:
    (folders[1] / "libpython3.11.so.1.0").touch()
    assert find_libpython("libpython3.11.so.1.0", [tmp_path / "none", *folders]) == folders[1]


@pytest.mark.parametrize(
    ("base_prefix", "advice"),
    [
        ("/home/a/.pyenv/versions/3.11.7", "--enable-shared pyenv install --force"),
        ("/usr", f"apt install libpython3.{sys.version_info.minor}"),
        ("/opt/python", "built with --enable-shared"),
    ],
)
def test_a_missing_library_says_how_this_python_gets_one(
    monkeypatch: pytest.MonkeyPatch, base_prefix: str, advice: str
) -> None:
    monkeypatch.setattr(sys, "base_prefix", base_prefix)
    with pytest.raises(InstallError) as caught:
        find_libpython("libpython3.99.so.1.0", [])
    assert advice in caught.value.remedy


def test_the_interpreters_own_folder_comes_first() -> None:
    assert str(search_folders()[0]).startswith(sys.base_prefix) or sys.base_prefix == "/usr"


def test_a_library_that_only_the_loader_knows_is_found() -> None:
    assert (find_libpython("libc.so.6") / "libc.so.6").is_file()


@pytest.mark.parametrize("name", [b"libpython3.11.so.1.0", b"libpython3-419a3a08.13.so.1.0"])
def test_a_stub_names_its_library(tmp_path: Path, name: bytes) -> None:
    stub = tmp_path / "stub"
    stub.write_bytes(b"\x7fELF\0libc.so.6\0" + name + b"\0rest")
    assert stub_library(stub) == name.decode()


def test_a_file_that_names_no_library_is_no_stub(tmp_path: Path) -> None:
    (tmp_path / "stub").write_bytes(b"\x7fELF\0libc.so.6\0")
    with pytest.raises(InstallError, match="does not look like"):
        stub_library(tmp_path / "stub")


def test_of_several_names_in_a_stub_the_last_is_the_one_it_loads(tmp_path: Path) -> None:
    """A wheel repair appends the new name of a bundled library and leaves the old one as dead text."""
    stub = tmp_path / "stub"
    stub.write_bytes(b"\x7fELF\0libpython3.13.so.1.0\0libc.so.6\0libpython3-419a3a08.13.so.1.0\0rest")
    assert stub_library(stub) == "libpython3-419a3a08.13.so.1.0"
    stub.write_bytes(b"\x7fELF\0libpython3-419a3a08.13.so.1.0\0libc.so.6\0libpython3.11.so.1.0\0rest")
    assert stub_library(stub) == "libpython3.11.so.1.0"


@pytest.mark.parametrize("text", [b"libpython3.so", b"libpython3.11.so\0", b"libpython2.7.so.1.0"])
def test_other_names_of_python_libraries_are_not_what_a_stub_loads(tmp_path: Path, text: bytes) -> None:
    stub = tmp_path / "stub"
    stub.write_bytes(b"\x7fELF\0libpython3.12.so.1.0\0" + text + b"\0rest")
    assert stub_library(stub) == "libpython3.12.so.1.0"


@pytest.mark.parametrize(
    ("library", "own"),
    [
        ("libpython3-419a3a08.13.so.1.0", "libpython3.13.so.1.0"),
        ("libpython3.11.so.1.0", "libpython3.11.so.1.0"),
    ],
)
def test_a_bundled_librarys_hash_is_no_part_of_the_interpreters_own_name(library: str, own: str) -> None:
    assert own_name(library) == own
