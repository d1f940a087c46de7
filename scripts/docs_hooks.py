"""Hooks of the documentation site (mkdocs.yml).

Pages that programs write are made here, when the site is built: the claims, the options of every command and the
tables of measurements. Formulas become MathML, which browsers draw without a script or a font.
"""

from __future__ import annotations

import csv
import importlib
import importlib.resources
import json
import posixpath
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from utfproof import frontier
from utfproof.cli.app import application
from utfproof.constructions import CONSTRUCTIONS, construction
from utfproof.paper import tables as paper
from utfproof.reporting import charts, mathematics
from utfproof.shapes import Shape, matching_dimension, paper_dimension
from utfproof.training import optimum, results, tables
from utfproof.training.tasks import kind_of

ROOT = Path(__file__).parents[1]
INCLUDED = {
    "proofs/README.md": "machine-checked-proofs.md",
    "CONTRIBUTING.md": "contributing.md",
    "utfproof/commands/glossary.md": "glossary.md",
}
"""Pages outside docs/ and their names on the site."""
WRITTEN = ("docs/claims.html", "docs/options.md", "docs/notebooks/")
"""Pages that `generated` writes."""
LINK = re.compile(r"(?<!!)\[([^\]\[]*)\]\(([^)\s]+)\)")
PICTURE = re.compile(r'<img alt="([^"]*)" src="([^"]*pictures/([\w-]+\.svg))"\s*/?>')
CODE = re.compile(r"(^```.*?^```\s*$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$\w])\$(?=\S)([^$\n]*(?:\n[^$\n]+){0,2}?)(?<=\S)\$(?![\w$])", re.DOTALL)
KEPT = re.compile(r"((?:<(?:code|pre|svg|math|script)\b.*?</(?:code|pre|svg|math|script)>)|<[^>]+>)", re.DOTALL)
SPACING = (
    (r"<mi>:</mi><mo>&#x0003D;</mo>", "<mo>:=</mo>"),
    (r"<mi>:</mi>", "<mo>:</mo>"),
    (r"<mo>([A-Za-z]+|&#x0221E;|&#x02205;)</mo>", r"<mi>\1</mi>"),
    (r"(<mi>[A-Za-z]{2,}</mi>)(?=<mi|<ms)", r'\1<mspace width="0.17em"/>'),
    (r"<mo(?: stretchy=\"false\")?>(&#x0007C;|&#x0002F;)</mo>", r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'),
)
"""Names, bars and slashes as latex2mathml writes them, and with the spaces that TeX gives them."""
MATH_BLOCKS = ((0x20, 0x250), (0x2B0, 0x400), (0x2000, 0x2C00), (0x1D400, 0x1D800))
"""Unicode's Latin and Greek letters, symbols, and mathematical alphabets."""
LONG_FORMULA = 40
"""Formulas of more characters than this scroll on a narrow screen."""
TABLE = re.compile(r"^<!-- table: ([\w-]+) -->$", re.MULTILINE)


# --- pages that programs write -------------------------------------------------------------------------------


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def run(*arguments: str) -> str:
    """Standard output of a command, which must exit with 0."""
    command = [sys.executable, "-m", "utfproof", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@lru_cache(maxsize=1)
def decided() -> tuple[dict[str, Any], str]:
    """Every claim, decided now: the document and the searchable page."""
    with tempfile.TemporaryDirectory() as folder:
        run("verify", "-o", f"{folder}/verify.json", "--html", f"{folder}/claims.html")
        page = Path(folder, "claims.html").read_text(encoding="utf-8")
        return json.loads(Path(folder, "verify.json").read_bytes()), page


def options() -> str:
    """Every option of every command, from the command line itself."""
    found = typer.main.get_command(application())
    return get_docs_for_click(
        obj=found, ctx=typer.Context(found, info_name="utfproof"), name="utfproof", title="Options"
    )


def generated() -> dict[str, str]:
    """Text of each page that is not in the repository, by its name on the site."""
    sys.path.insert(0, str(ROOT / "scripts"))
    notebooks = importlib.import_module("notebooks")
    executed = {f"notebooks/{name}.md": notebooks.page(name) for name in notebooks.names()}
    pictures = {f"pictures/{name}.svg": draw() for name, draw in PICTURES.items()}
    return {"claims.html": decided()[1], "options.md": options(), **pictures, **executed}


@lru_cache
def house_map() -> str:
    """The rooms and their imports, as SVG."""
    return importlib.import_module("house_map").draw()


@lru_cache
def gated_picture() -> str:
    """m against L at (2, L, 1, 2): the paper's dimension, the least without MLPs, and with gated ones; as SVG."""
    layers = list(range(1, 13))
    at = [Shape(2, count, 1, 2) for count in layers]
    lines = {
        "the paper's host": [paper_dimension(shape) for shape in at],
        "least without MLPs (all targets, by attention-matching)": [matching_dimension(shape) for shape in at],
        "gated MLPs": [construction("gated").least_m(shape) for shape in at],
        "gated MLPs, tied targets": [construction("gated-tied").least_m(shape) for shape in at],
    }
    with charts.chart(6.4, 3.6) as (axes, drawn):
        for (label, values), style in zip(lines.items(), ("--", "-", "-", ":"), strict=True):
            axes.plot(layers, values, style, marker=".", label=label)
        axes.set(xlabel="layers L", ylabel="m", yscale="log", xticks=layers, title="(H, L, d, d_in) = (2, L, 1, 2)")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        return str(drawn())


@lru_cache
def training_chart(name: str) -> str:
    """A chart of the committed training runs, as SVG."""
    return str(getattr(charts, name)(trained()))


CHARTS = {
    "variants": "Accuracy by variant at 1-hop and 2-hop: the paper's, setting paper, setting theory",
    "curves": "Accuracy against steps at 1-hop with residual stream and normalisation, both settings",
    "scaling": "Accuracy against m at 2-hop with residual stream and normalisation, random hosts",
}
PICTURES: dict[str, Callable[[], str]] = {
    "house": house_map,
    "gated": gated_picture,
    **{name: partial(training_chart, name) for name in CHARTS},
}
"""Pictures that are drawn when the site is built, by name."""


# --- tables inside pages -------------------------------------------------------------------------------------


def bench_table(name: str) -> str:
    """Ratios of a file of results/."""
    document = json.loads((ROOT / "results" / f"{name}.json").read_bytes())
    rows = ((row["work"], row["size"], row["beside"], f"{row['ratios']['alone']:.2f}") for row in document["results"])
    return markdown_table(("work", "size", "compared with", "ratio"), rows)


def verdict_table() -> str:
    """Statements of the paper that do not hold as printed."""
    claims = decided()[0]["claims"]
    rows = [
        (f"`{claim['id']}`", claim["verdict"], claim["sentence"])
        for claim in claims
        if claim["verdict"] in ("fails as printed", "holds after repair") and not claim["id"].startswith("new:")
    ]
    return markdown_table(("statement", "verdict", "what was found"), rows)


def host_table() -> str:
    """Every construction: what it serves, and its least m at two shapes."""
    at = (Shape(2, 2, 28, 30), Shape(3, 3, 2, 2))

    def row(entry: Any) -> tuple[str, ...]:
        kind = "tied" if entry.tied else "untied"
        serves = str(entry.notion or ("shared attention" if entry.shared else "refuted as printed"))
        serves += ", if its certificate says so" * entry.is_random + f", on {entry.inputs}" * bool(entry.inputs)
        sizes = [str(entry.least_m(shape)) if entry.defined(shape) else "–" for shape in at]
        return (f"`{entry.name}`", entry.summary, kind, serves, entry.targets, *sizes)

    sizes = [f"m at ({s.heads}, {s.layers}, {s.head_dim}, {s.d_in})" for s in at]
    names = ("construction", "what it is", "weights", "serves, by", "targets", *sizes)
    return markdown_table(names, map(row, CONSTRUCTIONS.values()))


@lru_cache(maxsize=1)
def trained() -> list[results.RunResult]:
    """All committed runs."""
    return results.read_results(ROOT / "results" / "training")


def part_tables(first: int, last: int) -> str:
    """Some of the paper's tables beside the cells of setting `paper`."""
    runs = trained()
    text = []
    for part in tables.tables(results.paper_cells(runs, "paper"))[first:last]:
        rules = {row.task: kind_of(row.task).baselines(0) for row in part.rows}
        lines = (tables.row_cells(row, rules) for row in part.rows)
        text += [
            f"### {part.title}\n",
            markdown_table(tables.HEADER, lines),
            *(f"* {how}" for how in part.circumstances),
            "",
        ]
    return "\n".join([*text, ""])


def summary_table() -> str:
    """What was reproduced, in two lines, and the paper's Tables 1a and 1b."""
    runs = trained()
    said = [f"* Setting `{name}`: {tables.coverage(results.paper_cells(runs, name))}." for name in ("paper", "theory")]
    return "\n".join([*said, "", tables.REMARK, "", part_tables(0, 2)])


def training_table() -> str:
    """The paper's other tables, the cells of setting `theory`, and what hosts hold."""
    runs = trained()
    theory = tables.compact(results.paper_cells(runs, "theory"))
    lines = optimum.rows(optimum.read_documents(ROOT / "results" / "optimum"), runs)
    text = [
        part_tables(2, 7),
        "### Setting theory: no positions\n",
        markdown_table(["", *tables.HOSTS.values()], theory),
    ]
    text += ["### What fixed hosts hold\n", markdown_table(optimum.HEADER, lines), optimum.REMARK, ""]
    return "\n".join(text)


def independent_runs() -> list[dict[str, str]]:
    """Rows of results/independent.csv, without the line that says where they are from."""
    lines = (ROOT / "results" / "independent.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines[1:]))


def independent_table() -> str:
    """Runs of the independent trainer at the paper's optimiser settings."""
    names = ("hops", "variant", "host", "positions", "hops_in_training", "steps", "seed")
    head = ("hops", "variant", "host", "positions", "hops in training", "steps", "seed", "accuracy", "paper")
    rows = (row for row in independent_runs() if not row["other"])
    return markdown_table(
        head, ([*(row[name] for name in names), row["accuracy_percent"], row["paper_percent"]] for row in rows)
    )


DIFFERING = {
    "below-chance": [("1-hop", "random", "residual")],
    "trained": [("1-hop", "trained", "attention-only"), ("1-hop", "trained", "residual")],
    "parentheses": [("parentheses", "trained", name) for name in paper.VARIANTS],
    "mlp": [("1-hop", "sparse", "MLP"), ("1-hop", "random", "MLP and LN")],
}
"""Cells (task, host, the paper's variant) that a paragraph on differences is about."""
SHORT = {
    "attn": "attention-only",
    "res": "residual",
    "resnorm": "residual and LN",
    "mlp": "MLP",
    "mlpnorm": "MLP and LN",
}


def difference_table(group: str) -> str:
    """The cells of a group: every full run of the two settings and of the independent trainer, and runs that change a field."""
    runs = trained()
    rows = []
    for cell in DIFFERING[group]:
        task, host, variant = cell
        printed = dict(zip(tables.HOSTS, paper.ABLATIONS[task][variant], strict=True))
        name, theirs = f"{task}, {variant}, {host}", f"{printed[host]:.1f}"
        for setting in ("paper", "theory"):
            found = results.paper_cells(runs, setting).get(cell)
            rows.append((name, theirs, found.accuracy if found else "–", f"setting {setting}", "results/training"))
        for run in runs:
            place = (run.preset.task, run.preset.column, results.PAPER_VARIANTS.get(run.preset.variant))
            changed = run.changes
            if place == cell and changed and run.steps >= 3000 and "length" not in changed:
                words = ", ".join(f"{field} {value}" for field, value in sorted(changed.items()))
                said = f"setting {run.preset.setting}, {words}, seed {run.seed}"
                rows.append((name, theirs, results.percent(run.accuracy), said, "results/training"))
        for row in independent_runs():
            if (f"{row['hops']}-hop", row["host"], SHORT[row["variant"]]) == cell:
                how = f"positions {row['positions']}, hops {row['hops_in_training']}, {row['steps']} steps"
                rows.append((name, theirs, row["accuracy_percent"], how, "results/independent.csv"))
    return markdown_table(("cell", "paper", "accuracy", "run", "data file"), rows)


EXPLORER = """<p id="shape"></p><table><tbody id="least"></tbody></table><script>
const data = DATA, box = document.getElementById("shape"), body = document.getElementById("least");
const inputs = ["H", "L", "d", "d_in"].map((name, i) => {
  const label = document.createElement("label"), input = document.createElement("input");
  Object.assign(input, {type: "number", min: 1, max: data.most[i], value: [2, 3, 1, 2][i], oninput: show});
  label.innerHTML = name.replace("_in", "<sub>in</sub>") + " ", label.append(input), box.append(label);
  return input;
});
function show() {
  const row = data.shapes[inputs.map(input => input.value)] || [];
  body.replaceChildren(...data.questions.map((name, i) => {
    const line = document.createElement("tr");
    [name, row[i] ?? "not here: run utfproof frontier"].forEach(text => line.insertCell().textContent = text);
    return line;
  }));
}
show();
</script>
"""
"""Boxes for H, L, d and d_in, and the least m of each question there."""


def explorer() -> str:
    """The frontier at small shapes, one shape at a time."""
    most, found = (4, 4, 3, 4), dict[str, dict[str, str]]()
    with warnings.catch_warnings(action="ignore"):
        grid = [Shape(*numbers) for numbers in product(*(range(1, last + 1) for last in most))]
        entries = [entry for entry in frontier(grid).entries if entry.question.host == "any"]
    for entry in entries:
        shape = entry.shape
        row = found.setdefault(f"{shape.heads},{shape.layers},{shape.head_dim},{shape.d_in}", {})
        row[str(entry.question)] = entry.cell([])
    questions = list(dict.fromkeys(str(entry.question) for entry in entries))
    shapes = {at: [row.get(name) for name in questions] for at, row in found.items()}
    data = json.dumps({"most": most, "questions": questions, "shapes": shapes}, separators=(",", ":"))
    return EXPLORER.replace("DATA", data)


TABLES: dict[str, Callable[[], str]] = {
    "explorer": explorer,
    "bench": partial(bench_table, "bench-all-cpu"),
    "verdicts": verdict_table,
    "summary": summary_table,
    "training": training_table,
    "independent": independent_table,
    "training-step": partial(bench_table, "bench-training-cpu"),
    **{f"differs-{group}": partial(difference_table, group) for group in DIFFERING},
    "hosts": host_table,
    "charts": lambda: "\n\n".join(f"![{words}](pictures/{name}.svg)" for name, words in CHARTS.items()),
    "house": lambda: "![Rooms and their imports](pictures/house.svg)",
    "gated": lambda: "![m against L: the paper, least without MLPs, with gated MLPs](pictures/gated.svg)",
}
"""What `<!-- table: NAME -->` in a page stands for."""


# --- links, pictures, formulas -------------------------------------------------------------------------------


def source_of(page: str) -> str:
    """The file, from the repository's root, that a page of the site is made of."""
    outside = {name: path for path, name in INCLUDED.items()}
    return outside.get(page, f"docs/{page}")


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with everything but code changed."""
    return "".join(part if part.startswith("`") else change(part) for part in CODE.split(text))


def site_links(markdown: str, page: str) -> str:
    """Links of a page as the site needs them: to included pages they go there, out of docs/ they become plain text."""
    folder = posixpath.dirname(source_of(page))

    def rewrite(found: re.Match[str]) -> str:
        words, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, mark, anchor = target.partition("#")
        resolved = posixpath.normpath(posixpath.join(folder, path))
        if resolved in INCLUDED:
            to = INCLUDED[resolved]
        elif resolved.startswith("docs/") and ((ROOT / resolved).is_file() or resolved.startswith(WRITTEN)):
            to = resolved.removeprefix("docs/")
        else:
            return words
        return f"[{words}]({posixpath.relpath(to, posixpath.dirname(page) or '.')}{mark}{anchor})"

    return outside_code(markdown, lambda part: LINK.sub(rewrite, part))


def formulas(markdown: str) -> str:
    """TeX between dollars as MathML."""
    convert = importlib.import_module("latex2mathml.converter").convert

    def made(found: re.Match[str]) -> str:
        display = found[1] is not None
        tex = (found[1] or found[2]).strip()
        mathml = " ".join(convert(tex, display="block" if display else "inline").split())
        for pattern, better in SPACING:
            mathml = re.sub(pattern, better, mathml)
        if display:
            return f'\n\n<div class="formula">{mathml}</div>\n\n'
        return f'<span class="long">{mathml}</span>' if len(tex) > LONG_FORMULA else mathml

    return outside_code(markdown, lambda part: FORMULA.sub(made, part).replace("\\$", "$"))


def indices(html: str) -> str:
    """Indices in running text, such as d_in, as MathML; code, pictures and tags stay as they are."""
    parts = KEPT.split(html)
    return "".join(part if k % 2 else mathematics.formulas(part) for k, part in enumerate(parts))


def inlined(html: str) -> str:
    """Images of docs/pictures as the SVG itself, so that they take the page's text colour, light or dark."""

    def picture(found: re.Match[str]) -> str:
        path = ROOT / "docs" / "pictures" / found[3]
        content = path.read_text(encoding="utf-8") if path.exists() else PICTURES[path.stem]()
        drawn = content[content.index("<svg") :]  # without the head of a file of its own
        return re.sub(r"<style>.*?</style>", "", drawn, count=1, flags=re.DOTALL).strip()

    return PICTURE.sub(picture, html)


# --- what mkdocs calls ---------------------------------------------------------------------------------------


def inline_mathematics() -> Any:
    """A Markdown extension that keeps `math` within its paragraph; Markdown alone would end the paragraph there."""
    extension = importlib.import_module("markdown").Extension()
    extension.extendMarkdown = lambda parser: parser.block_level_elements.remove("math")
    return extension


def on_config(config: Any) -> Any:
    """Let formulas stand within paragraphs."""
    config.markdown_extensions.append(inline_mathematics())
    return config


def math_font() -> bytes:
    """STIX Two Math with the letters and symbols of formulas: browsers need a font with a table for mathematics."""
    subset, fonts = importlib.import_module("fontTools.subset"), importlib.resources.files("ziamath") / "fonts"
    options = subset.Options(flavor="woff", layout_features=["*"])
    font = subset.load_font(str(fonts / "STIXTwoMath-Regular.ttf"), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=[code for first, end in MATH_BLOCKS for code in range(first, end)])
    subsetter.subset(font)
    with tempfile.TemporaryDirectory() as folder:
        subset.save_font(font, f"{folder}/math.woff", options)
        return Path(folder, "math.woff").read_bytes()


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside docs/, those that programs write, and the font of the formulas."""
    File = importlib.import_module("mkdocs.structure.files").File
    outside = {name: (ROOT / path).read_text(encoding="utf-8") for path, name in INCLUDED.items()}
    for name, text in {**outside, **generated()}.items():
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "math.woff", content=math_font()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Tables put in, links as the site needs them, formulas set."""
    whole = TABLE.sub(lambda found: TABLES[found[1]](), markdown)
    return formulas(site_links(whole, page.file.src_uri))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Indices set, pictures inlined."""
    return inlined(indices(html))
