"""What a HOST argument means, and what an embedding's file says about its host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from utfproof.cli.options import option_of
from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import MalformedInput, ResourceLimit, choose
from utfproof.shapes import Shape
from utfproof.systems import Universal


def is_host_file(name: str) -> bool:
    """Whether a HOST argument is a file rather than a construction's name."""
    if name in CONSTRUCTIONS:
        return False
    if name.endswith(".safetensors") or Path(name).exists():
        return True
    raise MalformedInput(
        f"{name!r} is neither a construction nor an existing .safetensors file; {choose(name, CONSTRUCTIONS)}"
    )


def load_host(
    host: str,
    shape: Shape,
    *,
    layers: int | None,
    m: int | None,
    seed: int,
    law: str | None,
    dtype: str | None,
    limit: int | None,
) -> Universal:
    """A file's host, or a construction at this shape. MalformedInput for --law and --dtype of a file."""
    from utfproof.constructions import build_host
    from utfproof.weights import read_host

    if not is_host_file(host):
        drawn: dict[str, Any] = {"seed": seed, "law": law or "uniform", "dtype": dtype or "float64"}
        return build_host(host, shape, m, **drawn, max_memory=limit)
    if law or dtype:
        raise MalformedInput(
            f"--law and --dtype would change nothing: the weights of {host} are not drawn; leave them out"
        )
    stream = True if shape.residual else None  # a host's own metadata may still say otherwise
    found = read_host(host, layers=layers, d_in=shape.d_in, residual=stream, max_memory=limit)
    if m is not None and m != found.m:
        raise MalformedInput(f"--m {m} contradicts {host}, which has m = {found.m}")
    return found


def agree_with(shape: Shape, **given: int | None) -> None:
    """MalformedInput when an option contradicts a file's shape."""
    for name, value in given.items():
        if value is not None and value != getattr(shape, name):
            raise MalformedInput(
                f"{option_of(name)} {value} contradicts the file, which has {name} = {getattr(shape, name)}"
            )


def remove_earlier_target(path: Path) -> None:
    """Delete the target that an earlier run refuted a host with, where the certificate beside it now says otherwise.

    Deletes only a file whose metadata call it a target.
    """
    from utfproof.weights import read_tensors

    try:
        if path.is_file() and read_tensors(path).metadata.get("system") in ("target", "looped-target"):
            path.unlink()
    except (MalformedInput, ResourceLimit, OSError):
        return


# --- what an embedding's metadata say ------------------------------------------------------------------------------


def host_digest(host: Path | str, residual: bool, limit: int | None) -> str:
    """The digest of a host's file, which an embedding for it carries."""
    from utfproof.weights import read_tensors

    return read_tensors(host, max_memory=limit).digest(residual)


def require_made_for(facts: dict[str, str], host: str, residual: bool, limit: int | None) -> dict[str, str]:
    """MalformedInput where the metadata name another host than this one, by its construction or by the content of its file; a
    row that says so where they leave open which file it was."""
    from utfproof.models.embedding import HOST_DIGEST

    made_for = facts.get("host", host)
    if host != made_for and {host, made_for} & {*CONSTRUCTIONS}:
        raise MalformedInput(f"this embedding was found for the host {made_for}, not for {host}")
    if not is_host_file(host):
        return {}
    if HOST_DIGEST not in facts:
        return {
            "warning": f"the embedding does not say the content of its host ({HOST_DIGEST}): {host} is taken unchecked"
        }
    here = host_digest(host, residual, limit)
    if facts[HOST_DIGEST] != here:
        raise MalformedInput(
            f"this embedding was found for a host of digest {facts[HOST_DIGEST][:16]}, {host} has {here[:16]}: its weights are "
            "others; name the file that it was found for, or embed again"
        )
    return {}


def require_drawn_alike(facts: dict[str, str], host: str, drawn: dict[str, Any]) -> None:
    """MalformedInput where the metadata name another draw of this random construction than the options do."""
    if host not in CONSTRUCTIONS or not CONSTRUCTIONS[host].is_random:
        return
    for name, value in drawn.items():
        said = facts.get(name, str(value))[:40]
        if said != str(value):
            raise MalformedInput(
                f"this embedding was found for {host} with {name} {said}, not {value}: say --{name} {said}"
            )


def assumed_rows(facts: dict[str, str]) -> dict[str, str]:
    """A row for the facts of the model that nobody had said when the embedding was found."""
    from utfproof.models.importing import FACTS

    names = [FACTS[name][0] if name in FACTS else name for name in facts.get("assumed", "").split(", ") if name]
    return {"assumed": f"{', '.join(names)}: nobody said it of the model when E was found"} if names else {}


def stored_stream(facts: dict[str, str]) -> bool | None:
    """Whether the metadata say a residual stream; None where they say nothing. MalformedInput for anything else."""
    text = facts.get("residual")
    if text not in (None, "true", "false"):
        raise MalformedInput(f"the embedding's metadata field residual is {text[:40]!r}, expected 'true' or 'false'")
    return None if text is None else text == "true"
