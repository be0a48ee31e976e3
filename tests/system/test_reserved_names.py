"""Names of files that are reserved before the work begins: one process gets a name, and nothing is
replaced that it did not see.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading

import pytest

from dpconvex.system import atomic_files
from dpconvex.system.atomic_files import (
    NameReservedError,
    ReservedName,
    reservation_of,
    write_new_file,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_name_is_reserved_once_and_given_back(tmp_path):
    path = tmp_path / "model.json"
    with ReservedName(path):
        assert names(tmp_path) == [".model.json.reserved"]
        with pytest.raises(NameReservedError, match=f"process {os.getpid()}, since 2"):
            ReservedName(path)
        with ReservedName(tmp_path / "other.json"):
            pass
    assert names(tmp_path) == []
    with ReservedName(path) as reserved:
        reserved.write(b"whole")
        with ReservedName(path):  # it is given back by the write, not by the end of the block
            pass
    assert (names(tmp_path), path.read_bytes()) == (["model.json"], b"whole")


def test_of_many_threads_one_gets_the_name(tmp_path):
    path = tmp_path / "model.json"
    begin = threading.Barrier(16)
    got = []

    def claim():
        begin.wait()
        with contextlib.suppress(NameReservedError):
            got.append(ReservedName(path))

    for _ in range(20):
        got.clear()
        threads = [threading.Thread(target=claim) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 1
        got[0].release()
    assert names(tmp_path) == []


@pytest.mark.parametrize("links", [True, False])
def test_what_took_the_name_meanwhile_stays(tmp_path, monkeypatch, links):
    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "model.json"
    with ReservedName(path) as reserved:
        path.write_bytes(b"theirs")
        with pytest.raises(FileExistsError) as refused:
            reserved.write(b"ours")
    assert refused.value.filename == str(path)
    assert (names(tmp_path), path.read_bytes()) == (["model.json"], b"theirs")
    with ReservedName(path) as reserved:  # what is there now may be replaced
        reserved.write(b"ours")
    assert path.read_bytes() == b"ours"
    with pytest.raises(FileExistsError):
        write_new_file(path, b"new")
    path.unlink()
    with ReservedName(path) as reserved:
        reserved.write(b"new")
    assert (names(tmp_path), path.read_bytes()) == (["model.json"], b"new")


@pytest.mark.parametrize("change", ["replaced", "longer"])
def test_an_earlier_file_that_changed_meanwhile_stays_as_it_is(tmp_path, change):
    path = tmp_path / "model.json"
    path.write_bytes(b"earlier")
    with ReservedName(path) as reserved:
        if change == "replaced":
            other = tmp_path / "other"
            other.write_bytes(b"earlier")
            os.replace(other, path)
        else:
            path.write_bytes(b"earlier and more")
        before = path.read_bytes()
        with pytest.raises(FileExistsError, match="took the name"):
            reserved.write(b"ours")
    assert (names(tmp_path), path.read_bytes()) == (["model.json"], before)
    with ReservedName(path) as reserved:
        path.unlink()
        reserved.write(b"ours")  # there is nothing to lose any more
    assert path.read_bytes() == b"ours"


def test_reservations_follow_no_link_and_overwrite_nothing(tmp_path):
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    path = tmp_path / "model.json"
    mark = tmp_path / ".model.json.reserved"
    for plant in (
        lambda: mark.symlink_to(victim),
        lambda: os.link(victim, mark),
        lambda: mark.mkdir(),
        lambda: mark.write_text("something else"),
        lambda: mark.write_text(""),
    ):
        plant()
        with pytest.raises(NameReservedError, match=r"delete the file '\.model\.json\.reserved'"):
            ReservedName(path)
        assert victim.read_text() == "mine"
        assert os.path.lexists(mark)
        mark.rmdir() if mark.is_dir() and not mark.is_symlink() else mark.unlink()
    path.symlink_to(victim)
    with pytest.raises(FileExistsError, match="link"):
        ReservedName(path)
    assert not mark.exists()


def test_a_full_disk_is_noticed_before_the_work(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space") as refused:
        ReservedName(tmp_path / "model.json")
    assert refused.value.filename == str(tmp_path / "model.json")
    assert names(tmp_path) == []


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "model.json"
    path.write_bytes(b"earlier")
    plain = atomic_files._write_all

    def half(handle, content):
        plain(handle, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with ReservedName(path) as reserved:
        monkeypatch.setattr(atomic_files, "_write_all", half)
        with pytest.raises(OSError, match="No space"):
            reserved.write(b"new content")
    assert (names(tmp_path), path.read_bytes()) == (["model.json"], b"earlier")


def test_names_as_long_as_a_file_system_allows_can_be_reserved(tmp_path):
    path = tmp_path / ("m" * 250 + ".json")
    assert len(os.path.basename(reservation_of(path))) < 60
    with ReservedName(path) as reserved:
        with pytest.raises(NameReservedError):
            ReservedName(path)
        reserved.write(b"{}")
    assert names(tmp_path) == [path.name]


def test_a_released_name_is_not_written(tmp_path):
    reserved = ReservedName(tmp_path / "model.json")
    reserved.release()
    with ReservedName(tmp_path / "model.json"):
        reserved.release()  # again: the name is another's by now
        assert names(tmp_path) == [".model.json.reserved"]
        with pytest.raises(ValueError, match="not reserved"):
            reserved.write(b"")
