"""Command lines -> pages of the manual (`man etloop`), in the macros of man(7). Pure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from etloop.agent.cli import make_parser as make_agent_parser
from etloop.cli.parser import find_commands, make_parser
from tools.reference.commands import EXIT_CODES, arguments_of, below, expand, is_hidden, name_of


def etloop_manual() -> str:
    """Return the page of `etloop`."""
    command_parsers = [parser for name in find_commands() for _, parser in below(make_parser((name,)))]
    return _page("etloop", make_parser(), command_parsers)


def agent_manual() -> str:
    """Return the page of `etloop-agent`."""
    parser = make_agent_parser()
    return _page("etloop-agent", parser, [command_parser for _, command_parser in below(parser)])


def _page(name: str, parser: argparse.ArgumentParser, commands: Sequence[argparse.ArgumentParser]) -> str:
    description = " ".join((parser.description or "").split())
    first, _, later_sentences = description.partition(". ")
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
    if later_sentences:
        lines += [".SH DESCRIPTION", _text(later_sentences)]
    lines.append(".SH COMMANDS")
    for command in commands:
        lines += _command(command)
    lines += [".SH EXIT STATUS"]
    for code, meaning in EXIT_CODES.items():
        lines += [".TP", f".B {int(code)}", _text(meaning)]
    other = "etloop-agent" if name == "etloop" else "etloop"
    lines += [".SH SEE ALSO", f".BR {_text(other)} (1)"]
    return "\n".join(lines) + "\n"


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    positional = [
        name_of(argument)
        for argument in arguments_of(parser)
        if not argument.option_strings and not is_hidden(argument)
    ]
    deeper = [subparser for _, subparser in below(parser)]
    yield f'.SS "{_text(" ".join([parser.prog, *positional]))}"'
    description = " ".join((parser.description or "").split())
    if description:
        yield _text(description)
    for action in arguments_of(parser):
        if is_hidden(action):
            continue
        yield ".TP"
        yield f".B {_text(name_of(action))}"
        yield _text(expand(action, parser.prog) or "(see the documentation)")
    for subparser in deeper:
        yield from _command(subparser)


def _text(text: str) -> str:
    """Return a text escaped so that it contains no macros."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
