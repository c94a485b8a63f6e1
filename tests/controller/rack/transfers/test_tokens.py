"""Who may read and write over HTTP: what a file of tokens may say, and what of it holds while it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.rack.transfers.tokens import Holder, Right, parse_tokens, token_file

ANN, BOB = "a" * 32, "B/+=-._~" * 4
TEXT = f"# of this rack\n\nann read {ANN}\nbob@ci write {BOB}\n"


@pytest.mark.parametrize(
    ("token", "holder"),
    [
        (ANN, Holder("ann", Right.READ)),
        (BOB, Holder("bob@ci", Right.WRITE)),
        (ANN[:-1], None),
        (ANN + "a", None),
        ("", None),
        ("ann", None),
        ("\udcff" * 32, None),
    ],
)
def test_a_token_stands_for_one_holder(token: str, holder: Holder | None) -> None:
    assert parse_tokens(TEXT, "tokens").holder(token) == holder


def test_who_may_write_may_read() -> None:
    assert [Holder("x", right).may(wanted) for right in Right for wanted in Right] == [
        True,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", "tokens: has no tokens; write NAME read|write TOKEN"),
        (f"ann {ANN}\n", "tokens:1: has 2 words, expected 3; write NAME read|write TOKEN"),
        (f"\nann admin {ANN}\n", 'tokens:2: ann may "admin"; write read or write'),
        (f"a\x1bb read {ANN}\n", 'tokens:1: "a\\x1bb" is not a name'),
        ("ann read short\n", "tokens:1: the token of ann is not 24 to 512 characters of base64"),
        (f"ann read {ANN}é\n", "the token of ann is not 24 to 512 characters"),
        (f"ann read {ANN}\nbob read {ANN}\n", "tokens:2: bob has the same token as ann"),
        ("".join(f"n{i} read {i:032}\n" for i in range(1025)), "holds 1025 tokens; keep at most 1024"),
    ],
)
def test_a_line_that_is_none_is_refused_without_its_token(text: str, printed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_tokens(text, "tokens")
    assert printed in str(refused.value)
    assert "short" not in str(refused.value)
    assert ANN not in str(refused.value)


def test_nothing_keeps_a_token_where_it_can_be_printed() -> None:
    assert ANN not in repr(parse_tokens(TEXT, "tokens"))


def test_a_token_that_is_taken_out_admits_nobody_any_more(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(TEXT)
    path.chmod(0o600)
    file = token_file(path)
    assert file.current().holder(ANN) is not None
    path.write_text(f"bob write {BOB}\n")
    assert file.current().holder(ANN) is None
    assert file.current().holder(BOB) is not None


def test_a_file_that_others_may_read_admits_nobody(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(TEXT)
    path.chmod(0o644)
    with pytest.raises(
        ConfigError, match=r"contains a secret that all users of this host may read.*chmod 600"
    ):
        token_file(path).current()
    path.chmod(0o600)
    file = token_file(path)
    file.current()
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="that its group may read"):
        file.current()
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        file.current()
