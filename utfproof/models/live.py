"""A live torch.nn.Module is the authority on what it computes: its reading is compared with its own forward pass."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.comparison import (
    AGREEMENT,
    agreement,
    covering_sequences,
    extent,
    measured,
    random_sequences,
)
from utfproof.models.exporting.reading import exported_constants, read_exported
from utfproof.models.facts import OWN_OUTPUTS
from utfproof.models.family import ANY_LENGTH, LONGEST, Family
from utfproof.models.foreign import callers_code
from utfproof.models.importing import recognise, spoken, summary
from utfproof.models.model import ImportedModel
from utfproof.models.reading import Reading, read_model
from utfproof.models.tensors import Claims as _Claims
from utfproof.models.tensors import find_layers
from utfproof.weights import TensorFile

EXAMPLES = 8
"""Random sequences on which a module is compared where none are given: the longest, lengths 1 and 2, others."""
OPEN = {"stream": (True, False), "causal": (True, False)}
"""Facts that a family may leave open, which the module's own outputs then decide."""


def from_model(
    module: Any,
    example_inputs: Any = None,
    *,
    heads: int | None = None,
    config: Mapping[str, Any] | None = None,
    norms: bool = False,
    seed: int = 0,
) -> ImportedModel:
    """The model of a live module, read by the table of its family and compared with the module's own forward pass in float64.

    example_inputs: tokens [n] or [batch, n], integers (arrays or tensors), or a list of such; by default random ones of several
    lengths, and every token of the vocabulary (up to 4096). heads: where the module does not show them. config: fields instead
    of the module's own configuration. norms: it is one with norms, for a host with a norm of its own (`from_normalised_model`).
    The module is copied, never changed. Raises MalformedInput naming the tensor or the field that no embedding carries, or the
    first stage at which the reading and the module differ, and by how much.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise MalformedInput(f"from_model takes a torch.nn.Module, got {type(module).__name__}")
    twin = in_float64(module)
    file = live_tensors(twin)
    forward = module_outputs(twin)
    best: tuple[float, Reading] | None = None
    agreeing: list[ImportedModel] = []
    given = None if example_inputs is None else _examples(example_inputs)
    for reading in _readings(twin, file, heads, config, norms):
        sequences = given or random_sequences(reading, EXAMPLES, seed) + covering_sequences(reading, seed)
        model = ImportedModel(reading, _said(module, reading, sequences, given is not None), forward)
        pairs = [(model.original(_checked(model, tokens)), forward(tokens)) for tokens in sequences]
        for found, expected in pairs:
            if found.shape != expected.shape:
                raise file.refuse(f"outputs have shape {list(expected.shape)}, its tensors say {list(found.shape)}")
        result = measured(reading, sequences, pairs)
        if result.within(AGREEMENT):
            agreeing.append(replace(model, agreement=result))
            if given is None:
                break
        if best is None or not result.relative_difference >= best[0]:
            best = result.relative_difference, reading
    if len(agreeing) > 1:
        readings = " or as ".join(summary(model) for model in agreeing)
        raise file.refuse(f"the example inputs do not tell how to read it: as {readings}; give longer ones, or none")
    if agreeing:
        return agreeing[0]
    assert best is not None
    raise file.refuse(_difference(twin, best[1], sequences, forward))


def _said(module: Any, reading: Reading, sequences: Sequence[np.ndarray], given: bool) -> str:
    """Whose outputs were compared, and on what where that is not all."""
    on = f" on the example inputs alone, of at most {max(map(len, sequences))} tokens" if given else ""
    return f"the forward pass of {type(module).__name__}{on or extent(reading, sequences)}"


def from_normalised_model(module: Any, example_inputs: Any = None, *, seed: int = 0) -> ImportedModel:
    """The model of a live module with norms, compared with its own forward pass in float64, whose `.embed()` gives a host
    with a norm of its own: one layer with a norm before it, and maybe one at the end, or two layers without one at the end
    (an nn.Identity in its place). Raises MalformedInput as `from_model`, naming what no such host carries."""
    return from_model(module, example_inputs, norms=True, seed=seed)


def _readings(
    twin: Any, file: TensorFile, heads: int | None, config: Mapping[str, Any] | None, norms: bool
) -> Iterator[Reading]:
    """What the module may be, by the table of its family, or by its own text where this package has written it."""
    written = exported_constants(twin)
    if written is not None:
        if heads is not None or config:
            raise file.refuse("this module was written by utfproof export and says all of its configuration")
        yield read_exported(file, written, norms)
        return
    family = recognise(file, norms)
    parts = attention_modules(twin, file, family)
    with callers_code(f"{file.path} has tensors as {family.title} has, and not its parts"):
        if family.double is not None:
            family.double(twin)
        fields = dict(config) if config is not None else {} if family.live is None else family.live(twin, parts)
        tables = None if family.rotary is None else family.rotary(twin, parts, _context(family, fields))
    for said in _candidates(family, fields, spoken(None, heads, None, None)):
        yield read_model(file, family, fields, said, None, tables, norms)


def make_module(text: str, path: Path) -> Any:
    """The module that `package.module:factory` makes of a file's path; a factory without parameters is called without.

    This runs code of the caller's choice. MalformedInput where there is no such factory, or it fails."""
    place, _, name = text.partition(":")
    if not place or not name:
        raise MalformedInput(f"--module takes package.module:factory, got {text!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    with callers_code(f"--module {text} is not found"):
        factory = getattr(import_module(place), name)
    if not callable(factory):
        raise MalformedInput(f"--module {text} is no function")
    takes = _takes_a_path(factory)
    with callers_code(f"--module {text} failed"):
        return factory(str(path)) if takes else factory()


def _takes_a_path(factory: Any) -> bool:
    """Whether a function has a parameter for a file's path; one that does not say takes it."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(factory).parameters.values()]
    except (TypeError, ValueError):
        return True
    return any(kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD) for kind in kinds)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MalformedInput("a live module needs torch, which is not installed") from error
    return torch


def in_float64(module: Any) -> Any:
    """A copy in float64 on the CPU, in evaluation mode. MalformedInput where it cannot be copied."""
    with callers_code(f"{type(module).__name__} cannot be copied to float64"):
        return copy.deepcopy(module).cpu().double().eval()


def live_tensors(module: Any) -> TensorFile:
    """The module's parameters and buffers; names that wrappers repeat for one tensor are taken once. MalformedInput for those
    that are not stored as dense numbers."""
    tensors, types, place = {}, {}, type(module).__name__
    with callers_code(f"{place} does not give its tensors"):
        held = module.state_dict()
    for name, value in held.items():
        clean = name.replace("._original_component", "").replace("_orig_mod.", "")
        if hasattr(value, "detach"):
            with callers_code(f"{place}: tensor {clean} is not stored as dense numbers"):
                tensors[clean] = value.detach().cpu().numpy().copy()  # a forward pass may change them
            types[clean] = "F64"
    return TensorFile(place, tensors, {}, types)


def attention_modules(module: Any, file: TensorFile, family: Family) -> dict[str, Any]:
    """The attention modules by their prefixes."""
    prefixes = find_layers(_Claims(file), family, None)
    with callers_code(f"{file.path} has tensors as {family.title} has, and not its parts"):
        return {prefix: module.get_submodule(prefix.rstrip(".")) for prefix in prefixes}


def _context(family: Family, fields: Mapping[str, Any]) -> int:
    """Positions to read rotations for: what the configuration says, within reason."""
    said = [value for name, value in fields.items() if name in family.config and family.config[name].fact == "context"]
    return min(max([ANY_LENGTH, *(n for n in said if isinstance(n, int))]), LONGEST)


def _candidates(
    family: Family, fields: Mapping[str, Any], said: dict[str, tuple[Any, str]]
) -> Iterator[dict[str, tuple[Any, str]]]:
    """What may be said where the family and the configuration leave facts open."""
    set_by_fields = {family.config[name].fact for name in fields if name in family.config}
    left = {name: values for name, values in OPEN.items() if name not in {*family.settled, *set_by_fields}}
    for values in product(*left.values()):
        yield {**said, **{name: (v, OWN_OUTPUTS) for name, v in zip(left, values, strict=True)}}


def module_outputs(module: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Tokens [n] -> the module's logits [n, outputs] in float64."""
    torch = _torch()

    def outputs(tokens: np.ndarray) -> np.ndarray:
        given = torch.from_numpy(np.asarray(tokens, dtype=np.int64))[None]
        with torch.no_grad(), callers_code(f"{type(module).__name__} does not run on tokens [1, {len(tokens)}]"):
            found = module(given)
            found = getattr(found, "logits", found)
        found = found[0] if isinstance(found, tuple | list) and found else found
        if not isinstance(found, torch.Tensor) or found.ndim not in (2, 3) or found.is_complex():
            raise MalformedInput(f"{type(module).__name__} gives no logits [batch, n, outputs]")
        with callers_code(f"{type(module).__name__} gives logits that are not stored as dense numbers"):
            array = np.asarray(found.detach().cpu().double().numpy())
        return array.reshape(-1, array.shape[-1])

    return outputs


def _examples(given: Any) -> list[np.ndarray]:
    """Tokens as a list of [n]."""
    if isinstance(given, list | tuple) and given and not isinstance(given[0], int | np.integer):
        return [row for part in given for row in _examples(part)]
    array = np.asarray(given.detach().cpu().numpy() if hasattr(given, "detach") else given)
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2) or not array.size:
        raise MalformedInput("example inputs are tokens: integers [n] or [batch, n], not empty")
    return list(np.atleast_2d(array))


def _checked(model: ImportedModel, tokens: np.ndarray) -> np.ndarray:
    model.one_hots(tokens)
    return tokens


def _difference(
    module: Any, reading: Reading, sequences: Sequence[np.ndarray], forward: Callable[[np.ndarray], np.ndarray]
) -> str:
    """Where the reading and the module differ first, stage by stage, on the sequence where outputs differ most."""
    gaps = [measured(reading, [t], [(reading.stages(t)["logits"], forward(t))]).relative_difference for t in sequences]
    at = int(np.argmax(gaps))  # NaN, where there is one
    worst = sequences[at]
    seen: dict[str, np.ndarray] = {}
    hooks = []

    def watch(layer: int) -> Callable[..., None]:
        def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            inputs = [v for v in (*args, *kwargs.values()) if hasattr(v, "detach") and v.is_floating_point() and v.ndim]
            outputs = [v for v in (output if isinstance(output, tuple | list) else [output]) if getattr(v, "ndim", 0)]
            for name, values in (("input of", inputs), ("attention of", outputs)):
                if values:
                    array = values[0].detach().cpu().double().numpy()
                    seen.setdefault(f"{name} layer {layer}", array.reshape(-1, array.shape[-1]))

        return hook

    for layer, prefix in enumerate(reading.prefixes):
        part = module.get_submodule(prefix.rstrip("."))
        hooks.append(part.register_forward_hook(watch(layer), with_kwargs=True))
    try:
        seen["logits"] = forward(worst)
    finally:
        for handle in hooks:
            handle.remove()
    stages = reading.stages(worst)
    taken = summary(ImportedModel(reading))
    for name, expected in stages.items():
        if name in seen and seen[name].shape == expected.shape:
            by = agreement([(expected, seen[name])]).relative_difference
            if not by <= AGREEMENT:
                return (
                    f"it was read as another function than its own forward pass computes: they differ first at the {name}, by "
                    f"{by:.3g} relative, on {len(worst)} tokens. It was taken as {taken}"
                )
    return f"its outputs differ from this reading's, by {gaps[at]:.3g} relative. It was taken as {taken}"
