"""The plain-Python route of `free_algebra`: words as tuples, polynomials as dicts, own multiplication."""

from __future__ import annotations

from utfproof.exact.symbolic import statements
from utfproof.exact.symbolic.statements import HOST, KINDS, PREFIXES, TARGET, ClosedWord, Equation, Systems, U
from utfproof.exact.symbolic.words import (
    Letter,
    Polynomial,
    add,
    collect,
    multiply,
    one,
    renamed,
    rewritten,
)
from utfproof.shapes import head_words

Comparisons = dict[str, tuple[Polynomial, Polynomial]]


def layer_inputs(systems: Systems, system: str) -> list[Polynomial]:
    """X^0, X^1, ..., X^L by the layer recursion."""
    out = [one(*systems.start(system))]
    for layer in range(1, systems.layers + 1):
        heads = range(systems.heads)
        parts = [
            multiply(one(systems.attention(system, layer, head)), out[-1], one(systems.value(system, layer, head)))
            for head in heads
        ]
        out.append(add(*parts))
    return out


def unrolling(systems: Systems, system: str, closed: ClosedWord) -> Comparisons:
    """X^l by recursion against the sum of closed words, for every l."""
    return {
        f"X^{layer}": (
            found,
            collect((closed(systems, system, word), 1) for word in head_words(systems.heads, layer)),
        )
        for layer, found in enumerate(layer_inputs(systems, system))
    }


def unrolling_step(systems: Systems, system: str) -> Comparisons:
    """One layer applied to indeterminate summands, against the summands of the longer words."""
    before = add(*(one(*statements.step_summand(systems, system, prefix)) for prefix in PREFIXES))
    after: Polynomial = {}
    for head in range(systems.heads):
        left = one(systems.attention(system, "l", head))
        after = add(after, multiply(left, before, one(systems.value(system, "l", head))))
    words = (
        statements.step_closed(systems, system, prefix, head) for prefix in PREFIXES for head in range(systems.heads)
    )
    return {"X^l from X^(l-1)": (after, collect((word, 1) for word in words))}


def agreement(
    systems: Systems, *, literal: bool = False, output: bool = False, dropped: Equation | None = None
) -> Comparisons:
    """Queries and keys (and outputs) of target and host after rewriting; attention is identified layer by layer.

    literal: the last layer only, with its own equations, and no earlier attention letters identified.
    """
    target, host = layer_inputs(systems, TARGET), layer_inputs(systems, HOST)
    same: dict[Letter, Letter] = {}
    out: Comparisons = {}
    for layer in range(systems.layers if literal else 1, systems.layers + 1):
        established = {}
        for head in range(systems.heads):
            agree = True
            for kind in KINDS:
                left = multiply(target[layer - 1], one(systems.reader(TARGET, kind, layer, head)))
                right = multiply(host[layer - 1], one(systems.reader(HOST, kind, layer, head)))
                right = rewritten(renamed(right, same), systems.rules(kind, layer, dropped))
                out[f"{kind}[{layer},{head}]"] = (left, right)
                agree = agree and left == right
            if agree:
                established[systems.attention(HOST, layer, head)] = systems.attention(TARGET, layer, head)
        same |= established
    if output:
        right = rewritten(renamed(multiply(host[-1], one(U)), same), systems.rules("OV", systems.layers, dropped))
        out["OV"] = (target[-1], right)
    return out


def agreement_step(systems: Systems, *, literal: bool = False) -> Comparisons:
    """The same for indeterminate prefix words, whatever the layer."""
    target = add(*(one(*statements.step_summand(systems, TARGET, prefix)) for prefix in PREFIXES))
    host = add(*(one(*statements.step_summand(systems, HOST, prefix)) for prefix in PREFIXES))
    same = (
        {} if literal else {statements.step_attention(HOST, p): statements.step_attention(TARGET, p) for p in PREFIXES}
    )
    out = {}
    for label, theirs, ours in statements.step_readers(systems):
        rules = {
            (statements.E, statements.step_value(HOST, p), *ours): (statements.step_value(TARGET, p), *theirs)
            for p in PREFIXES
        }
        left, right = multiply(target, one(*theirs)), multiply(host, one(*ours))
        out[label] = (left, rewritten(renamed(right, same), rules))
    return out
