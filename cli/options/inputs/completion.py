"""The command line of `etloop completion`."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.parser import Command

SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add for which shell."""
    parser.add_argument("shell", choices=SHELLS, help="for which shell")


COMMAND: Final = Command(
    "  etloop completion bash > ~/.local/share/bash-completion/completions/etloop\n"
    "  etloop completion zsh > ~/.zfunc/_etloop        # a directory of fpath\n"
    "  etloop completion fish > ~/.config/fish/completions/etloop.fish",
    add_arguments,
    "inputs.completion:carried_out",
    offers_json=False,
)
