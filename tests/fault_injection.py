"""Plant faults in the code and see which claims break.

A fault is a change of source text. The changed module is compiled and the code of its functions is swapped in place, so
every reference sees the fault whatever it was imported as; changed module-level data is replaced too. Each fault runs in
a child process of its own:

    python tests/fault_injection.py FAULT...     prints {fault: {"code": exit code, "broken": [...], "error": ...}} as JSON
"""

import contextlib
import functools
import gc
import importlib
import io
import json
import os
import sys
import types
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """In `module`, the text `old` (found once) becomes `new`; each of the claims `breaks` must then break."""

    name: str
    module: str
    old: str
    new: str
    breaks: tuple[str, ...]
    table: str


def tables():
    """Every fault of tests/faults/*.txt by name. "== MODULE" stands over a module's faults; each is a line with its name, the
    lines of its text ("- ") and what they become ("+ "), and, indented, the claims that it breaks."""
    found = {}
    for path in sorted((Path(__file__).parent / "faults").glob("*.txt")):
        for section in path.read_text().split("\n== ")[1:]:
            module, *lines = section.rstrip("\n").split("\n")
            starts = [i for i, line in enumerate(lines) if line and line[0] not in "-+ "]
            for i, end in zip(starts, [*starts[1:], len(lines)], strict=True):
                old, new, breaks = (
                    [line[2:] for line in lines[i:end] if line.startswith(sign)] for sign in ("-", "+", "  ")
                )
                assert lines[i] not in found, f"two faults are called {lines[i]}"
                changed, names = ("\n".join(old), "\n".join(new)), tuple(" ".join(breaks).split())
                found[lines[i]] = Fault(lines[i], module, *changed, names, path.stem)
    return found


def codes(code):
    """All function code objects inside a module's code, by qualified name and first line."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from codes(constant)


def plant(fault):
    """Change the running code. Raises AssertionError when the text is not there exactly once, or nothing changed."""
    module = importlib.import_module(fault.module)
    path = module.__file__
    source = Path(path).read_text()
    assert source.count(fault.old) == 1, (
        f"{fault.name}: the text is found {source.count(fault.old)} times in {fault.module}"
    )
    changed = source.replace(fault.old, fault.new)
    old_code, new_code = compile(source, path, "exec"), compile(changed, path, "exec")
    old = {(c.co_qualname, c.co_firstlineno): c for c in codes(old_code)}
    shift = {}
    for code in codes(new_code):
        shift.setdefault(code.co_qualname, []).append(code)
    swapped = 0
    functions = [f for f in gc.get_objects() if isinstance(f, types.FunctionType) and f.__code__.co_filename == path]
    order = {name: [c for c in codes(old_code) if c.co_qualname == name] for name in shift}
    for function in functions:
        code = function.__code__
        if (code.co_qualname, code.co_firstlineno) not in old:
            continue
        place = [c.co_firstlineno for c in order.get(code.co_qualname, [])].index(code.co_firstlineno)
        new = shift[code.co_qualname][place]
        if new != code:
            function.__code__ = new
            swapped += 1
    swapped += plant_data(module, old_code, new_code)
    assert swapped, f"{fault.name}: nothing changed"
    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper):
            found.cache_clear()


def mutated(module, old, new):
    """A second module of this one's source, with the text (found once) changed."""
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1, old
    made = types.ModuleType(f"mutated_{module.__name__.rpartition('.')[2]}")
    sys.modules[made.__name__] = made  # dataclasses look their module up
    exec(compile(source.replace(old, new), f"{made.__name__}.py", "exec"), made.__dict__)
    return made


def changes_a_verdict(module, fault, files):
    """Whether the checker with this fault judges a file otherwise than its folder says; files: a list for each exit code."""
    made = mutated(module, *fault)
    limits = made.Options()
    return any(judged(made, path, limits) != code for code, paths in enumerate(files) for path in paths)


def judged(module, path, options=None):
    """The exit code of this checker for a file; 70 for an exception, which is no verdict."""
    try:
        return module.check_file(path, options).code
    except Exception:
        return 70


PLAIN = (int, float, str, bytes, bool, tuple, list, dict, set, frozenset)


def plant_data(module, old_code, new_code):
    """Replace plain module-level data that the fault changes, wherever the package holds it."""
    if module.__name__.startswith("utfproof.claims.checks."):
        return 0  # running such a module again would register its checks twice; its functions were swapped
    spaces = []
    for code in (old_code, new_code):
        shadow = types.ModuleType(module.__name__)
        shadow.__file__, shadow.__package__ = module.__file__, module.__package__
        exec(code, shadow.__dict__)
        spaces.append(shadow.__dict__)
    count = 0
    for name, value in spaces[1].items():
        if name.startswith("__") or not isinstance(value, PLAIN) or repr(spaces[0].get(name)) == repr(value):
            continue
        original = module.__dict__[name]
        for holder in [m for key, m in sys.modules.items() if key.startswith("utfproof") and m is not None]:
            for key, held in list(vars(holder).items()):
                if held is original:
                    setattr(holder, key, value)
                    count += 1
    return count


def run(fault):
    """Plant the fault in this process and verify the claims that it must break."""
    from utfproof.cli.app import run as command_line

    if fault is not None:
        plant(fault)
    names = list(fault.breaks)
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = command_line(["verify", *names, "--workers", "1", "--json"])
    try:
        document = json.loads(output.getvalue())
    except ValueError:
        return {"code": code, "broken": [], "error": errors.getvalue()[-500:]}
    broken = {entry["id"]: entry["problems"] for entry in document["claims"] if not entry["agrees"]}
    decided = sorted(entry["id"] for entry in document["claims"])
    return {"code": code, "decided": decided, "broken": sorted(broken), "problems": broken, "named": errors.getvalue()}


def run_apart(fault):
    """The same in a child process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            result = run(fault)
        except BaseException as error:
            result = {"code": -1, "broken": [], "error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writer, "w") as pipe:
            json.dump(result, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"code": -1, "broken": [], "error": "the child process died"}


def main(names):
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"
    from utfproof.claims.registry import all_claims

    all_claims()
    import utfproof.commands.verify  # noqa: F401  (everything is imported before the children part)

    known = tables()
    print(json.dumps({name: run_apart(known[name]) for name in names or known}))


if __name__ == "__main__":
    main(sys.argv[1:])
