"""Training steps in NumPy from the paper's text (Section 5.1, Appendix G): forward, gradients and AdamW written out by hand.

X^0 = X E for one-hot X; X^l = sum_h A^{l,h} X^{l-1} R_V^{l,h}, with X^{l-1} added where there are residual connections;
A^{l,h} = causal softmax of X^{l-1} R_Q (X^{l-1} R_K)^T / sqrt(d); logits X^L U. LN with epsilon 1e-5 and GELU MLPs where a
variant has them. Nothing of the package's engines is used, nor automatic gradients.
"""

import math

import numpy as np
from scipy.special import erf


class Norm:
    """Layer normalisation of rows, and the gradient back through it."""

    def __init__(self, gain, shift):
        self.gain, self.shift = gain, shift

    def forward(self, x):
        centred = x - x.mean(-1, keepdims=True)
        self.size = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        self.unit = centred / self.size
        return self.unit if self.gain is None else self.unit * self.gain + self.shift

    def backward(self, g):
        if self.gain is not None:
            self.of_gain, self.of_shift = (g * self.unit).sum((0, 1)), g.sum((0, 1))
            g = g * self.gain
        g = g - g.mean(-1, keepdims=True) - self.unit * (g * self.unit).mean(-1, keepdims=True)
        return g / self.size


class Attention:
    """All heads of a layer: Q, K [H, m, d] and the value map as a product of matrices [H, m, ...] ... [H, ..., m]."""

    def __init__(self, Q, K, values):
        self.Q, self.K, self.values = Q, K, values

    def forward(self, x):
        self.x = x
        n, d = x.shape[1], self.Q.shape[-1]
        later = np.triu(np.ones((n, n), dtype=bool), 1)
        self.q, self.k = (np.einsum("bnm,hmd->hbnd", x, R) for R in (self.Q, self.K))
        s = np.where(later, -np.inf, np.einsum("hbid,hbjd->hbij", self.q, self.k) / math.sqrt(d))
        a = np.exp(s - s.max(-1, keepdims=True))
        self.A = a / a.sum(-1, keepdims=True)
        self.inner = [np.einsum("hbij,bjm->hbim", self.A, x)]
        for V in self.values:
            self.inner.append(np.einsum("hbim,hmk->hbik", self.inner[-1], V))
        return self.inner[-1].sum(0)

    def backward(self, g):
        g = np.broadcast_to(g, (len(self.Q), *g.shape))
        self.of_values = []
        for V, before in zip(self.values[::-1], self.inner[-2::-1], strict=True):
            self.of_values.insert(0, np.einsum("hbim,hbik->hmk", before, g))
            g = np.einsum("hbik,hmk->hbim", g, V)
        of_x = np.einsum("hbij,hbim->bjm", self.A, g)
        of_A = np.einsum("hbim,bjm->hbij", g, self.x)
        of_s = self.A * (of_A - (self.A * of_A).sum(-1, keepdims=True)) / math.sqrt(self.Q.shape[-1])
        of_q, of_k = np.einsum("hbij,hbjd->hbid", of_s, self.k), np.einsum("hbij,hbid->hbjd", of_s, self.q)
        self.of_Q, self.of_K = (np.einsum("bnm,hbnd->hmd", self.x, g) for g in (of_q, of_k))
        return of_x + np.einsum("hbnd,hmd->bnm", of_q, self.Q) + np.einsum("hbnd,hmd->bnm", of_k, self.K)


class MLP:
    """GELU(x W + b) V + c."""

    def __init__(self, W, b, V, c):
        self.W, self.b, self.V, self.c = W, b, V, c

    def forward(self, x):
        self.x, self.z = x, x @ self.W + self.b
        self.share = (1 + erf(self.z / math.sqrt(2))) / 2
        self.y = self.z * self.share
        return self.y @ self.V + self.c

    def backward(self, g):
        self.of_V, self.of_c = np.einsum("bnk,bnm->km", self.y, g), g.sum((0, 1))
        g = (g @ self.V.T) * (self.share + self.z * np.exp(-(self.z**2) / 2) / math.sqrt(2 * math.pi))
        self.of_W, self.of_b = np.einsum("bnm,bnk->mk", self.x, g), g.sum((0, 1))
        return g @ self.W.T


def network(point, values):
    """[(norm before or None, part)] of all layers, and the norm before U or None."""
    places = iter(range(99))

    def norm():
        place = next(places)
        return Norm(*(values[name][place] if name in values else None for name in ("gain", "shift")))

    def around(part):
        return norm() if point.norm else None, part

    parts = []
    for layer in range(point.layers):
        own = "W_Q" in values
        maps = [values[name][layer] for name in (("W_V", "W_O") if own else ("R_V",))]
        parts.append(
            around(Attention(*(values[name][layer] for name in (("W_Q", "W_K") if own else ("R_Q", "R_K"))), maps))
        )
        if point.mlp:
            parts.append(around(MLP(*(values[f"mlp_{name}"][layer] for name in ("in", "in_bias", "out", "out_bias")))))
    return parts, norm() if point.norm else None


def loss_and_gradients(point, values, inputs, targets, mask):
    """The mean loss where mask [B, n] is true, and the gradient of every array of values [...] by name."""
    parts, last = network(point, values)
    x = values["E"][inputs] + (values["P"][: inputs.shape[1]] if "P" in values else 0)
    for before, part in parts:
        moved = part.forward(x if before is None else before.forward(x))
        x = x + moved if point.residual else moved
    read = x if last is None else last.forward(x)
    logits = read @ values["U"]
    logits = logits - logits.max(-1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = np.eye(logits.shape[-1])[targets]
    loss = -(logs * wanted).sum(-1)[mask].mean()
    g = (np.exp(logs) - wanted) * mask[..., None] / mask.sum()
    gradients = {"U": np.einsum("bnm,bnk->mk", read, g)}
    g = g @ values["U"].T
    g = g if last is None else last.backward(g)
    for before, part in parts[::-1]:
        through = part.backward(g)
        through = through if before is None else before.backward(through)
        g = g + through if point.residual else through
    gradients["E"] = np.zeros_like(values["E"])
    np.add.at(gradients["E"], inputs, g)
    if "P" in values:
        gradients["P"] = g.sum(0)
    norms = [n for n in (*(before for before, _ in parts), last) if n is not None]
    layers, mlps = ([part for _, part in parts if isinstance(part, kind)] for kind in (Attention, MLP))
    maps = [("W_V", 0), ("W_O", 1)] if "W_Q" in values else [("R_V", 0)]
    letter = "W" if "W_Q" in values else "R"
    found = {"gain": [n.__dict__.get("of_gain") for n in norms], "shift": [n.__dict__.get("of_shift") for n in norms]}
    found |= {f"{letter}_Q": [layer.of_Q for layer in layers], f"{letter}_K": [layer.of_K for layer in layers]}
    found |= {name: [layer.of_values[place] for layer in layers] for name, place in maps}
    names = {"mlp_in": "of_W", "mlp_in_bias": "of_b", "mlp_out": "of_V", "mlp_out_bias": "of_c"}
    found |= {name: [getattr(mlp, of) for mlp in mlps] for name, of in names.items()}
    return loss, gradients | {name: np.array(value) for name, value in found.items() if name in values}


def clipped(point, gradients):
    """Scaled so that the norm of all together is at most max_grad_norm, where there is one."""
    if not point.max_grad_norm:
        return gradients
    total = math.sqrt(sum((g**2).sum() for g in gradients.values()))
    return {name: g * min(1, point.max_grad_norm / (total + 1e-6)) for name, g in gradients.items()}


class AdamW:
    """Decoupled weight decay, bias-corrected moments; the rate rises over the warm-up and then falls linearly to 0 at the last
    step."""

    def __init__(self, point):
        self.point, self.first, self.second, self.done = point, {}, {}, 0

    def rate(self):
        point, step = self.point, self.done
        if step < point.warmup:
            return point.learning_rate * (step + 1) / point.warmup
        return point.learning_rate * (point.steps - step) / (point.steps - point.warmup)

    def step(self, values, gradients):
        (a, b), rate = (0.9, 0.999), self.rate()
        self.done += 1
        for name, g in gradients.items():
            self.first[name] = a * self.first.get(name, 0) + (1 - a) * g
            self.second[name] = b * self.second.get(name, 0) + (1 - b) * g**2
            moved = self.first[name] / (1 - a**self.done)
            size = np.sqrt(self.second[name] / (1 - b**self.done)) + 1e-8
            values[name] = values[name] * (1 - rate * self.point.weight_decay) - rate * moved / size
