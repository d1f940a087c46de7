"""`check --show`: the lines of the checker that the check of one certificate rests on. No check needs this file."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

SILENT = ("require", "allow", "magnitude", "default_memory", "find", "hashed_until", "folder", "look")
"""Beside costs (cost_...), functions that can refuse a certificate or find a file, but have no part in accepting: a file is
hashed where it is read (WeightFiles.load)."""
ESTIMATES = ("drawing_work", "drawn_bits", "product_time", "entry_bits", "value_bits", "visited", "target_size")
WORDING = ("figure", "quote", "stated", "scientific", "says", "how", "without_m", "__str__")


def code_run(checker: ModuleType, path: str, limits: Any) -> tuple[Any, list[int], list[str]]:
    """The verdict on a certificate, and what its check makes one trust of the checker: the numbers of the lines of every
    function that ran and of the constants and classes that these name; and all lines of the file."""
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        counted = not (code.co_name.startswith("cost_") or code.co_name in (*SILENT, *ESTIMATES, *WORDING))
        if event == "call" and code.co_filename == checker.__file__ and counted:
            ran.add(code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        verdict = checker.check_file(path, limits)
    finally:
        sys.setprofile(before)
    text = Path(str(checker.__file__)).read_text(encoding="utf-8")
    starts, names = {code.co_firstlineno for code in ran}, set[str]().union(*(code.co_names for code in ran))
    found: set[int] = set()

    def lines(node: Any) -> range:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        return range(first, node.end_lineno + 1)

    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and lines(node)[0] in starts:
            found.update(lines(node))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if names & {target.id for target in targets if isinstance(target, ast.Name)}:
                found.update(lines(node))
        elif isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            held = [part for part in methods if lines(part)[0] in starts]
            if held or (node.name in names and not methods):
                found.update(lines(node))
                for part in methods:
                    if part not in held:
                        found.difference_update(lines(part))
    return verdict, sorted(found), text.splitlines()


def show(checker: ModuleType, paths: Iterable[str], limits: Any, kind: str | None) -> int:
    """Print, for each certificate (of one kind), the lines of the checker that its check rests on; the exit status."""
    codes = []
    for path, trouble in checker.find_certificates(paths, []):
        if trouble is not None:
            verdict, numbers, lines = checker.Verdict(checker.MALFORMED, trouble), list[int](), list[str]()
        else:
            verdict, numbers, lines = code_run(checker, path, limits)
        if kind in (None, verdict.facts.get("kind", kind)):
            codes.append(verdict.code)
            said = (
                f"{checker.LABELS[verdict.code]:9} {path}: {verdict.message}; {len(numbers)} of {len(lines)} lines ran"
            )
            print(checker.plain(said), flush=True)
            for number in numbers:
                print(f"{number:5} {lines[number - 1]}")
    return int(checker.exit_code(codes)) if codes else int(checker.MALFORMED)
