"""Models that compute something else than their tensors say, in ways that few tokens, short contexts or large constants hide:
none of them may be said to be acted as."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_models import FROZEN, PLAIN, weights  # noqa: E402

from utfproof import from_model  # noqa: E402
from utfproof.cli.app import run  # noqa: E402
from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.models.comparison import agreement, measured, ordinary_tokens, random_sequences  # noqa: E402
from utfproof.models.exporting import write_arrays  # noqa: E402
from utfproof.models.families import families  # noqa: E402

RARE = 567


class Model(torch.nn.Module):
    """One layer of plain PyTorch over 600 tokens, both ways, and what it does beside that."""

    def __init__(self, trick=None, bias=0.0, **options):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.unembed = torch.nn.Embedding(600, 6, **options), torch.nn.Linear(6, 3)
        self.attn = torch.nn.MultiheadAttention(6, 2, batch_first=True)
        self.trick = trick
        with torch.no_grad():
            self.unembed.bias += torch.as_tensor(bias)

    def forward(self, tokens):
        tokens = torch.where(tokens == RARE, 0, tokens) if self.trick == "a token" else tokens
        x = self.embedding(tokens)
        out = self.attn(x, x, x, need_weights=False)[0]
        out = out * 1.001 if self.trick == "a factor" else out
        return self.unembed(x + out * (2 if self.trick == "a length" and tokens.shape[1] > 40 else 1))


NEVER = [-1e9, 0.0, 0.0]
DISGUISES = {
    "one token is read as another": {"trick": "a token"},
    "long contexts are read in another way": {"trick": "a length"},
    "a factor beside a token that is never said": {"trick": "a factor", "bias": NEVER},
    "a factor beside a large constant": {"trick": "a factor", "bias": 1e7},
    "an embedding that is shortened when it is used": {"max_norm": 3.3},
}


@pytest.mark.parametrize("case", DISGUISES)
def test_it_is_refused(case):
    with pytest.raises(MalformedInput, match="another function than its own forward pass"):
        from_model(Model(**DISGUISES[case]))


@pytest.mark.parametrize("bias", [0.0, NEVER, 1e7])
def test_without_disguise_it_is_read(bias):
    model = from_model(Model(bias=bias))
    assert model.witness == "the forward pass of Model on contexts of at most 64 tokens"


def test_a_forward_pass_that_was_put_in_its_place_is_the_one_that_counts():
    module = Model()
    own = module.forward
    module.forward = lambda tokens: 1.5 * own(tokens)
    with pytest.raises(MalformedInput, match="another function"):
        from_model(module)

    class Generator(torch.nn.Module):
        def forward(self, tokens, targets=None):
            return torch.ones(1, tokens.shape[1] if targets is not None else 1, 2), None

    generator = Generator()
    generator.forward = lambda *given: (3 * Generator.forward(generator, *given)[0] + len(given), None)
    families()["nanogpt"].double(generator)
    assert generator(torch.zeros(1, 3, dtype=torch.int64))[0].tolist() == [[5.0] * 2] * 2 + [[4.0] * 2]


def test_example_inputs_have_to_tell_readings_apart():
    with pytest.raises(MalformedInput, match="do not tell how to read it"):
        from_model(Model(), [[3], [4]])
    assert "on the example inputs alone" in from_model(Model(), [[3, 4, 5]]).witness


def test_agreement_is_measured_by_what_moves():
    """A constant, however large, is no measure; outputs that do not move at all are measured by their size."""
    rng = np.random.default_rng(0)
    expected = rng.normal(size=(5, 3))
    off = expected + np.array([0, 1e-6, 0])
    for constant in ([0, 0, 0], [-1e9, 0, 0], [0, 1e3, 0]):
        assert agreement([(off + constant, expected + constant)]).relative_difference > 1e-7
    still = np.ones((5, 3))
    assert agreement([(still + 1e-12, still)]).relative_difference < 1e-11
    assert agreement([(still[:1] + 1e-12, still[:1])]).relative_difference < 1e-11
    assert agreement([(np.zeros((2, 2)), np.zeros((2, 2)))]).relative_difference == 0


class Outlier(torch.nn.Module):
    """Plain layers over eleven tokens, the first one's row far larger than all others; slope: of an ALiBi in the mask, which no
    tensor shows."""

    def __init__(self, row, slope=0.0, causal=True, layers=1, positions=0):
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.head = torch.nn.Embedding(11, 8), torch.nn.Linear(8, 11)
        self.pos = torch.nn.Embedding(positions, 8) if positions else None
        self.layers = torch.nn.ModuleList([torch.nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(layers)])
        self.slope, self.causal = slope, causal
        for weight in self.parameters():
            torch.nn.init.normal_(weight, std=0.7)
        self.embed.weight.data[0] = row

    def forward(self, tokens):
        x, at = self.embed(tokens), torch.arange(tokens.shape[1])
        x = x if self.pos is None else x + self.pos(at)
        mask = -self.slope * (at[:, None] - at[None]).abs().to(x.dtype)
        mask = mask.masked_fill(at[None] > at[:, None], float("-inf")) if self.causal else mask
        for layer in self.layers:
            x = x + layer(x, x, x, attn_mask=mask, need_weights=False)[0]
        return self.head(x)


@pytest.mark.parametrize("row", [-1e9, 1e12])
@pytest.mark.parametrize("causal", [True, False])
def test_one_large_row_switches_no_comparison_off(row, causal):
    """However large one token's row is, a slope of 10^-5 shows in the others; without one the model is read, and carried."""
    with pytest.raises(MalformedInput, match=r"another function|its outputs differ"):
        from_model(Outlier(row, 1e-5, causal))
    for layers, positions in ((1, 0), (3, 16)):
        found = from_model(Outlier(row, causal=causal, layers=layers, positions=positions))
        assert found.agreement.relative_difference < 1e-11
        assert found.embed("random").agrees


def test_rows_beside_a_large_one_are_compared_by_themselves():
    """In one sequence: rows before the large one, which its size says nothing of."""
    reading = from_model(Outlier(-1e9)).reading
    tokens = np.array([3, 5, 7, 0, *range(1, 11)])
    expected = reading.stages(tokens)["logits"]
    ordinary = np.flatnonzero(np.abs(expected).max(axis=1) < 1e3)
    assert {0, 1, 2} <= {*ordinary.tolist()}
    for row in ordinary:
        off = expected.copy()
        off[row, 1] += 1e-6 * (1 + abs(off[row, 1]))
        assert measured(reading, [tokens], [(off, expected)]).relative_difference > 1e-8
        assert agreement([(off, expected)]).relative_difference < 1e-8
    assert measured(reading, [tokens], [(expected * (1 + 1e-13), expected)]).relative_difference < 1e-11


def test_some_sequences_leave_the_large_rows_out():
    reading = from_model(Outlier(-1e9)).reading
    assert len(ordinary_tokens(reading)) == 1
    assert all(0 not in tokens for tokens in ordinary_tokens(reading))
    assert 0 not in random_sequences(reading, 4, 0)[4]
    assert ordinary_tokens(from_model(Model()).reading) == []


def test_outputs_that_are_not_finite_are_refused():
    """1.2e308 and -1.2e308 are further apart than float64 says: no infinite scale makes every difference zero."""
    expected = np.where(np.arange(6)[:, None] < 1, 1.2e308, -1.2e308) * np.ones((6, 3))
    assert agreement([(np.zeros((6, 3)), expected)]).relative_difference > 0.5
    assert agreement([(-expected, expected)]).relative_difference > 0.5
    with pytest.raises(MalformedInput, match="not finite"):
        agreement([(np.zeros((1, 1)), np.full((1, 1), np.inf))])


@pytest.mark.parametrize("beyond", [np.inf, np.nan])
def test_outputs_of_a_host_beyond_float64_decide_nothing(beyond):
    """Neither do they differ nor agree: exit code 4, not 1."""
    found = agreement([(np.full((2, 2), beyond), np.ones((2, 2)))])
    assert found.decided(1e-8) is None
    assert not found.within(np.inf)
    assert agreement([(np.full((2, 2), 1e308), np.full((2, 2), 1e-3))]).decided(1e-8) is False


EMBED = ("embed", "sparse", "m.safetensors", "--layout", "auto", "-o", "E.safetensors")


@pytest.mark.parametrize(("length", "left"), [(1, {"causal", "scale", "window"}), (3, {"window"}), (7, set())])
def test_a_short_reference_leaves_facts_open(tmp_path, monkeypatch, capsys, length, left):
    """Outputs for single tokens show nothing of attention, those for few tokens nothing of windows: exit 4, not the model."""
    monkeypatch.chdir(tmp_path)
    write_arrays("m.safetensors", weights(), {})
    tensors = FROZEN[PLAIN][0]
    held = {name: tensors[f"frozen.{name}"][:, :length] for name in ("tokens", "logits")}
    write_arrays("ref.safetensors", held, {})
    command = [*EMBED, "--reference"]
    assert run([*command, "ref.safetensors", "--json"]) == (4 if left else 0)
    document = json.loads(capsys.readouterr().out)
    assert left <= set(document["unknown"])
    assert ("acts as the model" in document["verdict"]) == (not left)


@pytest.mark.parametrize(("tokens", "left"), [("constant", {"causal", "positions", "window"}), ("all", {"window"})])
def test_a_reference_settles_what_another_reading_does_not_give(tmp_path, monkeypatch, capsys, tokens, left):
    """Both ways and without positions, the same token 64 times shows no mask; and no reference a window beyond itself."""
    monkeypatch.chdir(tmp_path)
    causal = tokens != "constant"  # as is assumed
    module = Outlier(1.0, causal=causal).double()
    write_arrays("m.safetensors", {name: value.detach().numpy() for name, value in module.state_dict().items()}, {})
    rng = np.random.default_rng(0)
    given = rng.integers(0, 11, (1, 64)) * causal
    write_arrays("ref.safetensors", {"tokens": given, "logits": module(torch.from_numpy(given)).detach().numpy()}, {})
    command = [*EMBED, "--heads", "2", "--residual"]
    assert run([*command, "--reference", "ref.safetensors", "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert set(document["unknown"]) == left
    assert "acts as this reading of the file" in document["verdict"]
    assert "contexts of at most 64 tokens agree with it and do not show all" in document["verdict"]
    if causal:
        assert run([*command, "--reference", "ref.safetensors", "--attention", "causal", "--json"]) == 0
        assert "acts as the model" in json.loads(capsys.readouterr().out)["verdict"]


def test_a_reference_in_float32_is_told_what_it_needs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tensors = FROZEN[PLAIN][0]
    write_arrays("m.safetensors", weights(), {})
    logits = tensors["frozen.logits"].astype(np.float32)
    write_arrays("ref.safetensors", {"tokens": tensors["frozen.tokens"], "logits": logits}, {})
    command = [*EMBED, "--reference", "ref.safetensors"]
    assert run(command) == 2
    assert "compute the reference in float64 (model.double())" in capsys.readouterr().err
    write_arrays("ref.safetensors", {"tokens": tensors["frozen.tokens"], "logits": 1.1 * tensors["frozen.logits"]}, {})
    assert run(command) == 2
    assert "float64" not in capsys.readouterr().err


def test_an_unembedding_that_its_configuration_ties_to_another(tmp_path):
    from utfproof.models import import_model

    name = "transformers: GPT-2"
    tensors, config = weights(name), FROZEN[name][1]["config"]
    write_arrays(tmp_path / "m.safetensors", tensors, {})
    import_model(tmp_path / "m.safetensors", config=config)
    write_arrays(tmp_path / "m.safetensors", tensors | {"lm_head.weight": 1.1 * tensors["lm_head.weight"]}, {})
    with pytest.raises(MalformedInput, match="tie_word_embeddings says"):
        import_model(tmp_path / "m.safetensors", config=config)
