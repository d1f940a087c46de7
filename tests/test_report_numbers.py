"""Values of result documents replaced by what they cannot be: the command refuses the file in one line, or takes it."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_report import OUTPUTS, RESULTS, parts, trained  # noqa: F401

from utfproof.cli.app import run
from utfproof.training.results import to_document

WRONG = [10**400, -(10**400), 1e308, float("nan"), float("inf"), -1, "a", "\ud800", [], {}, None, True, [[]], 0.5]


def leaves(value, way=()):
    """The path of every value inside a document, a few of each list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*way, key)
        yield from leaves(item, (*way, key))


def put(document, way, value):
    found = copy.deepcopy(document)
    place = found
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = value
    return found


def single():
    """What `emulate` of one host prints."""
    case = json.loads((RESULTS / "emulate-tables-cpu.json").read_text())["cases"][0]
    kept = {name: value for name, value in case.items() if name not in ("refused", "left_out", "target_law")}
    return {**kept, "device": "cpu", "dtype": "float64"}


@pytest.fixture(scope="module")
def documents(parts):  # noqa: F811
    run_ = to_document(trained())
    return {
        **parts,
        "emulate-one.json": single(),
        f"training/{trained().key}.json": run_,
    }


def refused_or_taken(folder, capsys, *command):
    code = run([str(word) for word in command])
    err = capsys.readouterr().err
    assert code in (0, 2), (code, err)
    assert code == 0 or len(err.splitlines()) == 1, err


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)
@given(st.data())
def test_a_wrong_value_is_refused_or_taken(documents, tmp_path_factory, capsys, data):
    name = data.draw(st.sampled_from(sorted(set(documents) - {"verify.json"})))
    way = data.draw(st.sampled_from(list(leaves(documents[name]))))
    value = data.draw(st.sampled_from(WRONG))
    folder = tmp_path_factory.mktemp("found")
    (folder / "training").mkdir()
    (folder / name).write_text(json.dumps(put(documents[name], way, value)))
    page = folder.parent / f"{folder.name}.html"
    refused_or_taken(folder, capsys, "report", folder, "-o", page)
    if name.startswith("training"):
        refused_or_taken(folder, capsys, "tables", "--results", folder / "training")


@pytest.mark.parametrize("field", ["loss", "accuracy", "seconds", "steps", "seed", "parameters", "curve"])
@pytest.mark.parametrize("command", ["report", "tables"])
def test_a_number_that_no_float_holds(tmp_path, capsys, field, command):
    document = to_document(trained())
    document[field] = [[1, 10**400, 0.5]] if field == "curve" else 10**400
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / f"{trained().key}.json").write_text(json.dumps(document))
    asked = {
        "report": ["report", tmp_path, "-o", tmp_path / "p.html"],
        "tables": ["tables", "--results", tmp_path / "training"],
    }
    assert run([str(word) for word in asked[command]]) == 2
    err = capsys.readouterr().err
    assert field in err
    assert len(err.splitlines()) == 1
    assert len(err) < 500


@pytest.mark.parametrize("host", [[], {}, 3, None])
def test_the_host_of_an_emulation_is_text(tmp_path, capsys, host):
    (tmp_path / "emulate.json").write_text(json.dumps({**single(), "host": host}))
    assert run(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 2
    assert "emulate.json.host is" in capsys.readouterr().err


def test_half_of_a_character_is_refused(tmp_path, capsys, parts):  # noqa: F811
    text = json.dumps(parts["frontier.json"])
    assert "paper" in text
    place = Path(tmp_path / "frontier.json")
    place.write_text(text.replace('"label": "', '"label": "\\ud800', 1))
    assert place.read_text() != text
    assert run(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 2
    assert r"half of a character, \ud800" in capsys.readouterr().err
    place.write_text(text.replace('"label": "', '"label": "\\ud83d\\ude00', 1))  # a whole one, in two escapes
    assert run(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 0
