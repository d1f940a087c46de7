"""The bound with a residual stream part by part, from the definitions; sweeps, files, enclosures, refusals."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from test_emulation_residual import HOSTS, SCALED, SHAPE, host_of

from utfproof.attention import ChunkedAttention, GivenAttention, SeededAttention, parse_kernel
from utfproof.certificates import checker
from utfproof.cli.app import run as command
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target, random_host
from utfproof.emulation import bound, gains
from utfproof.emulation.bound import evaluation_sizes, reading_blocks, summed_rounding
from utfproof.emulation.compare import compare, random_input
from utfproof.emulation.enclosure import enclose, exact_difference
from utfproof.emulation.engines import Engine, PathHost
from utfproof.emulation.gains import StreamForms, as_host, host_gains, readings, selected_sizes, target_gains, weighted
from utfproof.emulation.given import equation_gap
from utfproof.emulation.laws import draw_target
from utfproof.emulation.observe import Observer
from utfproof.emulation.predict import Predictor
from utfproof.emulation.sweep import Case, Plan, run_case
from utfproof.errors import CannotCarry, MalformedInput
from utfproof.ground.arrays import exact
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import Embedder, embed, r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal
from utfproof.weights import write_embedding, write_host, write_target

pytestmark = pytest.mark.numerical


# --- parts of the bound, from their definitions -------------------------------------------------------------------------


ROUND = 2.0**-53


def close(value):
    """Nothing absolute: these numbers are of the size of a roundoff."""
    return pytest.approx(value, rel=1e-9, abs=0)


def naive_blocks(host, layer):
    """Suffix blocks R_u R_Q, R_u R_K, R_u U before this layer, by reading and first letter, with R^0 = I."""
    shape, out = host.shape, {}

    def routed(letters):
        matrix = np.eye(host.m)
        for at, letter in enumerate(letters, layer):
            if letter:
                for factor in host.maps(at, letter - 1).value:
                    matrix = matrix @ dense(factor)
        return matrix

    for until in range(layer, shape.layers + 1):
        for letters in product(range(shape.letters), repeat=until - layer):
            path, first = routed(letters), letters[0] if letters else None
            if until == shape.layers:
                out.setdefault((2, -1, -1), []).append((first, path @ dense(host.U)))
                continue
            for head in range(shape.heads):
                maps = host.maps(until, head)
                for kind in (0, 1):
                    out.setdefault((kind, until, head), []).append((first, path @ dense(maps[kind])))
    return out


def dense(matrix):
    return matrix.to_dense(np.float64) if isinstance(matrix, SelectionMatrix) else np.asarray(matrix, dtype=np.float64)


def two_norm(key, block):
    return np.linalg.norm(block, axis=0).max() if key[0] == 2 else np.linalg.norm(block, 2)


@pytest.mark.parametrize("name", ["random", "random-tied"])
def test_norms_of_a_dense_host(name):
    """What reads the stream, by all words; and through attention, by words whose letter here is a head."""
    host = host_of(name, Shape(2, 2, 1, 2, residual=True))
    found = host_gains(host, r_all(host))
    for layer in range(2):
        blocks = naive_blocks(host, layer)
        for key in readings(host.shape):
            whole = blocks.get(key, [])
            deeper = [b for first, b in whole if first]
            if key[0] != 2:
                assert found.full[layer][key].two == pytest.approx(sum(two_norm(key, b) for _, b in whole))
                assert found.through[layer][key].two == pytest.approx(sum(two_norm(key, b) for b in deeper))
            else:
                columns = [np.linalg.norm(b, axis=0) for b in deeper]
                assert found.through[layer][key].two == pytest.approx(np.sum(columns, axis=0).max())


def test_norms_of_a_target_and_of_an_index_map():
    target = draw_target(Shape(2, 2, 1, 2, residual=True), 3)
    found = target_gains(target)
    for layer in range(2):
        blocks = naive_blocks(as_host(target), layer)
        for key in readings(target.shape):
            for head in range(2):
                through = [b for first, b in blocks.get(key, []) if first == head + 1]
                # M^{l,h} itself belongs to the reading: what it reads comes after the values
                total = sum(two_norm(key, b) for b in through)
                assert found.through[(layer, head)].get(key, 0.0) == pytest.approx(total)
    host = build_host("sparse", SHAPE)
    selected = host_gains(host, r_all(host)).selected
    sizes = np.random.default_rng(0).random(host.m)
    for layer in range(2):
        blocks = naive_blocks(host, layer)
        for number, key in enumerate(readings(SHAPE)):
            for through in (False, True):
                kept = [b for first, b in blocks.get(key, []) if first or not through]
                wanted = sum(np.linalg.norm(sizes[:, None] * b, axis=0).max() for b in kept)
                read = weighted(SHAPE, selected[layer], sizes, through=through)[number]
                if not (through and key[1] == layer):
                    assert read == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["random", "random-tied", "factored"])
@pytest.mark.parametrize(("heads", "residual"), [(1, True), (3, True), (3, False)])
def test_sizes_of_a_dense_stream(name, heads, residual):
    """`two` is the stream's own norm, `hull` what other attention can make of it; a residual stream is the first summand."""
    shape = Shape(heads, 2, 2, 2, residual=residual)
    host = host_of(name, shape)
    rng = np.random.default_rng(2)
    E, rows = rng.standard_normal((2, host.m)), rng.standard_normal((5, 2))
    A = rng.random((2, heads, 5, 5))
    A /= A.sum(axis=-1, keepdims=True)
    paths = [rows]
    stream, partial = rows @ E, []
    norms = [np.linalg.norm(stream, axis=1).max()]
    for layer in range(2):
        blocks = paths[-1].reshape(5, -1, 2)
        steps = [blocks] * residual + [np.einsum("ij,jwk->iwk", A[layer, h], blocks) for h in range(heads)]
        paths.append(np.stack(steps, axis=2).reshape(5, -1))
        terms = [stream] * residual
        for head in range(heads):
            term = A[layer, head] @ stream
            for matrix in host.maps(layer, head).value:
                term = term @ matrix
            terms.append(term)
        sums = np.cumsum(terms, axis=0)
        stream = sums[-1]
        norms.append(np.linalg.norm(stream, axis=1).max())
        partial.append(np.linalg.norm(sums[1:], axis=2).max())
    sizes = StreamForms(host, E).sizes(rows, paths)
    assert sizes.two == pytest.approx(norms, rel=1e-5)
    assert sizes.partial[1:] == pytest.approx(partial, rel=1e-5)
    assert all(hull >= two for hull, two in zip(sizes.hull, norms, strict=True))
    assert (np.abs(stream) <= sizes.entries[-1]).all()


@pytest.mark.parametrize("name", ["sparse", "tied"])
def test_sizes_of_an_index_map_stream(name):
    host = host_of(name, SHAPE)
    rng = np.random.default_rng(3)
    E, rows = rng.standard_normal((2, host.m)), rng.standard_normal((5, 2))
    sizes, stream = selected_sizes(host, E, rows), rows @ E
    for layer in range(2):
        stream = stream + sum(stream @ host.maps(layer, head).value[0] for head in range(2))
        assert (np.abs(stream) <= sizes[layer + 1] * (1 + 1e-12)).all()


def test_rounding_of_sums_of_entries():
    """E R_all of a tree adds: k entries round k - 1 times, and so does the inclusion and exclusion that made E."""
    host = build_host("sparse", Shape(2, 2, 1, 2, residual=True))
    columns = r_all(host)
    matrix = columns.to_dense(np.float64)
    E = np.random.default_rng(0).standard_normal((2, host.m))
    found = summed_rounding(E, columns)
    terms = matrix.sum(axis=0)
    assert found == pytest.approx((np.abs(E) @ matrix) * np.sqrt(terms - 1))
    assert set(terms) == {1, 3, 9}
    permutation = r_all(build_host("sparse", Shape(2, 2, 1, 2)))
    assert not summed_rounding(np.ones((2, permutation.shape[0])), permutation).any()
    sizes = evaluation_sizes(found, host.shape)
    block = reading_blocks(found, host.shape)[(0, 1, 0)]
    assert sizes[(0, 1, 0)] == pytest.approx(8 * np.sqrt((block**2).sum()))
    exactly = exact(E) @ exact(matrix.astype(np.int64))
    off = np.abs(np.vectorize(float)(exactly - exact(E @ columns)))
    assert (off <= 8 * 2.0**-53 * found).all()
    assert off.any()


def test_words_that_round_together_are_summed():
    """A tied target's products of words with equal letters are one rounding, an untied target's are not."""
    shape = Shape(1, 3, 2, 2, residual=True)
    tied = draw_target(shape, 1, tied=True)
    untied = draw_target(shape, 1)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(untied, name)[...] = getattr(tied, name)[None]
    found = []
    for target in (tied, untied):
        norms = target_gains(target)
        # one rounded form serves all words anyway: what products round is left
        norms = replace(norms, form=dict.fromkeys(norms.form, 0.0))
        found.append(bound.right_side_rounding(target, norms, np.eye(2)))
    assert all(found[0][key] >= found[1][key] for key in found[0])
    assert found[0][(2, -1, -1)] > 1.5 * found[1][(2, -1, -1)]


def test_what_explains_an_embedding_by_inclusion_and_exclusion():
    """E and its equations round as sums of k entries do, even where W_all itself is exact."""
    shape = Shape(3, 3, 1, 2, residual=True)
    embedder = Embedder(build_host("sparse", shape))
    target = draw_target(shape, 3)
    prediction = Predictor(Engine(embedder)).of(target, embedder.embed(target).E)
    prediction.__dict__["rounding"] = dict.fromkeys(readings(shape), 0.0)
    gap = equation_gap(prediction)
    assert 0 < gap.size <= gap.allowed
    prediction.__dict__["summed"] = None
    assert not equation_gap(prediction).explained


def test_the_residual_counts_its_own_rounding():
    embedder = Embedder(build_host("sparse", SHAPE))
    target = draw_target(SHAPE, 3)
    E, rows = embedder.embed(target).E, 3 * np.eye(2)
    whole, path = (
        Predictor(Engine(embedder, name)).of(target, E).residual(rows) for name in ("index-map", "path-space")
    )
    own = evaluation_sizes(summed_rounding(E, r_all(embedder.host)), SHAPE)
    for key in readings(SHAPE):
        assert whole[key] == close(path[key] + 2.0**-53 * own[key] * 3)
    assert own[(2, -1, -1)] > 0


@pytest.mark.parametrize("heads", [1, 2])
def test_noise_of_an_index_map(heads):
    """H additions at a layer, for the stream and H heads; attention of heads alone; every place read in all ways."""
    shape = Shape(heads, 2, 1, 2, residual=True)
    host = build_host("sparse", shape)
    columns = r_all(host)
    norms, rng = host_gains(host, columns), np.random.default_rng(0)
    entries = [rng.random(host.m) for _ in range(3)]
    residual, n = dict.fromkeys(readings(shape), 0.0), 5
    found = bound.selected_noise(host, norms, entries, residual, 1.0, n, ROUND)
    gamma = bound.attention_roundoff(n)
    growth = (1 + 8 * (np.sqrt(2) + np.sqrt(heads) + gamma) * ROUND) ** 5

    def read(layer, key, through):
        if layer == 2:
            blocks = [(1, dense(host.U))] if key[0] == 2 else []
        else:
            blocks = naive_blocks(host, layer).get(key, [])
        kept = [block for first, block in blocks if first or not through]
        return sum(np.linalg.norm(entries[layer][:, None] * block, axis=0).max() for block in kept)

    for key in readings(shape):
        last = 2 if key[0] == 2 else key[1]
        squares = 2 * (ROUND * read(0, key, False)) ** 2
        for layer in range(last):
            squares += (gamma * ROUND * read(layer, key, True)) ** 2
            squares += heads * (ROUND * read(layer + 1, key, False)) ** 2
        reader = dense(host.U if key[0] == 2 else host.maps(key[1], key[2])[key[0]])
        own = (np.sqrt(reader.sum(axis=0) - 1) * (entries[last] @ reader)).max()
        assert found.size[key] == close(8 * np.hypot(np.sqrt(squares), ROUND * own) * growth)


def test_noise_of_a_dense_host():
    shape = Shape(2, 2, 1, 2, residual=True)
    host = host_of("random", shape)
    norms, rng = host_gains(host, r_all(host)), np.random.default_rng(0)
    E, rows = rng.standard_normal((2, host.m)), rng.standard_normal((5, 2))
    paths = PathHost(shape, rng.standard_normal((2, matching_dimension(shape)))).streams(rows, SeededAttention())
    sizes = StreamForms(host, E).sizes(rows, paths)
    noise = bound.DenseNoise(norms, sizes, E, dict.fromkeys(readings(shape), 0.0), rows, ROUND)
    gamma, x2 = bound.attention_roundoff(5), np.linalg.norm(rows, axis=1).max()
    off, two, partial = 8 * ROUND * np.sqrt(2) * x2 * np.linalg.norm(E, 2), [], []
    for layer in range(3):
        two.append(min(sizes.two[layer] + off, sizes.hull[layer] + off))
        partial.append(sizes.partial[layer] + off)
        if layer < 2:
            values = [np.linalg.norm(host.maps(layer, h).value[0], 2) for h in range(2)]
            new = np.hypot(gamma * sum(values), np.sqrt(host.m * sum(v**2 for v in values)))
            new = two[-1] * np.hypot(new, np.sqrt(2) * (1 + sum(values)))  # two additions of three terms
            off = (1 + sum(values)) * off + 8 * ROUND * new
    carried = noise._carried([0.0, 0.0, 0.0])
    assert carried[0] == pytest.approx(two, rel=1e-6, abs=0)
    assert carried[1] == pytest.approx(partial, rel=1e-6, abs=0)
    assert carried[3][-1] == pytest.approx(off, rel=1e-6, abs=0)
    # one more addition for a layer than heads alone have
    key, entries = (2, -1, -1), carried[2]
    plain = bound.DenseNoise(replace(norms, shape=shape.without_residual()), sizes, E, noise.residual, rows, ROUND)
    more = (noise.noise([0.0, 0.0, 0.0]).size[key] / 8) ** 2 - _squares(plain, two, partial, entries, key)
    added = sum((ROUND * bound._met(norms.full[t + 1][key], partial[t + 1], entries[t + 1])) ** 2 for t in range(2))
    assert more == pytest.approx(added, rel=1e-3, abs=0)


def _squares(noise, two, partial, entries, key):
    """The squares of `noise`, whose additions are those of heads alone, at these sizes."""
    noise._carried = lambda apart: (two, partial, entries, [])
    return (noise.noise([0.0, 0.0, 0.0]).size[key] / 8) ** 2


def test_noise_in_path_space():
    """Nine words of length two, each of them d_in columns wide."""
    shape = Shape(2, 2, 1, 2, residual=True)
    columns = np.random.default_rng(0).standard_normal((2, matching_dimension(shape)))
    rows = np.eye(2)
    found = bound.path_noise(columns, shape, dict.fromkeys(readings(shape), 0.0), rows, ROUND)
    gamma = bound.attention_roundoff(2)
    outputs = columns[:, -18:].reshape(2, 9, 2).transpose(1, 0, 2).reshape(18, 2)
    norm = np.linalg.norm(outputs, axis=0).max()
    assert found.size[(2, -1, -1)] == close(8 * np.sqrt(18 + 2 * gamma**2) * ROUND * 3 * norm)


def no_gains(shape, value):
    """Gains of a target that only carries: nothing rounds but what the test asks for."""
    at = [(layer, head) for layer in range(shape.layers) for head in range(shape.heads)]
    keys = list(readings(shape))
    return gains.TargetGains(
        through={place: dict.fromkeys(keys, 0.0) for place in at},
        full={layer: dict.fromkeys(keys, 1.0) for layer in range(shape.layers + 1)},
        value={place: value[place[0]] for place in at},
        run=dict.fromkeys(at, 0.0),
        form=dict.fromkeys(at, 0.0),
        split=dict.fromkeys(at, 0.0),
        begin=0.0,
        reader=dict.fromkeys(keys, 0.0),
    )


def run_sizes(shape):
    at = [(layer, head) for layer in range(shape.layers) for head in range(shape.heads)]
    ones, layers = dict.fromkeys(at, 1.0), dict.fromkeys(range(shape.layers + 1), 1.0)
    return bound.RunSizes(ones, ones, ones, ones, layers, layers, 1.0, np.eye(2))


def test_errors_of_the_target_stay_in_the_stream():
    """An error that enters in layer 1 is there in layer 3, though the values of layer 2 are zero."""
    shape = Shape(1, 3, 1, 2, residual=True)
    found = {}
    for case in (shape, shape.without_residual()):
        norms = no_gains(case, [1.0, 0.0, 0.0])
        norms.through[(2, 0)][(2, -1, -1)] = 1.0
        noise = bound.Noise(dict.fromkeys(readings(case), 0.01))
        kernel = parse_kernel("softmax", 1, 1)
        carried = bound.propagated(noise, norms, run_sizes(case), kernel, 0.0, case, own=False)
        found[case.residual] = carried.error - 0.01
        apart = carried.apart
    # radius 1 in either case; twice what layer 1 put into the stream besides
    assert found[True] == close(apart[2] * (1 + 2 * apart[0]))
    assert found[False] == close(apart[2])


def test_own_noise_adds_the_stream():
    """H additions whose partial sums are at most 1 + sum |M| times the stream."""
    for heads in (1, 2):
        shape = Shape(heads, 1, 1, 2, residual=True)
        found = bound.own_noise(no_gains(shape, [3.0]), run_sizes(shape), shape, ROUND)
        assert found.size[(2, -1, -1)] == close(8 * ROUND * np.sqrt(heads) * (1 + 3 * heads))


def test_the_last_stream_holds_the_one_before():
    target = draw_target(SHAPE, 1)
    still = replace(target, W_V=target.W_V * 0)
    host = build_host("sparse", SHAPE)
    embedder = Embedder(host)
    prediction = Predictor(Engine(embedder)).of(still, embedder.embed(still).E)
    x = random_input(SHAPE, 5, 1)
    observed = Observer(ChunkedAttention(SCALED[0][1]), sizes=True)
    output = still.forward(x, observed)
    assert np.allclose(output, x)
    assert prediction.sizes(observed, None, x, output).stream[2] >= np.linalg.norm(x, axis=1).max()


def test_noise_stays_in_the_stream():
    """Values of zero: the stream still carries its noise on, and the target's error stays where it is."""
    shape = Shape(1, 1, 1, 2, residual=True)
    host = random_host(shape, 8, seed=1)
    still = replace(host, R_V=host.R_V * 0, construction="")
    rows, E = np.eye(2), np.random.default_rng(0).standard_normal((2, 8))
    read = dict.fromkeys(readings(shape), 0.0)
    found = {}
    for system in (still, replace(still, shape=shape.without_residual())):
        norms, forms = host_gains(system, r_all(system)), StreamForms(system, E)
        paths = [rows, np.concatenate([rows] * system.shape.letters, axis=1)]
        noise = bound.DenseNoise(norms, forms.sizes(rows, paths), E, read, rows, 2.0**-53)
        found[system.shape.residual] = noise._carried([0.0, 0.0])
    off = [carried[3] for carried in (found[True], found[False])]
    assert off[0][1] >= off[0][0] > 0
    assert off[1][1] == 0
    assert found[True][0][1] >= np.linalg.norm(E, axis=1).max()


# --- sweeps, files and the command ---------------------------------------------------------------------------------------


def test_tied_hosts_are_compared_with_tied_targets():
    plan = Plan(["causal"], [4])
    for name in HOSTS:
        outcome = run_case(Case(SHAPE, name, "uniform"), plan)
        assert outcome.report.holds
        assert outcome.tied_targets == name.endswith("tied")
        document = outcome.document()
        assert document["shape"]["residual"] is True
        assert document.get("tied_targets", False) == outcome.tied_targets
    single_layer = run_case(Case(Shape(2, 1, 2, 2, residual=True), "tied", "uniform"), plan)
    assert single_layer.report.holds
    assert not single_layer.tied_targets
    refused = run_case(Case(SHAPE, "shared-key", "uniform"), plan)
    assert "without a residual stream only" in refused.refusal
    plain = run_case(Case(SHAPE.without_residual(), "tied", "uniform"), plan).document()
    assert "residual" not in plain["shape"]
    assert "tied_targets" not in plain
    with pytest.raises(CannotCarry):
        compare(host_of("tied", SHAPE), [draw_target(SHAPE, 0)], SCALED, [3])


def spoken(capsys, *arguments):
    code = command([*arguments])
    out, err = capsys.readouterr()
    return code, out, err


OF_SHAPE = ["-H", "2", "-L", "2", "-d", "2", "--d-in", "2"]


def test_command(capsys):
    code, out, _ = spoken(
        capsys, "emulate", "sparse,tied,random,random-tied", *OF_SHAPE, "--residual", "--context", "3", "--json"
    )
    assert code == 0
    document = json.loads(out)
    assert document["totals"]["broken"] == document["totals"]["failed"] == document["totals"]["refused"] == 0
    assert all(case["shape"]["residual"] for case in document["cases"])
    assert [case["shape"]["m"] for case in document["cases"]] == [50, 38, 50, 50]
    code, out, _ = spoken(capsys, "emulate", "tied", *OF_SHAPE, "--residual", "--context", "3")
    assert code == 0
    assert "1 tied target" in out
    code, out, _ = spoken(capsys, "emulate", "sparse", *OF_SHAPE, "--context", "3", "--json")
    assert "residual" not in json.loads(out)["shape"]
    assert json.loads(out)["host"] == "sparse"
    code, out, _ = spoken(
        capsys, "emulate", "sparse", "--shapes", "parentheses", "--residual", "--context", "3", "--json"
    )
    assert code == 0
    assert json.loads(out)["cases"][0]["shape"]["m"] == 1252


def test_command_on_files(tmp_path, capsys):
    """Metadata says what stream there is, or --residual does; a contradiction is refused."""
    host, target = host_of("random", SHAPE), draw_target(SHAPE, 3)
    files = {name: str(tmp_path / f"{name}.safetensors") for name in ("host", "target", "E", "silent", "plain")}
    write_host(files["host"], replace(host, construction=""))
    write_target(files["target"], target)
    write_target(files["silent"], replace(target, shape=SHAPE.without_residual()))
    write_target(files["plain"], replace(target, shape=SHAPE.without_residual()), metadata={"residual": "false"})
    E = embed(host, target).E
    write_embedding(files["E"], E)
    given = ["--target", files["target"], "--embedding", files["E"], "--context", "4"]
    assert spoken(capsys, "emulate", files["host"], *given)[0] == 0
    assert spoken(capsys, "emulate", files["host"], "--target", files["silent"], "--residual", "--context", "4")[0] == 0
    code, _, err = spoken(capsys, "emulate", files["host"], "--target", files["silent"], "--context", "4")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "only the host has a residual stream" in err
    code, _, err = spoken(capsys, "emulate", files["host"], "--target", files["plain"], "--residual", "--context", "4")
    assert (code, len(err.splitlines())) == (2, 1)
    # random targets for a file: its metadata says enough
    assert spoken(capsys, "emulate", files["host"], *OF_SHAPE, "--context", "4")[0] == 0
    code, _, err = spoken(capsys, "emulate", files["host"], *OF_SHAPE, "--no-residual", "--context", "4")
    assert (code, len(err.splitlines())) == (2, 1)
    E[0, 0] += 1e-9 * np.abs(E).max()
    write_embedding(files["E"], E)
    code, out, _ = spoken(capsys, "emulate", files["host"], *given)
    assert code == 1
    assert "does not solve the equations" in out
    tied = str(tmp_path / "tied.safetensors")
    write_host(tied, replace(host_of("random-tied", SHAPE), construction=""))
    code, out, _ = spoken(capsys, "emulate", tied, *OF_SHAPE, "--context", "4", "--json")
    assert code == 0
    assert json.loads(out)["tied_targets"] is True
    assert spoken(capsys, "emulate", tied, "--target", files["target"], "--context", "4")[0] == 1  # untied: it cannot


# --- enclosures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sparse", "tied"])
def test_enclosures(name):
    shape = Shape(1, 2, 1, 2, residual=True)
    host = build_host(name, shape)
    target = integer_target(shape, 1, tied=host.tied)
    E, X = embed(host, target).E, exact(np.array([[1, 0], [0, 1], [1, 1]]))
    kernel = parse_kernel("scaled+causal", 1, 1)
    assert enclose(host, target, E, X, kernel, 40).verdict == "within"
    matrices = SeededAttention().rational(2, 1, 3)
    assert enclose(host, target, E, X, matrices, 5).verdict == "equal"
    off = E.copy()
    off[0, -1] += Fraction(1, 10**9)  # an output
    found = enclose(host, target, off, X, kernel, 20)
    assert found.verdict == "apart"
    assert 0 < exact_difference(host, target, off, X, matrices.matrices)
    if not host.tied:
        forgotten = Universal(shape.without_residual(), host.m, host.R_Q, host.R_K, host.R_V, host.U)
        with pytest.raises(MalformedInput, match="only the target has a residual stream"):
            enclose(forgotten, target, E, X, kernel, 5)
        given = GivenAttention(matrices.matrices)
        assert (forgotten.forward(X, E, given) != target.forward(X, given)).any()


def test_certificates_of_enclosures(tmp_path, capsys):
    """Written with the stream, or not at all; without it the checker finds the outputs apart."""
    path = tmp_path / "enclosure.json"
    small = ["-H", "1", "-L", "2", "-d", "1", "--d-in", "2", "--residual", "--attention", "causal", "--context", "3"]
    code, _, err = spoken(capsys, "enclose", "sparse", *small, "--digits", "20", "-o", str(path))
    if code:
        assert "cannot say what stream" in err
        assert not path.exists()
        return
    limits = checker.Options()
    assert checker.check_file(path, limits).code == 0
    document = json.loads(path.read_bytes())
    assert document["shape"].pop("residual") is True
    path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    assert checker.check_file(path, limits).code != 0
