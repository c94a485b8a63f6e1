"""`etloop keys`: pairs that only their owner can read, and an allow-list that is changed whole or not at all."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import zmq.auth

from etloop.cli.key_directory import allow, key_rows, make_pairs, revoke
from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, ExitCode


def test_pairs_are_made_that_only_their_owner_reads_whatever_the_umask(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    before = os.umask(0)
    try:
        make_pairs(keys, ["controller", "a"])
        assert os.umask(0) == 0, "the caller's umask is his again"
    finally:
        os.umask(before)
    for name in ("controller", "a"):
        assert stat.S_IMODE((keys / f"{name}.key_secret").stat().st_mode) == 0o600
        public, secret = zmq.auth.load_certificate(keys / f"{name}.key_secret")
        assert zmq.auth.load_certificate(keys / f"{name}.key") == (public, None)
        assert secret is not None
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700


def test_an_agent_gets_in_when_it_is_allowed_until_it_is_revoked(tmp_path: Path) -> None:
    make_pairs(tmp_path, ["controller", "a", "b"])
    assert allow(tmp_path, ["a", "b"]) == ("a may connect", "b may connect")
    assert {path.name for path in (tmp_path / "allowed").iterdir()} == {"a.key", "b.key"}
    assert revoke(tmp_path, ["a"]) == ("a may no longer connect",)
    assert [(row.name, row.secret_here, row.allowed) for row in key_rows(tmp_path)] == [
        ("a", True, False),
        ("b", True, True),
        ("controller", True, False),
    ]


def test_a_key_brought_from_its_host_is_allowed_by_its_file(tmp_path: Path) -> None:
    make_pairs(tmp_path / "elsewhere", ["c"])
    allow(tmp_path, [str(tmp_path / "elsewhere" / "c.key")])
    (row,) = key_rows(tmp_path)
    assert (row.name, row.secret_here, row.allowed, row.remark) == ("c", False, True, "")


def test_an_existing_pair_is_never_overwritten(tmp_path: Path) -> None:
    make_pairs(tmp_path, ["a"])
    first = (tmp_path / "a.key_secret").read_bytes()
    with pytest.raises(ConfigError, match=r"a\.key: already exists; remove it to make a new pair"):
        make_pairs(tmp_path, ["b", "a"])
    assert not (tmp_path / "b.key").exists(), "nothing is made when something is wrong"
    made = make_pairs(tmp_path, ["a", "b"], keep=True)
    assert [line.split()[0] for line in made] == [str(tmp_path / "b.key"), str(tmp_path / "b.key_secret")]
    assert (tmp_path / "a.key_secret").read_bytes() == first


def test_half_a_pair_is_not_taken_for_one(tmp_path: Path) -> None:
    make_pairs(tmp_path, ["a"])
    (tmp_path / "a.key_secret").unlink()
    with pytest.raises(ConfigError, match="already exists"):
        make_pairs(tmp_path, ["a"], keep=True)


@pytest.mark.parametrize(
    ("sentence", "content", "expected"),
    [
        ("a secret does not get onto the list", "secret", "contains a secret key; give the .key file"),
        ("nor does a file that is no key", "hello\n", "contains no public key"),
        ("nor one with a short key", 'curve\n    public-key = "short"\n', "no public key of 40 characters"),
        ("nor one that is too large", "x" * 70_000, "is too large for a key file"),
        ("nor one that is not there", None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_public_key_is_refused(
    tmp_path: Path, sentence: str, content: str | None, expected: str
) -> None:
    make_pairs(tmp_path, ["good", "other"])
    path = tmp_path / "bad.key"
    if content == "secret":
        path.write_bytes((tmp_path / "other.key_secret").read_bytes())
    elif content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=expected):
        allow(tmp_path, ["good", str(path)])
    assert not (tmp_path / "allowed").exists(), sentence


def test_another_key_of_an_allowed_name_is_not_slipped_in(tmp_path: Path) -> None:
    make_pairs(tmp_path, ["a"])
    make_pairs(tmp_path / "new", ["a"])
    allow(tmp_path, ["a"])
    allow(tmp_path, ["a"])
    with pytest.raises(
        ConfigError, match="is a different key with the same name; etloop keys revoke a first"
    ):
        allow(tmp_path, [str(tmp_path / "new" / "a.key")])


def test_whom_the_list_does_not_hold_cannot_be_revoked(tmp_path: Path) -> None:
    make_pairs(tmp_path, ["a"])
    allow(tmp_path, ["a"])
    with pytest.raises(ConfigError, match=r"b\.key: is not on the allow-list") as refused:
        revoke(tmp_path, ["a", "b", "c"])
    assert len(refused.value.problems) == 2
    assert key_rows(tmp_path)[0].allowed, "none is revoked when one is not there"


@pytest.mark.parametrize("name", ["../a", "a/b", ".", "", "-a", "a\nb"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    keys = tmp_path / "keys"
    with pytest.raises(ConfigError, match="is not a name"):
        make_pairs(keys, [name])
    assert not keys.exists()


def test_a_secret_that_others_may_read_and_a_key_that_differs_are_remarked(tmp_path: Path) -> None:
    make_pairs(tmp_path, ["a", "b"])
    make_pairs(tmp_path / "new", ["b"])
    (tmp_path / "a.key_secret").chmod(0o640)
    allow(tmp_path, [str(tmp_path / "new" / "b.key")])
    remarks = [row.remark for row in key_rows(tmp_path)]
    assert remarks[0].startswith("other users can read the secret: chmod 600")
    assert remarks[1] == "the allow-list has a different key with this name"


def test_the_command_tells_what_it_did_and_never_a_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--dir", str(tmp_path)]
    for arguments in (
        ["make", "controller", "a"],
        ["allow", "a"],
        ["list"],
        ["list", "--json"],
        ["revoke", "a"],
    ):
        assert main(["keys", *arguments, *where]) == ExitCode.PASS
    printed = capsys.readouterr()
    for name in ("controller", "a"):
        public, secret = zmq.auth.load_certificate(tmp_path / f"{name}.key_secret")
        assert secret is not None
        assert secret.decode() not in printed.out + printed.err
        assert public.decode() in printed.out
    assert main(["keys", "list", "a", *where]) == ExitCode.PREPARATION_FAILED
    assert "leave the names out" in capsys.readouterr().err
    assert main(["keys", "make", *where]) == ExitCode.PREPARATION_FAILED
    assert "give one or more names" in capsys.readouterr().err
    assert main(["keys", "list", "--json", *where]) == ExitCode.PASS
    assert json.loads(capsys.readouterr().out)["keys"][0]["name"] == "a"
    assert main(["keys", "list", "--dir", str(tmp_path / "none")]) == ExitCode.PREPARATION_FAILED
