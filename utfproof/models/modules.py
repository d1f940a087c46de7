"""A caller's torch.nn.Module: made, copied to float64, its tensors and outputs. Errors of its code are MalformedInput."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit, UtfproofError
from utfproof.models.reading import Forward
from utfproof.weights import TensorFile

TWIN = " in float64 and evaluation mode"
"""How `in_float64` runs a module, for people."""


def require_module(module: Any) -> None:
    """MalformedInput for what is no torch.nn.Module."""
    if not isinstance(module, require_torch().nn.Module):
        raise MalformedInput(f"from_model takes a torch.nn.Module, got {type(module).__name__}")


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


def require_torch() -> Any:
    """The torch package. MalformedInput where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise MalformedInput("a live module needs torch, which is not installed") from error
    return torch


def in_float64(module: Any) -> Any:
    """A copy in float64 on the CPU, in evaluation mode. MalformedInput where it cannot be copied."""
    with callers_code(f"{type(module).__name__} cannot be copied to float64"):
        twin = copy.deepcopy(module).cpu().double().eval()
        for part in twin.modules():
            if hasattr(getattr(part, "cfg", None), "dtype"):  # of TransformerLens, which computes in this type
                part.cfg.dtype = require_torch().float64
    return twin


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
                wide = value.float() if value.dtype == require_torch().bfloat16 else value  # which NumPy does not have
                tensors[clean] = wide.detach().cpu().numpy().copy()  # a forward pass may change them
            types[clean] = "F64"
    return TensorFile(place, tensors, {}, types)


def module_outputs(module: Any) -> Forward:
    """Tokens [batch, n] -> the module's logits [batch, n, outputs] in float64. module: a torch.nn.Module or a function of a
    tensor of tokens (int64)."""
    torch, place = require_torch(), getattr(module, "__name__", type(module).__name__)

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
