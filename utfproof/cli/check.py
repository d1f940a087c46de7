"""`utfproof check`: the independent checker, also `python -m utfproof.certificates.checker`."""

from __future__ import annotations

import inspect
import signal
from dataclasses import dataclass

import typer

from utfproof.certificates import checker
from utfproof.certificates.expected import expecting
from utfproof.cli import signals, verified
from utfproof.cli.declare import Command
from utfproof.cli.display import require_mode, shown
from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage
from utfproof.jobs.job import Job

INTERRUPTED = 130
EPILOG = "Example: utfproof check certificates/"


@dataclass(frozen=True, kw_only=True)
class Check(Job, order=50):
    """Re-check certificates (files or folders) with a program that shares no code with the prover.

    Exit 0 iff every certificate is valid, whichever way it decides. Options: see utfproof check --help; --verified has the
    verified checker (make checker) judge them as well, which covers some kinds.
    """

    @classmethod
    def register(cls, app: typer.Typer) -> None:
        """Add the command; its options are the checker's own, and --progress."""
        settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        more = {"epilog": EPILOG, "help": inspect.getdoc(cls), "context_settings": settings, "cls": Command}
        app.command("check", **more)(_check)  # type: ignore[arg-type]


def _check(context: typer.Context) -> None:
    words, mode = _progress(context.args)
    own = words[: words.index("--")] if "--" in words else words
    judged = verified.FLAG in own
    if judged:
        words.remove(verified.FLAG)
        verified.require(own)
    with shown(mode), stage("check", whole=True) as doing, expecting(
        lambda seconds: doing.reach(doing.done, f"{doing.done + 1:.0f}: about {seconds} s")
    ):  # fmt: skip
        code = checker.main(
            words, "utfproof check", lambda path: doing.reach(doing.done + 1, f"{doing.done + 1:.0f}: {path}")
        )
    if code == INTERRUPTED:  # it has said so itself
        raise SystemExit(signals.code(signals.received() or signal.SIGINT))
    if judged and code == 0:
        code = verified.run(words)
    raise typer.Exit(code)


def _progress(words: list[str]) -> tuple[list[str], str]:
    """The checker's own words, and the mode of --progress among them: the checker draws nothing."""
    mode, own = "auto", list(words)
    ends = own.index("--") if "--" in own else len(own)
    for place in range(ends):
        name, equals, value = own[place].partition("=")
        if name == "--progress":
            if not equals and place + 1 == len(own):
                raise MalformedInput("--progress needs a value: auto, plain or none")
            mode = value if equals else own[place + 1]
            del own[place : place + (1 if equals else 2)]
            break
    require_mode(mode)
    return own, mode
