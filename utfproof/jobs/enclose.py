"""`utfproof enclose`: one emulation, enclosed rigorously, with its certificate if one is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.attention import KERNEL_NAMES
from utfproof.emulation.laws import TARGET_LAWS
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.jobs import options
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.pairs import Pair
from utfproof.jobs.parameters import argument, option, written
from utfproof.shapes import matching_dimension
from utfproof.systems import Target, Universal

if TYPE_CHECKING:
    from utfproof.emulation.enclosure import Enclosure

SOLVED = 200
"""Largest M for which a dense host's matching equations are solved over the rationals."""


@dataclass(frozen=True, kw_only=True)
class Enclose(Pair, Job, order=91):
    """Enclose the difference of outputs of one emulation, rigorously, to so many decimal places (small shapes).

    A statement about one target, one E and one input X, not about universality. Exit 0: outputs are equal or within 10^-N. 1:
    they differ by more.
    """

    examples = "Example: utfproof enclose tied -H 2 -L 2 -d 2 --d-in 3 --context 3 --digits 30 -o enclosure.json"
    host: str = argument(..., "Name of a construction, or HOST.safetensors.")
    digits: int = option(30, "Decimal places N.", kind="positive")
    output: Path | None = written(None, "Certificate to write (.json).")
    target_law: str = option("uniform", "Law of the random target", choices=TARGET_LAWS)
    context: int = option(1, "Context length n.", kind="positive")
    attention: str = option(
        "softmax", f"Kernel: {', '.join(KERNEL_NAMES)} joined with '+'; given: matrices from outside."
    )

    def run(self) -> Outcome:
        options.refuse_undrawn(self, self.host, "law", "dtype")
        pair = self.pair(self.host, self.target_law)
        return run_enclosure(self, pair.host, pair.target, pair.embedding)


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


def run_enclosure(job: Enclose, host: Universal, target: Target, embedding: Any = None) -> Outcome:
    """Enclose |UTF(X, E) - T(X)| to so many decimal places for one input X, drawn from the seed; write the certificate.

    host: what the job's HOST means. E: `embedding` as it is (floats are dyadic rationals), or solved for exactly. Raises
    ResourceLimit beyond sizes and precisions, MalformedInput, CannotCarry as `embed` does.
    """
    from utfproof.attention import SeededAttention, parse_kernel
    from utfproof.certificates.enclosures import attention_name, enclosure_certificate
    from utfproof.emulation.compare import random_input
    from utfproof.emulation.enclosure import enclose, first_bits, require_size

    output, context, residual = job.output, job.context, host.shape.residual
    if output is not None and output.suffix != ".json":
        raise MalformedInput(f"a certificate's file name ends in .json, got {output}")
    kernel: Any = parse_kernel(job.attention, host.shape.heads, host.shape.head_dim)
    require_size(host, target, context, first_bits(kernel, job.digits), job.limit)
    if isinstance(kernel, SeededAttention):
        kernel = kernel.rational(host.shape.layers, host.shape.heads, context)
    name = attention_name(kernel, host.shape.heads)
    X = random_input(host.shape, context, job.seed)
    E, method = embedding, "given"
    if embedding is None:
        solved = exact_embedding(host, target, max_memory=job.limit)
        E, method = solved.E, f"exact ({solved.method})"
    found = enclose(host, target, E, X, kernel, job.digits, max_memory=job.limit)
    files = []
    if output is not None:
        drawn: dict[str, Any] = {"seed": job.seed, "law": job.law, "dtype": job.dtype}
        named = named_host(job.host, tied=host.tied, **drawn, limit=job.limit, residual=residual)
        made = enclosure_certificate(named, host, target, E, X, kernel, found, name)
        if bool(made.document["shape"].get("residual")) != residual:
            raise NotDefined(
                f"a certificate of kind enclosure cannot say what stream there is at {host.shape}; leave -o out"
            )
        files = [str(path) for path in made.write(output)]
    return _outcome(job, host, found, name, method, files)


def _outcome(job: Enclose, host: Universal, found: Enclosure, attention: str, method: str, files: list[str]) -> Outcome:
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
        "context": job.context,
        "embedding": method,
        "shape": options.shape_document(host.shape, host.m),
        "files": files,
    }
    rows = {
        "result": result.get(found.verdict, "outputs DIFFER"),
        "max |UTF(X, E) - T(X)|": f"at most {high}" if within else f"between {low} and {high}",
        "shape": f"{host.shape}, m = {host.m}",
        "run": f"one target, one input of n = {job.context}, attention {attention}",
        "E": method,
        "arithmetic": f"balls of {found.precision_bits} bits; every rounding is enclosed"
        if found.precision_bits
        else "rational numbers; nothing is rounded",
        "means": "a statement about this target, E and X only, not about universality",
        **({"certificate": ", ".join(files)} if files else {}),
    }
    return Outcome(document, f"enclose {job.host}", rows, 0 if within else 1)


def decimal(units: int, digits: int) -> str:
    """units * 10^-digits, to the last digit."""
    whole, part = divmod(units, 10**digits)
    return f"{whole}.{part:0{digits}d}" if units % 10**digits else str(whole)
