"""A model's norms, as its tensors and facts show them: of which kind, where, with which gains and biases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from utfproof.errors import Undecided
from utfproof.models.bookkeeping import idle_mlp
from utfproof.models.facts import Facts, short
from utfproof.models.family import Family
from utfproof.models.norms import NormTensors, OwnNorm, blocks, folded, not_served
from utfproof.models.tensors import UNSUITABLE, Claims

MLP_NAMES = next(pattern for pattern, reason in UNSUITABLE if "MLP" in reason)


def read_norms(
    claims: Claims, family: Family, facts: Facts, arrays: dict[str, np.ndarray], prefixes: list[str]
) -> tuple[OwnNorm, dict[str, np.ndarray]]:
    """The norm, and the arrays with its gains and biases in them. MalformedInput for models that no host serves, Undecided
    where that is not known."""
    stored, file = family.norms, claims.file
    if stored is None:
        raise file.refuse(f"models with norms are not read from {family.title}")
    kind, places, first, final = _where(claims, stored, facts, prefixes)
    if kind not in stored.kinds or not (first or final):
        who = facts.sources.get("norm")
        why = "nobody says which norm the model has: give the configuration"
        if who is not None or stored.shown:
            why = f"{who or 'no tensor'} says no norm"
        raise file.refuse(f"{why}; this host is for models that have one")
    for name in stored.needs:
        if facts.get(name) is not True:
            found = short(facts.get(name)) if facts.get(name) is not None else "nobody says it"
            raise file.refuse(f"norms are read where they stand before the attention ({name} = True): {found}")
    eps = facts.get("eps")
    if not isinstance(eps, int | float) or isinstance(eps, bool):
        raise file.refuse(
            f"nobody says eps, which is added to the mean square, found {short(eps)}: give the configuration"
        )
    gains = _gains(claims, facts, stored.parts[kind], stored.optional, places, arrays["W_E"].shape[1])
    norm = OwnNorm(stored.kinds[kind], float(eps), final, first)
    arrays = folded(arrays, gains if first else [*([()] * len(prefixes)), *gains], final)
    why, known = not_served(norm, arrays, facts.get("positions") == "shortformer")
    if why:
        raise file.refuse(why) if known else Undecided(str(file.refuse(why)))
    _refuse_mlps(claims, blocks(prefixes))
    return norm, arrays


def _refuse_mlps(claims: Claims, around: Sequence[str]) -> None:
    """MalformedInput for an MLP that adds something: by its own name, before the norm that it reads is one too many."""
    idle = {name for block in around for name in idle_mlp(claims, block)}
    for name in sorted(claims.file.tensors.keys() - claims.taken):
        if re.search(MLP_NAMES, name) and name not in idle:
            raise claims.file.refuse(
                f"tensor {name} belongs to an MLP whose last matrix and bias are not zero: hosts with a norm of their own have "
                "no MLPs (docs/embed-your-model.md)"
            )


def _gains(
    claims: Claims, facts: Facts, parts: Sequence[str], optional: Iterable[str], places: Sequence[str], width: int
) -> list[tuple[np.ndarray, ...]]:
    """Gain and bias [D] of each norm, as far as they are stored; one number stands for all coordinates. MalformedInput where
    one is missing or has another shape."""
    gains = []
    for place in places:
        found: list[np.ndarray] = []
        for name in (place + part for part in parts if part not in optional or claims.has(place + part)):
            if not claims.has(name):
                who = facts.sources.get("norm", "another norm's tensor")
                raise claims.file.refuse(f"{who} says {facts.get('norm', 'a norm')}, and tensor {name} is missing")
            part = claims.take(name)
            if part.shape not in ((width,), (1,)):
                raise claims.file.refuse(f"{name} has shape {list(part.shape)}, expected [{width}]")
            found.append(np.broadcast_to(part, (width,)) + (0.0 if found else facts.get("offset", 0.0)))
        gains.append(tuple(found))
    return gains


def _where(claims: Claims, stored: NormTensors, facts: Facts, prefixes: list[str]) -> tuple[str, list[str], bool, bool]:
    """Which norm (the fact), the names of its tensors up to the last dot, whether there is one before each layer and whether
    there is one at the end."""
    kind = facts.get("norm", "none")
    gain = (stored.parts[stored.shown or kind] if stored.shown or kind in stored.kinds else ()) or ("",)
    before = stored.places(prefixes)
    last = stored.at_end(claims.file.tensors, gain[0]) if gain[0] else []
    if len(last) > 1:
        raise claims.file.refuse(f"several tensors could be the last norm's gain: {', '.join(last)}")
    if stored.shown:
        first, final = any(claims.has(place + gain[0]) for place in before), bool(last)
        kind = stored.shown
    else:
        first, final = bool(facts.get("first", True)), bool(facts.get("final", True))
    end = last[0] if last else f"{stored.last}."
    return kind, before * first + [end] * final, first, final
