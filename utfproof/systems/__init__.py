"""The five systems of the theory as plain parameter containers, with one definition of the forward pass each.

Axis letters: n tokens, D target width, d head dimension, m embedding dimension, L layers, H heads.
Rows are tokens and matrices act on the right. Parameters may be NumPy arrays (float, or exact object arrays of ints
and Fractions), torch tensors, or SelectionMatrix grids (the {0,1} hosts); an untied parameter is indexed
[layer][head], a tied one (the paper says "looped") [head].

| system | class | paper |
|---|---|---|
| target, tied target | Target | TF_{H,L,d_in,d}, looped-TF |
| universal, tied universal | Universal | UTF^m, looped-UTF^m |
| shared-attention universal | SharedAttentionUniversal | shared-attn-UTF^m |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from utfproof.attention import AttentionKernel, GivenAttention, RationalAttention, attend
from utfproof.errors import MalformedInput, NotDefined
from utfproof.shapes import Shape
from utfproof.systems.mlp import MLP
from utfproof.util.arrays import Array, brief, exact, eye, is_torch, namespace, one_line, to_numpy
from utfproof.util.selection import SelectionMatrix


class HeadMaps(NamedTuple):
    """What one head does: query and key readers, and the value map as a product of matrices."""

    query: Any
    key: Any
    value: Sequence[Any]


def run_layers(
    x: Array,
    shape: Shape,
    maps: Callable[[int, int], HeadMaps],
    kernel: AttentionKernel,
    positions: Array | None = None,
    mlp: MLP | None = None,
) -> Array:
    """X^l = sum_h A^{l,h} X^{l-1} V^{l,h} for l = 1 ... L, the loop that all five systems share; X^{l-1} is added where the
    shape has a residual stream.

    x is [..., n, width]; positions [n] default to 0 ... n-1. mlp: each layer ends with x <- x + MLP(x), and X^{l-1} is added
    whatever the shape says.
    """
    if positions is None:
        positions = np.arange(x.shape[-2])
    elif np.shape(positions) != (n := int(x.shape[-2]),):
        raise MalformedInput(f"positions has shape {list(np.shape(positions))}, expected [{n}]")
    _require_kernel(kernel, shape, x)
    for layer in range(shape.layers):
        terms = [x] if shape.residual or mlp else []
        for head in range(shape.heads):
            query, key, value = maps(layer, head)
            moved, rest = x, list(value)
            if isinstance(value[0], SelectionMatrix):  # coordinates that an index map does not read are not averaged
                read, rest[0] = value[0].read_first
                moved = x @ read
            term = attend(kernel, x @ query, x @ key, moved, positions, layer=layer, head=head)
            for matrix in rest:
                term = term @ matrix
            terms.append(term)
        x = terms[0]
        for term in terms[1:]:
            x = x + term
        if mlp is not None:
            x = x + mlp(x, layer)
    return x


def _require(name: str, array: Any, expected: tuple[Any, ...]) -> None:
    """MalformedInput unless this is an array of real numbers of this shape: a leading ... matches any axes, None for any
    size from 1 on."""
    sizes = [size for size in expected if size is not ...]
    wanted = f"[{', '.join({...: '...', None: 'n >= 1'}.get(size, str(size)) for size in expected)}]"
    if not hasattr(array, "shape"):
        raise MalformedInput(f"{name} is of type {type(array).__name__}, expected an array {wanted}")
    found = tuple(int(k) for k in array.shape)
    last = found[-len(sizes) :] if ... in expected else found
    if len(last) != len(sizes) or any(
        k != size if size is not None else k < 1 for k, size in zip(last, sizes, strict=True)
    ):
        raise MalformedInput(f"{name} has shape {list(found)}, expected {wanted}")
    if np.ma.isMaskedArray(array):
        raise MalformedInput(f"{name} is a masked array, whose mask matrix products leave out; fill it")
    dtype = getattr(array, "dtype", None)
    if getattr(dtype, "kind", "f") not in "biufO" or getattr(dtype, "is_complex", False):
        raise MalformedInput(f"{name} holds {dtype}, expected real numbers")


def _require_grid(name: str, grid: Any, lead: tuple[int, ...], size: tuple[Any, ...]) -> None:
    """MalformedInput unless a parameter has so many layers and heads (tied: heads) of matrices of this size, and no more: the
    rest would be left out."""
    rows = {"": grid}
    for axis, count in zip(("layers", "heads")[-len(lead) :], lead, strict=True):
        for row in rows.values():
            if not hasattr(row, "__len__") or getattr(row, "shape", None) == ():
                raise MalformedInput(f"{name} is of type {type(grid).__name__}, expected arrays by {axis}")
            if len(row) != count:
                raise MalformedInput(f"{name} has {len(row)} {axis}, expected {count}")
        rows = {f"{place}, {i}".lstrip(", "): entry for place, row in rows.items() for i, entry in enumerate(row)}
    for place, matrix in rows.items():
        _require(f"{name}[{place}]", matrix, size)


def _require_kernel(kernel: Any, shape: Shape, x: Array) -> None:
    """MalformedInput unless this is a kernel; matrices from outside must be there for each layer and head, and no more."""
    if isinstance(kernel, type) or not (callable(kernel) or hasattr(kernel, "attended")):
        raise MalformedInput(f"attention is {brief(kernel)}, expected a kernel such as SoftmaxAttention()")
    matrices: Any = getattr(kernel, "matrices", None)
    if isinstance(kernel, GivenAttention) and (matrices is not None or type(kernel) is GivenAttention):
        _require_grid("attention", matrices, (shape.layers, shape.heads), (..., None, None))
        for matrix in (entry for row in matrices for entry in row if is_torch(entry)):  # NumPy's become what x is
            _require_alike(x=x, attention=matrix)


def _require_alike(**arrays: Any) -> None:
    """MalformedInput where NumPy arrays meet torch tensors, or tensors of other dtypes and devices; also for torch's integers,
    whose products overflow without a word. Index maps take any."""
    kinds = {
        name: f"a torch tensor of {array.dtype} on {array.device}" if is_torch(array) else "a NumPy array"
        for name, array in arrays.items()
        if hasattr(array, "dtype") and not isinstance(array, SelectionMatrix)
    }
    first = next(iter(kinds))
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise MalformedInput(
                f"{first} is {kinds[first]}, {name} {kind}; give NumPy arrays alone, or tensors of one dtype on one device"
            )
        if is_torch(arrays[name]) and not arrays[name].is_floating_point():
            raise MalformedInput(f"{name} is {kind}, whose products may overflow; give floats, or NumPy arrays")


def _lead(shape: Shape, tied: bool) -> tuple[int, ...]:
    """Axes of a host's parameters before their rows and columns."""
    return (shape.heads,) if tied else (shape.layers, shape.heads)


def _has_no_layers(grid: Any) -> bool:
    """Whether a parameter is [H, ., .] or a sequence of H matrices, and not by layer first."""
    shape = getattr(grid, "shape", None)
    if shape is None and isinstance(grid, Sequence) and grid:
        return len(getattr(grid[0], "shape", ())) == 2
    return shape is not None and len(shape) == 3


def _unbounded(x: Array, weights: Any, kernel: AttentionKernel) -> Array:
    """Where x and the weights that it meets are integers of fixed width, whose products overflow without a word: Python's
    integers for kernels that are exact over the rationals, else floats."""
    if not (
        isinstance(x, np.ndarray)
        and x.dtype.kind in "iub"
        and getattr(getattr(weights, "dtype", x.dtype), "kind", "f") in "iub"
    ):
        return x
    return exact(x) if isinstance(kernel, GivenAttention | RationalAttention) else x.astype(np.float64)


@one_line
@dataclass(frozen=True, eq=False)
class Target:
    """A target transformer: W_Q, W_K, W_V [L, H, D, d], W_O [L, H, d, D].

    Where the width D differs from d_in or d_out, W_E [d_in, D] embeds and W_U [D, d_out] unembeds (None: identity).
    Raises MalformedInput naming the tensor whose shape does not fit.

    >>> import numpy as np
    >>> from utfproof import Shape, SoftmaxAttention, Target
    >>> W = np.ones((1, 1, 2, 2))
    >>> Target(Shape(1, 1, 2, 2), W_Q=W, W_K=W, W_V=W, W_O=W).forward(np.eye(2), SoftmaxAttention()).shape
    (2, 2)
    """

    shape: Shape
    W_Q: Any
    W_K: Any
    W_V: Any
    W_O: Any
    W_E: Any = None
    W_U: Any = None

    def __post_init__(self) -> None:
        self._check(_lead(self.shape, self.tied))

    @property
    def tied(self) -> bool:
        """Whether the weights are the same in each of the L layers: they have no axis of layers."""
        return _has_no_layers(self.W_Q)

    def _check(self, lead: tuple[int, ...]) -> None:
        if len(getattr(self.W_Q, "shape", ())) < 2:  # then it has no width either
            _require("W_Q", self.W_Q, (*lead, self.shape.d_in, self.shape.head_dim))
        D, d = self.width, self.shape.head_dim
        for name in ("W_Q", "W_K", "W_V"):
            _require(name, getattr(self, name), (*lead, D, d))
        _require("W_O", self.W_O, (*lead, d, D))
        for name, array, expected in (
            ("W_E", self.W_E, (self.shape.d_in, D)),
            ("W_U", self.W_U, (D, self.shape.d_out)),
        ):
            if array is not None:
                _require(name, array, expected)
            elif expected[0] != expected[1]:
                raise MalformedInput(f"{name} is missing: width D = {D} at {self.shape} needs it, {list(expected)}")

    @property
    def width(self) -> int:
        """D, the width of the target's own residual-free stream."""
        return int(self.W_Q.shape[-2])

    def parameters(self, layer: int, head: int) -> tuple[Any, Any, Any, Any]:
        """(W_Q, W_K, W_V, W_O) of a head; layer and head count from 0."""
        place = (head,) if self.tied else (layer, head)
        return self.W_Q[place], self.W_K[place], self.W_V[place], self.W_O[place]

    def attention_form(self, layer: int, head: int) -> Array:
        """A^{l,h} = W_Q W_K^T [D, D]: the bilinear form of the logits."""
        w_q, w_k, _, _ = self.parameters(layer, head)
        return w_q @ w_k.swapaxes(-1, -2)

    def value_form(self, layer: int, head: int) -> Array:
        """M^{l,h} = W_V W_O [D, D]."""
        _, _, w_v, w_o = self.parameters(layer, head)
        return w_v @ w_o

    def embedding(self) -> Array:
        """W_E [d_in, D], the identity where none is given."""
        return eye(self.shape.d_in, self.W_Q) if self.W_E is None else self.W_E

    def unembedding(self) -> Array:
        """W_U [D, d_out], the identity where none is given."""
        return eye(self.shape.d_out, self.W_Q) if self.W_U is None else self.W_U

    def forward(self, x: Array, kernel: AttentionKernel, positions: Array | None = None) -> Array:
        """T(X): x [..., n, d_in] -> [..., n, d_out]."""

        def maps(layer: int, head: int) -> HeadMaps:
            w_q, w_k, w_v, w_o = self.parameters(layer, head)
            return HeadMaps(w_q, w_k, (w_v, w_o))

        _require("x", x, (..., None, self.shape.d_in))
        weights = {name: getattr(self, name) for name in ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")}
        _require_alike(x=x, **weights)
        x = _unbounded(x, self.W_Q if self.W_E is None else self.W_E, kernel)
        if self.W_E is not None:
            x = x @ self.W_E
        x = run_layers(x, self.shape, maps, kernel, positions)
        return x if self.W_U is None else x @ self.W_U


@one_line
@dataclass(frozen=True, eq=False)
class AugmentedTarget(Target):
    """A target whose values have an inner width d_v of their own: W_V [L, H, D, d_v], W_O [L, H, d_v, D].

    What a target with biases becomes once they are absorbed (biases.py): its value forms have rank d + 1. It can be
    embedded into any host of full rank, but is no member of the class of its shape, and `weights.write_target` refuses it.
    """

    def _check(self, lead: tuple[int, ...]) -> None:
        D, inner = self.width, int(self.W_V.shape[-1])
        _require("W_V", self.W_V, (*lead, D, inner))
        _require("W_O", self.W_O, (*lead, inner, D))
        # the rest as in any target: queries and keys stand in for the values
        Target(self.shape, self.W_Q, self.W_K, self.W_Q, self.W_K.swapaxes(-1, -2), self.W_E, self.W_U)


def prefix_stacks(target: Target) -> Iterator[Array]:
    """W_E M_w for all words w of length 0, 1, ..., L in turn, [H^length, d_in, D] each, in lexicographic order (target's
    arithmetic). With a residual stream [(H+1)^length, d_in, D]."""
    products = target.embedding()[None]
    yield products
    for layer in range(target.shape.layers):
        forms = [target.value_form(layer, head) for head in range(target.shape.heads)]
        by_letter = [products] * target.shape.residual + [products @ form for form in forms]
        step = namespace(products).stack(by_letter, axis=1)
        products = step.reshape(-1, *step.shape[2:])
        yield products


def prefix_products(target: Target, length: int) -> Array:
    """The stack of words of one length, see `prefix_stacks`."""
    return next(islice(prefix_stacks(target), length, None))


@one_line
@dataclass(frozen=True, eq=False)
class Universal:
    """A host: R_Q, R_K [L, H, m, d], R_V [L, H, m, m], U [m, d_out], fixed whatever the target.

    Arrays, or nested tuples of SelectionMatrix. Values may be given as factors: then R_V holds the first factor
    [L, H, m, d_v] and R_Vo the second [L, H, d_v, m], and they are never multiplied out here.
    `construction` names where the parameters come from ("" for a file). mlp: the host's own MLPs, for targets without; its
    blocks then have a residual stream, y <- y + sum_h A y R_V, y <- y + MLP(y), whatever the shape says of targets.
    Raises MalformedInput naming the parameter that does not fit, one with more layers or heads among them.

    >>> import numpy as np
    >>> from utfproof import Shape, Universal, r_all
    >>> R, R_V, U = np.ones((1, 1, 4, 1)), np.eye(4)[None, None], np.ones((4, 1))
    >>> r_all(Universal(Shape(1, 1, 1, 1), 4, R_Q=R, R_K=R, R_V=R_V, U=U)).shape
    (4, 3)
    """

    shape: Shape
    m: int
    R_Q: Any
    R_K: Any
    R_V: Any
    U: Any
    construction: str = ""
    R_Vo: Any = None
    mlp: MLP | None = None

    def __post_init__(self) -> None:
        m, d = self.m, self.shape.head_dim
        grids: dict[str, tuple[Any, tuple[Any, ...]]] = {"R_Q": (self.R_Q, (m, d)), "R_K": (self.R_K, (m, d))}
        if self.R_Vo is None:
            grids["R_V"] = (self.R_V, (m, m))
        else:
            grids |= {"R_Vv": (self.R_V, (m, None)), "R_Vo": (self.R_Vo, (None, m))}
        for name, (grid, size) in grids.items():
            _require_grid(name, grid, _lead(self.shape, self.tied), size)
        for layer, head in np.ndindex(1 if self.tied else self.shape.layers, self.shape.heads):
            first, *rest = self.maps(layer, head).value
            for second in rest:
                _require(f"R_Vo[{layer}, {head}]", second, (int(first.shape[-1]), m))
        _require("U", self.U, (self.m, self.shape.d_out))
        if self.mlp is not None:
            self.mlp.require_fit(self.shape.layers, self.m)

    @property
    def tied(self) -> bool:
        """Whether the parameters are the same in each of the L layers: they have no axis of layers."""
        return _has_no_layers(self.R_Q)

    def require_attention_only(self, what: str) -> None:
        """NotDefined for a host with MLPs: what is asked is about attention alone."""
        if self.mlp is not None:
            name = self.construction or "this host"
            raise NotDefined(f"{name} has MLPs; {what} is defined for hosts of attention alone, such as sparse or tied")

    def maps(self, layer: int, head: int) -> HeadMaps:
        """(R_Q, R_K, (R_V,)) of a head, or (R_Q, R_K, (R_Vv, R_Vo)); layer and head count from 0."""
        grids = (self.R_Q, self.R_K, self.R_V) if self.R_Vo is None else (self.R_Q, self.R_K, self.R_V, self.R_Vo)
        query, key, *value = grids if self.tied else (grid[layer] for grid in grids)
        return HeadMaps(query[head], key[head], tuple(factor[head] for factor in value))

    def forward(self, x: Array, E: Array, kernel: AttentionKernel, positions: Array | None = None) -> Array:
        """UTF(X, E): x [..., n, d_in], E [d_in, m] -> [..., n, d_out]."""
        _require("x", x, (..., None, self.shape.d_in))
        _require("E", E, (..., self.shape.d_in, self.m))
        _require_alike(x=x, E=E, R_Q=self.R_Q, R_K=self.R_K, R_V=self.R_V, R_Vo=self.R_Vo, U=self.U)
        start = _unbounded(x, E, kernel) @ E
        return run_layers(start, self.shape, self.maps, kernel, positions, mlp=self.mlp) @ self.U


def dense(matrix: Any) -> np.ndarray:
    """A parameter as a NumPy array."""
    return matrix.to_dense(np.int8) if isinstance(matrix, SelectionMatrix) else to_numpy(matrix)


def _same(first: Any, second: Any) -> bool:
    """Whether two parameters have equal values; index maps are compared by their ones."""
    if not (isinstance(first, SelectionMatrix) and isinstance(second, SelectionMatrix)):
        return np.array_equal(dense(first), dense(second))
    ours, theirs = (
        np.sort(rows * matrix.shape[1] + columns)
        for matrix in (first, second)
        for rows, columns in [matrix.coordinates()]
    )
    return first.shape == second.shape and np.array_equal(ours, theirs)


def same_parameters(first: Universal, second: Universal) -> bool:
    """Whether two hosts have equal matrices (values, not representation)."""

    def parts(host: Universal) -> list[Any]:
        layers = 1 if host.tied else host.shape.layers
        maps = [host.maps(*place) for place in np.ndindex(layers, host.shape.heads)]
        matrices = [matrix for query, key, value in maps for matrix in (query, key, *value)]
        return [host.U, *matrices, *(host.mlp.arrays.values() if host.mlp is not None else ())]

    def about(host: Universal) -> tuple[Any, ...]:
        mlp = None if host.mlp is None else (host.mlp.activation, *host.mlp.arrays)
        return host.tied, host.m, host.shape, mlp, host.R_Vo is None

    return about(first) == about(second) and all(map(_same, parts(first), parts(second)))


@one_line
@dataclass(frozen=True, eq=False)
class SharedAttentionUniversal:
    """The stronger model of the lower bound: R_V only, [L, H, m, m] or tied [H, m, m]; E and U may both depend on the
    target and attention matrices come from outside.

    >>> import numpy as np
    >>> from utfproof import SharedAttentionUniversal, Shape
    >>> host = SharedAttentionUniversal(Shape(1, 1, 1, 2), m=3, R_V=np.ones((1, 1, 3, 3)))
    >>> E, U, attention = np.ones((2, 3)), np.ones((3, 2)), np.eye(2)[None, None]
    >>> host.forward(np.eye(2), E, U, attention).shape
    (2, 2)
    """

    shape: Shape
    m: int
    R_V: Any

    @property
    def tied(self) -> bool:
        """Whether R_V is the same in each of the L layers."""
        return _has_no_layers(self.R_V)

    def __post_init__(self) -> None:
        _require_grid("R_V", self.R_V, _lead(self.shape, self.tied), (self.m, self.m))

    def value(self, layer: int, head: int) -> Any:
        """R_V of a head; layer and head count from 0."""
        return self.R_V[head] if self.tied else self.R_V[layer][head]

    def forward(self, x: Array, E: Array, U: Array, attention: Array) -> Array:
        """x [n, d_in], E [d_in, m], U [m, d_out], attention [L, H, n, n] -> [n, d_out]."""
        given = GivenAttention(attention)
        _require("x", x, (..., None, self.shape.d_in))
        _require("E", E, (..., self.shape.d_in, self.m))
        _require("U", U, (..., self.m, self.shape.d_out))
        _require_alike(x=x, E=E, U=U, R_V=self.R_V)
        start = _unbounded(x, E, given) @ E

        def maps(layer: int, head: int) -> HeadMaps:
            # queries and keys play no part: any reader of the right size does
            return HeadMaps(U, U, (self.value(layer, head),))

        return run_layers(start, self.shape, maps, given) @ U
