"""Faults that the claims about hosts below M must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "shared-key identity: the form of the first letter",
        "utfproof.constructions.shared_key",
        'f"A{len(word)}.{word[-1]}"] for word',
        'f"A{len(word)}.{word[0]}"] for word',
        ("new:shared-key",),
    ),
    Fault(
        "shared-query identity: one form too few is undone",
        "utfproof.constructions.shared_query",
        "for later in range(layer, L + 1)]",
        "for later in range(layer + 1, L + 1)]",
        ("new:shared-query", "new:fibre/diagonal", "new:attention-matching/single-head"),
    ),
    Fault(
        "shared-key embedding: logit form transposed",
        "utfproof.constructions.shared_key",
        "prefixes[w] @ target.attention_form(length, head)",
        "prefixes[w] @ target.attention_form(length, head).T",
        ("new:shared/emulation", "new:shared/width", "new:shared/rope"),
    ),
    Fault(
        "separate attention sees the logits only",
        "utfproof.claims.plain",
        "            weights.append(1 + own**2 + 3 *",
        "            weights.append(1 + 3 *",
        ("new:shared/separate-attention",),
    ),
    Fault(
        "RoPE is left out unless ALiBi is asked for",
        "utfproof.attention.kernel",
        "        for part in self.parts:\n            queries, keys = part.turned",
        "        for part in self.parts if self.alibi_heads else ():\n            queries, keys = part.turned",
        ("new:shared/rope",),
    ),
    Fault(
        "M counts queries only",
        "utfproof.shapes",
        "    return 2 * shape.head_dim * readers + shape.d_out * shape.words_at(shape.layers)\n\n\ndef tied_targets",
        "    return shape.head_dim * readers + shape.d_out * shape.words_at(shape.layers)\n\n\ndef tied_targets",
        ("new:shared/not-by-matching", "new:effective-head-dimension", "new:linear-test", "new:one-by-one/functional"),
    ),
    Fault(
        "shared-query: queries are read from the key trie",
        "utfproof.constructions.shared_query",
        "        tuple(read(register) for _ in heads),",
        "        tuple(read(h * b) for h in heads),",
        ("new:shared-query/singular", "new:shared/emulation"),
    ),
    Fault(
        "shared-query: targets of full width are refused",
        "utfproof.constructions.shared_query",
        "    if shape.d_out < D:",
        "    if shape.d_out <= D:",
        ("new:shared/width",),
    ),
    Fault(
        "the warning about wide heads comes at d = d_in too",
        "utfproof.shapes",
        "        if self.head_dim > self.d_in:",
        "        if self.head_dim >= self.d_in:",
        ("new:effective-head-dimension",),
    ),
    Fault(
        "linear test: keys as narrow as queries",
        "utfproof.shapes",
        "    return (shape.head_dim + shape.d_in) * readers",
        "    return 2 * shape.d_in * readers",
        ("new:linear-test",),
    ),
]
