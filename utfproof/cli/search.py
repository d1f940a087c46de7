"""`utfproof search`: look for hosts with fewer dimensions, and for reasons why there are none. One module per command."""

from __future__ import annotations

import importlib
import importlib.util

import typer

from utfproof.cli import declare

HELP = "Search the shared-attention model for smaller hosts. A find counts only with an exact verification."
COMMANDS = ("search_numerical", "search_monomial", "search_exhaustive", "search_impossible")


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = declare.group(app, "search", HELP)
    for name in COMMANDS:
        module = f"utfproof.cli.{name}"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module).register(group)
