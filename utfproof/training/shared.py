"""The m-wide engine with every state computed once.

Without positions a token's state after the first layer depends on the token and on the proportions in which tokens came before
(attention sums to 1, so twice as many of each are the same): equal states of a batch are grouped, computed once with their MLP,
and handed out. The last layer is computed only where the loss looks, and what no such position sees is left out from the start.
Products of matrices are made in the cheaper order at both ends: what the first MLP reads is mixed of few rows, which go through
its first matrix in place of the states; what the last one writes is read by U alone. Elsewhere it is the m-wide engine, whose
readers, values, norms and MLPs it uses; losses and gradients are the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from utfproof.errors import MalformedInput
from utfproof.training import compiled
from utfproof.training.counting import counted, state_key
from utfproof.training.matrices import product, times
from utfproof.training.models import NORM_EPSILON, Model
from utfproof.training.wide import WideEngine, gelu, handed_out

if TYPE_CHECKING:
    from torch import Tensor


class States(NamedTuple):
    """G states after the first layer. tokens [v]: the ids that occur; token [G], counts [G, v] over their common divisor: of
    each state, by place in tokens; index [B, n]: the state of each position (any, where no position looked at sees it)."""

    tokens: Tensor
    token: Tensor
    counts: Tensor
    index: Tensor


def states_of(ids: Tensor, look: Tensor | None) -> States:
    """The states that occur in ids [B, n], as far as the positions look [B, k] see them."""
    import torch

    n = ids.shape[1]
    tokens, place, counts = counted(ids, n)
    counts = counts // reduce(torch.gcd, counts.unbind(-1)).unsqueeze(-1)
    key = state_key(place, counts)
    seen = torch.ones_like(ids, dtype=torch.bool)
    if look is not None:
        seen = torch.arange(n, device=ids.device) <= look.amax(1, keepdim=True)
    distinct, which = key[seen].unique(return_inverse=True)
    index = torch.zeros_like(ids)
    index[seen] = which
    one = torch.zeros_like(distinct).scatter_(0, which, torch.arange(len(which), device=ids.device))
    return States(tokens, place[seen][one], counts[seen][one], index)


_ROWS = 64
"""Numbers of states are multiples of it: oneDNN keeps kernels, megabytes each, for every number of rows that it has met."""


def padded(states: States) -> States:
    """The same with the first state repeated, unused, up to a multiple of _ROWS."""
    import torch

    more = -len(states.token) % _ROWS
    token, counts = (torch.cat([x, x[:1].expand(more, *x.shape[1:])]) for x in (states.token, states.counts))
    return states._replace(token=token, counts=counts)


class SharedEngine(WideEngine):
    """Forward passes of a model, equal states once. Raises MalformedInput for learned positions."""

    name = "shared"

    def __init__(self, model: Model) -> None:
        if model.learned_positions:
            raise MalformedInput("with learned positions no two states are equal; use engine wide")
        super().__init__(model)
        # no norm stands between U and the last MLP
        self.folds = model.mlp and not model.norm and model.shape.layers > 1

    def _outputs(self, number: int, ids: Tensor, look: Tensor | None) -> Tensor:
        if not self.folds:
            return super()._outputs(number, ids, look)
        x, U = self._looked(number, ids, look), self.model["U"][number]
        weight, bias, back, shift = self._mlp_parts(number, self.model.shape.layers - 1)
        readout = times(U.t().unsqueeze(0), back.t().unsqueeze(0)).squeeze(0)  # few rows, and a large matrix
        outputs = gelu(product(x, weight) + bias) @ readout.t() + shift @ U
        return outputs + x @ U if self.model.residual else outputs

    def _looked(self, number: int, ids: Tensor, look: Tensor | None) -> Tensor:
        import torch

        states = padded(states_of(ids, look))
        index, L = states.index, self.model.shape.layers
        x = self._first(number, states)
        for layer in range(1, L):
            rows = look if layer == L - 1 else None
            moved = self._averages(number, layer, x, index, rows)
            asked = handed_out(x, index if rows is None else index.gather(1, rows))
            before = self.folds and layer == L - 1
            x = self._through(number, layer, asked, lambda _, moved=moved: moved, not before)  # type: ignore[misc]
            x = x.flatten(0, 1)
            index = torch.arange(len(x), device=x.device).view(asked.shape[:2])
        return handed_out(x, index if L > 1 or look is None else index.gather(1, look))

    def _first(self, number: int, states: States) -> Tensor:
        """The states after the first layer, [G, m]: tokens are attended to by their number."""
        import torch

        model = self.model
        H, rows = model.shape.heads, handed_out(model["E"][number], states.tokens)
        read = self._read_at(number, rows, 0)
        queries, keys = self._read(number, 0, read).view(len(rows), 2, H, -1).permute(1, 2, 0, 3)
        logits = ((queries * model.scale) @ keys.transpose(-1, -2))[:, states.token]  # [H, G, v]
        attention = (logits + states.counts.to(rows.dtype).log()).softmax(-1)
        moved = torch.cat([self._move(number, 0, head, read) for head in range(H)])
        shares = torch.cat([*attention], 1)
        if not model.mlp or (model.norm and model.norm_place == "post"):
            return self._through(number, 0, handed_out(rows, states.token), lambda _: shares @ moved)
        if model.residual:
            own = torch.nn.functional.one_hot(states.token, len(rows)).to(shares)
            shares, moved = torch.cat([own, shares], 1), torch.cat([rows, moved])
        if not (model.residual or model.norm):
            return self._first_mlp(number, shares, moved)
        x = shares @ moved
        written = self._first_mlp(number, shares, moved, x)
        return x + written if model.residual else written

    def _first_mlp(self, number: int, shares: Tensor, rows: Tensor, x: Tensor | None = None) -> Tensor:
        """What the first MLP writes to states x = shares [G, c] @ rows [c, m]; a norm needs x itself."""
        weight, bias, back, shift = self._mlp_parts(number, 0)
        if self.model.norm:
            assert x is not None
            scale = (x.var(-1, correction=0, keepdim=True) + NORM_EPSILON).rsqrt()
            shares, rows = shares * scale, rows - rows.mean(-1, keepdim=True)
            if "gain" in self.model:
                rows = rows * self._part("gain", number, 1)
                bias = bias + self._part("shift", number, 1) @ weight
        return product(gelu(shares @ product(rows, weight) + bias), back) + shift

    def _averages(self, number: int, layer: int, x: Tensor, index: Tensor, look: Tensor | None) -> Tensor:
        """sum_h A^h x R_V^h [B, k, m] at the positions look [B, k] of sequences index [B, n] of the states x [G, m]."""
        import torch

        model, (B, n) = self.model, index.shape
        H, d = model.shape.heads, model.shape.head_dim
        read = self._read_at(number, x, layer * (1 + model.mlp))
        place = torch.arange(n, device=x.device)
        rows = place.expand(B, n) if look is None else look
        reading = self._read(number, layer, read).view(-1, 2, H, d)
        queries = handed_out(reading[:, 0], index.gather(1, rows)).transpose(1, 2) * model.scale
        logits = queries @ handed_out(reading[:, 1], index).permute(0, 2, 3, 1)  # [B, H, k, n]
        hidden, seen = place > rows[:, None, :, None], rows.amax(1) + 1
        attention = logits.masked_fill(hidden, float("-inf")).softmax(-1)
        if self._kept(number, layer) is not None:
            masks = self._layers[number % len(self._layers)][layer].values
            return self._kept_averages(attention, read, index, seen, [mask.nonzero()[:, 0] for mask in masks])
        averages: Tensor = _function().apply(attention.flatten(1, 2), read, index, seen).view(B, H, rows.shape[1], -1)
        # as plain matrices: batches of one row are slow
        moved = [self._move(number, layer, head, averages[:, head].flatten(0, 1)) for head in range(H)]
        return torch.stack(moved).sum(0).view(*rows.shape, -1)

    def _kept_averages(self, attention: Tensor, x: Tensor, index: Tensor, seen: Tensor, kept: list[Tensor]) -> Tensor:
        """The same for attention [B, H, k, n], where R_V^h keeps the coordinates kept[h] and no others: only these are
        averaged."""
        import torch

        places = torch.cat(kept)
        own = x[:, places].split([len(columns) for columns in kept], 1)
        averages = [_function().apply(attention[:, head], columns, index, seen) for head, columns in enumerate(own)]
        total = x.new_zeros(*averages[0].shape[:2], x.shape[1])
        return total.index_add(2, places, torch.cat(averages, 2))


_CHUNK = 500_000
"""Numbers of states handed out at a time on a CPU: they stay in the cache for the products with them."""


@cache
def _function() -> Any:
    """The autograd function A [B, r, n], x [G, m], index [B, n], seen [B] -> A x[index] [B, r, m], made when torch is there. A
    is 0 from seen on. A few rows are compiled code's; else the states are handed out to a few sequences at a time. Gradients
    are added up in one order whatever the number of threads."""
    import torch

    def chunks(index: Tensor, m: int) -> Iterator[tuple[slice, Tensor]]:
        B, n = index.shape
        size = max(1, _CHUNK // (n * m)) if index.device.type == "cpu" else B
        for start in range(0, B, size):
            part = slice(start, start + size)
            yield part, index[part].reshape(-1)

    class Averages(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, A: Any, x: Any, index: Any, seen: Any) -> Any:
            A, x, index = A.contiguous(), x.contiguous(), index.contiguous()
            context.few = compiled.is_few_averages(A)
            context.save_for_backward(A, x, index, seen)
            if context.few:
                return compiled.averages(A, x, index, seen)
            found = A.new_empty(*A.shape[:2], x.shape[1])
            for part, which in chunks(index, x.shape[1]):
                torch.bmm(A[part], x.index_select(0, which).view(-1, A.shape[2], x.shape[1]), out=found[part])
            return found

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            (A, x, index, seen), g = context.saved_tensors, gradients[0].contiguous()
            if context.few:
                return *compiled.averages_back(A, x, index, seen, g), None, None
            dA, dx = torch.empty_like(A), torch.zeros_like(x)
            for part, which in chunks(index, x.shape[1]):
                held = x.index_select(0, which).view(-1, A.shape[2], x.shape[1])
                torch.bmm(g[part], held.transpose(1, 2), out=dA[part])
                dx.index_add_(0, which, (A[part].transpose(1, 2) @ g[part]).view(-1, x.shape[1]))
            return dA, dx, None, None

    return Averages


def shared_rows(ids: Tensor, look: Tensor | None, layers: int) -> list[int]:
    """Rows of each layer of a batch ids [B, n] of which the positions look [B, k] are asked."""
    first, last = len(padded(states_of(ids, look)).token), (ids if look is None else look).numel()
    return [first, *[ids.numel()] * (layers - 2), *[last] * (layers > 1)]
