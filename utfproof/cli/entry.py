"""From a command's function to what Typer runs: the options of every command, files that are never one, the outcome shown."""

from __future__ import annotations

import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from utfproof.cli.options import ADVANCED, WRITTEN, one_of, rare
from utfproof.cli.outcome import Outcome
from utfproof.cli.registry import Parameter, parameters
from utfproof.errors import MalformedInput
from utfproof.util.files import require_writable
from utfproof.util.progress import stage
from utfproof.util.resources import limits

MODES = ("auto", "plain", "none")
_HELP_ALL = "utfproof.help-all"
"""In the context of a command whose every option is explained."""


def _help_all(context: typer.Context, value: bool) -> None:
    if value:
        context.meta[_HELP_ALL] = True
        print(context.get_help())
        raise typer.Exit()


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Progress = Annotated[
    str, rare(help="auto: bars on a terminal; plain: a line a stage; none.", parser=one_of(MODES), metavar="MODE")
]
HelpAll = Annotated[bool, typer.Option("--help-all", callback=_help_all, is_eager=True, hidden=True)]


def every(
    *,
    as_json: AsJson = False,
    max_seconds: Annotated[int | None, rare(help="Time limit of the whole command in seconds.")] = None,
    progress: Progress = "auto",
    help_all: HelpAll = False,
) -> None:
    """Options of every command."""


def entry(name: str, function: Callable[..., Outcome]) -> Callable[..., None]:
    """The function with the options of every command; it shows the outcome and leaves with its exit code."""
    known = parameters(function)

    def run(*, as_json: bool, max_seconds: int | None, progress: str, help_all: bool, **values: Any) -> None:
        _require_files(known, values)
        with watched(progress), stage(name, whole=True), limits(None, max_seconds, name):
            outcome = function(**values)
        print(outcome.json()) if as_json else outcome.show()
        if outcome.failure is not None:
            raise outcome.failure
        raise typer.Exit(outcome.exit_code)

    own = [one.signature for one in (known | parameters(every)).values()]
    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in own}
    return run


def watched(mode: str) -> Any:
    """The stages of a block, shown on standard error in this mode."""
    if mode == "plain" or (mode == "auto" and sys.stderr is not None and sys.stderr.isatty()):
        from utfproof.cli.display import shown

        return shown(mode)
    return nullcontext()


# --- files ---------------------------------------------------------------------------------------------------------


def _require_files(known: Mapping[str, Parameter], values: Mapping[str, Any]) -> None:
    """MalformedInput, before any work, for outputs that cannot be written or take a file's place that is needed."""
    outputs, inputs = {}, {}
    for name, one in known.items():
        if values[name] and one.info.parser in WRITTEN:
            outputs[one.label] = values[name]
        elif values[name] and one.names_file:
            inputs[one.label] = Path(values[name])
    require_apart(outputs, inputs)
    require_writable(*outputs.values())


def require_apart(outputs: Mapping[str, Path], inputs: Mapping[str, Path]) -> None:
    """MalformedInput where two outputs name one file, or an output one of the command's inputs."""
    seen: list[tuple[str, Path]] = []
    for label, output in outputs.items():
        for other, earlier in seen:
            if same_file(output, earlier):
                raise MalformedInput(f"{other} and {label} name one file, {output}; give each output a file of its own")
        seen.append((label, output))
        for other, source in inputs.items():
            if source.is_file() and same_file(output, source):
                raise MalformedInput(
                    f"{label} {output} would overwrite an input of this command, {other}; choose another name"
                )


def same_file(one: Path, other: Path) -> bool:
    """Whether two names lead to one file, there or not yet: through links, dots, and other spellings of a folder."""
    try:
        if one.exists() and other.exists():
            return one.samefile(other)
        return os.path.realpath(one) == os.path.realpath(other)
    except OSError:  # a name that is too long, a loop of links: said where it is written
        return False


# --- help ----------------------------------------------------------------------------------------------------------


class Shown(TyperCommand):
    """A command whose --help names its advanced options in one paragraph, and whose --help-all explains them."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], ADVANCED: []}
        names: list[str] = []
        for param in self.get_params(ctx):
            panel = getattr(param, "rich_help_panel", None) or "Options"
            if record := param.get_help_record(ctx):
                sections["Arguments" if param.param_type_name == "argument" else panel].append(record)
                names += [param.opts[0]] if panel == ADVANCED else []
        if not ctx.meta.get(_HELP_ALL):
            del sections[ADVANCED]
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=22)
        if names and ADVANCED not in sections:
            text = f"{ADVANCED} (--help-all explains them): {', '.join(names)}"
            lines = textwrap.wrap(text, formatter.width, subsequent_indent="  ", break_on_hyphens=False)
            formatter.write("\n" + "\n".join(lines) + "\n")
