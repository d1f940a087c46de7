"""One host and one target: what `emulate` and `enclose` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utfproof.cli import questions as options
from utfproof.cli.command import Given
from utfproof.cli.options import required_shape
from utfproof.commands.hosts import load_host
from utfproof.errors import MalformedInput
from utfproof.systems import Target, Universal


@dataclass(frozen=True, eq=False)
class Hosted:
    """A host, the target number 0 and how to draw further ones, E where it was given; tied: whether the targets are."""

    host: Universal
    target: Target
    embedding: Any
    tied: bool
    draw: Any

    def nth(self, trial: int) -> Target:
        """Target number `trial`."""
        return self.target if trial == 0 else self.draw(trial)


def pair_of(given: Given, host: str, law: str) -> Hosted:
    """The host of a HOST argument, and random targets of this law or the one of a file. MalformedInput where options
    contradict one another or the files."""
    from utfproof.emulation.laws import draw_target
    from utfproof.emulation.sweep import tied_targets_only
    from utfproof.weights import read_embedding, read_target, read_tensors

    def drawn(trial: int, tied: bool) -> Target:
        return draw_target(shape, given.seed + trial, law, width=given.width, tied=tied, max_memory=given.max_memory)

    if given.target is not None:
        if given.width is not None or given.tied_targets or law != "uniform":
            raise MalformedInput("--width, --tied-targets and --target-law describe random targets; --target gives one")
        model = read_target(given.target, layers=given.layers, residual=given.residual, max_memory=given.max_memory)
        options.agree_with(model.shape, **given.dimensions)
    elif given.embedding is not None:
        raise MalformedInput("--embedding belongs to one target: pass --target as well")
    else:
        shape = required_shape(given.dimensions, residual=_stream(given, host))
        model = drawn(0, given.tied_targets)
    drawn_by: dict[str, Any] = {"m": given.m, "seed": given.seed, "law": given.law, "dtype": given.dtype}
    machine = load_host(host, model, layers=given.layers, **drawn_by, limit=given.max_memory)
    tied = given.tied_targets or (given.target is None and tied_targets_only(machine))
    if tied and not given.tied_targets:
        model = drawn(0, True)
    E = None
    if given.embedding is not None:
        E = read_embedding(given.embedding, max_memory=given.max_memory)
        facts = read_tensors(given.embedding, max_memory=given.max_memory).metadata
        options.require_made_for(facts, host, machine.shape.residual, given.max_memory)
        options.require_drawn_alike(facts, host, drawn_by | {"m": machine.m})
        if options.stored_stream(facts) not in (None, machine.shape.residual):
            raise MalformedInput(f"{given.embedding} and {host} differ in whether there is a residual stream")
    return Hosted(machine, model, E, tied, lambda trial: drawn(trial, tied))


def _stream(given: Given, host: str) -> bool:
    """Whether targets drawn for this host have a residual stream: its file may say so."""
    from utfproof.weights import host_shape, read_tensors

    if not options.is_host_file(host):
        return bool(given.residual)
    file = read_tensors(host, max_memory=given.max_memory)
    return host_shape(file, layers=given.layers, d_in=given.d_in, residual=given.residual, mlps=True)[0].residual
