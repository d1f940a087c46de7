"""`utfproof embed --minimize`: the smallest host of one target or model, and its E."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.cli.entry import require_apart
from utfproof.cli.outcome import Outcome
from utfproof.commands.hosts import host_digest
from utfproof.commands.readings import agreement_code, comparison, comparison_rows
from utfproof.errors import MalformedInput, Refuted
from utfproof.systems import Target, Universal
from utfproof.util.files import require_writable
from utfproof.util.progress import stage

if TYPE_CHECKING:
    from utfproof.models import Reading


@dataclass(frozen=True)
class Asked:
    """What the command was asked: files, --m, --within, the tolerance, the test sequences and the memory limit."""

    host: Path
    output: Path
    source: Path
    m: int | None
    within: float | None
    tolerance: float
    trials: int
    seed: int
    limit: int | None


@dataclass(frozen=True, eq=False)
class Smallest:
    """host and E in float64; document and rows for the command's result."""

    host: Universal
    E: np.ndarray
    document: dict[str, Any]
    rows: dict[str, Any]


def minimize(asked: Asked, model: Target | Reading) -> Outcome:
    """Writes the host and E, and compares a model in its original form with them (exit code 1: outputs differ by more than the
    tolerance). Refuted where --m is below the least m."""
    from utfproof.models import compare, random_sequences
    from utfproof.models.embedding import HOST_DIGEST, model_facts, shape_facts
    from utfproof.weights import write_embedding, write_host

    if asked.host.suffix != ".safetensors":
        raise MalformedInput(
            f"--minimize writes the smallest host to HOST: name a .safetensors file, not {str(asked.host)!r}"
        )
    require_writable(asked.host)
    require_apart({"HOST": asked.host, "--output": asked.output}, {"TARGET": asked.source})
    if asked.within is not None and (asked.m is not None or isinstance(model, Target)):
        raise MalformedInput("--within is for models, and finds m itself: leave out --m")
    facts: dict[str, str] = {"notion": "matching"} if asked.within is None else {}
    code = 0
    if isinstance(model, Target):
        found = _smallest(asked, model, f"width {model.width}", model.width)
    else:
        biased, sequences = model.target, random_sequences(model, asked.trials, asked.seed)
        width = f"width {biased.width} and one coordinate for the biases: {biased.width + 1}"
        found = _smallest(asked, biased.augmented(), width, biased.width + 1)
        if asked.within is not None:
            found = _within(asked.within, found, model, sequences)
        agreement = compare(model, found.host, found.E, sequences)
        found.document.update(comparison(model, agreement, asked.tolerance))
        found.rows.update(comparison_rows(model, agreement, asked.tolerance))
        code = agreement_code(model, asked.within is not None or agreement.decided(asked.tolerance))
        facts |= model_facts(model, model.kernel)
    write_host(asked.host, found.host)
    digest = host_digest(str(asked.host), found.host.shape.residual, asked.limit)
    about = {"host": asked.host.name, HOST_DIGEST: digest, **shape_facts(found.host)}
    write_embedding(asked.output, found.E, {**about, **facts})
    files = {"host file": str(asked.host), "embedding": str(asked.output)}
    document = {**found.document, "files": list(files.values())}
    return Outcome(document, "embed --minimize", {**found.rows, **files}, code)


def _smallest(asked: Asked, target: Target, width: str, own: int) -> Smallest:
    """The least m for this target by matching, a host of that size and E. width, own: the model's own size, for people and as
    a number."""
    from utfproof.models.realization.hankel import forms, least_dimension
    from utfproof.models.realization.host import least_host

    held = forms(target)
    with stage("least m for this target"):
        least = least_dimension(held)
    if asked.m is not None and asked.m < least.m:
        raise Refuted(
            f"no host of m = {asked.m} matches this target: its least m is {least.m}. Leave out --m; for a model, --within "
            "X finds a smaller host with a proven error"
        )
    with stage("host of that size"):
        host, E = least_host(held, least)
    document: dict[str, Any] = {"least": least.document(), "structure": least.structure()}
    document["host"] = {"m": host.m, "notion": "matching", "verified": "E R_all = W_all exactly"}
    spare = f"{own - least.m} fewer are enough" if least.m < own else "nothing in it is spare"
    shown = (f"{kind}: {', '.join(heads)}" for kind, heads in least.structure().items() if heads)
    rows: dict[str, Any] = {
        "least m by matching": f"{least.m} for this target ({least.document()['universal_m']} for all targets of its shape)",
        "host": f"m = {host.m}, rational, E R_all = W_all exactly",
        "structure": "; ".join(shown) or "none found: every head is read, of full rank, and none repeats another",
        "beside": f"the model itself has {width}; {spare}",
    }
    floats: dict[str, Any] = {
        name: np.asarray(getattr(host, name)).astype(np.float64) for name in ("R_Q", "R_K", "R_V", "U")
    }
    return Smallest(replace(host, **floats), E.astype(np.float64), document, rows)


def _within(asked: float, found: Smallest, model: Reading, sequences: list[Any]) -> Smallest:
    """The smallest host fitted to the test sequences that is proven so close on them. Refuted where none is."""
    from utfproof.models.realization.proven import GivenInputs

    kernel = model.kernel
    if not isinstance(kernel, SoftmaxAttention):
        raise MalformedInput(f"--within is for softmax with a mask or a window, not for {kernel.words()}")
    with stage(f"the model on {len(sequences)} sequences, in balls"):
        given = GivenInputs(model.target.augmented(), [model.one_hots(tokens) for tokens in sequences], kernel)
    with stage("hosts of fewer dimensions, in balls"):
        closest = given.least_within(asked)
    if closest is None:
        raise Refuted(f"no host fitted to these sequences is proven within {asked:g} of the model on them")
    host, E, error = closest
    said = f"{error:.3g} of the largest output, on {len(sequences)} sequences of this run alone"
    result = f"a host of m = {host.m} is within {asked:g} of the model: proven {said}; it does not match it"
    within = {"m": host.m, "asked": asked, "proven": error, "sequences": len(sequences)}
    return Smallest(host, E, {**found.document, "within": within}, {"result": result, **found.rows})
