"""Tensors that hold no weights: masks, lists of positions, frequencies and slopes that libraries store; MLPs that add nothing.

Each is claimed only where its numbers are those of the model as it was read: leaving out any other would change the model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from utfproof.attention import visible
from utfproof.models.attention import LayerAttention
from utfproof.models.facts import Facts
from utfproof.models.family import Family
from utfproof.models.tensors import Claims

MASKS = ("mask", "attn_mask", "causal_mask")
HIDDEN = -1e4
"""Logits that hide a key are this or less: exp of it is nothing in every number type."""
FREQUENCIES = "inv_freq"
SLOPES = "slopes"
HALF = ("F16", "BF16")

_MLP = r"(?:mlp|ffn|ff|feed_?forward)\."
_FIRST = r"(?:c_fc|fc_?1|fc_in|linear_?1|gate_proj|up_proj|in|gate)\.(?:weight|bias)|[Wb]_in|[Wb]_gate"
_LAST = r"(?:c_proj|fc_?2|fc_out|linear_?2|down_proj|out)\.(?:weight|bias)|[Wb]_out"
_BARE = r"(?:fc_?[12]|linear_?[12])\.(?:weight|bias)"


def take_bookkeeping(
    claims: Claims,
    family: Family,
    layers: Sequence[LayerAttention],
    prefixes: Sequence[str],
    blocks: Sequence[str],
    beside: str = "",
    unused: bool = False,
) -> tuple[str, ...]:
    """Claim the tensors that hold no weights, and name them. blocks: what holds each attention module, "" for one without a
    residual stream, whose MLP would not be added to anything; beside: the norm in a block that its MLP alone reads; unused:
    masks are known to be left alone where attention looks both ways."""
    found = []
    for name in sorted(claims.file.tensors.keys() - claims.taken):
        if _holds_no_weights(claims, family, name, layers, prefixes, unused):
            found.append(name)
    claims.taken.update(found)
    for block in blocks:
        idle = idle_mlp(claims, block)
        if idle and beside:
            idle += [name for name in sorted(claims.file.tensors) if name.rpartition(".")[0] == block + beside]
        claims.taken.update(idle)
        found += idle
    return tuple(found)


def _holds_no_weights(
    claims: Claims,
    family: Family,
    name: str,
    layers: Sequence[LayerAttention],
    prefixes: Sequence[str],
    unused: bool,
) -> bool:
    """Whether it is bookkeeping. MalformedInput where it is, and is not that of the model as it was read."""
    array, last = claims.file.tensors[name], name.rsplit(".", 1)[-1]
    buffer = any(re.search(pattern, name) for pattern in family.buffers)
    if last in ("IGNORE", "masked_bias"):
        return bool(array.size == 1 and array.reshape(-1)[0] <= HIDDEN)
    if last == "position_ids":
        if not np.array_equal(array.reshape(-1), np.arange(array.size)):
            raise claims.file.refuse(f"{name} are not 0, 1, ... in order: the model takes its positions in another one")
        return True
    if buffer and last == SLOPES:
        used = [slope for layer in layers for slope in layer.slopes] or [0.0]
        if not all(np.isclose(used, slope, rtol=1e-6, atol=0).any() for slope in array.reshape(-1)):
            raise claims.file.refuse(f"{name} holds slopes of ALiBi that are not those of the attention as it was read")
        return True
    if last in MASKS or (buffer and array.ndim > 1):
        own = [layer for layer, prefix in zip(layers, prefixes, strict=True) if name.startswith(prefix)]
        for layer in own or layers:
            _require_mask(claims, name, array, layer, unused and not layer.causal)
        return True
    return False


def _require_mask(claims: Claims, name: str, array: np.ndarray, layer: LayerAttention, unused: bool) -> None:
    """A stored mask [..., n, n] says who sees whom: true (or 0, where masks are added) for visible keys. One that is not used,
    or has no entries, says nothing."""
    file = claims.file
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.size != array.shape[-1] ** 2:
        raise file.refuse(f"{name} has shape {list(array.shape)}, expected a mask [n, n]")
    if unused or not array.size:
        return
    stored, places = array.reshape(array.shape[-2:]), np.arange(array.shape[-1])
    added = bool((stored < 0).any())
    seen = stored == 0 if added else stored != 0
    if not ((stored <= HIDDEN) | seen if added else (stored == 1) | ~seen).all():
        raise file.refuse(
            f"{name} is no mask: it holds other numbers than 0 and 1, or 0 and what hides ({HIDDEN:g} or less)"
        )
    shown = visible(places, places, causal=layer.causal, window=layer.window)
    wanted = np.ones_like(seen) if shown is None else shown
    if not (np.array_equal(seen, wanted) or np.array_equal(~seen, wanted)):
        raise file.refuse(
            f"{name} is not the mask of --attention, or of the configuration: for it {layer.words()} is expected"
        )


def idle_mlp(claims: Claims, block: str) -> list[str]:
    """The tensors of a block's MLP if it adds exactly nothing, its last matrix and bias being zero; else, and where one of its
    tensors is of no known place in an MLP, none."""
    inside = re.compile(re.escape(block) + (f"(?:{_MLP}|(?={_BARE}$))" if block else _MLP) + r"(.*)")
    left = sorted(claims.file.tensors.keys() - claims.taken)
    parts = {name: match[1] for name in left if (match := inside.match(name))}
    last = [name for name, part in parts.items() if re.fullmatch(_LAST, part)]
    known = all(re.fullmatch(f"{_FIRST}|{_LAST}", part) for part in parts.values())
    matrices = [name for name in last if claims.file.tensors[name].ndim == 2]
    if not known or not matrices or any(np.any(claims.file.tensors[name]) for name in last):
        return []
    return list(parts)


def read_frequencies(claims: Claims, family: Family, facts: Facts, positions: str | None, *, rotated: bool) -> None:
    """Claim stored frequencies base^(-i/r) [r] of rotated positions, which have to be those of the base that is said, or that
    is assumed where nobody says it: then they say it. MalformedInput for others. rotated: the model's own tables are known,
    and whatever it makes them of is left to it."""
    for name in sorted(claims.file.tensors.keys() - claims.taken):
        if name.rsplit(".", 1)[-1] != FREQUENCIES or not any(re.search(p, name) for p in family.buffers):
            continue
        stored = claims.take(name)
        if rotated:
            continue
        if positions != "rotary":
            said = facts.sources.get("positions", "no configuration")
            raise claims.file.refuse(
                f"{name} holds positions that rotate queries and keys, and {said} says {positions}: give the configuration"
            )
        if stored.ndim != 1 or not stored.size:
            raise claims.file.refuse(f"{name} has shape {list(stored.shape)}, expected frequencies [r]")
        base = facts.get("rotary_base", family.assumed["rotary_base"])
        usual = float(base) ** (-np.arange(stored.size) / stored.size)
        if not np.allclose(stored, usual, rtol=2**-7 if claims.file.types.get(name) in HALF else 1e-5, atol=0):
            who = facts.sources.get("rotary_base", "which is assumed: nobody says it; give the configuration")
            raise claims.file.refuse(f"{name} holds other frequencies than those of base {base:g} ({who})")
        if facts.get("rotary_base") is None:
            facts.set("rotary_base", base, f"tensor {name}")
        facts.set("frequencies", 2 * stored.size, f"tensor {name}")
        if facts.get("rotary_dim") is None:
            facts.set("rotary_dim", 2 * stored.size, f"tensor {name}")
