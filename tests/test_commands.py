"""What every command has: outputs that never share a file, --json as one flag, whole sentences in --help."""

import itertools
import json
import subprocess
import sys

import pytest
import typer

from utfproof.cli.app import application, run
from utfproof.cli.options import WRITTEN
from utfproof.cli.registry import NAMES, load, parameters


def leaves(command, words=()):
    """Every command with the words that name it."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command


COMMANDS = dict(leaves(typer.main.get_command(application())))
OUTPUTS = {
    tuple(name.split()): [one.label for one in parameters(load(name)).values() if one.info.parser in WRITTEN]
    for name in NAMES
}


def required(words):
    """Arguments and options that the command cannot be parsed without."""
    found = []
    for parameter in COMMANDS[words].params:
        if parameter.required and parameter.param_type_name == "argument":
            found.append("tied" if parameter.name == "construction" else "given")
        elif parameter.required and parameter.opts[-1] not in OUTPUTS[words]:
            found += [parameter.opts[-1], "given"]
    return found


PAIRS = [(words, *pair) for words in COMMANDS for pair in itertools.combinations(OUTPUTS[words], 2)]


def test_there_are_commands_with_two_outputs():
    assert {" ".join(words) for words, *_ in PAIRS} >= {"verify"}


@pytest.mark.parametrize(("words", "one", "other"), PAIRS)
@pytest.mark.parametrize("spelling", ["out.json", "./out.json", "link.json", "here/../out.json"])
def test_two_outputs_never_share_a_file(words, one, other, spelling, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "out.json").write_text("old")
    (tmp_path / "link.json").symlink_to("out.json")
    assert run([*words, *required(words), *_others(words, {one, other}), one, "out.json", other, spelling]) == 2
    printed = capsys.readouterr()
    assert "name one file" in printed.err, printed.err
    assert one in printed.err
    assert other in printed.err
    assert len(printed.err.splitlines()) == 1
    assert (tmp_path / "out.json").read_text() == "old"


def _others(words, given):
    """Required outputs other than the ones given."""
    names = [p.opts[-1] for p in COMMANDS[words].params if p.required and p.opts[-1] in OUTPUTS[words]]
    return list(itertools.chain.from_iterable((name, f"other{name}") for name in names if name not in given))


def test_an_output_never_takes_an_input_s_place(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text("old")
    assert run(["sweep", "s.toml", "--table", "./s.toml"]) == 2
    assert "would overwrite an input of this command, SPEC" in capsys.readouterr().err
    assert (tmp_path / "s.toml").read_text() == "old"


@pytest.mark.parametrize("words", COMMANDS)
def test_json_is_a_flag_and_progress_an_option(words):
    options = {name: p for p in COMMANDS[words].params for name in p.opts}
    assert options["--json"].is_flag
    assert options["--json"].help == "Print one JSON object, for machines."
    assert "--progress" in options
    assert not any(name.startswith("--json-") for name in options)


@pytest.mark.parametrize("words", [(), ("search",)])
def test_help_is_whole_sentences(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words, "--help"]) == 0
    printed = capsys.readouterr().out
    assert "..." not in printed.replace("[ARGS]...", "")
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    listed = " ".join(printed[printed.index("Commands:") :].split())
    for name, command in COMMANDS.items():
        if len(name) == len(words) + 1 and name[:-1] == words:
            sentence = " ".join(command.help.split("\n\n")[0].split())
            assert f"{name[-1]} {sentence}" in listed
            assert sentence.endswith(".")


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("words", [(), ("search",), ("bench",), *COMMANDS])
def test_help_fits_a_screen_and_has_an_example(words, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= columns
    assert words not in COMMANDS or any("Example" in line for line in lines)


@pytest.mark.parametrize("words", COMMANDS)
def test_help_all_explains_every_option(words, capsys):
    printed = []
    for flag in ("--help", "--help-all"):
        assert run([*words, flag]) == 0
        printed.append(capsys.readouterr().out)
    for parameter in COMMANDS[words].params:
        for name in parameter.opts:
            if name.startswith("--") and name != "--help-all":
                assert parameter.help
                assert all(name in text for text in printed)


def test_each_command_is_imported_when_it_is_asked_for():
    """--version imports none of them; a command imports its own module, and neither PyTorch nor SymPy."""
    assert {" ".join(words) for words in COMMANDS} == set(NAMES)
    for arguments, loaded in ((["--version"], set()), (["tables", "--help"], {"tables"})):
        script = (
            "import sys\nfrom utfproof.cli.app import run\n"
            f"run({arguments})\n"
            "heavy = ('torch', 'sympy')\n"
            "print(sorted(n for n in sys.modules if n.startswith('utfproof.commands.') or n in heavy))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        found = eval(done.stdout.splitlines()[-1])
        assert {name.removeprefix("utfproof.commands.") for name in found} <= loaded


@pytest.mark.parametrize("context", ["9" * 5000, "1,x", "1,,2", "0", "٣", "-1"])
def test_contexts_are_one_line_of_error(context, capsys):
    """Of any length."""
    assert run(["emulate", "tied", "-H", "1", "-L", "1", "-d", "1", "--d-in", "1", "--context", context]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "context" in lines[0]
    assert len(lines[0]) < 300


def test_the_glossary_explains_what_is_asked(capsys):
    from utfproof.commands.glossary import entries

    assert run(["glossary", "m", "M", "looped", "--json"]) == 2
    assert "no 'looped'" in capsys.readouterr().err
    assert run(["glossary", "m", "M", "L", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["glossary"]
    assert set(told) == {"m", "M", "H, L, d, d_in, d_out"}
    assert len(entries()) > 35
