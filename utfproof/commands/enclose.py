"""`utfproof enclose`: one emulation, enclosed rigorously, with its certificate if one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.attention import KERNEL_NAMES
from utfproof.cli import questions as options
from utfproof.cli.command import command
from utfproof.cli.options import Draw, MaxMemory, ShapeOptions, argument, option, written
from utfproof.cli.outcome import Outcome
from utfproof.commands.certify import require_json
from utfproof.commands.pairs import PairOptions, pair_of
from utfproof.emulation.laws import TARGET_LAWS
from utfproof.errors import MalformedInput, NotDefined
from utfproof.shapes import positive_integer
from utfproof.systems import Universal
from utfproof.systems.biases import BiasedTarget

if TYPE_CHECKING:
    from utfproof.emulation.enclosure import Enclosure


@command("Example: utfproof enclose tied -H 2 -L 2 -d 2 --d-in 3 --context 3 --digits 30 -o enclosure.json")
def enclose(
    *,
    host: Annotated[str, argument("Name of a construction, or HOST.safetensors.")],
    digits: Annotated[int, option("Decimal places N.", check=positive_integer)] = 30,
    output: Annotated[Path | None, written("Certificate to write (.json).", "-o", "--output")] = None,
    target_law: Annotated[str, option("Law of the random target", choices=TARGET_LAWS)] = "uniform",
    context: Annotated[int, option("Context length n.", check=positive_integer)] = 1,
    attention: Annotated[str, option(f"Kernel: {', '.join(KERNEL_NAMES)} joined with '+'.")] = "softmax",
    shape: ShapeOptions,
    pair: PairOptions,
    draw: Draw,
    max_memory: MaxMemory = None,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Enclose the difference of outputs of one emulation rigorously (small shapes).

    A statement about one target, one E and one input X, not about universality. Exit 0: outputs are equal or within 10^-N. 1:
    they differ by more.
    """
    from utfproof.attention import SoftmaxAttention, parse_kernel
    from utfproof.certificates.enclosures import attention_name, enclosure_certificate
    from utfproof.emulation import enclosure
    from utfproof.emulation.compare import random_input
    from utfproof.emulation.emulate import drawn_targets, tied_targets_only

    options.refuse_undrawn(stated, host, "law", "dtype")
    if output is not None:
        require_json(output)
    found = pair_of(host, target_law, shape, pair, draw, max_memory)
    machine, seed = found.host, draw.seed
    if isinstance(found.targets, BiasedTarget):
        raise MalformedInput("an enclosure is for targets of attention alone; this one has MLPs or biases")
    tied = pair.tied_targets or tied_targets_only(machine)
    target = drawn_targets(found.targets, seed, target_law, width=pair.width, tied=tied, max_memory=max_memory)(0)
    kernel = parse_kernel(attention, machine.shape.heads, machine.shape.head_dim)
    if not isinstance(kernel, SoftmaxAttention):
        raise MalformedInput(f"an enclosure is for softmax attention, got --attention {attention}")
    enclosure.require_size(machine, target, context, enclosure.first_bits(digits), max_memory)
    name = attention_name(kernel, machine.shape.heads)
    X, E, method = random_input(machine.shape, context, seed), found.embedding, "given"
    if E is None:
        solved = enclosure.exact_embedding(machine, target, max_memory=max_memory)
        E, method = solved.E, f"exact ({solved.method})"
    result = enclosure.enclose(machine, target, E, X, kernel, digits, max_memory=max_memory)
    files = []
    if output is not None:
        named = named_host(host, machine, draw, max_memory)
        made = enclosure_certificate(named, machine, target, E, X, kernel, result, name)
        if bool(made.document["shape"].get("residual")) != machine.shape.residual:
            raise NotDefined(
                f"a certificate of kind enclosure cannot say what stream there is at {machine.shape}; leave -o out"
            )
        files = [str(path) for path in made.write(output)]
    about = {"attention": name, "context": context, "embedding": method}
    return _outcome(host, machine, result, about, files)


def named_host(argument: str, host: Universal, draw: Draw, limit: int | None) -> dict[str, Any]:
    """A certificate's `host` field for a HOST argument: a construction, or a file by the digest of its content."""
    from utfproof.certificates.sources import host_document, require_rebuilt
    from utfproof.constructions import construction
    from utfproof.weights import read_tensors

    if not options.is_host_file(argument):
        return host_document(require_rebuilt(construction(argument)), **vars(draw))
    digest = read_tensors(argument, max_memory=limit).digest(host.shape.residual)
    return {"system": "looped-universal" if host.tied else "universal", "weights": digest}


def _outcome(name: str, host: Universal, found: Enclosure, about: dict[str, Any], files: list[str]) -> Outcome:
    low, high = (decimal(units, found.digits) for units in found.units)
    within = found.verdict == "within"
    document = {
        "verdict": found.verdict,
        "notion": "one emulation",
        "difference": {"at_least": low, "at_most": high},
        "digits": found.digits,
        "precision_bits": found.precision_bits,
        **about,
        "shape": host.shape.document(host.m),
        "files": files,
    }
    rows = {
        "result": f"outputs within 10^-{found.digits}" if within else "outputs DIFFER",
        "max |UTF(X, E) - T(X)|": f"at most {high}" if within else f"between {low} and {high}",
        "shape": f"{host.shape}, m = {host.m}",
        "run": f"one target, one input of n = {about['context']}, attention {about['attention']}",
        "E": about["embedding"],
        "arithmetic": f"balls of {found.precision_bits} bits; every rounding is enclosed",
        "means": "a statement about this target, E and X only, not about universality",
        **({"certificate": ", ".join(files)} if files else {}),
    }
    return Outcome(document, f"enclose {name}", rows, 0 if within else 1)


def decimal(units: int, digits: int) -> str:
    """units * 10^-digits, to the last digit."""
    whole, part = divmod(units, 10**digits)
    return f"{whole}.{part:0{digits}d}" if units % 10**digits else str(whole)
