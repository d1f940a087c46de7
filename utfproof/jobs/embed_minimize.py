"""`utfproof embed --minimize`: the smallest host of one target or model, its E, and evidence that no smaller one matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.errors import MalformedInput, Refuted, ResourceLimit
from utfproof.ground.files import require_writable, together
from utfproof.ground.progress import stage
from utfproof.jobs import options
from utfproof.jobs.job import Outcome
from utfproof.systems import Target, Universal

if TYPE_CHECKING:
    from utfproof.jobs.embed import Embed
    from utfproof.models import ImportedModel
    from utfproof.models.attention import Kernel
    from utfproof.models.realization.given import GivenInputs


@dataclass(frozen=True, eq=False)
class Smallest:
    """host and E in float64; document and rows for the command's result; enough: whether the host matches the target."""

    host: Universal
    E: np.ndarray
    document: dict[str, Any]
    rows: dict[str, Any]
    enough: bool


def smallest(
    target: Target,
    *,
    m: int | None,
    kernel: Any,
    groups: Sequence[int] | None,
    certificate: Path | None,
    limit: int | None,
) -> Smallest:
    """The least m for this target by matching, a host of that size and E. With an m below it, the closest host found of that
    size, its E of least squares and a bound of the output error. Writes the certificate where a path is given and there is one.
    """
    from utfproof.models.realization.besteffort import best_effort, relative_residual
    from utfproof.models.realization.numerical import truncated_host
    from utfproof.models.realization.report import minimize as minimal

    found = minimal(target, certify=certificate is not None, max_memory=limit)
    document = dict(found.document)
    least = document["least"]["m"]
    arithmetic = document["host"]["arithmetic"]
    rows = {
        "least m by matching": f"{least} for this target ({document['least']['universal_m']} for all targets of its shape)",
        "host": f"m = {found.host.m}, {arithmetic}" + (", E R_all = W_all exactly" if arithmetic == "rational" else ""),
        "without dead heads": document["without_dead_heads"]["m"],
        "logits made short": f"{document['short_logits']['m']} (attention-matching; not claimed least)",
        "structure": "; ".join(f"{kind}: {', '.join(found)}" for kind, found in document["structure"].items() if found)
        or "none found: every head is read, of full rank, and none repeats another",
    }
    if certificate is not None:
        if found.certificate is None:
            raise ResourceLimit(
                "the numbers of this target's exact host are too long for a certificate; leave out --certificate"
            )
        found.certificate.write(certificate)
        rows["certificate"] = document["certificate_file"] = str(certificate)
    if m is None or m >= least:
        host, E = _in_floats(found.host, found.E)
        document["written_residual"] = relative_residual(host, target, E)
        rows["as written"] = f"float64, relative residual of E R_all = W_all {document['written_residual']:.3g}"
        return Smallest(host, E, document, rows, True)
    smaller = truncated_host(target, m)
    effort = best_effort(smaller.host, target, kernel=kernel, groups=groups, max_memory=limit)
    document["best_effort"] = {**effort.document(), "asked_m": m}
    vacuous = " (no more than a constant output would give)" if effort.bound.vacuous else ""
    rows |= {
        "too small": f"m = {smaller.host.m} (asked: {m}), relative residual of E R_all = W_all {effort.misfit:.3g}",
        "output error": f"at most {float(effort.bound.error):.3g} on all one-hot inputs{vacuous}",
    }
    return Smallest(smaller.host, effort.E, document, rows, False)


def _in_floats(host: Universal, E: np.ndarray) -> tuple[Universal, np.ndarray]:
    """The same host with its rational entries rounded to float64."""

    def rounded(array: Any) -> np.ndarray:
        return np.asarray(array).astype(np.float64)

    parts: dict[str, Any] = {name: rounded(getattr(host, name)) for name in ("R_Q", "R_K", "R_V", "U")}
    return replace(host, **parts), rounded(E)


def minimize(job: Embed, model: Target | ImportedModel) -> Outcome:
    """--minimize: writes the host and E, and compares a model in its original form with them (exit code 1: m is too small, or
    outputs differ by more than the tolerance)."""
    from utfproof.ground.notions import Notion
    from utfproof.models import compare
    from utfproof.models.embedding import HOST_DIGEST, model_facts, shape_facts
    from utfproof.weights import write_embedding, write_host

    host, output, certificate, m, limit = Path(job.host), job.output, job.certificate, job.m, job.limit
    _require_paths(host, output, certificate, job.target)
    if job.within is not None and (m is not None or certificate is not None or isinstance(model, Target)):
        raise MalformedInput("--within is for models, and finds m itself: leave out --m and --certificate")
    given = None
    agrees: bool | None = True
    if isinstance(model, Target):
        target, groups = model, None
        kernel: Kernel = SoftmaxAttention()
        found = smallest(target, m=m, kernel=kernel, groups=groups, certificate=certificate, limit=limit)
        facts, rows, document, observe = {}, dict(found.rows), dict(found.document), None
        rows["beside"] = why(found.document["least"]["m"], model.width, 0)
    else:
        sequences, target = job.sequences(model), model.target.augmented()
        groups = [model.vocabulary, model.positions] if model.positions else None
        kernel = model.attention
        smaller = m is not None or job.curve or job.within is not None
        if smaller and not isinstance(kernel, SoftmaxAttention):
            raise MalformedInput(
                f"the bound for an m that is too small is for softmax with a mask or a window, not for {kernel.words()}"
            )
        found = smallest(target, m=m, kernel=kernel, groups=groups, certificate=certificate, limit=limit)
        if (job.curve or job.within is not None) and isinstance(kernel, SoftmaxAttention):
            from utfproof.models.realization.given import GivenInputs

            with stage(f"the model on {len(sequences)} sequences, in balls"):
                given = GivenInputs(target, [model.one_hots(tokens) for tokens in sequences], kernel)
        if job.within is not None and given is not None:
            found = _within(found, target, given, job.within, limit)
        agreement = compare(model, found.host, found.E, None, sequences)
        facts = model_facts(model)
        agrees = True if job.within is not None else agreement.decided(job.allowed)
        beside = why(found.document["least"]["m"], model.target.width, 1)
        rows = {**found.rows, "beside": beside, **job.comparison_rows(model, agreement)}

        def observe(host: Universal, E: np.ndarray) -> float:
            return compare(model, host, E, None, sequences).relative_difference

        document = {**found.document, **job.comparison(model, agreement)}
    if job.curve:
        from utfproof.models.realization.curve import error_curve

        assert isinstance(kernel, SoftmaxAttention)
        points = error_curve(target, kernel=kernel, groups=groups, given=given, observe=observe, max_memory=limit)
        document["curve"] = [point.document() for point in points]
        rows |= {f"error at m = {point.m}": _point(point) for point in points}
    notion = {"notion": Notion.MATCHING.value} if found.enough and job.within is None else {}
    with together():
        write_host(host, found.host)
        about = {"host": host.name, HOST_DIGEST: _digest(found.host), **shape_facts(found.host)}
        write_embedding(output, found.E, {**notion, **about, **facts})
    files = {"host file": str(host), "embedding": str(output)}
    fine = found.enough and agrees
    code = int(not fine) if isinstance(model, Target) else options.agreement_code(model, fine)
    return Outcome({**document, "files": list(files.values())}, "embed --minimize", {**rows, **files}, code)


def _digest(host: Universal) -> str:
    """Of the file that this host is written as: its matrices in float64."""
    from utfproof.weights import TensorFile

    names = ("R_Q", "R_K", "R_V", "U")
    tensors = {name: np.asarray(getattr(host, name), dtype="<f8") for name in names}
    return TensorFile("", tensors, {}, dict.fromkeys(names, "F64")).digest(host.shape.residual)


def _within(found: Smallest, target: Target, given: GivenInputs, within: float, limit: int | None) -> Smallest:
    """The smallest truncated host that is proven so close on the test sequences. Refuted where none is."""
    from utfproof.models.realization.curve import least_within

    with stage("hosts of fewer dimensions, in balls"):
        closest = least_within(target, given, within, limit)
    if closest is None:
        raise Refuted(f"no host that balanced truncation gives is proven within {within:g} on these sequences")
    host, E, error = closest
    said = f"{error:.3g} of the largest output, on {len(given.inputs)} sequences of this run alone"
    rows = {
        "result": f"a host of m = {host.m} is within {within:g} of the model: proven {said}; it does not match it",
        **found.rows,
    }
    document = {
        **found.document,
        "within": {"m": host.m, "asked": within, "proven": error, "sequences": len(given.inputs)},
    }
    return Smallest(host, E, document, rows, True)


def why(least: int, width: int, constants: int) -> str:
    """The least m beside the size of the model itself, which is always enough."""
    own = width + constants
    itself = f"the model itself has width {width}" + (f" and one coordinate for the biases: {own}" if constants else "")
    return f"{itself}; " + (f"{own - least} fewer are enough" if least < own else "nothing in it is spare")


def _point(point: Any) -> str:
    """A point of the curve for people."""
    bound = "the bound for all contexts is vacuous" if point.vacuous else f"at most {point.bound:.3g} on all contexts"
    here = "" if point.given is None else f"proven {point.given:.3g} relative on these sequences; "
    return f"{here}{bound}"


def _require_paths(host: Path, output: Path, certificate: Path | None, source: Path) -> None:
    """MalformedInput where HOST cannot be written, or files would overwrite each other."""
    if host.suffix != ".safetensors":
        raise MalformedInput(
            f"--minimize writes the smallest host to HOST: name a .safetensors file, not {str(host)!r}"
        )
    if certificate is not None and certificate.suffix != ".json":
        raise MalformedInput(f"a certificate's file name ends in .json, got {certificate}")
    written = [host, output, *([certificate] if certificate is not None else [])]
    if len({str(path.absolute()) for path in written}) < len(written):
        raise MalformedInput("HOST, --output and --certificate must be different files")
    require_writable(*written)
    for path in written:
        options.require_distinct(path, source)
