"""What a HOST argument means, and what an embedding's file says about its host."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from utfproof.cli.entry import require_apart
from utfproof.cli.options import shape_of
from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import MalformedInput, ResourceLimit, choose
from utfproof.shapes import Shape
from utfproof.systems import Universal
from utfproof.util.files import require_writable


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
    host: str, shape: Shape, layers: int | None, m: int | None, drawn: Mapping[str, Any], limit: int | None
) -> Universal:
    """A file's host, or a construction at this shape. drawn: seed, law and dtype of random weights."""
    from utfproof.constructions import build_host
    from utfproof.weights import read_host

    if not is_host_file(host):
        return build_host(host, shape, m, **drawn, max_memory=limit)
    if (drawn["law"], drawn["dtype"]) != ("uniform", "float64"):
        raise MalformedInput(f"--law and --dtype are for random hosts; {host} has its weights, leave them out")
    stream = True if shape.residual else None  # a host's own metadata may still say otherwise
    found = read_host(host, layers=layers, d_in=shape.d_in, residual=stream, max_memory=limit)
    if m is not None and m != found.m:
        raise MalformedInput(f"--m {m} contradicts {host}, which has m = {found.m}")
    return found


def drawn_shape(host: str, dimensions: list[int | None], residual: bool | None, limit: int | None) -> Shape:
    """The shape of targets drawn for a host; its file may say that there is a residual stream."""
    from utfproof.weights import host_shape, read_tensors

    stream = bool(residual)
    if is_host_file(host):
        layers, d_in = dimensions[1], dimensions[3]
        file = read_tensors(host, max_memory=limit)
        stream = host_shape(file, layers=layers, d_in=d_in, residual=residual, mlps=True)[0].residual
    return shape_of(*dimensions, residual=stream)


def agree_with(shape: Shape, dimensions: list[int | None]) -> None:
    """MalformedInput when an option contradicts a file's shape."""
    for name, value in zip(("heads", "layers", "head_dim", "d_in", "d_out"), dimensions, strict=True):
        if value is not None and value != getattr(shape, name):
            option = f"--{name.replace('_', '-')}"
            raise MalformedInput(f"{option} {value} contradicts the file, which has {name} = {getattr(shape, name)}")


def counterexample_of(certificate: Path, host: Path) -> Path:
    """Where the target is written that refutes a host: beside the certificate. MalformedInput, before any work, where it
    cannot be."""
    beside = certificate.with_name(f"{certificate.stem}.target.safetensors")
    require_writable(beside)
    require_apart({"the counterexample": beside}, {"HOST": host})
    return beside


def remove_earlier(counterexample: Path) -> None:
    """Delete what an earlier run refuted a host with; no file but one whose metadata call it a target."""
    from utfproof.weights import read_tensors

    with suppress(MalformedInput, ResourceLimit, OSError):
        if read_tensors(counterexample).metadata.get("system") in ("target", "looped-target"):
            counterexample.unlink()


# --- what an embedding's metadata say ------------------------------------------------------------------------------


def host_digest(host: str, residual: bool, limit: int | None) -> str:
    """The digest of a host's file, which an embedding for it carries."""
    from utfproof.weights import read_tensors

    return read_tensors(host, max_memory=limit).digest(residual)


def require_made_for(facts: Mapping[str, str], host: str, residual: bool, limit: int | None) -> None:
    """MalformedInput where the metadata name another host than this one, by its construction or the content of its file."""
    from utfproof.models.embedding import HOST_DIGEST

    made_for = facts.get("host", host)
    if host != made_for and {host, made_for} & {*CONSTRUCTIONS}:
        raise MalformedInput(f"this embedding was found for the host {made_for}, not for {host}")
    if not is_host_file(host) or HOST_DIGEST not in facts:
        return
    here = host_digest(host, residual, limit)
    if facts[HOST_DIGEST] != here:
        raise MalformedInput(
            f"this embedding was found for a host of digest {facts[HOST_DIGEST][:16]}, {host} has {here[:16]}; "
            "name the file that it was found for, or embed again"
        )


def stored_stream(facts: Mapping[str, str]) -> bool | None:
    """Whether the metadata say a residual stream; None where they say nothing. MalformedInput for anything else."""
    text = facts.get("residual")
    if text not in (None, "true", "false"):
        raise MalformedInput(f"the embedding's metadata field residual is {text[:40]!r}, expected 'true' or 'false'")
    return None if text is None else text == "true"


def read_own_embedding(path: Path, host: str, machine: Universal, drawn: Mapping[str, Any], limit: int | None) -> Any:
    """E [d_in, m] of a file; MalformedInput where it was found for another host, or another draw of a random one."""
    from utfproof.weights import read_embedding, read_tensors

    E, facts = read_embedding(path, max_memory=limit), read_tensors(path, max_memory=limit).metadata
    require_made_for(facts, host, machine.shape.residual, limit)
    if host in CONSTRUCTIONS and CONSTRUCTIONS[host].is_random:
        for name, value in {"m": machine.m, **drawn}.items():
            said = facts.get(name, str(value))[:40]
            if said != str(value):
                raise MalformedInput(
                    f"this embedding was found for {host} with {name} {said}, not {value}: say --{name} {said}"
                )
    if stored_stream(facts) not in (None, machine.shape.residual):
        raise MalformedInput(f"{path} and {host} differ in whether there is a residual stream")
    return E
