"""A live torch.nn.Module is the authority on what it computes: its reading is compared with its own forward pass."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit, UtfproofError
from utfproof.models.comparison import AGREEMENT, Agreement, Comparison, Coverage
from utfproof.models.layouts import Layout, read_model, recognise, settings_of
from utfproof.models.probes import batches, probes, sequences
from utfproof.models.reading import LONGEST, Forward, Reading
from utfproof.models.tensors import layer_prefixes
from utfproof.weights import TensorFile

OWN_OUTPUTS = "the module's own outputs"
OPEN = {"residual": (True, False), "attention_dir": ("causal", "bidirectional")}
"""Fields that a layout may leave open, which the module's own outputs then decide."""
TWIN = " in float64 and evaluation mode"
"""How `in_float64` runs a module, for people."""
SINGLE = 1e-5
"""Outputs that are computed in float32 differ by less."""
FEW = 16
"""Sequences that are enough to tell one reading from another."""


def whole_model(module: Any, seed: int = 0) -> Reading:
    """The whole model of a live module by its layout, compared with the module's own forward pass in float64.

    The module is copied, never changed. Raises MalformedInput naming the tensor or the field that no embedding carries, or the
    first output at which the reading and the module differ.
    """
    require_module(module)
    twin = in_float64(module)
    file, forward = live_tensors(twin), module_outputs(twin)
    found: list[tuple[Reading, Agreement]] = []
    for reading in _readings(twin, file):
        few = [tokens for tokens, _ in zip(sequences(reading, seed), range(FEW), strict=False)]
        found.append((reading, _agreement(reading, forward, batches(reading, iter(few)))[0]))
        if found[-1][1].within(AGREEMENT):
            witness = f"the forward pass of {type(module).__name__}{TWIN}"
            return confirmed(reading, forward, witness, seed)
    raise file.refuse(_differs(*min(found, key=lambda pair: np.nan_to_num(pair[1].relative_difference, nan=np.inf))))


def require_module(module: Any) -> None:
    """MalformedInput for what is no torch.nn.Module."""
    if not isinstance(module, _torch().nn.Module):
        raise MalformedInput(f"from_model takes a torch.nn.Module, got {type(module).__name__}")


def confirmed(reading: Reading, forward: Forward, witness: str, seed: int = 0) -> Reading:
    """The reading with the module's own outputs as its witness, compared on `probes`. MalformedInput with the first output that
    differs."""
    agreement, coverage = _agreement(reading, forward, probes(reading, seed))
    if not agreement.within(AGREEMENT):
        raise MalformedInput(f"{witness}: {_differs(reading, agreement)}")
    difference = agreement.relative_difference
    return replace(reading, witness=witness, coverage=coverage, forward=forward, difference=difference, unknown=())


def _agreement(reading: Reading, forward: Forward, tried: Iterable[np.ndarray]) -> tuple[Agreement, Coverage]:
    """The reading against the module's outputs on batches of tokens, up to the first difference, and what was compared."""
    comparison, seen, largest = Comparison(reading.arrays["b_U"]), [], 0
    for batch in tried:
        expected = forward(batch)
        wanted = (*batch.shape, reading.shape.d_out)
        if expected.shape != wanted:
            raise MalformedInput(f"its outputs have shape {list(expected.shape)}, its tensors say {list(wanted)}")
        for row, (tokens, logits) in enumerate(zip(batch, expected, strict=True)):
            found, told = reading.original(tokens), tokens if reading.ids is None else reading.ids[tokens]
            comparison.add(told, found, logits)
            if row % 4 == 1:  # alone: an answer must not depend on the batch
                comparison.add(told, found, forward(tokens[None])[0])
        seen += list(batch)
        largest = max(largest, len(batch))
        if comparison.first is not None and not comparison.result().within(AGREEMENT):
            break
    return comparison.result(), Coverage.of(seen, reading.vocabulary, largest)


def _differs(reading: Reading, agreement: Agreement) -> str:
    """Where a reading and the module differ first."""
    single = " (float32 somewhere in it would explain so little)" if agreement.within(SINGLE) else ""
    first = "" if agreement.first is None else f" First on {agreement.first.words('the reading gives', 'the module')}."
    return (
        "it was read as another function than its own forward pass computes: outputs differ by "
        f"{agreement.relative_difference:.3g} relative{single}.{first} It was taken as {reading.summary()}"
    )


def _readings(twin: Any, file: TensorFile) -> Iterator[Reading]:
    """The module by its layout, once for every value of the fields that layout and configuration leave open."""
    layout = recognise(file)
    with callers_code(f"{file.path} has tensors as {layout.title} has, and not its parts; read it with from_parts"):
        fields, tables = _live_fields(twin, file, layout)
    settled = settings_of(file, layout, fields, strict=False)
    left = {name: values for name, values in OPEN.items() if settled.get(name) is None}
    for values in product(*left.values()):
        settings = settings_of(file, layout, fields, strict=False)
        for name, value in zip(left, values, strict=True):
            settings.say(name, value, OWN_OUTPUTS)
        yield read_model(layout, settings, tables)


def _live_fields(twin: Any, file: TensorFile, layout: Layout) -> tuple[dict[str, Any], Any]:
    """A module's configuration and, for a bridge, its own cos and sin of rotated positions [P, r]. The module is made to
    compute in float64 throughout."""
    if layout.family == "pytorch":
        parts = [twin.get_submodule(prefix.rstrip(".")) for prefix in layer_prefixes(file, layout.marks)]
        odd = {name: any(getattr(p, name) not in (None, False) for p in parts) for name in ("add_zero_attn", "bias_k")}
        return {"num_heads": parts[0].num_heads, **odd}, None
    tables = None
    for part in twin.modules():
        if hasattr(part, "cfg") and hasattr(part.cfg, "dtype"):
            part.cfg.dtype = _torch().float64
        if hasattr(part, "cos_cached") and tables is None:
            held = (getattr(part, name)[:LONGEST, ::2] for name in ("cos_cached", "sin_cached"))
            tables = tuple(x.double().cpu().numpy() for x in held)
    held = twin.cfg
    fields = dict(held.to_dict() if hasattr(held, "to_dict") else vars(held))
    for name in ("use_NTK_by_parts_rope", "use_yarn_rope"):
        fields.pop(name, None)  # its own tables hold the rotation
    return fields, tables


@contextmanager
def callers_code(doing: str) -> Iterator[None]:
    """Code of the caller's choice runs here: whatever ends it is MalformedInput, sys.exit too, whose code would pass for a
    verdict; ResourceLimit where memory is used up. Ctrl-C stays an interrupt."""
    try:
        yield
    except (KeyboardInterrupt, UtfproofError):
        raise
    except MemoryError as error:
        raise ResourceLimit(f"{doing}: out of memory") from error
    except BaseException as error:
        lines = str(error).splitlines() or [""]
        said = f"sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"{type(error).__name__}: {lines[0]}"
        raise MalformedInput(f"{doing}: {said[:200]}") from error


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
    with callers_code(f"--module {text} failed"):
        return factory(str(path)) if inspect.signature(factory).parameters else factory()


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


def module_outputs(module: Any) -> Forward:
    """Tokens [batch, n] -> the module's logits [batch, n, outputs] in float64. module: a torch.nn.Module or a function of a
    tensor of tokens (int64)."""
    torch, place = _torch(), getattr(module, "__name__", type(module).__name__)

    def outputs(tokens: np.ndarray) -> np.ndarray:
        given = torch.from_numpy(np.asarray(tokens, dtype=np.int64))
        with torch.no_grad(), callers_code(f"{place} does not run on tokens {list(tokens.shape)}"):
            found = module(given)
            found = getattr(found, "logits", found)
        found = found[0] if isinstance(found, tuple | list) and found else found
        if not isinstance(found, torch.Tensor) or found.ndim not in (2, 3) or found.is_complex():
            raise MalformedInput(f"{place} gives no logits [batch, n, outputs]")
        with callers_code(f"{place} gives logits that are not stored as dense numbers"):
            array = np.asarray(found.detach().cpu().double().numpy())
        return array[None] if array.ndim == 2 and len(tokens) == 1 else array

    return outputs
