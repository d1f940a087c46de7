"""The rule that order tells nothing: the same as a dictionary written out, blind to order, no better than it can be."""

import itertools
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from utfproof.training import counting  # noqa: E402
from utfproof.training.counting import MOST, NAME, counted, counting_rule, state_key  # noqa: E402
from utfproof.training.task import seeded  # noqa: E402
from utfproof.training.tasks import task_baselines, task_named  # noqa: E402

TASKS = [
    ("1-hop", {"length": 30}),
    ("2-hop", {"length": 9}),
    ("2-hop", {"min_hops": 0, "length": 12}),
    ("parentheses", {}),
]


def by_dictionary(task, sequences):
    """Accuracy over what is scored: plain integers, one position after the other."""
    seen, fresh = (task.batch(sequences // 2, seeded(0, NAME, part)) for part in range(2))

    def positions(batch):
        for row, wanted, scored in zip(
            batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist(), strict=True
        ):
            counts = Counter()
            for token, target, asked in zip(row, wanted, scored, strict=True):
                counts[token] += 1
                if asked:
                    yield (token, *(min(counts[other], MOST) for other in task.input_ids)), target

    answers, all_answers = {}, Counter()
    for key, target in positions(seen):
        answers.setdefault(key, Counter())[target] += 1
        all_answers[target] += 1
    common = min(all_answers, key=lambda target: (-all_answers[target], target))
    right = total = 0
    for key, target in positions(fresh):
        found = answers.get(key)
        right += (max(found, key=lambda t: (found[t], t)) if found else common) == target
        total += 1
    return right / total


@pytest.mark.parametrize(("name", "options"), TASKS)
def test_a_dictionary_says_the_same(name, options):
    task = task_named(name, **options)
    found = counting_rule(task, 400)
    assert (found.name, found.sequences) == (NAME, 200)
    assert found.accuracy == by_dictionary(task, 400)


def test_what_came_before_may_change_places():
    row = [7, 4, 9, 4, 7, 9, 9]
    moved = [9, 4, 4, 7, 7, 9, 9]
    swapped = [7, 4, 4, 9, 7, 9, 9]
    _, *parts = counted(torch.tensor([row, moved, swapped]), MOST)
    key = state_key(*parts)
    assert key[0, -2:].tolist() == key[1, -2:].tolist()
    assert key[0, 3] != key[2, 3]  # the token itself counts
    _, *parts = counted(torch.full((1, 20), 7), MOST)
    key = state_key(*parts)
    assert len(set(key[0].tolist())) == MOST


@pytest.mark.parametrize("largest", [2**62, 50])
def test_keys_are_equal_where_tokens_and_counts_are(monkeypatch, largest):
    """With room for all counts in one number, and without."""
    monkeypatch.setattr(counting, "_LARGEST", largest)
    ids = torch.randint(0, 6, (40, 9), generator=torch.Generator().manual_seed(0)) * 3
    tokens, place, counts = counted(ids, 4)
    key = state_key(place, counts)
    assert torch.equal(tokens[place], ids)
    states = {}
    for b, i in itertools.product(range(40), range(9)):
        before = ids[b, : i + 1].tolist()
        state = (before[-1], *(min(before.count(token), 4) for token in tokens.tolist()))
        assert list(state[1:]) == counts[b, i].tolist()
        states.setdefault(state, set()).add(int(key[b, i]))
    assert all(len(found) == 1 for found in states.values())
    assert len(set().union(*states.values())) == len(states)


def test_where_it_stands_among_the_rules():
    """The 2-hop answer is often the character itself, which counts tell; its neighbours tell more."""
    rules = {rule.name: rule.accuracy for rule in task_baselines("2-hop", 10_000, 30)}
    assert rules["last two characters"] < rules[NAME] < rules["last five characters"]
    assert NAME not in {
        rule.name for rule in task_baselines("2-hop", 0, 30)
    }  # nothing is drawn where exact is asked for
