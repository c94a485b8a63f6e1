"""Command lines -> pages of the manual (`man etloop`), in the macros of man(7). Pure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from etloop.agent.cli import make_parser as make_agent_parser
from etloop.cli.parser import COMMANDS, make_parser

from tools.reference.commands import EXIT_CODES, arguments_of, below, expanded, is_hidden, name_of


def etloop_manual() -> str:
    """Return the page of `etloop`."""
    own = [parser for name in COMMANDS for _, parser in below(make_parser((name,)))]
    return _page("etloop", make_parser(), own)


def agent_manual() -> str:
    """Return the page of `etloop-agent`."""
    parser = make_agent_parser()
    return _page("etloop-agent", parser, [own for _, own in below(parser)])


def _page(name: str, parser: argparse.ArgumentParser, commands: Sequence[argparse.ArgumentParser]) -> str:
    says = " ".join((parser.description or "").split())
    first, _, rest = says.partition(". ")
    lines = [
        '.\\" Written by tools/write_reference.py; a test holds it current.',
        f'.TH "{name.upper()}" "1" "" "ETLoop" "User Commands"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(first[0].lower() + first[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_text(name)}",
        ".I COMMAND",
        "[\\fIOPTIONS\\fR]",
    ]
    if rest:
        lines += [".SH DESCRIPTION", _text(rest)]
    lines.append(".SH COMMANDS")
    for one in commands:
        lines += _command(one)
    lines += [".SH EXIT STATUS"]
    for code, meaning in EXIT_CODES.items():
        lines += [".TP", f".B {int(code)}", _text(meaning)]
    other = "etloop-agent" if name == "etloop" else "etloop"
    lines += [".SH SEE ALSO", f".BR {_text(other)} (1)"]
    return "\n".join(lines) + "\n"


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    positional = [
        name_of(one) for one in arguments_of(parser) if not one.option_strings and not is_hidden(one)
    ]
    deeper = [own for _, own in below(parser)]
    yield f'.SS "{_text(" ".join([parser.prog, *positional]))}"'
    says = " ".join((parser.description or "").split())
    if says:
        yield _text(says)
    for action in arguments_of(parser):
        if is_hidden(action):
            continue
        yield ".TP"
        yield f".B {_text(name_of(action))}"
        yield _text(expanded(action, parser.prog) or "(see the documentation)")
    for own in deeper:
        yield from _command(own)


def _text(text: str) -> str:
    """Return a text that no macro is read in."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
