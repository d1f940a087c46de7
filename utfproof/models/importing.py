"""Models from files: the family is recognised by the names of the tensors, and what is said is checked against all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.attention import SoftmaxAttention, parse_kernel
from utfproof.errors import MalformedInput
from utfproof.models.comparison import AGREEMENT, compared, read_reference
from utfproof.models.coverage import Coverage
from utfproof.models.families import families
from utfproof.models.files import SUFFIXES, read_file
from utfproof.models.reader import read_model, recognise
from utfproof.models.reading import Reading
from utfproof.models.tensors import layer_prefixes

ANY_FAMILY = "auto"
SINGLE = 1e-4
"""Outputs that are computed in float32 differ by less."""


def layouts() -> tuple[str, ...]:
    """The names of all families, and `auto`, which finds the one whose names the file has."""
    return (ANY_FAMILY, *families())


def import_model(
    path: Path | str,
    layout: str = ANY_FAMILY,
    *,
    attention: str | None = None,
    heads: int | None = None,
    residual: bool | None = None,
    scale: str | None = None,
    config: Mapping[str, Any] | None = None,
    reference: Path | str | None = None,
    max_memory: int | None = None,
) -> Reading:
    """The model of a file in this layout.

    attention: whom a position sees (softmax, causal, window:W). heads and residual: what a PyTorch state dict does not show.
    scale: what logits are multiplied by. config: its configuration, every field of which must be known. reference: a file of
    tokens or inputs and the model's own logits, with which the reading must agree.
    Raises MalformedInput with the tensor, the field or the first difference.
    """
    if layout not in layouts():
        raise MalformedInput(f"layout {layout!r} is unknown; choose {', '.join(layouts())}")
    said = spoken(attention, heads, residual, scale)
    file = read_file(path, max_memory)
    family = recognise(file) if layout == ANY_FAMILY else families()[layout]
    if not layer_prefixes(file, family.marks):
        for other in families().values():
            if layer_prefixes(file, other.marks):
                raise file.refuse(
                    f"--layout {family.name} is for {family.title}; this file looks like {other.title}: "
                    f"--layout {other.name}"
                )
    reading = read_model(file, family, config, said)
    return reading if reference is None else with_reference(reading, reference, max_memory)


def attention_kernel(text: str) -> SoftmaxAttention:
    """A kernel that is said on the command line: softmax, causal, window:W or a combination. The scale is in W_Q already."""
    kernel = parse_kernel(text, 1, 2)
    if kernel != SoftmaxAttention(causal=getattr(kernel, "causal", False), window=getattr(kernel, "window", None)):
        raise MalformedInput(
            f"attention {text!r}: imported models take softmax, causal, window:W or a combination (their scale is in W_Q)"
        )
    assert isinstance(kernel, SoftmaxAttention)
    return kernel


def parse_scale(text: str) -> float | str:
    """What logits are multiplied by: '1/sqrt(d)' or a positive number."""
    if text == "1/sqrt(d)":
        return text
    try:
        scale = float(text)
    except ValueError:
        scale = float("nan")
    if not (np.isfinite(scale) and scale > 0):
        raise MalformedInput(f"--scale {text!r} is neither '1/sqrt(d)' nor a positive number")
    return scale


def spoken(
    attention: str | None, heads: int | None, residual: bool | None, scale: str | None
) -> dict[str, tuple[Any, str]]:
    """Facts that options say."""
    said: dict[str, tuple[Any, str]] = {}
    if attention is not None:
        kernel = attention_kernel(attention)
        said |= {"causal": (kernel.causal, "--attention"), "window": (kernel.window or 0, "--attention")}
    if scale is not None:
        said["scale"] = (parse_scale(scale), "--scale")
    if heads is not None:
        said["heads"] = (heads, "--heads")
    if residual is not None:
        said["stream"] = (residual, "--residual" if residual else "--no-residual")
    return said


def with_reference(reading: Reading, path: Path | str, max_memory: int | None = None) -> Reading:
    """The reading with outputs that the model was seen to give. MalformedInput where the reading does not give them."""
    references = read_reference(path, reading, max_memory)
    found = compared(reading, ((x, reading.original(x), logits) for x, logits in references))
    if not found.within(AGREEMENT):
        first = "" if found.first is None else f"; first on {found.first.words('the reading gives', 'the file says')}"
        raise MalformedInput(
            f"{path}: this reading of the file gives other outputs than the reference, by "
            f"{found.relative_difference:.3g} relative{first}{_rounded(reading, found.relative_difference)}: "
            f"it was taken as {reading.summary()}"
        )
    coverage = Coverage.of((x for x, _ in references), reading.vocabulary)
    witness = f"the outputs in {Path(path).name}"
    return replace(
        reading, witness=witness, coverage=coverage, references=references, difference=found.relative_difference
    )


def _rounded(reading: Reading, difference: float) -> str:
    """What to do where float32 may be all that a reading and its reference differ by."""
    if not difference < SINGLE:
        return ""
    rotary = any(layer.rotary is not None for layer in reading.attention.layers)
    live = "; a model may compute rotations in float32 even so: --module compares it live" if rotary else ""
    return f", as float32 leaves it: compute the reference in float64 (model.double()){live}"


def refuse_models(path: Path | str, max_memory: int | None = None) -> None:
    """MalformedInput for a file that is no target of the package's own layout and looks like a model, saying of which."""
    path = Path(path)
    if not path.is_file() or not path.name.endswith(SUFFIXES):
        return
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy") as stored:
                if "W_O" in stored.keys():  # noqa: SIM118 - not a dict
                    return
        except SafetensorError:
            return
    file = read_file(path, max_memory)
    for family in families().values():
        if layer_prefixes(file, family.marks):
            raise file.refuse(f"this file looks like {family.title}: say --layout {family.name}, or --layout auto")
