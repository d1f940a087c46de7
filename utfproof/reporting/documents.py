"""What every command prints with --json, as forms: the one place from which docs/schemas is written and by which outputs are
tested. Fields that end in "?" depend on the options; `utfproof report` reads several of these documents back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from utfproof.certificates.forms import CERTIFICATES
from utfproof.frontier.bounds import IMPOSSIBLE, LOWER, UPPER
from utfproof.frontier.questions import ALL, ALMOST_ALL, BOTH, TIED, UNTIED, E
from utfproof.frontier.questions import ANY as ANY_HOST
from utfproof.ground.forms import ANY, DIALECT, INTEGER, NUMBER, WHOLE, Each, Either, Maybe, json_schema
from utfproof.ground.notions import Notion
from utfproof.reporting.document import VERDICTS

SHAPE = {
    "heads": WHOLE, "layers": WHOLE, "head_dim": WHOLE, "d_in": WHOLE, "d_out": WHOLE, "residual?": bool, "m?": Maybe(WHOLE),
}  # fmt: skip
"""A shape, as all documents write it."""
PRESET = Each(ANY)
"""A training preset, every setting by its name."""
RUN = {
    "accuracy": Maybe(NUMBER), "accuracy_answers": NUMBER, "complete": bool, "device": str, "dtype": str, "engine": str,
    "eval_sequences": WHOLE, "key": str, "loss": Maybe(NUMBER), "note": str, "parameters": WHOLE, "seconds": NUMBER,
    "seed": WHOLE, "setting": str, "steps": WHOLE, "stopped_early": bool,
}  # fmt: skip
"""One training run."""
_MEASURED = {
    "accuracies": [NUMBER], "answers": [NUMBER], "complete": bool, "devices": [str], "dtypes": [str], "mean": NUMBER,
    "mean_answers": NUMBER, "seeds": WHOLE, "standard_deviation": Maybe(NUMBER), "steps": WHOLE, "stopped_early": bool,
}  # fmt: skip
TABLES = {
    "baselines": Each([{"accuracy": NUMBER, "answers": NUMBER, "name": str, "rule": str, "sequences": WHOLE,
                        "standard_error": NUMBER}]),
    "further": [{"differences": str, "measured": _MEASURED, "name": str}],
    "tables": [{"label": str, "rows": [{"cells": Each({"measured": Maybe(_MEASURED), "paper_percent": NUMBER}),
                                        "label": str, "task": str}], "title": str}],
}  # fmt: skip
"""The paper's tables in one setting."""
_NOTIONS = tuple(notion.value for notion in Notion)
EMULATION = {
    "notion": _NOTIONS, "holds": Maybe(bool), "rests_on?": ("bound", "estimate", "tolerance"),
    "undecided?": WHOLE, "engine": str, "precision": str,
    "max_relative_error": Maybe(NUMBER),
    "quantiles": Each(Maybe(NUMBER)), "tolerance": Maybe(NUMBER), "bound_over_error": Maybe([NUMBER]),
    "first_growth": Maybe(WHOLE), "condition": Maybe(NUMBER), "misfit": Maybe(NUMBER), "unsolved": Maybe(str),
    "comparisons": [{"trial": WHOLE, "attention": str, "context": WHOLE, "relative_error": Maybe(NUMBER),
                     "bound": Maybe(NUMBER), "estimate?": Maybe(NUMBER), "layer_errors": [Maybe(NUMBER)]}],
}  # fmt: skip
"""A host beside its targets."""
CASES = {
    "cases": [{"shape": SHAPE, "host": str, "target_law": str, "refused": Maybe(str), "tied_targets?": bool,
               "left_out": [{"attention": str, "reason": str}],
               **{f"{name.rstrip('?')}?": form for name, form in EMULATION.items()}}],
    "totals": {"runs": WHOLE, "broken": WHOLE, "undecided?": WHOLE, "refused": WHOLE, "failed": WHOLE,
               "max_relative_error": Maybe(NUMBER),
               "bound_over_error": Maybe([NUMBER]), "bound_over_error_tame": Maybe([NUMBER])},
}  # fmt: skip
"""Hosts at shapes; those that are refused have no report."""
VERIFIED = {
    "claims": [{
        "id": str, "section": str, "place": str, "statement": str, "quotation": Maybe(str), "category": str,
        "notion": Maybe(str), "scope": str, "targets": Maybe(str), "free": Maybe(str), "hosts": Maybe(str),
        "attention": Maybe(str), "recorded": VERDICTS, "verdict": VERDICTS, "agrees": bool, "problems": [str],
        "evidence": [str], "sentence": str, "proof": Maybe(str), "cause": Maybe(str), "grid_note": Maybe(str),
        "theorems": [{"detail": str, "name": str, "status": str}], "theorems_lack": Maybe(str),
        "figures": Each(Either(bool, NUMBER, str)), "smallest": Maybe(str), "counterexample": Maybe(str),
        "instances": [{"at": str, "certificate": Maybe(str), "detail": str, "outcome": str, "says?": Maybe(ANY), "part": str,
                       "routes": [str]}],
        "seconds": NUMBER, "processor_seconds": NUMBER,
    }],
    "grid": str, "holds": bool, "seconds": NUMBER,
}  # fmt: skip
"""Claims that were decided, without their certificates."""
_STATUS = ("certificate", "on demand", "formula", "proof", "written proof only", "m ≥ 1")
_BEHIND = {"status": _STATUS, "bound?": str, "place?": str, "proves?": str, "file?": str, "claim?": str}
_SIDE = {"m": WHOLE, **_BEHIND}
"""What stands behind a side of a frontier's entry."""

# fmt: off
COMMANDS: dict[str, Any] = {
    "bench all": {"absent": Each(str), "benchmark": ("all",), "blas": str, "cores": WHOLE, "kernel": str,
        "load_average": NUMBER, "processor": str, "results": [{"beside": str, "peer": bool, "processor_seconds":
        Each([[NUMBER]]), "ratios": Each(NUMBER), "size": str, "work": str}], "setting": {"repetitions": WHOLE,
        "threads": WHOLE, "tiny": bool}, "versions": Each(str), "worse?": [{"beside": str, "ratio": NUMBER,
        "recorded": NUMBER, "size": str, "work": str}]},
    "bench certify": {"benchmark": ("certify",), "cores": WHOLE, "device": str, "machine": str, "python": str,
        "results": [{"dimensions": [WHOLE], "m": WHOLE, "median_seconds": Each(NUMBER), "seconds": Each([NUMBER]),
        "shape": str, "witness_bytes": Maybe(NUMBER)}]},
    "bench emulate": {"benchmark": ("emulate",), "blas": str, "cores": WHOLE, "load_average": NUMBER, "processor": str,
        "results": [{"absent": Each(ANY), "contestants": [{"attention_multiplications_per_token": NUMBER,
        "best_seconds": NUMBER, "calls": WHOLE, "condition": Maybe(NUMBER), "engine": str, "host": Maybe(str), "m": WHOLE,
        "median_processor_seconds": Maybe(NUMBER), "median_seconds": NUMBER, "multiplications_per_token": WHOLE, "name": str,
        "notion": Maybe(str), "processor_seconds": Maybe([NUMBER]), "ratios": Each(NUMBER), "relative_error": Maybe(NUMBER),
        "seconds": [NUMBER], "tokens_per_second": NUMBER}], "dimensions": [WHOLE], "matching_dimension": WHOLE,
        "same_function": [{"contestants": [str], "scope": str}], "shape": str}], "setting": {"attention": str,
        "context": WHOLE, "device": str, "hosts": [str], "inputs": str, "precision": str, "repetitions": WHOLE,
        "seed": WHOLE, "threads": WHOLE}, "versions": Each(str)},
    "bench exact": {"absent": Each(str), "benchmark": ("exact",), "blas": {"utfproof": str, "fflas-ffpack?": str},
        "cores": WHOLE, "load_average?": NUMBER, "processor": str,
        "results": [{"agree": bool, "best_seconds": Each(NUMBER), "flint_conversion_seconds": Maybe(NUMBER),
        "gflops": Each(NUMBER), "median_seconds": Each(NUMBER), "n": WHOLE, "ranks": Each(WHOLE), "ratios": Each(NUMBER),
        "seconds": Each([NUMBER])}], "setting": {"device": str, "prime": WHOLE, "repetitions": WHOLE, "seed": WHOLE,
        "sizes": [WHOLE], "skip": [str], "threads": WHOLE}, "versions": Each(str)},
    "bench train": {"accelerator?": str, "benchmark": ("train",), "cores": WHOLE, "load_average": NUMBER, "processor": str,
        "results": [{"batch": WHOLE, "contestants": [{"engine": str, "first_loss": NUMBER, "host": Maybe(str), "m": WHOLE,
        "median_processor_seconds": Maybe(NUMBER), "median_seconds": NUMBER, "multiplications": NUMBER, "name": str,
        "seconds": [NUMBER], "steps_per_second": NUMBER, **{f"{ratio} {host} wide?": NUMBER
        for host in ("sparse", "random") for ratio in ("speed over", "less processor time than",
        "fewer multiplications than")}}],
        "context": WHOLE,
        "dimensions": [WHOLE], "task": str}], "setting": {"batch": Maybe(WHOLE), "device": str, "dtype": str,
        "repetitions": WHOLE, "seed": WHOLE, "threads": WHOLE, "variant": str}, "versions": Each(str)},
    "build": {"construction?": str, "dtype": str, "file": str, "m?": WHOLE, "shape": SHAPE, "system": str,
        "width?": WHOLE},
    "certify": {"M": WHOLE, "files": [str], "host": {"construction": str, "dtype?": str, "law?": str, "seed?": WHOLE},
        "kind": str, "notion": str, "shape": SHAPE, "targets": str, "verdict": str},
    "check": {"exit_code": WHOLE, "results": [{"path": str, "code": WHOLE, "status": str, "message": str, "kind?": str,
        "notion?": str, "targets?": str, "verdict?": str, "shape?": SHAPE, "construction?": str, "rank?": WHOLE,
        "weights?": str, "free?": str, "target?": str, "E?": str, "X?": str, "attention?": str, "context?": WHOLE,
        "digits?": WHOLE, "difference?": [WHOLE], "width?": WHOLE}], "skipped": [{"path": str, "reason": str}]},
    "collect": {"counts": [Each(Either(WHOLE, str))], "file": str, "finished": WHOLE, "folder": str, "jobs": WHOLE},
    "decide": {"M": WHOLE, "condition?": Maybe(NUMBER), "does_not_imply": str, "errors?": Each({"embedding_bound": NUMBER,
        "pass_estimate": NUMBER}), "files": [str], "host": {"system": str, "weights": str}, "implies": str, "kind": str,
        "notion": str, "numerical_rank?": Maybe(NUMBER), "reason": str, "rounding?": Maybe(ANY), "shape": SHAPE,
        "scope": str, "sigma_min?": Maybe(NUMBER), "targets": str, "verdict": str,
        "explanation?": [{"heading": str, "lines": [str]}], "missed?": {"column": WHOLE, "coordinate": WHOLE,
        "distance": NUMBER, "distance_squared": [str], "file": str,
        "in_certificate": bool, "in_words": str, "kind": str, "word": [WHOLE]}, "visible_miss?": {"context": WHOLE,
        "logit_error": NUMBER, "output_error": NUMBER, "misfit": Maybe(NUMBER)}},
    "embed": {"structure?": Each([str]), "verdict?": str, "witness?": Maybe(ANY), "coverage?": Maybe(str),
        "read_as?": Maybe(Each(ANY)), "unknown?": [ANY], "not_read?": [str],
        "columns?": WHOLE, "condition?": Maybe(NUMBER), "condition_estimated?": bool, "file?": Maybe(str), "method?": str,
        "notion?": str, "rank?": WHOLE, "misfit?": Maybe(NUMBER), "shape?": SHAPE, "certificate_file?": str, "files?": [str],
        "host?": {"m": WHOLE, "notion": str, "verified": str}, "least?": {"m": WHOLE, "notion": str, "ranks": [WHOLE],
        "residual": bool, "target_width": WHOLE, "universal_m": WHOLE}, "within?": {"m": WHOLE, "asked": NUMBER,
        "proven": NUMBER, "sequences": WHOLE}, "agrees?": bool, "compared_positions?": WHOLE,
        "grouped_columns?": Maybe(ANY), "kv_heads?": WHOLE, "layout?": str, "left_out?": [ANY], "positions?": WHOLE,
        "relative_difference?": NUMBER, "sequences?": WHOLE, "tolerance?": NUMBER, "vocabulary?": WHOLE, "width?": WHOLE},
    "emulate": Either({"host": str, "shape": SHAPE, **EMULATION, "tied_targets?": bool, "device": str, "dtype": str}, CASES),
    "enclose": {"attention": str, "context": WHOLE, "difference": {"at_least": str, "at_most": str}, "digits": WHOLE,
        "embedding": str, "files": [str], "notion": str, "precision_bits": Maybe(WHOLE), "shape": SHAPE, "verdict": str},
    "export": {"files": [str], "layout": str, "positions": WHOLE, "shape": SHAPE, "vocabulary": WHOLE},
    "figure": {"figure": str, "file": str, "points": [ANY]},
    "frontier": {"bounds": [{"evidence": str, "m": Maybe(WHOLE), "name": str, "place": str, "question": str,
        "shape": SHAPE, "side": (LOWER, UPPER, IMPOSSIBLE)}], "certificates": WHOLE,
        "entries": [{"shape": SHAPE, "notion": _NOTIONS, "free": Maybe((E, BOTH)), "targets": (UNTIED, TIED),
        "extent": (ALL, ALMOST_ALL), "host": (ANY_HOST, TIED), "exact": bool, "proved": _SIDE, "reached": Maybe(_SIDE),
        "impossible?": {**_BEHIND, "m?": WHOLE}, "paper": Maybe({"label": str, "m": WHOLE,
        "refuted": bool, "side": (LOWER, UPPER)})}], "files": [str], "plot": Maybe(ANY), "sides": Each(WHOLE)},
    "optimum": {"format": ("utfproof-training-optimum",), "hosts": Each({"agreement": {"different_answers": WHOLE,
        "largest_difference": NUMBER, "largest_logit": NUMBER, "positions": WHOLE}, "condition": Maybe(NUMBER),
        "embedded": {"accuracy": Maybe(NUMBER), "accuracy_answers": NUMBER, "loss": Maybe(NUMBER)},
        "embedding_residual": Maybe(NUMBER),
        "eval_sequences": WHOLE, "m": WHOLE, "method": str, "notion": str, "trained_on": [{"after": {"accuracy":
        Maybe(NUMBER),
        "accuracy_answers": NUMBER, "loss": Maybe(NUMBER)}, "before": {"accuracy": Maybe(NUMBER), "accuracy_answers": NUMBER,
        "loss": Maybe(NUMBER)}, "curve": [[NUMBER]], "distance": NUMBER, "dtype": str, "eval_sequences": WHOLE,
        "learning_rate": NUMBER, "perturbation": NUMBER, "steps": WHOLE, "warmup": WHOLE}]}), "key": str,
        "left_out": Each(ANY), "preset": PRESET, "seed": WHOLE, "trained": {"accuracy": Maybe(NUMBER),
        "accuracy_answers": NUMBER, "eval_sequences": WHOLE, "loss": Maybe(NUMBER)}, "version": WHOLE},
    "refute-lower": {"files": [str], "free": str, "method": str, "notion": str, "shape": SHAPE, "targets": str,
        "unused": [ANY], "verdict": str, "word": [WHOLE], "words": WHOLE},
    "report": {"bytes?": WHOLE, "files?": Each([str]), "not_understood?": [str], "page?": str,
        "sections?": [Each(Either([{"as_it_should_be": bool, "text": str}], str))], "commands?": [{"command": str,
        "purpose": str}]},
    "search exhaustive": {"classes": WHOLE, "complete": bool, "decided": WHOLE, "first": Maybe({"U": Maybe(ANY),
        "ones_of_R_V": [[[[WHOLE]]]], "rational": bool}), "hosts": WHOLE, "kind": str, "linear": WHOLE, "notes": [str],
        "outcome": str, "problem": {"free": str, "host": str, "m": WHOLE, "notion": str, "shape": {"d_in": WHOLE,
        "head_dim": WHOLE, "heads": WHOLE, "layers": WHOLE}, "targets": str}, "rational": WHOLE,
        "search": ("exhaustive",), "served": WHOLE, "setting": {"first": bool, "seconds": NUMBER}},
    "search numerical": {"candidate": Maybe({"R_V": [[[[NUMBER]]]], "E?": [[NUMBER]], "U?": [[NUMBER]],
        "restart": WHOLE}), "counts": Each(WHOLE),
        "engine": {"device": str, "dtype": str, "name": str}, "machine": {"machine": str, "numpy": str, "python": str},
        "notes": [ANY], "outcome": str, "problem": {"free": str, "host": str, "m": WHOLE, "notion": str,
        "shape": {"d_in": WHOLE, "head_dim": WHOLE, "heads": WHOLE, "layers": WHOLE}, "targets": str},
        "restarts": [{"fresh": Maybe([NUMBER]), "number": WHOLE, "outcome": str, "path": [[NUMBER]]}],
        "search": ("numerical",), "setting": Each(Either([NUMBER], bool, WHOLE)),
        "verification": Maybe({"certificate": Maybe(Either(*CERTIFICATES.values())), "construction": Maybe(str),
        "equivalent": bool, "facts": Each(ANY), "host": {"R_V": [[[[str]]]], "E?": [[str]], "U?": [[str]]},
        "instance": Each(ANY), "method": str, "mirrored": bool})},
    "sweep": {"before?": WHOLE, "failures?": [ANY], "finished?": WHOLE, "folder": str, "jobs": WHOLE, "repeated":
        Maybe(WHOLE),
        "sweep": str, "verdicts?": [Each(Either(WHOLE, str))]},
    "symbolic": {"blocks": {"holds?": bool, "permutation?": Maybe([WHOLE]), "reason?": str,
        "sizes": [{"blocks": WHOLE, "kind": str,
        "width": WHOLE}]}, "degree": WHOLE, "determinant": Maybe({"degrees": [WHOLE], "polynomial?": [[Either([str],
        INTEGER)]], "routes": [str], "terms": WHOLE}), "limits": [str], "line": Maybe({"at_the_sparse_host": INTEGER,
        "coefficients": [str], "confirmed_at": [INTEGER], "degree": WHOLE, "from": str, "routes": [str], "to": str}),
        "nonzero": Maybe(bool), "r_all": Maybe({"entries?": [[[[Either([str], WHOLE)]]]],
        "highest_degree_in_one_symbol": WHOLE, "homogeneous_columns": bool, "multilinear": bool, "routes": [str],
        "symbols": WHOLE, "terms": WHOLE}), "shape": SHAPE, "spanning": Maybe({"holds": bool, "rank": WHOLE, "vectors":
        WHOLE}),
        "tied": bool},
    "tables": {**TABLES, "coverage": Each(str), "folder": str, "theory": TABLES,
        "optimum": [{"task": str, "variant": str, "width": WHOLE, "length": WHOLE, "trained": NUMBER, "host": str,
        "m": WHOLE, "embedded": NUMBER, "largest_difference": NUMBER, "trained_on": Maybe(NUMBER), "steps": WHOLE,
        "found": [NUMBER], "schedule": str}]},
    "train": Either({"preset": PRESET, "runs": [RUN]}, {"panel": str, "points": [{"preset": PRESET, "runs": [RUN]}]}),
    "verify": Either({**VERIFIED, "certificates": Each(Either(*CERTIFICATES.values()))},
        {"listed": [{"id": str, "recorded": VERDICTS}]}),
}
# fmt: on
"""By command."""


def schemas(commands: Mapping[str, Any] = COMMANDS) -> dict[str, dict[str, Any]]:
    """Every published schema by the name of its file: certificates by kind, and the --json of these commands."""
    found = {}
    for name, form in CERTIFICATES.items():
        found[f"certificate-{name}"] = {"title": f"utfproof certificate, kind {name}", **json_schema(form)}
    for name, form in commands.items():
        title = {"title": f"utfproof {name} --json"}
        found[name.replace(" ", "-")] = {**title, **json_schema(form, closed=False)}
    return {name: {"$schema": DIALECT, **schema} for name, schema in sorted(found.items())}
