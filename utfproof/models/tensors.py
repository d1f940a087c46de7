"""The tensors of a model's file, claimed one by one; whatever is left over is refused, since leaving it out would change the
model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from utfproof.weights import TensorFile, as_float64

NORMS, MLPS = "docs/proofs/normalisation.md", "docs/proofs/gated-mlp.md"
OBSTACLES = (
    ("norms", NORMS, r"(^|\.|_)(ln|norm|layer_?norm|rms_?norm|batch_?norm)[0-9]*(_|\.|$)|(^|\.)(ln_|norm_)|layernorm",
     "it normalises: no host without norms matches almost any model with a norm after a layer or at the end; the first "
     "layer's attention is exact: pass --module, --tokens and --positions (from_model in Python)"),
    ("MLPs", MLPS, r"(^|\.)(mlp|ffn|ff|feed_?forward|experts?|fc|fc_?[0-9]+|c_fc|linear_?[0-9]+|W_in|W_out|W_gate)(\.|$)",
     "it belongs to an MLP: no softmax host without MLPs gives a relu on all contexts; hosts with gated MLPs serve models "
     "without norms (from_parts in Python), and the first layer's attention is exact: --module, --tokens, --positions"),
    ("rotations", "", r"(rotary|rope|inv_freq|freqs)",
     "positions that rotate queries and keys are not learned positions of the stream"),
    ("relative positions", "", r"(rel_?pos|relative|alibi|position_?bias)",
     "relative positions change the logits beside queries and keys"),
    ("sinks", "", r"(bias_[kv]|sinks?|zero_attn|mem_[kv])$",
     "attention to no token: rows over the tokens no longer sum to 1"),
    ("adapters", "", r"(lora_|adapter)", "it changes other weights; merge it into them first"),
)  # fmt: skip
"""What no embedding carries (or this reader does not): its name, the page with the proof, names of tensors, the reason."""


def listed(names: Iterable[str], most: int = 8) -> str:
    """The first few names, in order."""
    ordered = sorted(names)
    return ", ".join(ordered[:most]) + (f" and {len(ordered) - most} more" if len(ordered) > most else "")


@dataclass
class Claims:
    """A file's tensors, and which of them were taken."""

    file: TensorFile
    taken: set[str] = field(default_factory=set)

    def axes(self, name: str, count: int) -> tuple[int, ...]:
        """The sizes of a tensor's axes, all at least 1. MalformedInput where it is missing or has another number of axes."""
        if name not in self.file.tensors:
            self.refuse_unsuitable()
            raise self.file.refuse(f"tensor {name} is missing; the file holds {listed(self.file.tensors)}")
        shape = self.file.tensors[name].shape
        if len(shape) != count or 0 in shape:
            raise self.file.refuse(f"{name} has shape {list(shape)}, expected {count} axes, none of them empty")
        return tuple(int(n) for n in shape)

    def take(self, name: str, shape: tuple[int, ...], optional: bool = False) -> np.ndarray:
        """A tensor of this shape as float64; optional: zeros where there is none."""
        if optional and name not in self.file.tensors:
            return np.zeros(shape)
        found = self.axes(name, len(shape))
        if found != shape:
            raise self.file.refuse(f"{name} has shape {list(found)}, expected {list(shape)}")
        self.taken.add(name)
        return as_float64(self.file, name)

    def refuse_unsuitable(self) -> None:
        """MalformedInput for the first unclaimed tensor that belongs to something no embedding carries."""
        left = sorted(self.file.tensors.keys() - self.taken)
        for _, _, pattern, reason in OBSTACLES:
            for name in left:
                if re.search(pattern, name):
                    raise self.file.refuse(f"tensor {name} cannot be carried by an embedding: {reason}")

    def finish(self) -> None:
        """MalformedInput for any tensor that nobody claimed."""
        self.refuse_unsuitable()
        left = self.file.tensors.keys() - self.taken
        if left:
            raise self.file.refuse(
                f"tensor {listed(left)} is not understood, and leaving it out would change the model"
            )


def layer_prefixes(file: TensorFile, marks: tuple[str, ...]) -> list[str]:
    """The prefixes of the tensors' names, such as "blocks.0.attn.": one for each layer, in order. Empty where no
    prefix has all the marks; MalformedInput where their order is unclear or has gaps."""
    ends = {name[: -len(marks[0])] for name in file.tensors if name.endswith(marks[0])}
    found = {end for end in ends if not end or end[-1] == "."}
    if not any(all(prefix + mark in file.tensors for mark in marks) for prefix in found):
        return []
    if len(found) == 1:
        return list(found)
    parts = {tuple(re.split(r"(\d+)", prefix)) for prefix in found}
    places = [i for i, column in enumerate(zip(*parts, strict=False)) if len(set(column)) > 1]
    if len({len(part) for part in parts}) > 1 or len(places) != 1 or places[0] % 2 == 0:
        raise file.refuse(f"the order of the attention layers is unclear from {listed(found, 6)}")
    ordered = sorted(parts, key=lambda part: int(part[places[0]]))
    numbers = [int(part[places[0]]) for part in ordered]
    if numbers != list(range(len(numbers))):
        raise file.refuse(f"attention layers are numbered {numbers}, expected 0, 1, ... without a gap")
    return ["".join(part) for part in ordered]
