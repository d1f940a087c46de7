"""The tasks of the paper's experiments against slow, obvious code, exact laws, and planted faults."""

import itertools
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from scipy.special import chdtrc

from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper

torch = pytest.importorskip("torch")

from utfproof.training.task import seeded, stream_seed  # noqa: E402
from utfproof.training.tasks import khop, kind_of, parentheses, task_named  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
REJECT = 1e-9
"""Seeds are fixed, so a law is either rejected beyond doubt or not at all."""


def fits(counts: Counter, law: dict) -> bool:
    """Chi-square of counted outcomes against a law; outcomes that the law does not have count as a failure."""
    assert sum(law.values()) == pytest.approx(1, abs=1e-9)
    if set(counts) - {outcome for outcome, chance in law.items() if chance > 0}:
        return False
    if len(law) == 1:
        return True
    total = sum(counts.values())
    expected = {outcome: total * float(chance) for outcome, chance in law.items() if chance > 0}
    assert min(expected.values()) > 5, "too few samples for the test"
    statistic = sum((counts[outcome] - want) ** 2 / want for outcome, want in expected.items())
    return bool(chdtrc(len(expected) - 1, statistic) > REJECT)


# --- parentheses: slow code -------------------------------------------------------------------------------------


def balanced_law(pairs: int, wrap=Fraction(1, 2)) -> dict[str, Fraction]:
    """The law of the recursion, exactly."""
    if pairs == 1:
        return {"()": Fraction(1)}
    law: Counter = Counter()
    for inner, chance in balanced_law(pairs - 1, wrap).items():
        law[f"({inner})"] += wrap * chance
    for left in range(1, pairs):
        for a, first in balanced_law(left, wrap).items():
            for b, second in balanced_law(pairs - left, wrap).items():
                law[a + b] += (1 - wrap) * first * second / (pairs - 1)
    return dict(law)


def mixed(law: dict, operation, rounds: int = 1) -> dict:
    """The law after an operation that takes a string to a list of (string, probability), so many times."""
    for _ in range(rounds):
        following: Counter = Counter()
        for text, chance in law.items():
            for result, share in operation(text):
                following[result] += chance * share
        law = dict(following)
    return law


def swap_once(text: str, always: bool = False):
    n = len(text)
    for p, q in itertools.product(range(n), repeat=2):
        letters = list(text)
        if p < q or always:
            letters[p], letters[q] = letters[q], letters[p]
        yield "".join(letters), 1 / n**2


def flip_once(text: str):
    n = len(text)
    for p in range(n):
        yield text[:p] + {"(": ")", ")": "("}[text[p]] + text[p + 1 :], 1 / n


def added(parts: list[tuple[float, dict]]) -> dict:
    total: Counter = Counter()
    for weight, law in parts:
        for text, chance in law.items():
            total[text] += weight * chance
    return dict(total)


def string_law(pairs: int, *, doubled=2 / 3, always_swap=False, kept=1 / 2, random_share=1 / 3) -> dict[str, float]:
    """The law of the task's strings, the geometric numbers cut at 40."""
    halves = [(0.5**r, r) for r in range(1, 41)]

    def swapped(law: dict) -> dict:
        parts, current = [], law
        for weight, _ in halves:
            current = mixed(current, lambda text: swap_once(text, always_swap))
            parts.append((weight, current))
        return added(parts)

    def flipped(law: dict) -> dict:
        steps = [law]
        for _ in range(80):
            steps.append(mixed(steps[-1], flip_once))
        return added(
            [(weight * (1 - doubled), steps[r]) for weight, r in halves]
            + [(weight * doubled, steps[2 * r]) for weight, r in halves]
        )

    def mutated(law: dict) -> dict:
        both = swapped(law)
        return added([(0.25, law), (0.25, both), (0.25, flipped(law)), (0.25, flipped(both))])

    uniform: Counter = Counter()
    for n in range(1, 2 * pairs + 1):
        for letters in itertools.product("()", repeat=n):
            uniform["".join(letters)] += 1 / (2 * pairs) / 2**n
    balanced = added([(1 / pairs, {t: float(p) for t, p in balanced_law(n).items()}) for n in range(1, pairs + 1)])
    return added(
        [
            (random_share, mutated(dict(uniform))),
            ((1 - random_share) * kept, balanced),
            ((1 - random_share) * (1 - kept), mutated(balanced)),
        ]
    )


def stack_balanced(text: str) -> bool:
    stack = []
    for letter in text:
        if letter == "(":
            stack.append(letter)
        elif not stack:
            return False
        else:
            stack.pop()
    return not stack


def written(rows, lengths) -> list[str]:
    return ["".join("_()?"[i] for i in row[:n]) for row, n in zip(rows.tolist(), lengths.tolist(), strict=True)]


# --- parentheses: tests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [1, 2, 3, 4, 5])
def test_balanced_strings_follow_the_recursion(pairs):
    amount = torch.full((40_000,), pairs)
    drawn = parentheses.balanced_strings(amount, pairs + 1, seeded(1, "law", pairs))
    counts = Counter(written(drawn, 2 * amount))
    assert fits(counts, balanced_law(pairs))
    if pairs > 2:  # two pairs: a wrap and a split are the only choices, and a third one each would be seen as well
        assert not fits(counts, balanced_law(pairs, Fraction(9, 20)))


def test_the_recursion_written_with_random_agrees():
    """The exact law above against the recursion as one would first write it."""
    chooser = random.Random(3)

    def draw(pairs):
        if pairs == 1:
            return "()"
        if chooser.random() < 0.5:
            return f"({draw(pairs - 1)})"
        left = chooser.randint(1, pairs - 1)
        return draw(left) + draw(pairs - left)

    assert fits(Counter(draw(4) for _ in range(20_000)), balanced_law(4))


@pytest.mark.parametrize("size", [1, 2])
def test_a_batch_of_a_single_sequence(size):
    for name in ("parentheses", "2-hop"):
        for seed in range(20):
            batch = task_named(name).batch(size, seeded(seed, "single", 0))
            assert batch.inputs.shape == (size, task_named(name).context)
            assert batch.targets.shape == (size, 1 if name == "parentheses" else 99)
    for seed in range(40):  # the law's own check: every string that is said to be balanced is
        drawn = parentheses.balanced_strings(torch.tensor([7]), 30, seeded(seed, "single", 1))[0, :14]
        depth = torch.where(drawn == parentheses.OPEN, 1, -1).cumsum(0)
        assert depth.min() >= 0
        assert depth[-1] == 0


def test_long_balanced_strings():
    """At full size: every string balanced, and the number of outer parts as the slow recursion has it."""
    amount = torch.full((20_000,), 30)
    drawn = parentheses.balanced_strings(amount, 30, seeded(1, "law", 0))
    texts = written(drawn, 2 * amount)
    assert all(stack_balanced(text) for text in texts)

    def outer(pairs, known={1: {1: 1.0}}):  # noqa: B006
        if pairs not in known:
            law: Counter = Counter({1: 0.5})
            for left in range(1, pairs):
                for (a, p), (b, q) in itertools.product(outer(left).items(), outer(pairs - left).items()):
                    law[a + b] += 0.5 * p * q / (pairs - 1)
            known[pairs] = dict(law)
        return known[pairs]

    def parts(text):
        depth = list(itertools.accumulate(1 if letter == "(" else -1 for letter in text))
        return depth.count(0)

    law = outer(30)
    kept = {k: p for k, p in law.items() if p > 1e-3}
    rest = {"more": sum(p for k, p in law.items() if k not in kept)}
    counts = Counter(k if (k := parts(text)) in kept else "more" for text in texts)
    assert fits(counts, kept | rest)


def test_looking_seldom_changes_nothing(monkeypatch):
    """What an accelerator does: more levels than are needed."""
    amount = torch.arange(1, 31).repeat(20)
    often = parentheses.balanced_strings(amount, 30, seeded(1, "law", 0))
    for wait in (8, 1000):
        monkeypatch.setattr(parentheses, "LEVELS_BEFORE_LOOKING", {"cpu": wait})
        assert torch.equal(parentheses.balanced_strings(amount, 30, seeded(1, "law", 0)), often)


FAULTS = {
    "flips are never doubled": {"doubled": 0.0},
    "flips are always doubled": {"doubled": 1.0},
    "pairs out of order are swapped": {"always_swap": True},
    "every balanced string is mutated": {"kept": 0.0},
    "a quarter is random": {"random_share": 1 / 4},
}


@pytest.mark.full
def test_strings_follow_the_task_and_faults_are_seen():
    text, length = parentheses.strings(150_000, 2, seeded(2, "law", 0))
    counts = Counter(written(text, length))
    assert fits(counts, string_law(2))
    for fault, changes in FAULTS.items():
        assert not fits(counts, string_law(2, **changes)), fault


def test_trailing_ones():
    numbers = [0, 1, 2, 3, 5, 7, 11, 2**29 - 1, 2**30 - 1, 2**30 - 2]
    wanted = [len(bin(n)) - len(bin(n).rstrip("1")) if n else 0 for n in numbers]
    for dtype in (torch.int32, torch.int64):
        assert parentheses.trailing_ones(torch.tensor(numbers, dtype=dtype)).tolist() == wanted


def check_parentheses(batch) -> None:
    """The layout with loss "sequence", sequence by sequence."""
    for inputs, targets, mask, scored, answers in zip(
        *(t.tolist() for t in (batch.inputs, batch.targets, batch.loss_mask, batch.scored, batch.scored_answers)),
        strict=True,
    ):
        assert len(inputs) == len(targets) == 62
        sequence = [*inputs, targets[-1]]
        assert targets == sequence[1:]
        ask = sequence.index(3)
        text = "".join({1: "(", 2: ")"}[i] for i in sequence[:ask])
        assert 1 <= len(text) <= 60
        assert sequence[ask + 1] == (2 if stack_balanced(text) else 1)
        assert sequence[ask + 2 :] == [0] * (61 - ask)
        place = [i == ask for i in range(62)]
        assert scored == answers == place
        assert all(mask)


def test_parentheses_layout():
    whole, asked = (task_named("parentheses", loss=loss) for loss in ("sequence", "answer"))
    assert (asked.name, asked.vocabulary, asked.context) == ("parentheses", 4, 62)
    all_places, answers = (task.batch(2000, seeded(0, "train", 5)) for task in (whole, asked))
    check_parentheses(all_places)
    assert answers.look.flatten().tolist() == [row.index(3) for row in answers.inputs.tolist()]
    assert torch.equal(answers.inputs, all_places.inputs)
    assert torch.equal(answers.targets, all_places.targets.gather(1, answers.look))
    assert all(mask.shape == (2000, 1) and mask.all() for mask in (answers.loss_mask, answers.scored))


@pytest.mark.parametrize(
    "fault",
    [
        lambda b: replace(b, scored=b.scored.roll(1, 1)),
        lambda b: replace(b, loss_mask=b.loss_mask & ~b.scored),
        lambda b: replace(b, targets=b.inputs),
        lambda b: replace(b, targets=torch.where(b.scored, 3 - b.targets, b.targets)),
        lambda b: replace(b, inputs=torch.where(b.inputs == 3, 0, b.inputs)),
    ],
    ids=["scored one late", "no loss at the answer", "targets not shifted", "answers exchanged", "no question"],
)
def test_parentheses_faults_are_seen(fault):
    batch = task_named("parentheses", loss="sequence").batch(50, seeded(0, "train", 5))
    with pytest.raises((AssertionError, ValueError, KeyError)):
        check_parentheses(fault(batch))


# --- k-hop ------------------------------------------------------------------------------------------------------


def slow_hops(text: list, hops: int, rule: str = "right") -> list:
    """The appendix's rewriting of whole strings; None: does not exist. `rule` plants a fault."""
    symbols, sources = list(text), list(range(len(text)))
    for _ in range(hops):
        new_symbols, new_sources = [], []
        for symbol, source in zip(symbols, sources, strict=True):
            end = None if source is None else source + (rule == "looks at itself")
            found = -1
            if end is not None:
                places = [j for j in range(min(end, len(text))) if text[j] == symbol]
                found = (places[0] if rule == "first occurrence" else places[-1]) if places else -1
            if found < 0 or found + 1 >= len(text):
                new_symbols.append(None)
                new_sources.append(None)
            else:
                following = found + (rule != "the occurrence itself")
                new_symbols.append(text[following])
                new_sources.append(following)
        symbols, sources = new_symbols, new_sources
    return symbols


def slow_answers(text: list[int], hops: int, rule: str = "right") -> list[int]:
    return [21 if symbol is None else 17 + symbol for symbol in slow_hops(text, hops, rule)]


def fast_answers(text: list[int], hops: int) -> list[int]:
    return khop.hop_answers(torch.tensor([text]), torch.tensor([[hops]]), hops, hops)[0].tolist()


def test_the_papers_example():
    text = ["abcd".index(letter) for letter in paper.TWO_HOP_INPUT]
    assert fast_answers(text, 2)[-1] == 17 + "abcd".index(paper.TWO_HOP_OUTPUT)
    assert fast_answers(text, 1)[-1] == 17 + "abcd".index("b")


def test_hops_of_all_short_strings():
    """All strings over four characters of length 5, repetitions included, and longer ones over two."""
    texts = [*itertools.product(range(4), repeat=5), *itertools.product(range(2), repeat=8)]
    for length in (5, 8):
        same = [list(text) for text in texts if len(text) == length]
        for hops in range(5):
            query = torch.full((len(same), 1), hops)
            fast = khop.hop_answers(torch.tensor(same), query, hops, hops).tolist()
            assert fast == [slow_answers(text, hops) for text in same]


def check_k_hop(batch, least: int, most: int, rule: str = "right") -> None:
    """The layout and every label, sequence by sequence."""
    everywhere = [True] * 99
    for inputs, targets, mask, scored, answers in zip(
        *(t.tolist() for t in (batch.inputs, batch.targets, batch.loss_mask, batch.scored, batch.scored_answers)),
        strict=True,
    ):
        query, *text = inputs
        assert least <= query <= most
        assert len(text) == 98
        assert all(17 <= i <= 20 for i in text)
        assert all(a != b for a, b in itertools.pairwise(text))
        assert targets == [22, *slow_answers([i - 17 for i in text], query, rule)]
        assert mask == scored == everywhere
        assert answers == [False, *[True] * 98]


@pytest.mark.parametrize(("least", "most"), [(1, 1), (2, 2), (3, 3), (4, 4), (16, 16), (0, 0), (0, 16), (2, 5)])
def test_k_hop_against_slow_code(least, most):
    task = khop.KHop(least, most)
    assert (task.vocabulary, task.context) == (30, 99)
    batch = task.batch(60, seeded(4, "train", most))
    check_k_hop(batch, least, most)
    assert least == most or len(set(batch.inputs[:, 0].tolist())) > 1


@pytest.mark.parametrize("rule", ["looks at itself", "first occurrence", "the occurrence itself"])
@pytest.mark.parametrize("hops", [1, 2, 4])
def test_wrong_hop_rules_are_seen(rule, hops):
    batch = task_named(f"{hops}-hop").batch(5, seeded(4, "train", 0))
    with pytest.raises(AssertionError):
        check_k_hop(batch, hops, hops, rule)


@pytest.mark.parametrize(
    "fault",
    [
        lambda b: replace(b, targets=b.targets.roll(1, 1)),
        lambda b: replace(b, scored=b.scored_answers),
        lambda b: replace(b, scored_answers=b.scored),
        lambda b: replace(b, inputs=b.inputs.roll(-1, 1)),
    ],
    ids=["targets one late", "blank not scored", "blank among the answers", "query missing"],
)
def test_k_hop_faults_are_seen(fault):
    batch = task_named("2-hop").batch(5, seeded(4, "train", 0))
    check_k_hop(batch, 2, 2)
    with pytest.raises(AssertionError):
        check_k_hop(fault(batch), 2, 2)


def test_the_law_of_characters_and_queries():
    size = 8000
    text = khop.characters(size, 4, seeded(5, "law", 0))
    counts = Counter(map(tuple, text.tolist()))
    law = {t: 1 / 108 for t in itertools.product(range(4), repeat=4) if all(a != b for a, b in itertools.pairwise(t))}
    assert fits(counts, law)
    queries = khop.KHop(1, 4, length=4).batch(size, seeded(5, "law", 1)).inputs[:, 0].tolist()
    assert fits(Counter(queries), dict.fromkeys(range(1, 5), 1 / 4))
    assert not fits(Counter(queries), dict.fromkeys(range(1, 6), 1 / 5))


def test_loss_without_the_blank():
    batch = task_named("1-hop", loss="answer").batch(3, seeded(0, "train", 0))
    assert batch.loss_mask.tolist() == batch.scored_answers.tolist()
    assert bool(batch.scored.all())


# --- seeds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["parentheses", "2-hop"])
def test_a_batch_depends_on_seed_stream_and_step_only(name):
    task = task_named(name)

    def inputs(*key):
        return task.batch(16, seeded(*key)).inputs.tolist()

    first = inputs(0, "train", 7)
    inputs(0, "train", 8)
    assert inputs(0, "train", 7) == first
    others = [inputs(*key) for key in ((1, "train", 7), (0, "evaluate", 7), (0, "train", 8))]
    assert all(other != first for other in others)
    state = torch.random.get_rng_state()
    inputs(0, "train", 7)
    assert torch.equal(state, torch.random.get_rng_state())  # the global generator is never touched


def test_no_step_repeats_anothers_numbers():
    """The CPU generator sees 32 bits of the seed: they differ for all steps of a run."""
    low = {stream_seed(3, "train", step) & 0xFFFFFFFF for step in range(60_000)}
    assert len(low) == 60_000
    a, b = (torch.Generator().manual_seed(s) for s in (5, 5 + 2**32))
    assert torch.rand(3, generator=a).tolist() == torch.rand(3, generator=b).tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: task_named("5-hops"),
        lambda: task_named("2-hop", size=3),
        lambda: task_named("2-hop", loss="all"),
        lambda: task_named("parentheses", pairs=31),
        lambda: khop.KHop(3, 2),
        lambda: khop.KHop(3, 17),
        lambda: task_named("2-hop").batch(0, seeded(0, "train", 0)),
        lambda: task_named("parentheses").batch(True, seeded(0, "train", 0)),
        lambda: seeded(-1, "train", 0),
        lambda: seeded(0, "train", 2**32),
        lambda: kind_of("17-hop"),
    ],
)
def test_malformed(wrong):
    with pytest.raises(MalformedInput):
        wrong()
