"""The first stage of every decision: the host that is examined, constructed by name or opened once, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utfproof.certificates.sources import DenseSource, RandomDraw, StoredWeights, host_document
from utfproof.constructions import Construction, construction, resolve_m
from utfproof.errors import MalformedInput
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape, matching_dimension
from utfproof.weights import HostFile, StoredHost, stored_host


@dataclass(frozen=True)
class Settings:
    """How a decision is made: it says nothing about what is decided.

    witness: give dense hosts' certificates the inverse of a minor, so that checking costs matrix-vector products only.
    device: where random weights are drawn and eliminated ("cpu", or a torch device). primes: tried in turn. max_memory: in
    bytes.
    """

    witness: bool = False
    device: str = "cpu"
    primes: tuple[int, ...] | None = None
    max_memory: int | None = None


@dataclass(frozen=True)
class Examined:
    """A host of embedding dimension m and the notion that is asked for.

    document: the claim's `host`. entry: its construction; None for stored weights. stored: these; None for constructions.
    source: its matrices as exact integers; None for constructions of zeros and ones.
    """

    shape: Shape
    m: int
    document: dict[str, Any]
    notion: Notion
    settings: Settings
    tied: bool
    entry: Construction | None = None
    stored: StoredHost | None = None
    source: DenseSource | None = None

    @property
    def M(self) -> int:
        """Columns of R_all."""
        return matching_dimension(self.shape)

    @property
    def square(self) -> bool:
        """Whether d_in = d_out: what the kinds about attention-matching are specified for."""
        return self.shape.d_in == self.shape.d_out

    @property
    def name(self) -> str:
        """The construction, or the file."""
        return self.stored.file.path if self.stored is not None else self.construction.name

    @property
    def construction(self) -> Construction:
        """The construction of a host that has one."""
        assert self.entry is not None
        return self.entry

    def require_unchanged(self) -> None:
        """MalformedInput where the file is no longer what was read."""
        if self.stored is not None:
            self.stored.file.require_unchanged()


def constructed(
    name: str,
    shape: Shape,
    m: int | None = None,
    *,
    seed: int = 0,
    law: str = "uniform",
    dtype: str = "float64",
    notion: Notion | str | None = None,
    settings: Settings | None = None,
) -> Examined:
    """A construction by name; m defaults to its least one, notion to the one that it serves by.

    Raises NotDefined outside its shapes."""
    entry, settings = construction(name), settings or Settings()
    m = resolve_m(entry, shape, m)
    asked = Notion(notion) if notion is not None else entry.notion or Notion.MATCHING
    document = host_document(entry, seed=seed, law=law, dtype=dtype)
    source = RandomDraw(shape, m, seed, law, dtype, entry.tied, settings.device) if entry.is_random else None
    return Examined(shape, m, document, asked, settings, entry.tied, entry=entry, source=source)


def opened(
    host: HostFile,
    notion: Notion = Notion.MATCHING,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    settings: Settings | None = None,
) -> Examined:
    """A host from a file (its name, or open). layers: for tied weights whose metadata does not say it. d_in: does not enter
    R_all; the metadata's or d_out unless given. residual: whether there is a residual stream, where the metadata does not
    say it. MalformedInput for files that hold no host."""
    settings = settings or Settings()
    stored = stored_host(host, layers=layers, d_in=d_in, residual=residual, max_memory=settings.max_memory)
    shape, m, tied = stored.shape, stored.m, stored.tied
    source = StoredWeights(stored.file, shape, m, tied, settings.device)
    return Examined(shape, m, stored.document, notion, settings, tied, stored=stored, source=source)


def settings_of(options: dict[str, Any]) -> Settings:
    """The settings among a function's options, which are taken out of them."""
    return Settings(**{name: options.pop(name) for name in Settings.__dataclass_fields__ if name in options})


def require_witness(host: Examined) -> None:
    """MalformedInput where a witness is asked for that no certificate of this host has."""
    if not host.settings.witness:
        return
    if host.source is None:
        raise MalformedInput(f"--witness belongs to random constructions; {host.name} has a certificate of linear size")
    if host.notion is not Notion.MATCHING:
        raise MalformedInput(f"--witness belongs to certificates by matching, got {host.notion.value}")
