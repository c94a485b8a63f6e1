"""What a directory of public keys says, and that it is read again when, and only when, something changed."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
import zmq.auth

from etloop.contract.base.errors import ConfigError
from etloop.runtime.curve_keys import read_public_key
from etloop.runtime.key_directory import KeyDirectory, ListedKeys, first_keys


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Pairs of a, b and c, and an empty list."""
    for name in "abc":
        zmq.auth.create_certificates(tmp_path, name)
    (tmp_path / "allowed").mkdir()
    return tmp_path


def allow(keys: Path, name: str, file: str = "") -> None:
    shutil.copy(keys / f"{name}.key", keys / "allowed" / (file or f"{name}.key"))


def read(directory: KeyDirectory) -> ListedKeys:
    listed = directory.read_again()
    assert listed is not None
    return listed


def test_the_name_of_a_key_is_its_files(keys: Path) -> None:
    allow(keys, "a")
    allow(keys, "b", "rack1-b.key")
    (keys / "allowed" / "notes.txt").write_text("not a key")
    listed = read(KeyDirectory(keys / "allowed"))
    assert listed.names == {
        read_public_key(keys / "a.key").decode(): "a",
        read_public_key(keys / "b.key").decode(): "rack1-b",
    }
    assert listed.remarks == ()


def test_it_is_read_again_when_a_file_came_went_or_changed(keys: Path) -> None:
    directory = KeyDirectory(keys / "allowed")
    assert read(directory).names == {}
    assert directory.read_again() is None
    allow(keys, "a")
    assert set(read(directory).names.values()) == {"a"}
    before = (keys / "allowed" / "a.key").stat()
    allow(keys, "b", "a.key")
    os.utime(keys / "allowed" / "a.key", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list(read(directory).names) == [read_public_key(keys / "b.key").decode()], (
        "an old time hides nothing"
    )
    assert directory.read_again() is None
    (keys / "allowed" / "a.key").unlink()
    assert read(directory).names == {}


def test_what_admits_nobody_says_why(keys: Path) -> None:
    allow(keys, "a")
    allow(keys, "a", "twin.key")
    allow(keys, "b")
    shutil.copy(keys / "c.key_secret", keys / "allowed" / "c.key")
    (keys / "allowed" / "empty.key").write_text("")
    (keys / "allowed" / "vast.key").write_bytes(bytes(1 << 20))
    (keys / "allowed" / "gone.key").symlink_to("nowhere")
    listed = read(KeyDirectory(keys / "allowed"))
    assert list(listed.names.values()) == ["b"]
    assert [remark.split(":")[0] for remark in listed.remarks] == [
        "c.key is ignored",
        "empty.key is ignored",
        "twin.key and a.key contain the same key, which is ignored",
        "vast.key is ignored",
    ]


def test_a_directory_that_is_missing_keeps_its_keys_and_says_so_once(keys: Path) -> None:
    allow(keys, "a")
    directory = KeyDirectory(keys / "allowed")
    before = read(directory)
    (keys / "allowed").rename(keys / "moved")
    listed = read(directory)
    assert listed.names == before.names
    assert listed.remarks[0].endswith(
        "cannot be read (No such file or directory): keeping the keys that were read before"
    )
    assert directory.unreadable
    assert directory.read_again() is None
    (keys / "moved").rename(keys / "allowed")
    assert read(directory) == before
    assert not directory.unreadable


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_directory_that_cannot_be_listed_keeps_its_keys(
    keys: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(keys, "a")
    directory = KeyDirectory(keys / "allowed")
    before = read(directory)
    with monkeypatch.context() as patch:

        def fails(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        patch.setattr(os, "scandir", fails)
        listed = read(directory)
        assert listed.names == before.names
        assert os.strerror(number) in listed.remarks[0]
        (keys / "allowed" / "a.key").unlink()
        assert directory.read_again() is None
    assert read(directory).names == {}, "what was revoked meanwhile is, as soon as that can be read"


def test_a_file_that_cannot_be_read_keeps_its_key_and_is_read_again(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(keys, "a")
    allow(keys, "b")
    directory = KeyDirectory(keys / "allowed")
    before = read(directory)
    allow(keys, "c", "b.key")
    with monkeypatch.context() as patch:

        def fails(_: object) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        patch.setattr(zmq.auth, "load_certificate", fails)
        listed = read(directory)
        assert listed.names == before.names
        assert listed.remarks == ("b.key: cannot be read: Too many open files; keeping its previous key",)
    listed = read(directory)
    assert set(listed.names) == {read_public_key(keys / f"{name}.key").decode() for name in "ac"}
    assert listed.remarks == ()


def test_a_directory_that_is_there_and_empty_admits_nobody(keys: Path) -> None:
    allow(keys, "a")
    directory = KeyDirectory(keys / "allowed")
    read(directory)
    shutil.rmtree(keys / "allowed")
    (keys / "allowed").mkdir()
    assert read(directory) == ListedKeys({}, ())


def test_a_file_in_the_place_of_the_directory_keeps_its_keys(keys: Path) -> None:
    allow(keys, "a")
    directory = KeyDirectory(keys / "allowed")
    before = read(directory)
    shutil.rmtree(keys / "allowed")
    (keys / "allowed").write_text("")
    assert read(directory).names == before.names


def test_a_list_that_admits_nobody_at_the_start_is_refused(keys: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"contains no agent key \(\*.key\); put the .key file of every agent there"
    ):
        first_keys(KeyDirectory(keys / "allowed"), keys / "allowed")
    (keys / "allowed").rmdir()
    with pytest.raises(ConfigError, match=r"cannot be read \(No such file or directory\)"):
        first_keys(KeyDirectory(keys / "allowed"), keys / "allowed")
