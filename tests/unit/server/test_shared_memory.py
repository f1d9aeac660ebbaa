from __future__ import annotations

import mmap
import os
from pathlib import Path

import psutil
import pytest

from naiad.server.shared_memory import find_stubs, region_prefix, sweep
from tests.unit.server.stub_process import dead_pid, stub_process

REPOSITORY = "naiad_0123456789_"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


def region(folder: Path, pid: int, name: str = "a", prefix: str = REPOSITORY) -> Path:
    path = folder / f"{prefix}{pid}_8000_{name}"
    path.write_bytes(bytes(mmap.PAGESIZE))
    return path


@pytest.fixture
def living_pid() -> int:
    return os.getppid()


def test_regions_of_a_dead_supervisor_are_removed(folder: Path) -> None:
    paths = [region(folder, dead_pid(), name) for name in ("a", "b")]
    assert sorted(sweep(REPOSITORY, folder).regions) == sorted(path.name for path in paths)
    assert list(folder.iterdir()) == []


def test_regions_of_another_living_supervisor_stay(folder: Path, living_pid: int) -> None:
    path = region(folder, living_pid)
    assert sweep(REPOSITORY, folder).regions == ()
    assert path.exists()


def test_own_regions_are_removed_once_nobody_maps_them(folder: Path) -> None:
    path = region(folder, os.getpid())
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert sweep(REPOSITORY, folder).regions == ()
        assert path.exists()
    assert sweep(REPOSITORY, folder).regions == (path.name,)


def test_a_region_that_is_mapped_stays_although_its_supervisor_is_dead_and_its_file_closed(
    folder: Path,
) -> None:
    path = region(folder, dead_pid())
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    with mapped:
        assert sweep(REPOSITORY, folder).regions == ()
    assert sweep(REPOSITORY, folder).regions == (path.name,)


def test_a_region_that_is_open_but_not_yet_mapped_stays(folder: Path) -> None:
    path = region(folder, dead_pid())
    with path.open("rb"):
        assert sweep(REPOSITORY, folder).regions == ()
    assert path.exists()


@pytest.mark.parametrize(
    "name", ["naiad_9999999999_{pid}_8000_a", "triton_python_backend_shm_region_{pid}", "naiad_"]
)
def test_what_is_not_of_this_repository_stays(folder: Path, name: str) -> None:
    path = folder / name.format(pid=dead_pid())
    path.touch()
    assert sweep(REPOSITORY, folder).regions == ()
    assert path.exists()


def test_orphaned_stubs_of_this_repository_are_killed(tmp_path: Path, folder: Path) -> None:
    name = f"{REPOSITORY}{dead_pid()}_8000_a"
    with stub_process(tmp_path, "echo", name, dead_pid()) as orphan:
        assert sweep(REPOSITORY, folder).stubs == (orphan.pid,)
        assert not orphan.is_running()


def test_stubs_whose_tritonserver_is_their_parent_live(tmp_path: Path, folder: Path) -> None:
    with stub_process(tmp_path, "echo", f"{REPOSITORY}1_8000_a", os.getpid()) as stub:
        assert sweep(REPOSITORY, folder).stubs == ()
        assert stub.is_running()


def test_orphaned_stubs_of_another_repository_live(tmp_path: Path, folder: Path) -> None:
    with stub_process(tmp_path, "echo", "naiad_9999999999_1_8000_a", dead_pid()) as stub:
        assert sweep(REPOSITORY, folder).stubs == ()
        assert stub.is_running()


def test_a_stub_is_known_by_its_command_line(tmp_path: Path) -> None:
    with stub_process(tmp_path, "tensorrt_llm", "a_region", 77) as process:
        (stub,) = find_stubs([process, psutil.Process()])
        assert (stub.model, stub.region, stub.server_pid) == ("tensorrt_llm", "a_region", 77)


def test_a_prefix_tells_servers_of_one_process_apart() -> None:
    assert region_prefix(REPOSITORY, 8000) != region_prefix(REPOSITORY, 8001)
    assert region_prefix(REPOSITORY, 8000).startswith(f"{REPOSITORY}{os.getpid()}_")
