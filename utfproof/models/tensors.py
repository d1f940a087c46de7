"""The tensors of a model file, claimed one by one by the roles that a family gives them; whatever is left over is refused.

The prefix of a family's attention modules is found, not fixed: names that differ in one number alone, which counts 0, 1, ... .
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.family import CANONICAL, Family, Tensor, split_axes
from utfproof.weights import TensorFile, as_float64

NOT_LINEAR = "it normalises, which is not linear (HOST own-norm, or from_normalised_model, is for models with norms)"
UNSUITABLE = (
    (r"(^|\.|_)(ln|norm|layer_?norm|rms_?norm|batch_?norm)[0-9]*(_|\.|$)", NOT_LINEAR),
    (r"(^|\.)(ln_|norm_)", NOT_LINEAR),
    (r"layernorm", NOT_LINEAR),
    (
        r"(^|\.)(mlp|ffn|ff|feed_?forward|experts?|fc|fc_?[0-9]+|c_fc|linear_?[0-9]+|W_in|W_out|W_gate)(\.|$)",
        "it belongs to an MLP, which is not linear",
    ),
    (r"(rotary|rope|inv_freq|freqs)", "positions that rotate queries and keys are not learned positions of the stream"),
    (r"(rel_?pos|relative|alibi|position_?bias)", "relative positions change the logits beside queries and keys"),
    (
        r"(^|\.)bias_[kv]$",
        "a key and value for no token (add_bias_kv): rows of attention to the tokens no longer sum to 1",
    ),
    (r"(sinks?|zero_attn|mem_[kv])$", "attention to no token: rows of attention to the tokens no longer sum to 1"),
    (r"(lora_|adapter)", "it changes other weights; merge it into them first"),
)
"""Patterns of names that no embedding can carry (or that this reader does not), with the reason."""


def listed(names: Iterable[str], most: int = 8) -> str:
    """The first few names, in order."""
    ordered = sorted(names)
    return ", ".join(ordered[:most]) + (f" and {len(ordered) - most} more" if len(ordered) > most else "")


@dataclass
class Claims:
    """A file's tensors, claimed one by one: whatever is left over is refused, since leaving it out would change the model."""

    file: TensorFile
    taken: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return name in self.file.tensors

    def take(self, name: str) -> np.ndarray:
        """A tensor as float64."""
        self.taken.add(name)
        return as_float64(self.file, name)

    def refuse_unsuitable(self) -> None:
        """MalformedInput for the first unclaimed tensor that belongs to something no embedding carries."""
        left = sorted(self.file.tensors.keys() - self.taken)
        for pattern, reason in UNSUITABLE:
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


@dataclass
class Axes:
    """The sizes of the letters of a family's axes, found from the shapes of its tensors and from what is said."""

    claims: Claims
    family: Family
    sizes: dict[str, int]
    sources: Mapping[str, str] = field(default_factory=dict)

    def solve(self, plan: Sequence[tuple[str, Tensor]]) -> None:
        """Find every letter. MalformedInput for a tensor that does not fit, or where nobody says the number of heads."""
        grouped = any("G" in entry.axes for _, entry in plan)
        if not grouped and "G" in self.sizes:
            said = self.sizes.pop("G")
            if self.sizes.setdefault("H", said) != said:
                raise self.claims.file.refuse(f"{said} heads of keys are said, the tensors hold {self.sizes['H']}")
        for _ in range(len(plan) + 1):
            before = dict(self.sizes)
            for name, entry in plan:
                self._fit(name, entry)
            if self.sizes == before:
                break
        if not grouped and "H" in self.sizes:
            self.sizes["G"] = self.sizes["H"]
        for letter in "HGd":
            if letter not in self.sizes:
                raise self.claims.file.refuse(
                    f"{self.family.title} does not store its number of heads: pass --heads, or its configuration"
                )

    def _fit(self, name: str, entry: Tensor) -> None:
        """Sizes of letters that this tensor's shape tells."""
        groups, shape = split_axes(entry.axes), self._shape(name, entry)
        if 0 in shape:
            raise self.claims.file.refuse(f"{name} has shape {list(shape)}: it holds no numbers")
        sizes = {**self.sizes, "c": len(entry.roles)}
        if len(groups) != len(shape):
            raise self._misfit(name, shape, groups, sizes)
        for letters, size in zip(groups, shape, strict=True):
            known = prod(sizes[letter] for letter in letters if letter in sizes)
            missing = [letter for letter in letters if letter not in sizes]
            if size % known or (not missing and known != size):
                raise self._misfit(name, shape, groups, sizes)
            if len(missing) == 1:
                self.sizes[missing[0]] = sizes[missing[0]] = size // known

    def _shape(self, name: str, entry: Tensor) -> tuple[int, ...]:
        """The stored shape, an axis of length one before positions left out."""
        shape = self.claims.file.tensors[name].shape
        if entry.roles == ("W_pos",):
            while len(shape) > 2 and shape[0] == 1:
                shape = shape[1:]
        return tuple(shape)

    def _misfit(
        self, name: str, shape: Sequence[int], groups: list[list[str]], sizes: Mapping[str, int]
    ) -> MalformedInput:
        def word(letters: list[str]) -> str:
            known = prod(sizes[letter] for letter in letters if letter in sizes)
            unknown = [letter for letter in letters if letter not in sizes]
            return str(known) if not unknown else ("any" if known == 1 else f"a multiple of {known}")

        known = [letter for letter in "HGdDVO" if letter in sizes and any(letter in group for group in groups)]
        said = ", ".join(f"{c} = {sizes[c]}" + (f" by {self.sources[c]}" if c in self.sources else "") for c in known)
        return self.claims.file.refuse(
            f"{name} has shape {list(shape)}, expected [{', '.join(map(word, groups))}] ({said})"
        )

    def take(self, name: str, entry: Tensor) -> dict[str, np.ndarray]:
        """The tensor's roles in canonical axes, as float64."""
        groups = split_axes(entry.axes)
        letters = [letter for group in groups for letter in group]
        sizes = {**self.sizes, "c": len(entry.roles)}
        array = self.claims.take(name).reshape([sizes[letter] for letter in letters])
        parts = np.moveaxis(array, letters.index("c"), 0) if "c" in letters else array[None]
        rest = [letter for letter in letters if letter != "c"]
        out = {}
        for role, part in zip(entry.roles, parts, strict=True):
            wanted = CANONICAL.get(role, " ".join(rest)).split()
            if "G" in wanted and "G" not in rest:
                wanted = ["H" if letter == "G" else letter for letter in wanted]
            out[role] = np.ascontiguousarray(part.transpose([rest.index(letter) for letter in wanted]))
        return out


def layer_prefixes(names: Iterable[str], family: Family) -> set[str]:
    """Prefixes of attention modules: names before the first mark of a set of marks that somewhere stands as a whole."""
    names = set(names)
    found = set()
    for marks in family.marks:
        ends = [name[: -len(marks[0])] for name in names if name.endswith(marks[0])]
        before = {end for end in ends if not end or end[-1] in "._"}
        if any(all(prefix + mark in names for mark in marks) for prefix in before):
            found |= before
    return found


def find_layers(claims: Claims, family: Family, template: str | None) -> list[str]:
    """Prefixes of the attention layers, in order. MalformedInput where the order is unclear or has gaps."""
    found = layer_prefixes(claims.file.tensors, family)
    if template is not None:
        before, after = template.split("{}")
        pattern = re.escape(before) + r"\d+" + re.escape(after.rstrip(".") + ".")
        found = {prefix for prefix in found if re.fullmatch(pattern, prefix)}
    if not found:
        claims.refuse_unsuitable()
        raise claims.file.refuse(f"no {' or '.join(marks[0] for marks in family.marks)} of {family.title} is found")
    if len(found) == 1:
        return list(found)
    parts = {tuple(re.split(r"(\d+)", prefix)) for prefix in found}
    lengths = {len(p) for p in parts}
    places = [i for i in range(min(lengths)) if len({p[i] for p in parts}) > 1] if len(lengths) == 1 else []
    if len(places) != 1 or places[0] % 2 == 0:
        raise claims.file.refuse(
            f"the order of the attention layers is unclear from {', '.join(sorted(found)[:6])}; "
            "say --names layers=PREFIX.{}.NAME"
        )
    ordered = sorted(parts, key=lambda p: int(p[places[0]]))
    numbers = [int(p[places[0]]) for p in ordered]
    if numbers != list(range(len(numbers))):
        raise claims.file.refuse(f"attention layers are numbered {numbers}, expected 0, 1, ... without a gap")
    return ["".join(p) for p in ordered]


ROLE_WORDS = {"embedding": "W_E", "pos": "W_pos", "unembed": "W_U"}
"""What --names calls the roles outside of layers."""


def parse_names(text: str | None) -> dict[str, str]:
    """--names: 'embedding=tok.weight,pos=wpe.weight,unembed=head.weight,layers=h.{}.attn' as a map from roles to names."""
    names: dict[str, str] = {}
    for part in [] if text is None else text.split(","):
        role, _, name = part.strip().partition("=")
        if role not in (*ROLE_WORDS, "layers") or not name:
            raise MalformedInput(
                f"--names takes ROLE=NAME with a role of {', '.join(ROLE_WORDS)}, layers; got {part!r}"
            )
        names[role] = name
    if "layers" in names and names["layers"].count("{}") != 1:
        raise MalformedInput(f"--names layers={names['layers']}: write {{}} where the number of the layer stands")
    return names


def find_outer(claims: Claims, family: Family, names: Mapping[str, str]) -> dict[str, str]:
    """The tensors outside of layers: role -> name, "" where there is none. The keys of `family.outer` are roles; several
    tensors for one role are refused."""
    said = {ROLE_WORDS[word]: name for word, name in names.items() if word in ROLE_WORDS}
    out = {}
    for role in family.outer:
        word = next((word for word, known in ROLE_WORDS.items() if known == role), "")
        if role in said:
            out[role] = said[role]
            if not claims.has(said[role]):
                claims.refuse_unsuitable()
                raise claims.file.refuse(f"tensor {said[role]} is missing; found {listed(claims.file.tensors)}")
            continue
        if role == "b_U" and out.get("W_U"):
            beside = out["W_U"].removesuffix("weight") + "bias"
            if out["W_U"].endswith("weight"):
                out[role] = beside if claims.has(beside) else ""
                continue
        patterns = family.outer_names[role]
        found = [n for n in claims.file.tensors if any(re.search(rf"(^|\.)({p})$", n) for p in patterns)]
        if len(found) > 1:
            raise claims.file.refuse(
                f"several tensors could be the {word or role}: {', '.join(sorted(found))}; say --names {word}=NAME"
            )
        if not found and role == "W_E":
            claims.refuse_unsuitable()
            known = ", ".join(pattern.replace("\\", "") for pattern in patterns)
            raise claims.file.refuse(
                f"no {word} is found (looked for {known}); say --names {word}=NAME. "
                f"The file holds {listed(claims.file.tensors)}"
            )
        out[role] = found[0] if found else ""
    return out
