"""The path-space engine: the same function as `wide`, from streams P_w of token weights; nothing m-wide is formed per token.

X^l = sum_w P_w (E R_w) over words w of length l, with P_w = A^{l,h_l} ... A^{1,h_1} X^0. The stream after layer l is the P_w
side by side, [n, W v] for v tokens that occur, so a head's logits are P (Q K^T) P^T with tables Q = E R_w R_Q, K = E R_w R_K
of W v rows, and outputs P (E R_w U). Where that is cheaper than the head dimension, keys and values are the stream itself,
and all heads share them.

* First layer: logits depend on two tokens only, so P_h needs the v x v table and the counts of tokens in the prefix.
* Last layer: only at the positions looked at.
* Layer normalisation multiplies the coefficients of a position by one number: see `normed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from utfproof.errors import MalformedInput
from utfproof.ground.selection import SelectionMatrix
from utfproof.training.kernel import attention
from utfproof.training.matrices import times
from utfproof.training.models import Model
from utfproof.training.nested import NestedNormedProgram, PositionScales, is_nested
from utfproof.training.normed import NormedProgram, normalised, normalised_times
from utfproof.training.programs import DenseProgram, IndexProgram, Program, Tables, TrainedProgram

if TYPE_CHECKING:
    from torch import Tensor


def program_of(model: Model, max_memory: int | None = None) -> Program:
    """The program of a model: with LN, index maps, dense matrices, or trained ones."""
    if is_nested(model):
        return NestedNormedProgram(model)
    if model.norm:
        return NormedProgram(model, max_memory)
    if model.hosts is None:
        return TrainedProgram(model)
    if isinstance(model.hosts[0].U, SelectionMatrix):
        return IndexProgram(model)
    return DenseProgram(model, max_memory)


class PathEngine:
    """Forward passes of a model in path space. Raises MalformedInput with an MLP."""

    name = "paths"

    def __init__(self, model: Model, *, counting: bool = True, max_memory: int | None = None) -> None:
        """counting=False: the first layer attends like the others."""
        if model.mlp:
            raise MalformedInput("path space has no MLPs: they are not linear; use engine wide")
        self.model = model
        self.counting = counting and not model.learned_positions
        self.program = program_of(model, max_memory)
        self._ones = isinstance(self.program, NestedNormedProgram)
        self._nested = self._ones or (isinstance(self.program, IndexProgram) and self.program.nested)

    def logits(self, inputs: Tensor, look: Tensor | None = None, tokens: Tensor | None = None) -> Tensor:
        """Outputs [S, B, k, d_out] for token ids [S, B, n], at the positions look [S, B, k] (all without it).

        tokens [v]: the ids that may occur, in increasing order; by default those that do (which makes a GPU wait).
        """
        import torch

        model = self.model
        if tokens is None:
            tokens = inputs.flatten().bincount().nonzero()[:, 0]
        place = torch.searchsorted(tokens, inputs)
        rows = model["E"].index_select(1, tokens)
        stream = torch.nn.functional.one_hot(place, len(tokens) + self._ones).to(rows.dtype)
        if model.learned_positions:
            n = inputs.shape[2]
            here = torch.eye(n, dtype=rows.dtype, device=rows.device).expand(*inputs.shape, n)
            rows, stream = torch.cat([rows, model["P"][:, :n]], 1), torch.cat([stream, here], 3)
        return self.run(stream, self.program.tables(rows, model["U"]), look)

    def run(self, stream: Tensor, tables: Tables, look: Tensor | None = None) -> Tensor:
        """Outputs from X^0 [S, B, n, v] (one-hot rows where the first layer counts) and the tables."""
        import torch

        model = self.model
        last, rested = model.shape.layers - 1, []
        scales = None if tables.moments is None else PositionScales(tables.moments, stream.shape[-1])
        for layer in range(last + 1):
            seen = look if layer == last else None
            queries, keys = tables.queries[layer] * model.scale, tables.keys[layer]
            gram = None if tables.grams is None else tables.grams[layer]
            read = stream if gram is None else normalised(stream, gram, tables.ones)
            if scales is not None:  # the first layer's scales stand in its tables
                read = scales.read(stream, scaled=bool(layer))
            stream = read if tables.kept else stream
            here, asked = (x if seen is None else _pick(x, seen) for x in (stream, read))
            if layer == 0 and self.counting:
                counts = stream.cumsum(2)
                moved = _by_counts(here, counts if seen is None else _pick(counts, seen), queries, keys)
            else:
                early = self._early(layer, stream)
                moved = self._attend(read, asked, seen, queries, keys, tables.outputs if early else None)
                if early:
                    return moved
            if layer == 0 and tables.scales is not None:
                moved = moved * tables.scales.repeat(1, 1, 1, model.shape.heads)
            if tables.nested:
                rested.append(stream if look is None else _pick(stream, look))
                stream = moved + here.repeat(1, 1, 1, model.shape.heads)
            else:
                stream = torch.cat([here, moved], 3) if model.residual else moved
        gram = None if tables.grams is None else tables.grams[-1]
        if gram is not None:
            return normalised_times(stream, gram, tables.outputs, tables.ones)
        if scales is not None:
            return scales.outputs([*rested, stream], tables.outputs, look)
        return _rows_times(torch.cat([*rested, stream], 3) if rested else stream, tables.outputs)

    def _early(self, layer: int, stream: Tensor) -> bool:
        """Whether values are read by U before they are averaged: only in the last layer, where U is narrower and no LN stands
        between."""
        if layer < self.model.shape.layers - 1 or self.model.norm or self._nested:
            return False
        return not self._shared(stream) and self.model.shape.d_out < stream.shape[-1]

    def _shared(self, stream: Tensor) -> bool:
        """Whether the stream itself serves as keys and values of all heads."""
        return shares_keys(stream.shape[-1], self.model.shape.head_dim)

    def _attend(
        self, stream: Tensor, here: Tensor, look: Tensor | None, queries: Tensor, keys: Tensor, outputs: Tensor | None
    ) -> Tensor:
        """All heads' averages of the stream [S, B, k, H w] at the rows `here` [S, B, k, w] of the stream [S, B, n, w]; with
        outputs [S, W v, d_out], as U reads them, with what it reads of the stream beside them: [S, B, k, d_out]."""
        import torch

        S, B, n, w = stream.shape
        k, H = here.shape[2], self.model.shape.heads
        if self._shared(stream):
            form = queries @ keys.transpose(-1, -2)  # [S, H, w, w]: logits are P form P^T
            asked = _rows_times(here, form.transpose(1, 2).reshape(S, w, H * w)).view(S * B, k * H, w)
            held = stream.reshape(S * B, n, w)
            return attention(asked, held, held, _flat(look), H).reshape(S, B, k, H * w)
        # one product for all heads: its gradients are one product each, not a sum of one for each head
        asking, holding = list(queries.unbind(1)), list(keys.unbind(1))
        if outputs is not None:
            letters = outputs.view(S, -1, w, outputs.shape[-1]).unbind(1)
            asking += letters[:-H]
            holding += letters[-H:]
        if look is None:
            parts = _columns_times(stream, asking + holding)
        else:
            parts = _columns_times(here, asking) + _columns_times(stream, holding)
        read, held = parts[: len(asking)], parts[len(asking) :]
        values = [stream.reshape(S * B, n, w)] * H if outputs is None else held[H:]
        found = [attention(*each, _flat(look)) for each in zip(read[:H], held[:H], values, strict=True)]
        joined = torch.cat(found, 2) if outputs is None else torch.stack(found + read[H:]).sum(0)
        return joined.view(S, B, k, -1)


def shares_keys(width: int, head_dim: int) -> bool:
    """Whether the stream itself serves as keys and values: for widths up to about twice the head dimension, since nothing has
    to be copied for each head."""
    return width <= 2 * head_dim


def _rows_times(x: Tensor, matrix: Tensor) -> Tensor:
    """[S, B, n, w] times [S, w, c]: one product for each seed."""
    S, B, n, w = x.shape
    return times(x.reshape(S, B * n, w), matrix).view(S, B, n, matrix.shape[-1])


def _columns_times(x: Tensor, matrices: list[Tensor]) -> list[Tensor]:
    """x [S, B, n, w] times each of the matrices [S, w, c], as sequences [S B, n, c]."""
    import torch

    found = _rows_times(x, torch.cat(matrices, 2)).flatten(0, 1)
    return list(found.split([matrix.shape[2] for matrix in matrices], 2))


def _pick(x: Tensor, look: Tensor) -> Tensor:
    """Rows [S, B, k, w] of x [S, B, n, w]."""
    return x.gather(2, look[..., None].expand(*look.shape, x.shape[-1]))


def _flat(look: Tensor | None) -> Tensor | None:
    """Positions [S, B, k] for each sequence."""
    return None if look is None else look.reshape(-1, look.shape[-1])


def _by_counts(here: Tensor, counts: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """The first layer's P_h side by side [S, B, k, H v]: softmax over tokens of logit + log(count in the prefix).

    here [S, B, k, v] one-hot, counts [S, B, k, v], queries and keys [S, H, v, d].
    """
    S, B, k, v = here.shape
    H = queries.shape[1]
    table = (queries @ keys.transpose(-1, -2)).transpose(-1, -2)  # [S, H, of keys, of queries]
    # tokens before positions: a softmax over a last axis as short as this is slow
    asked, known = (x.reshape(S, B * k, v).transpose(1, 2) for x in (here, counts))
    logits = times(table.reshape(S, H * v, v), asked.contiguous()).view(S, H, v, B * k)
    # not log(0): an exact -inf takes the processor many times as long
    logs = known.clamp_min(1).log().masked_fill_(known == 0, float("-inf"))
    shares = (logits + logs[:, None]).softmax(2).view(S, H * v, B * k)
    return shares.transpose(1, 2).reshape(S, B, k, H * v)
