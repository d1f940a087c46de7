"""`utfproof enclose`: one emulation, enclosed rigorously, with its certificate if one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.attention import KERNEL_NAMES
from utfproof.cli import questions as options
from utfproof.cli.command import Given, command
from utfproof.cli.options import (
    DIn,
    DOut,
    Dtype,
    HeadDim,
    Heads,
    Law,
    Layers,
    M,
    MaxMemory,
    MaxSeconds,
    Seed,
    argument,
    option,
    written,
)
from utfproof.cli.outcome import Outcome
from utfproof.commands.pairs import pair_of
from utfproof.emulation.laws import TARGET_LAWS
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.shapes import matching_dimension, positive_integer
from utfproof.systems import Target, Universal

if TYPE_CHECKING:
    from utfproof.emulation.enclosure import Enclosure

SOLVED = 200
"""Largest M for which a dense host's matching equations are solved over the rationals."""


@command("Example: utfproof enclose tied -H 2 -L 2 -d 2 --d-in 3 --context 3 --digits 30 -o enclosure.json")
def enclose(
    *,
    host: Annotated[str, argument("Name of a construction, or HOST.safetensors.")],
    digits: Annotated[int, option("Decimal places N.", check=positive_integer)] = 30,
    output: Annotated[Path | None, written("Certificate to write (.json).", "-o", "--output")] = None,
    target_law: Annotated[str, option("Law of the random target", choices=TARGET_LAWS)] = "uniform",
    context: Annotated[int, option("Context length n.", check=positive_integer)] = 1,
    attention: Annotated[
        str, option(f"Kernel: {', '.join(KERNEL_NAMES)} joined with '+'; given: matrices from outside.")
    ] = "softmax",
    residual: Annotated[
        bool | None,
        option(
            "With a residual stream, in hosts and targets; what a file's metadata says comes first, none by default.",
            "--residual/--no-residual",
        ),
    ] = None,
    m: M = None,
    target: Annotated[Path | None, option("TARGET.safetensors in place of random targets.")] = None,
    embedding: Annotated[Path | None, option("E.safetensors to run instead of solving for E (needs --target).")] = None,
    width: Annotated[int | None, option("Width D of random targets; d_in by default.", check=positive_integer)] = None,
    tied_targets: Annotated[bool, option("Random targets are weight-tied.", "--tied-targets")] = False,
    heads: Heads = None,
    layers: Layers = None,
    head_dim: HeadDim = None,
    d_in: DIn = None,
    d_out: DOut = None,
    seed: Seed = 0,
    law: Law = "uniform",
    dtype: Dtype = "float64",
    max_memory: MaxMemory = None,
    max_seconds: MaxSeconds = None,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Enclose the difference of outputs of one emulation, rigorously, to so many decimal places (small shapes).

    A statement about one target, one E and one input X, not about universality. Exit 0: outputs are equal or within 10^-N. 1:
    they differ by more.
    """
    given = Given(locals())
    options.refuse_undrawn(stated, host, "law", "dtype")
    pair = pair_of(given, host, target_law)
    return run_enclosure(given, pair.host, pair.target, pair.embedding)


def named_host(
    argument: str, *, tied: bool, seed: int, law: str, dtype: str, limit: int | None, residual: bool = False
) -> dict[str, Any]:
    """A certificate's `host` field for a HOST argument: a construction, or a file by the digest of its content."""
    from utfproof.certificates.sources import host_document, require_rebuilt
    from utfproof.constructions import construction
    from utfproof.weights import read_tensors

    if not options.is_host_file(argument):
        return host_document(require_rebuilt(construction(argument)), seed=seed, law=law, dtype=dtype)
    digest = read_tensors(argument, max_memory=limit).digest(residual)
    return {"system": "looped-universal" if tied else "universal", "weights": digest}


def exact_embedding(host: Universal, target: Target, *, max_memory: int | None = None) -> Any:
    """The exact E [d_in, m] of `matching.embed`, with its method: closed form, formula or rational solve.

    Raises ResourceLimit for a dense host whose equations are too many to be solved over the rationals, and what `embed` raises.
    """
    from utfproof.emulation.enclosure import exact_host
    from utfproof.ground.selection import SelectionMatrix
    from utfproof.matching import embed, exact_target

    columns = matching_dimension(host.shape)
    if not isinstance(host.U, SelectionMatrix) and max(columns, host.m) > SOLVED:
        raise ResourceLimit(
            f"E for this host at {host.shape}, m = {host.m} is found over the rationals up to M = {SOLVED}, here M = "
            f"{columns}; pass a float64 E with --embedding to enclose the error that it makes"
        )
    return embed(exact_host(host), exact_target(target), max_memory=max_memory)


def run_enclosure(given: Given, host: Universal, target: Target, embedding: Any = None) -> Outcome:
    """Enclose |UTF(X, E) - T(X)| to so many decimal places for one input X, drawn from the seed; write the certificate.

    host: what the given's HOST means. E: `embedding` as it is (floats are dyadic rationals), or solved for exactly. Raises
    ResourceLimit beyond sizes and precisions, MalformedInput, CannotCarry as `embed` does.
    """
    from utfproof.attention import SeededAttention, parse_kernel
    from utfproof.certificates.enclosures import attention_name, enclosure_certificate
    from utfproof.emulation.compare import random_input
    from utfproof.emulation.enclosure import enclose, first_bits, require_size

    output, context, residual = given.output, given.context, host.shape.residual
    if output is not None and output.suffix != ".json":
        raise MalformedInput(f"a certificate's file name ends in .json, got {output}")
    kernel: Any = parse_kernel(given.attention, host.shape.heads, host.shape.head_dim)
    require_size(host, target, context, first_bits(kernel, given.digits), given.max_memory)
    if isinstance(kernel, SeededAttention):
        kernel = kernel.rational(host.shape.layers, host.shape.heads, context)
    name = attention_name(kernel, host.shape.heads)
    X = random_input(host.shape, context, given.seed)
    E, method = embedding, "given"
    if embedding is None:
        solved = exact_embedding(host, target, max_memory=given.max_memory)
        E, method = solved.E, f"exact ({solved.method})"
    found = enclose(host, target, E, X, kernel, given.digits, max_memory=given.max_memory)
    files = []
    if output is not None:
        drawn: dict[str, Any] = {"seed": given.seed, "law": given.law, "dtype": given.dtype}
        named = named_host(given.host, tied=host.tied, **drawn, limit=given.max_memory, residual=residual)
        made = enclosure_certificate(named, host, target, E, X, kernel, found, name)
        if bool(made.document["shape"].get("residual")) != residual:
            raise NotDefined(
                f"a certificate of kind enclosure cannot say what stream there is at {host.shape}; leave -o out"
            )
        files = [str(path) for path in made.write(output)]
    return _outcome(given, host, found, name, method, files)


def _outcome(given: Given, host: Universal, found: Enclosure, attention: str, method: str, files: list[str]) -> Outcome:
    low, high = (decimal(units, found.digits) for units in found.units)
    within = found.verdict in ("within", "equal")
    result = {"within": f"outputs within 10^-{found.digits}", "equal": "outputs are equal, as rational numbers"}
    document = {
        "verdict": found.verdict,
        "notion": "one emulation",
        "difference": {"at_least": low, "at_most": high},
        "digits": found.digits,
        "precision_bits": found.precision_bits,
        "attention": attention,
        "context": given.context,
        "embedding": method,
        "shape": options.shape_document(host.shape, host.m),
        "files": files,
    }
    rows = {
        "result": result.get(found.verdict, "outputs DIFFER"),
        "max |UTF(X, E) - T(X)|": f"at most {high}" if within else f"between {low} and {high}",
        "shape": f"{host.shape}, m = {host.m}",
        "run": f"one target, one input of n = {given.context}, attention {attention}",
        "E": method,
        "arithmetic": f"balls of {found.precision_bits} bits; every rounding is enclosed"
        if found.precision_bits
        else "rational numbers; nothing is rounded",
        "means": "a statement about this target, E and X only, not about universality",
        **({"certificate": ", ".join(files)} if files else {}),
    }
    return Outcome(document, f"enclose {given.host}", rows, 0 if within else 1)


def decimal(units: int, digits: int) -> str:
    """units * 10^-digits, to the last digit."""
    whole, part = divmod(units, 10**digits)
    return f"{whole}.{part:0{digits}d}" if units % 10**digits else str(whole)
