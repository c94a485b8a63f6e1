"""Which files a secret is read from, and which are refused because others may read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.runtime.secret_file import exposed_secret, read_secret


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "broker.password"
    path.write_text("correct horse\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("mode", "who"),
    [
        (0o600, ""),
        (0o400, ""),
        (0o644, "all users of this host may read or change (mode 0644)"),
        (0o604, "all users of this host may read or change (mode 0604)"),
        (0o602, "all users of this host may read or change (mode 0602)"),
        (0o640, "its group may read or change (mode 0640)"),
        (0o620, "its group may read or change (mode 0620)"),
    ],
)
def test_a_secret_is_its_owners_alone(secret: Path, mode: int, who: str) -> None:
    secret.chmod(mode)
    if not who:
        assert read_secret(secret) == "correct horse"
        return
    with pytest.raises(ConfigError) as refused:
        read_secret(secret)
    assert str(refused.value) == f"{secret}: contains a secret that {who}; chmod 600 {secret}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_group_may_read_what_somebody_else_handed_it(secret: Path) -> None:
    os.chown(secret, 12345, -1)
    secret.chmod(0o440)
    assert exposed_secret(secret) is None
    secret.chmod(0o444)
    assert exposed_secret(secret) is not None


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff\xfe", b"a\x1bb", b"x" * 100_000])
def test_a_file_without_one_line_of_text_holds_no_secret(secret: Path, content: bytes) -> None:
    secret.write_bytes(content)
    with pytest.raises(
        ConfigError, match="contains no secret, expected one line of text; write only the secret into it"
    ):
        read_secret(secret)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"none: cannot be read: No such file or directory; check that it exists"
    ):
        read_secret(tmp_path / "none")
