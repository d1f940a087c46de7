"""One host and one target: what `emulate` and `enclose` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.jobs import options
from utfproof.jobs.groups import Dimensions, Drawn, Limited, shared
from utfproof.jobs.hosts import load_host
from utfproof.jobs.parameters import option
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


@dataclass(frozen=True, kw_only=True)
class Pair(Dimensions, Drawn, Limited):
    """The options of a host and its targets."""

    residual: bool | None = option(
        None,
        "With a residual stream, in hosts and targets; what a file's metadata says comes first, none by default.",
        deniable=True,
    )
    m: int | None = shared("m")
    target: Path | None = option(None, "TARGET.safetensors in place of random targets.")
    embedding: Path | None = option(None, "E.safetensors to run instead of solving for E (needs --target).")
    width: int | None = option(None, "Width D of random targets; d_in by default.", kind="positive")
    tied_targets: bool = option(False, "Random targets are weight-tied.")

    def pair(self, host: str, law: str) -> Hosted:
        """The host of a HOST argument, and random targets of this law or the one of a file. MalformedInput where options
        contradict one another or the files."""
        from utfproof.emulation.laws import draw_target
        from utfproof.emulation.sweep import tied_targets_only
        from utfproof.weights import read_embedding, read_target, read_tensors

        def drawn(trial: int, tied: bool) -> Target:
            return draw_target(shape, self.seed + trial, law, width=self.width, tied=tied, max_memory=self.limit)

        if self.target is not None:
            if self.width is not None or self.tied_targets or law != "uniform":
                raise MalformedInput(
                    "--width, --tied-targets and --target-law describe random targets; --target gives one"
                )
            model = read_target(self.target, layers=self.layers, residual=self.residual, max_memory=self.limit)
            options.agree_with(model.shape, **self.dimensions)
        elif self.embedding is not None:
            raise MalformedInput("--embedding belongs to one target: pass --target as well")
        else:
            shape = self.shape_with(residual=self._stream(host))
            model = drawn(0, self.tied_targets)
        drawn_by: dict[str, Any] = {"m": self.m, "seed": self.seed, "law": self.law, "dtype": self.dtype}
        machine = load_host(host, model, layers=self.layers, **drawn_by, limit=self.limit)
        tied = self.tied_targets or (self.target is None and tied_targets_only(machine))
        if tied and not self.tied_targets:
            model = drawn(0, True)
        E = None
        if self.embedding is not None:
            E = read_embedding(self.embedding, max_memory=self.limit)
            facts = read_tensors(self.embedding, max_memory=self.limit).metadata
            options.require_made_for(facts, host, machine.shape.residual, self.limit)
            options.require_drawn_alike(facts, host, drawn_by | {"m": machine.m})
            if options.stored_stream(facts) not in (None, machine.shape.residual):
                raise MalformedInput(f"{self.embedding} and {host} differ in whether there is a residual stream")
        return Hosted(machine, model, E, tied, lambda trial: drawn(trial, tied))

    def _stream(self, host: str) -> bool:
        """Whether targets drawn for this host have a residual stream: its file may say so."""
        from utfproof.weights import host_shape, read_tensors

        if not options.is_host_file(host):
            return bool(self.residual)
        file = read_tensors(host, max_memory=self.limit)
        return host_shape(file, layers=self.layers, d_in=self.d_in, residual=self.residual)[0].residual
