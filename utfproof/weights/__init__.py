"""Weights as safetensors: hosts, targets and embeddings (docs/weights.md has the names and shapes)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.constructions import CONSTRUCTIONS, host_of_shape
from utfproof.errors import MalformedFile, MalformedInput
from utfproof.shapes import Shape, decimal, matching_dimension, positive_integer
from utfproof.systems import (
    AugmentedTarget,
    Target,
    Universal,
    dense,
    same_parameters,
)
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MLP, MULTIPLYING
from utfproof.util.arrays import one_line

# --- what a file holds -------------------------------------------------------------------------------------
from utfproof.weights.tensors import (
    TensorFile,
    TensorSource,
    as_float64,
    floats,
    read_tensors,
    require_finite,
    write_tensors,
)


def known_system(file: TensorFile, expected: tuple[str, ...]) -> str | None:
    """The system that the metadata names, or None; refuse one that is unknown or not expected here."""
    system = file.metadata.get("system")
    if system is not None and system not in expected:
        raise file.refuse(f"metadata says system {system!r}, expected {' or '.join(expected)}")
    return system


def require_tensors(file: TensorFile, required: set[str], optional: set[str]) -> None:
    """MalformedInput unless the file holds the required tensors and no others than these and the optional ones."""
    missing = required - file.tensors.keys()
    if missing:
        raise file.refuse(f"tensor {', '.join(sorted(missing))} is missing; found {', '.join(sorted(file.tensors))}")
    unknown = file.tensors.keys() - required - optional
    if unknown:
        raise file.refuse(
            f"tensor {', '.join(sorted(unknown))} is not understood, and leaving it out would change the model"
        )


def tied_by_rank(file: TensorFile, name: str, system: str | None) -> bool:
    """Whether parameters are tied, from the rank of one tensor, checked against the metadata."""
    rank = file.tensors[name].ndim
    if rank not in (3, 4):
        raise file.refuse(f"{name} has {rank} axes, expected 4 (layer, head, rows, columns) or 3 when tied")
    tied = rank == 3
    if system is not None and system.startswith("looped") != tied:
        raise file.refuse(f"metadata says {system!r} but {name} has {rank} axes")
    return tied


def _stored_integer(file: TensorFile, field: str) -> int | None:
    """A metadata field that should be a positive integer; None where absent."""
    text = file.metadata.get(field)
    if text is None:
        return None
    if not (number := decimal(text)):
        raise file.refuse(f"metadata field {field} is {text[:40]!r}, expected a positive integer")
    return number


def _streaming(file: TensorFile, said: bool | None) -> bool:
    """Whether there is a residual stream: metadata "true" or "false", or what was said; refused where they differ."""
    text = file.metadata.get("residual")
    if text not in (None, "true", "false"):
        raise file.refuse(f"metadata field residual is {text[:40]!r}, expected 'true' or 'false'")
    if text is None:
        return bool(said)
    stored = text == "true"
    if said is not None and said != stored:
        word = "a" if stored else "no"
        raise file.refuse(f"metadata says {word} residual stream, {'--residual' if said else '--no-residual'} was said")
    return stored


def stored_layers(file: TensorFile, name: str, tied: bool, layers: int | None) -> int:
    """L, from one tensor or, where it is tied, from the option and the metadata; MalformedInput where they differ."""
    stored = _stored_integer(file, "layers")
    if not tied:
        found = file.tensors[name].shape[0]
        for claimed in (layers, stored):
            if claimed is not None and claimed != found:
                raise file.refuse(f"{name} has {found} layers, {claimed} were said")
        return found
    if layers is not None and stored is not None and layers != stored:
        raise file.refuse(f"metadata says {stored} layers, {layers} were said")
    said = stored if layers is None else layers
    if said is None:
        raise file.refuse("tied parameters do not say how many layers they are used for; pass --layers")
    return positive_integer("layers", said)


def read_target(
    path: Path | str, *, layers: int | None = None, residual: bool | None = None, max_memory: int | None = None
) -> Target | BiasedTarget:
    """A target from W_Q, W_K, W_V, W_O and, where the width differs from d_in or d_out, W_E and W_U; float64. With MLPs
    (`mlp.silu.W_in`, ...) or biases (b_Q, ...; constant: c with X c = 1) it is a BiasedTarget.

    `layers` is needed for tied targets whose metadata does not say it; `residual` says whether there is a residual stream
    where the metadata does not (none by default).
    """
    file = read_tensors(path, max_memory=max_memory)
    system = known_system(file, ("target", "looped-target"))
    require_tensors(file, {"W_Q", "W_K", "W_V", "W_O"}, {"W_E", "W_U", *_BIASES, *_MLP_TENSORS})
    tied = tied_by_rank(file, "W_Q", system)
    arrays = floats(file, max_memory)
    H, D, d = arrays["W_Q"].shape[-3:]
    for name in ("W_E", "W_U"):
        if name in arrays and arrays[name].ndim != 2:
            raise file.refuse(f"{name} has {arrays[name].ndim} axes, expected 2")
    d_in = arrays["W_E"].shape[0] if "W_E" in arrays else D
    d_out = arrays["W_U"].shape[1] if "W_U" in arrays else D
    try:
        shape = Shape(H, stored_layers(file, "W_Q", tied, layers), d, d_in, d_out, residual=_streaming(file, residual))
        if arrays.keys() & {*_BIASES, *_MLP_TENSORS}:
            if tied:
                raise MalformedInput("targets with MLPs or biases have weights for each layer: W_Q [L, H, D, d]")
            plain = {name: array for name, array in arrays.items() if not name.startswith("mlp.")}
            return BiasedTarget(shape, **plain, mlp=_stored_mlp(arrays))
        return Target(shape, **arrays)
    except MalformedFile:
        raise
    except MalformedInput as error:
        raise file.refuse(str(error)) from error


def _mlp_name(activation: str, name: str) -> str:
    """The tensor of a host's MLP: its name says the activation, so that the digest of the file covers it."""
    return f"mlp.{activation}.{name}"


def _stored_mlp(tensors: dict[str, Any]) -> MLP | None:
    """The MLP of a host's file, None where there is none. MalformedInput where its tensors do not fit one another."""
    of = {name: name.split(".") for name in tensors if name.startswith("mlp.")}
    activations = {parts[1] for parts in of.values()}
    if not activations:
        return None
    if len(activations) > 1:
        raise MalformedInput(f"the MLP has the activations {', '.join(sorted(activations))}, expected one")
    named = {parts[2]: tensors[name] for name, parts in of.items()}
    if missing := {"W_in", "W_out"} - named.keys():
        raise MalformedInput(f"the MLP's {', '.join(sorted(missing))} is missing")
    return MLP(activations.pop(), **named)


_BIASES = ("b_Q", "b_K", "b_V", "b_O", "b_E", "b_U", "constant")
_MLP_TENSORS = {
    _mlp_name(g, name) for g in MULTIPLYING for name in ("W_in", "W_out", "W_gate", "b_in", "b_gate", "b_out")
}


def host_shape(
    file: TensorFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    mlps: bool = False,
) -> tuple[Shape, int, bool]:
    """(shape, m, tied) of the host that a file holds, from names and shapes, checked against the metadata. mlps: it may have
    MLPs; MalformedInput where it has and may not.

    Whether there is a residual stream is said by the metadata or by `residual` (none by default). d_in is not visible in
    a host's tensors: the argument, else the metadata, else d_out.
    """
    system = known_system(file, ("universal", "looped-universal"))
    values = ("R_Vv", "R_Vo") if file.tensors.keys() & {"R_Vv", "R_Vo"} else ("R_V",)
    if not mlps and any(name.startswith("mlp.") for name in file.tensors):
        raise file.refuse("this host has MLPs, and what is asked is about hosts of attention alone")
    require_tensors(file, {"R_Q", "R_K", "U", *values}, _MLP_TENSORS)
    tied = tied_by_rank(file, "R_Q", system)
    if file.tensors["U"].ndim != 2:
        raise file.refuse(f"U has {file.tensors['U'].ndim} axes, expected 2 (m, d_out)")
    H, m, d = file.tensors["R_Q"].shape[-3:]
    if not m:
        raise file.refuse(f"R_Q has shape {list(file.tensors['R_Q'].shape)}: a host has m >= 1 dimensions")
    d_out = file.tensors["U"].shape[1]
    stored = _stored_integer(file, "d_in")
    try:
        width = d_in if d_in is not None else stored or d_out
        # MLPs come with a residual stream of the host's own, whatever its targets have
        streaming = _streaming(file, None if any(name.startswith("mlp.") for name in file.tensors) else residual)
        shape = Shape(H, stored_layers(file, "R_Q", tied, layers), d, width, d_out, residual=streaming)
        _host(file.tensors, shape, m, tied)
    except MalformedFile:
        raise
    except MalformedInput as error:
        raise file.refuse(str(error)) from error
    return shape, m, tied


@one_line
@dataclass(frozen=True)
class StoredHost:
    """A host's file, opened once: its tensors as stored, and the dimensions that names and shapes give."""

    file: TensorFile
    shape: Shape
    m: int
    tied: bool

    @property
    def M(self) -> int:
        """Columns of R_all."""
        return matching_dimension(self.shape)

    @property
    def factor_width(self) -> int | None:
        """d_v where the values are stored as the factors R_Vv, R_Vo; None otherwise."""
        return int(self.file.tensors["R_Vv"].shape[-1]) if "R_Vv" in self.file.tensors else None

    @property
    def values(self) -> tuple[str, ...]:
        """R_V, or its factors."""
        return ("R_V",) if self.factor_width is None else ("R_Vv", "R_Vo")

    def matrix(self, tensor: str, layer: int, head: int) -> np.ndarray:
        """One matrix as stored."""
        array = self.file.tensors[tensor]
        return array if tensor == "U" else array[head] if self.tied else array[layer, head]

    @property
    def document(self) -> dict[str, str]:
        """What a certificate's claim says of this host. MalformedInput where a weight is not finite."""
        for name in self.file.tensors:
            require_finite(self.file, name)
        return {
            "system": "looped-universal" if self.tied else "universal",
            "weights": self.file.digest(self.shape.residual),
        }


HostFile = Path | str | StoredHost
"""A host given by the name of its file, or as a file that is open."""


def stored_host(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    max_memory: int | None = None,
) -> StoredHost:
    """Open a host's file, or take one that is open as it is. MalformedInput for files that hold no host, and where the
    metadata say another d_in."""
    found = _opened(host, layers, d_in, residual, max_memory, mlps=False)
    said = _stored_integer(found.file, "d_in")
    if None not in (d_in, said) and d_in != said:
        raise found.file.refuse(f"metadata says d_in {said}, {d_in} was said")
    return found


def _opened(
    host: HostFile, layers: int | None, d_in: int | None, residual: bool | None, max_memory: int | None, *, mlps: bool
) -> StoredHost:
    """A host that may be for another d_in than the one it was built for: no other dimension depends on it."""
    if isinstance(host, StoredHost):
        return host
    file = read_tensors(host, max_memory=max_memory)
    return StoredHost(file, *host_shape(file, layers=layers, d_in=d_in, residual=residual, mlps=mlps))


def _host(tensors: dict[str, Any], shape: Shape, m: int, tied: bool, construction: str = "") -> Universal:
    """The host made of a file's tensors; MalformedInput where their shapes do not fit."""
    values = {"R_V": tensors["R_V"]} if "R_V" in tensors else {"R_V": tensors["R_Vv"], "R_Vo": tensors["R_Vo"]}
    parts = {name: tensors[name] for name in ("R_Q", "R_K", "U")}
    return Universal(shape, m, **parts, **values, construction=construction, mlp=_stored_mlp(tensors))


def read_host(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    max_memory: int | None = None,
) -> Universal:
    """A host from R_Q, R_K, R_V (or the factors R_Vv, R_Vo), U and, where it has MLPs, their tensors; float64.

    `layers` is needed for tied hosts whose metadata does not say it; residual as in `host_shape`; d_in that
    of the embedding or target, which may be another one than the host was built for. A file whose
    metadata names a {0,1} construction must hold exactly that construction, and comes back as index maps.
    """
    stored = _opened(host, layers, d_in, residual, max_memory, mlps=True)
    file, shape, m, tied = stored.file, stored.shape, stored.m, stored.tied
    found = _host(floats(file, max_memory), shape, m, tied)
    name = file.metadata.get("construction", "")
    entry = CONSTRUCTIONS.get(name)
    if entry is None or entry.is_random:
        return found
    # the layout depends on the d_in that the host was built for
    built_for = _stored_integer(file, "d_in") or shape.d_in
    if built_for != shape.d_in:
        shape = Shape(shape.heads, shape.layers, shape.head_dim, built_for, shape.d_out, residual=shape.residual)
    named = host_of_shape(name, shape, m, max_memory=max_memory)
    if not same_parameters(named, replace(found, shape=shape)):
        raise file.refuse(
            f"metadata says construction {name!r} but the weights differ from it; "
            "remove that field to read them as they are"
        )
    return named


def read_embedding(path: Path | str, *, max_memory: int | None = None) -> np.ndarray:
    """E [d_in, m], float64."""
    file = read_tensors(path, max_memory=max_memory)
    known_system(file, ("embedding",))
    require_tensors(file, {"E"}, set())
    E = as_float64(file, "E")
    if E.ndim != 2:
        raise file.refuse(f"E has {E.ndim} axes, expected 2 (d_in, m)")
    return E


# --- writing -----------------------------------------------------------------------------------------------


def _whole(array: Any) -> TensorSource:
    array = np.asarray(array)
    return TensorSource(array.shape, lambda: iter([array]))


def _grid(host: Universal, columns: int, pick: Callable[[Any], Any]) -> TensorSource:
    """[(L,) H, m, columns] from the heads' maps."""
    layers = 1 if host.tied else host.shape.layers
    lead = (host.shape.heads,) if host.tied else (layers, host.shape.heads)

    def parts() -> Iterator[np.ndarray]:
        for layer in range(layers):
            for head in range(host.shape.heads):
                yield dense(pick(host.maps(layer, head)))

    return TensorSource((*lead, host.m, columns), parts)


def host_metadata(host: Universal) -> dict[str, str]:
    """What a host's tensors do not show: system, layers, d_in, and a residual stream where there is one."""
    return {
        "system": "looped-universal" if host.tied else "universal",
        "layers": str(host.shape.layers),
        "d_in": str(host.shape.d_in),
        **stream_metadata(host.shape),
    }


def stream_metadata(shape: Shape) -> dict[str, str]:
    """residual: "true" for shapes with a residual stream, nothing for others."""
    return {"residual": "true"} if shape.residual else {}


def write_host(
    path: Path | str, host: Universal, *, dtype: str = "float64", metadata: dict[str, str] | None = None
) -> None:
    """A host as R_Q, R_K, R_V, U (and its MLP's tensors), with metadata that names the system, its layers and its d_in."""
    facts = {
        **host_metadata(host),
        **({"construction": host.construction} if host.construction else {}),
        **(metadata or {}),
    }
    if host.R_Vo is not None:
        raise MalformedInput("hosts with factored values are read, not written; write their tensors directly")
    tensors = {
        "R_Q": _grid(host, host.shape.head_dim, lambda maps: maps.query),
        "R_K": _grid(host, host.shape.head_dim, lambda maps: maps.key),
        "R_V": _grid(host, host.m, lambda maps: maps.value[0]),
        "U": _whole(dense(host.U)),
    }
    if (mlp := host.mlp) is not None:
        tensors |= {_mlp_name(mlp.activation, name): _whole(array) for name, array in mlp.arrays.items()}
    write_tensors(path, tensors, facts, dtype)


def write_target(
    path: Path | str, target: Target | BiasedTarget, *, dtype: str = "float64", metadata: dict[str, str] | None = None
) -> None:
    """A target as W_Q, W_K, W_V, W_O and, where it has them, W_E, W_U, biases and MLPs. MalformedInput for a target with
    absorbed biases, whose values have another width than its queries."""
    if isinstance(target, AugmentedTarget):
        raise MalformedInput("a target with absorbed biases is not written: its rank d + 1 is outside the class")
    facts = {
        "system": "looped-target" if isinstance(target, Target) and target.tied else "target",
        "layers": str(target.shape.layers),
        **stream_metadata(target.shape),
        **(metadata or {}),
    }
    names = ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")
    arrays = {name: getattr(target, name, None) for name in (*names, *_BIASES)}
    mlp = getattr(target, "mlp", None)
    if mlp is not None:
        arrays |= {_mlp_name(mlp.activation, name): array for name, array in mlp.arrays.items()}
    write_tensors(path, {name: _whole(array) for name, array in arrays.items() if array is not None}, facts, dtype)


def write_embedding(path: Path | str, E: np.ndarray, metadata: dict[str, str] | None = None) -> None:
    """E [d_in, m], float64."""
    write_tensors(path, {"E": _whole(E)}, {"system": "embedding", **(metadata or {})}, "float64")
