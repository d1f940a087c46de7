"""Certificates and outputs have the forms that docs/schemas publishes: the corpus, and each command as it is run here."""

import copy
import json
import shlex
from pathlib import Path

import pytest

from utfproof.certificates.forms import CERTIFICATES
from utfproof.cli.app import run
from utfproof.errors import MalformedInput
from utfproof.ground.forms import ANY, DIGITS, Either, Maybe, conform, json_schema
from utfproof.jobs.registry import commands, forms
from utfproof.reporting import documents
from utfproof.reporting.documents import schemas

COMMANDS = forms()
ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "certificates"
MEASURED = ROOT / "results"
SHAPE = "-H 2 -L 2 -d 2 --d-in 3"
EXAMPLES = f"""
build random {SHAPE} -o host.safetensors
build target {SHAPE} -o target.safetensors
build random {SHAPE} --m 35 -o small.safetensors
certify tied {SHAPE} -o tied.json
certify random {SHAPE} --witness -o random.json
certify printed-tree-row {SHAPE} -o printed.json
certify shared-key -H 2 -L 2 -d 3 --d-in 3 -o key.json
decide host.safetensors --explain -o host.json
decide small.safetensors --explain -o small.json
decide small.safetensors --visible visible.safetensors -o small.json
decide host.safetensors --notion attention-matching -o attention.json
check tied.json small.json
embed random target.safetensors -o E.safetensors
embed least.safetensors target.safetensors --minimize -o E2.safetensors --certificate least.json
embed less.safetensors target.safetensors --minimize --m 2 -o E3.safetensors
embed random {ROOT}/tests/data/induction.safetensors --layout pytorch -o E4.safetensors
export random E4.safetensors -o out.py
emulate tied {SHAPE} --context 1,5
emulate random {SHAPE} --no-bounds
emulate sparse,tied {SHAPE} --attention softmax,causal --context 3
rank host.safetensors --tensor U
verify intro:sparse tab:hyperparameters --list
enclose tied {SHAPE} --context 2 --digits 9 -o enclosure.json
frontier -H 1..2 -L 1..2
frontier -H 1..2 -L 1 --residual
verify intro:sparse tab:hyperparameters --workers 1 -o verify.json
search exhaustive -H 2 -L 2 --m 1
symbolic -H 2 -L 1 -d 1 --d-in 1 --entries
sweep grid.toml --workers 1
sweep grid.toml --dry-run
collect grid -o grid.csv
tables --results nothing --sequences 20
figure scaling --results nothing -o scaling.svg
report .
report
""".strip().splitlines()
"""Run in this order, in one folder."""
ELSEWHERE = {"refute-lower", "train", "optimum", "search numerical", "bench all"}
"""Commands that last, or need PyTorch: outputs of theirs are in tests/data/outputs."""


def name_of(words):
    return " ".join(words[:2]) if words[0] in ("search", "bench") else words[0]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """(command line, document) of each example."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "nothing").mkdir()
    (folder / "grid.toml").write_text('[sweep]\nname = "grid"\n\n[[jobs]]\ncommand = "certify"\nconstruction = "tied"\n'
                                      "shape = [[1, 1, 1, 1]]\n")  # fmt: skip
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in EXAMPLES:
            words = shlex.split(line)
            if name_of(words) in ("tables", "figure"):
                pytest.importorskip("torch")
                pytest.importorskip("matplotlib")
            printed = []
            patch.setattr(
                "builtins.print", lambda *a, kept=printed, **k: kept.append(a[0]) if "file" not in k else None
            )
            run([*words, "--json"])
            assert printed, line
            found.append((line, json.loads(printed[-1])))
    return found


@pytest.mark.parametrize("line", [
    "numerical -H 2 -L 1 --m 2 --restarts 2",  # no construction of that size is known
    "numerical -H 2 -L 1 --m 3 --free E --restarts 2",
])  # fmt: skip
def test_searches_have_the_form_whatever_they_find(line, capsys):
    run(["search", *line.split(), "--json"])
    document = json.loads(capsys.readouterr().out)
    conform(document, COMMANDS[name_of(["search", *line.split()])], line)


def test_every_command_and_kind_has_a_schema():
    assert all(forms()[name] for name in commands())
    kinds = {json.loads(path.read_text())["kind"] for path in (CORPUS / "valid").glob("*.json")}
    assert kinds == set(CERTIFICATES)


@pytest.mark.full
@pytest.mark.parametrize("kind", CERTIFICATES)
def test_valid_certificates_have_the_form(kind):
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schemas()[f"certificate-{kind}"])
    validator.check_schema(validator.schema)
    number = 0
    for path in (CORPUS / "valid").glob("*.json"):
        document = json.loads(path.read_text())
        if document["kind"] == kind:
            error = next(validator.iter_errors(document), None)
            assert error is None, f"{path.name}: {error.json_path}: {error.message}"
            conform(document, CERTIFICATES[kind], path.name)
            number += 1
            for change in ("kind", "claim", "shape"):
                assert not validator.is_valid({name: part for name, part in document.items() if name != change})
            assert not validator.is_valid({**document, "more": 1})
            assert not validator.is_valid({**document, "claim": {**document["claim"], "verdict": "perhaps"}})
    assert number


@pytest.mark.full
def test_outputs_have_the_form(outputs):
    jsonschema = pytest.importorskip("jsonschema")
    for line, document in outputs:
        name = name_of(shlex.split(line))
        validator = jsonschema.Draft202012Validator(json_schema(COMMANDS[name], closed=False))
        error = next(validator.iter_errors(document), None)
        assert error is None, f"utfproof {line}: {error.json_path}: {error.message}"
        conform(document, COMMANDS[name], line)
        assert not list(jsonschema.Draft202012Validator(json_schema(COMMANDS[name])).iter_errors(document)), (
            f"{line}: more"
        )
    assert {name_of(shlex.split(line)) for line, _ in outputs} >= set(documents.COMMANDS) - ELSEWHERE


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_outputs_of_long_commands_have_the_form(name):
    jsonschema = pytest.importorskip("jsonschema")
    document = json.loads((ROOT / "tests" / "data" / "outputs" / f"{name.replace(' ', '-')}.json").read_text())
    jsonschema.Draft202012Validator(json_schema(COMMANDS[name])).validate(document)


@pytest.mark.parametrize(
    "path", [*MEASURED.glob("bench-*.json"), *MEASURED.glob("emulate-*.json")], ids=lambda path: path.stem
)
def test_measurements_that_are_kept_have_the_form(path):
    """Those of a GPU too, which lack what a processor alone can tell."""
    document = json.loads(path.read_text())
    name = f"bench {document['benchmark']}" if "benchmark" in document else "emulate"
    conform(document, documents.COMMANDS[name], path.name)
    if name != "emulate":  # the table of bounds was kept when cases said more
        jsonschema = pytest.importorskip("jsonschema")
        jsonschema.Draft202012Validator(json_schema(documents.COMMANDS[name])).validate(document)


@pytest.mark.full
def test_outputs_that_lack_a_field_are_seen(outputs):
    jsonschema = pytest.importorskip("jsonschema")
    for line, document in outputs:
        forms_of = getattr(COMMANDS[name_of(shlex.split(line))], "forms", [COMMANDS[name_of(shlex.split(line))]])
        form = next(one for one in forms_of if document.keys() <= {name.rstrip("?") for name in one})
        for field in [name for name in form if not name.endswith("?")]:
            broken = copy.deepcopy(document)
            del broken[field]
            assert not jsonschema.Draft202012Validator(json_schema(form)).is_valid(broken)
            with pytest.raises(MalformedInput, match=field):
                conform(broken, form, "it")


@pytest.mark.parametrize(
    ("value", "form", "fine"),
    [
        (None, Maybe(str), True), (1, Maybe(str), False), (-3, DIGITS, True), ("-12", DIGITS, True), ("1x", DIGITS, False),
        (True, DIGITS, False), (10**400, DIGITS, True), ("a", Either(DIGITS, ("a", "b")), True),
        ([], Either(DIGITS, str), False),
        ({"a": 1}, {"a": DIGITS, "b?": str}, True), ({}, {"a": DIGITS}, False), ([1, ["2"]], [Either(DIGITS, [DIGITS])], True),
        ({"x": []}, ANY, True), ("c", ("a", "b"), False),
    ],
)  # fmt: skip
def test_forms_and_schemas_say_the_same(value, form, fine):
    """The two readers of one declaration."""
    jsonschema = pytest.importorskip("jsonschema")
    assert jsonschema.Draft202012Validator(json_schema(form)).is_valid(value) == fine
    if fine:
        conform(value, form, "it")
    else:
        with pytest.raises(MalformedInput):
            conform(value, form, "it")
