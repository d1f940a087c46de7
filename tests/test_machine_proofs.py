"""The Coq library around its theorems: the driver, what it catches, the links from claims."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from utfproof.claims import theorems
from utfproof.claims.grid import Grid
from utfproof.claims.registry import all_claims
from utfproof.util.notions import Targets

ROOT = Path(__file__).parents[1]
PROOFS = ROOT / "proofs"
HEADLINES = theorems.all_headlines(PROOFS)
LIBRARIES = theorems.libraries(PROOFS)
CLAIMS = all_claims()
LINKED = {name: entry for name, entry in CLAIMS.items() if entry.theorems}
THEORIES = [path for library in LIBRARIES for path in sorted((library / "theories").glob("*.v"))]
SMALL = Grid.parse("H=1,L=1,d=1,d_in=1")


def _driver():
    spec = importlib.util.spec_from_file_location("proofs_check", PROOFS / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = _driver()


# --- what is listed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HEADLINES)
def test_a_headline_is_a_theorem_of_its_file(name):
    library = (PROOFS / HEADLINES[name].file).parents[1]
    assert check.stands_in(name, library)
    assert not check.stands_in(name + "_", library)
    assert HEADLINES[name].says.endswith(".")


def test_claims_name_headlines():
    claimed = {name for entry in LINKED.values() for name in entry.theorems}
    assert claimed <= set(HEADLINES)


@pytest.mark.parametrize("name", LINKED)
def test_a_theorem_is_about_the_notion_and_the_targets_of_its_claim(name):
    """What is proved for all targets holds for samples of them; no notion stands in for another."""
    entry = CLAIMS[name]
    linked = [HEADLINES[theorem] for theorem in entry.theorems]
    if entry.notion is None:
        return
    assert entry.notion.value in {notion for theorem in linked for notion in theorem.notions}
    served = [Targets.parse(targets) for theorem in linked for targets in theorem.targets]
    assert any(targets.implies(entry.about.targets) for targets in served)


def test_open_claims_have_no_theorem():
    assert [name for name, entry in LINKED.items() if entry.verdict.value == "open"] == []


def test_labels_are_the_papers():
    from paper_labels import LABELS

    assert {label for entry in HEADLINES.values() for label in entry.labels} <= set(LABELS)


def test_the_readme_and_the_statements_list_them_all():
    page = (PROOFS / "README.md").read_text()
    assert check.with_table(page, HEADLINES) == page
    statements = "".join((library / "statements.txt").read_text() for library in LIBRARIES)
    definitions = "".join((library / "definitions.txt").read_text() for library in LIBRARIES)
    printed = re.findall(r"^(\w+\.\w+) :$", statements, re.MULTILINE)
    assert printed == list(HEADLINES)
    named = set(re.findall(r"[A-Z]\w+\.\w+'*", " ".join(re.findall(r"\(\* by (.*?) \*\)", statements, re.DOTALL))))
    shown = re.findall(r"^\(\* (\w+\.[\w']+): \d+ theorems \*\)$", definitions, re.MULTILINE)
    assert sorted(named) == sorted(shown)
    assert "Transformer.matches" in named
    for file in re.findall(r"\]\(((?:softmax/)?theories/\w+\.v)\)", page):
        assert (PROOFS / file).is_file()


@pytest.mark.parametrize("path", THEORIES, ids=lambda path: path.stem)
def test_theories_are_in_order(path):
    text = path.read_text()
    assert check.gaps(path.name, text) == []
    assert text.startswith("(* ")
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_nothing_weakens_the_logic(library):
    assert check.options(library) == ["-w", "-notation-overridden,-ambiguous-paths"]


# --- reading sources and answers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Axiom a : False.", ["x:1: Axiom"]),
        ("Lemma a : True.\nProof. admit. Admitted.", ["x:2: admit", "x:2: Admitted"]),
        ("(* Axiom (* Admitted *) Parameter *) Lemma a : True.", []),
        ('(* a string " *) in a comment " *) Conjecture b : False.', ["x:1: Conjecture"]),
        ('Definition s := "Axiom (*". Parameters b : False.', ["x:1: Parameters"]),
        ("Section Parameters. Variable n : nat. End Parameters.", []),
        ("Section A.\nVariables (n : nat).\nEnd A.\nVariable n : nat.", ["x:4: Variable outside a section"]),
        ("Section A. Section B. End B.\nHypothesis h : 1 = 2.\nEnd A.", []),
        ("Local Hypothesis h : False.", ["x:1: Hypothesis outside a section"]),
        ("Context {h : False}.", ["x:1: Context outside a section"]),
        ("Unset  Guard Checking.", ["x:1: Unset Guard Checking"]),
        ("Unset Universe Checking.", ["x:1: Unset Universe Checking"]),
        ("#[bypass_check(guard)]\nFixpoint f (n : nat) : False := f n.", ["x:1: bypass_check"]),
        ("Module Type T. End T. Declare Module M : T.", ["x:1: Module", "x:1: Declare", "x:1: Module"]),
        ("Lemma admits_nothing' : True.", []),
    ],
)
def test_gaps_in_sources(text, found):
    assert [line.removesuffix(" is not allowed") for line in check.gaps("x", text)] == found


@pytest.mark.parametrize(
    ("printed", "entries"),
    [
        ("Closed under the global context", []),
        ("Closed under the global context\n", []),
        ("Axioms:\nclassic : forall P : Prop, P \\/ ~ P", ["classic : forall P : Prop, P \\/ ~ P"]),
        ("Axioms:\na : False\nb\n  : True ->\n    False\n", ["a : False", "b : True -> False"]),
        ("Section Variables:\nh : 1 = 2", ["h : 1 = 2"]),
        ("Axioms:\nf is assumed to be guarded.", ["f is assumed to be guarded."]),
        ("Theory: Set is impredicative", ["Theory: Set is impredicative"]),
        ("Closed under the global context, almost", ["Closed under the global context, almost"]),
    ],
)
def test_what_a_theorem_rests_on(printed, entries):
    assert check.assumptions(printed) == entries


@pytest.mark.parametrize("printed", ["", "\n", "Axioms:\n"])
def test_no_answer_is_not_a_good_answer(printed):
    with pytest.raises(check.Failed):
        check.assumptions(printed)


def test_several_answers():
    output = (
        "noise\n@@ statement A.x\nx\n     : True\n@@ assumptions A.x\nClosed under the global context\n"
        "@@ statement A.y\ny\n     : forall n : nat,\n       n = n\n@@ assumptions A.y\nAxioms:\na : False\n"
    )
    found = check.answers(output)
    assert list(found) == ["A.x", "A.y"]
    assert [check.statement(entry["statement"]) for entry in found.values()] == ["True", "forall n : nat,\nn = n"]
    assert [check.assumptions(entry["assumptions"]) for entry in found.values()] == [[], ["a : False"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[theorem]]\nname = "A.x"\n', "a field too few"),
        ('[[theorem]]\nname = "x"\nsays = "."\n', "a field too few"),
        ('[[theorem]]\nname = "A.x"\nsays = "."\nclaim = []\n', "claim"),
        ('[[theorem]]\nname = "A.x"\nsays = "."\n[[theorem]]\nname = "A.x"\nsays = "."\n', "twice"),
    ],
)
def test_headlines_that_are_not_in_order(tmp_path, text, message):
    (tmp_path / "headlines.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        theorems.headlines(tmp_path)


def test_options_that_weaken_the_logic_are_refused(tmp_path):
    (tmp_path / "_CoqProject").write_text("-Q theories Utfproof\n-arg -type-in-type\n")
    with pytest.raises(check.Failed, match="more than warnings"):
        check.options(tmp_path)
    (tmp_path / "_CoqProject").write_text("-R theories Utfproof\n")
    with pytest.raises(check.Failed, match="not understood"):
        check.options(tmp_path)


# --- Coq itself, on small libraries -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def coq():
    if shutil.which("coqc") is None:
        if os.environ.get("UTFPROOF_REQUIRE_COQ"):
            pytest.fail("UTFPROOF_REQUIRE_COQ is set and coqc is missing")
        pytest.skip("coqc is missing (Debian packages coq, libcoq-mathcomp, libcoq-mathcomp-multinomials)")


GOOD = {
    "A": "(* a *)\nSection S.\nVariable n : nat.\nDefinition twice := n + n.\nEnd S.\n",
    "B": "From Utfproof Require Import A.\nTheorem zero : twice 0 = 0.\nProof. reflexivity. Qed.\n"
    "Theorem one n : n = 1 -> twice n = 2.\nProof. intros e; rewrite e; reflexivity. Qed.\n",
}


def library(folder, files=GOOD, names=("B.zero", "B.one")):
    (folder / "theories").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / "theories" / f"{name}.v").write_text(text)
    (folder / "_CoqProject").write_text("-Q theories Utfproof\n-arg -w -arg -notation-overridden\n")
    entries = [f'[[theorem]]\nname = "{name}"\nsays = "It holds."\n' for name in names]
    (folder / "headlines.toml").write_text("\n".join(entries))
    theorems._results.cache_clear()
    return folder


def stands(folder, *names):
    theorems._results.cache_clear()
    return [(found.status, found.detail) for found in theorems.standing(names, folder)]


def test_a_library_in_order(coq, tmp_path, capsys):
    found = check.check(library(tmp_path), write=True, coqchk=True)
    expected = {"file": "theories/B.v", "statement": "twice 0 = 0", "definitions": ["A.twice"], "assumptions": []}
    assert found["B.zero"] == expected
    assert "(* by A.twice *)" in (tmp_path / "statements.txt").read_text()
    assert stands(tmp_path, "B.zero", "B.one") == [(theorems.CLOSED, "")] * 2
    assert (tmp_path / "statements.txt").read_text().count(" :\n") == 2
    printed = capsys.readouterr().out
    assert "B.one: closed under the global context" in printed
    assert "coqchk: no axioms" in printed
    assert not list((tmp_path / "theories").glob("*.vo"))
    assert check.check(library(tmp_path)) == found


def test_results_of_other_sources_do_not_count(coq, tmp_path):
    check.check(library(tmp_path), write=True)
    (tmp_path / "theories" / "A.v").write_text(GOOD["A"] + "(* changed *)\n")
    assert stands(tmp_path, "B.zero") == [(theorems.ABSENT, "the build is of other sources; run make proofs")]
    library(tmp_path)
    assert stands(tmp_path, "B.zero") == [(theorems.CLOSED, "")]
    library(tmp_path, {"C": "(* a file more *)\n"})
    assert stands(tmp_path, "B.zero")[0][0] == theorems.ABSENT


CLASSICAL = {
    "B": "From Coq Require Import Classical.\nTheorem zero (P : Prop) : P \\/ ~ P.\nProof. exact (classic P). Qed.\n"
}
FAULTS = {
    "an admitted lemma": (
        GOOD | {"A": GOOD["A"] + "Lemma a : 1 = 2.\nProof. Admitted.\n"},
        ("B.zero",),
        "A.v:7: Admitted",
    ),
    "an axiom": (GOOD | {"A": GOOD["A"] + "Axiom a : 1 = 2.\n"}, ("B.zero",), "A.v:6: Axiom is not allowed"),
    "a variable that is an axiom": (
        GOOD | {"A": GOOD["A"] + "Variable a : 1 = 2.\n"},
        ("B.zero",),
        "outside a section",
    ),
    "a headline that does not exist": (GOOD, ("B.zero", "B.two"), "B.two is no theorem of theories/B.v"),
    "a headline in a comment": (GOOD | {"A": "(*\nTheorem x : True.\n*)\n" + GOOD["A"]}, ("A.x",), "A.x is no theorem"),
    "a headline of a file that does not exist": (GOOD, ("C.zero",), "C.zero is no theorem"),
    "a proof that does not hold": (GOOD | {"B": GOOD["B"].replace("twice 0 = 0", "twice 1 = 3")}, ("B.zero",), "Error"),
    "a proof without an end": (GOOD | {"B": GOOD["B"] + "Lemma a : 1 = 2.\n"}, ("B.zero",), "rror"),
    "a theorem that rests on an axiom of Coq's library": (CLASSICAL, ("B.zero",), "B.zero rests on .*classic : "),
    "files in a circle": (GOOD | {"A": "From Utfproof Require Import B.\n"}, ("B.zero",), ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(coq, tmp_path, fault, capsys):
    files, names, message = FAULTS[fault]
    library(tmp_path, files, names)
    (tmp_path / "README.md").write_text(f"{check.BEGIN}\n{check.END}")
    assert check.main([str(tmp_path), "--write"]) == 1
    printed = capsys.readouterr()
    assert re.search(message, printed.err), printed.err
    assert "Traceback" not in printed.err
    assert theorems.CLOSED not in {status for status, _ in stands(tmp_path, *names)}


def test_an_axiom_that_only_coq_sees_leaves_no_result(coq, tmp_path):
    library(tmp_path, CLASSICAL, ("B.zero",))
    with pytest.raises(check.Failed):
        check.check(tmp_path)
    with pytest.raises(check.Failed, match=r"(?s)coqchk reports:.*Classical_Prop\.classic"):
        check._second_reading(tmp_path)
    assert stands(tmp_path, "B.zero")[0][0] == theorems.ABSENT


WEAKENED = {
    "a statement": ("B", "twice 0 = 0", "twice 0 = twice 0", "statements.txt"),
    "a hypothesis more": ("B", "n = 1 ->", "n = 1 -> n = 2 ->", "statements.txt"),
    "a definition": ("A", "n + n", "n * 0 + (n + n)", "definitions.txt"),
    "a definition in the way": (
        "A",
        "Definition twice := n + n.",
        "Definition m := n.\nDefinition twice := m + m.",
        "",
    ),
}


@pytest.mark.parametrize("fault", WEAKENED)
def test_a_weakened_headline_leaves_no_result(coq, tmp_path, fault, capsys):
    file, old, new, page = WEAKENED[fault]
    check.check(library(tmp_path), write=True)
    assert stands(tmp_path, "B.zero") == [(theorems.CLOSED, "")]
    text = GOOD[file].replace(old, new).replace("intros e; rewrite e", "intros; subst")
    assert text != GOOD[file]
    library(tmp_path, GOOD | {file: text})
    assert stands(tmp_path, "B.zero")[0][0] == theorems.ABSENT
    assert check.main([str(tmp_path)]) == 1
    assert f"{page} is not what the theorems say" in capsys.readouterr().err
    assert not (tmp_path / "build" / "assumptions.json").exists()
    assert stands(tmp_path, "B.zero")[0][0] == theorems.ABSENT


@pytest.mark.parametrize("broken", ["theories/B.v", "headlines.toml", "_CoqProject", "statements.txt"])
def test_a_build_that_fails_leaves_no_result(coq, tmp_path, broken):
    """Not even the one of before, and --write does not come first."""
    check.check(library(tmp_path), write=True)
    before = (tmp_path / "build" / "assumptions.json").read_bytes()
    (tmp_path / broken).write_text("nonsense")
    assert stands(tmp_path, "B.zero")[0][0] == theorems.ABSENT
    for arguments in [[]] if broken == "statements.txt" else [[], ["--write"]]:
        (tmp_path / "build").mkdir(exist_ok=True)
        (tmp_path / "build" / "assumptions.json").write_bytes(before)
        assert check.main([str(tmp_path), *arguments]) == 1
        assert not (tmp_path / "build" / "assumptions.json").exists()


def test_definitions_are_followed_through_notations_records_and_definitions(coq, tmp_path):
    files = {
        "A": "Record pair := Pair { left : nat; right : nat }.\nDefinition other := 1.\n"
        "Inductive colour := Red | Green : colour.\nDefinition f (c : colour) := if c then 0 else 1.\n"
        "Definition sum (p : pair) := left p + right p.\nNotation total := (sum (Pair 0 0)).\n",
        "B": "From Utfproof Require Import A.\nDefinition g := f Red.\nLemma used : g = 0.\nProof. reflexivity. Qed.\n"
        "Theorem zero : total = 0.\nProof. exact used. Qed.\nTheorem one : g = 0.\nProof. exact used. Qed.\n",
    }
    found = check.check(library(tmp_path, files), write=True)
    assert found["B.zero"]["definitions"] == ["A.pair", "A.sum"]
    assert found["B.one"]["definitions"] == ["A.colour", "A.f", "B.g"]
    assert "A.other" not in (tmp_path / "definitions.txt").read_text()


# --- the library with softmax, upon the other ----------------------------------------------------------------

UPON = {
    "Softmax": "From Utfproof Require Import A.\nDefinition thrice n := n + twice n.\nTheorem zero : thrice 0 = 0.\n"
    "Proof. reflexivity. Qed.\n"
}
EXTENSIONAL = (
    "From mathcomp Require Import boolp.\nTheorem zero (P Q : Prop) : (P <-> Q) -> P = Q.\n"
    "Proof. exact (@propositional_extensionality P Q). Qed.\n"
)


def upon(folder, files=UPON):
    library(folder)
    above = folder / theorems.SOFTMAX
    above.mkdir(exist_ok=True)
    library(above, files, ("Softmax.zero",))
    (folder / "README.md").write_text("")
    return above


def test_a_library_upon_another(coq, tmp_path, monkeypatch, capsys):
    above = upon(tmp_path)
    monkeypatch.setattr(check, "analysis", lambda: True)
    assert check.main([str(tmp_path), "--write"]) == 0
    assert stands(tmp_path, "Softmax.zero", "B.zero") == [(theorems.CLOSED, "")] * 2
    assert "(* by A.twice, Softmax.thrice *)" in (above / "statements.txt").read_text()
    printed = (above / "definitions.txt").read_text()
    assert "(* Softmax.thrice: 1 theorems *)" in printed
    assert "A.twice:" not in printed  # it stands in the definitions of the library below
    (tmp_path / "theories" / "A.v").write_text(GOOD["A"] + "(* changed below *)\n")
    assert stands(tmp_path, "Softmax.zero")[0][0] == theorems.ABSENT
    capsys.readouterr()
    monkeypatch.setattr(check, "analysis", lambda: False)
    assert check.main([str(upon(tmp_path).parent)]) == 0
    assert "softmax: left out, mathcomp-analysis is missing" in capsys.readouterr().out.splitlines()[-1]
    assert [status for status, _ in stands(tmp_path, "Softmax.zero", "B.zero")] == [theorems.ABSENT, theorems.CLOSED]


ABOVE = {
    "an axiom that is not declared": (CLASSICAL["B"], "Softmax.zero rests on .*classic : "),
    "an axiom of its own": (UPON["Softmax"] + "Axiom a : 1 = 2.\n", "Softmax.v:5: Axiom is not allowed"),
    "a proof that does not hold": (UPON["Softmax"].replace("thrice 0 = 0", "thrice 1 = 2"), "Error"),
    "a weaker statement": (
        UPON["Softmax"].replace("thrice 0 = 0", "thrice 0 = thrice 0"),
        "statements.txt is not what",
    ),
    "another definition": (UPON["Softmax"].replace("n + twice n", "n * twice n"), "definitions.txt is not what"),
}


@pytest.mark.parametrize("fault", ABOVE)
def test_a_fault_planted_above_is_caught(coq, tmp_path, fault, monkeypatch, capsys):
    text, message = ABOVE[fault]
    monkeypatch.setattr(check, "analysis", lambda: True)
    assert check.main([str(upon(tmp_path).parent), "--write"]) == 0
    upon(tmp_path, {"Softmax": text})
    assert check.main([str(tmp_path)]) == 1
    assert re.search(message, capsys.readouterr().err)
    assert [status for status, _ in stands(tmp_path, "Softmax.zero", "B.zero")] == [theorems.ABSENT, theorems.CLOSED]


@pytest.mark.full
def test_the_declared_axioms_are_allowed_above_alone(coq, tmp_path, capsys):
    if not check.analysis():
        pytest.skip(f"mathcomp-analysis is missing (Debian package {check.ANALYSIS})")
    upon(tmp_path, {"Softmax": EXTENSIONAL})
    assert check.main([str(tmp_path), "--write"]) == 0
    assert stands(tmp_path, "Softmax.zero") == [(theorems.DECLARED, "")]
    library(tmp_path, {"B": EXTENSIONAL}, ("B.zero",))
    assert check.main([str(tmp_path), "--write"]) == 1
    assert "B.zero rests on ['boolp.propositional_extensionality : " in capsys.readouterr().err
    assert stands(tmp_path, "B.zero")[0][0] == theorems.ABSENT


def test_without_coq_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check.shutil, "which", lambda name: None)
    assert check.main([str(library(tmp_path))]) == 3
    assert "coqc is missing; install Coq" in capsys.readouterr().err


def test_the_library_is_built_where_coq_is_required():
    """CI compiles it first (make proofs); then every headline is closed."""
    theorems._results.cache_clear()
    for library, good in zip(LIBRARIES, (theorems.CLOSED, theorems.DECLARED), strict=True):
        found = {entry.status for entry in theorems.standing(list(theorems.headlines(library)))}
        if os.environ.get("UTFPROOF_REQUIRE_COQ") and (library == PROOFS or check.analysis()):
            assert found == {good}, "run make proofs"
        assert found in ({good}, {theorems.ABSENT})


def test_the_driver_needs_the_standard_library_only():
    code = (
        f"import sys; sys.argv = ['check.py', '--help']; sys.path.insert(0, {str(PROOFS)!r}); import check; "
        "new = {m.split('.')[0] for m in sys.modules}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'check', 'utfproof', '__main__'}))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
