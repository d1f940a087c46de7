"""A folder of results as one self-contained page: what holds, how small hosts can be, how exactly they emulate, how fast, and
what training found. No network, no fonts or scripts from elsewhere; complete without its script, which turns light and dark
and opens everything on paper.
"""

from __future__ import annotations

import re

from utfproof.reporting.document import counted
from utfproof.reporting.page import escape, part, whole_page
from utfproof.reporting.report_bench import bench_section
from utfproof.reporting.report_emulation import emulation_section
from utfproof.reporting.report_frontier import frontier_section
from utfproof.reporting.report_others import others_section
from utfproof.reporting.report_parts import Markup, Section, section, table
from utfproof.reporting.report_read import KINDS, Gathered
from utfproof.reporting.report_training import Training, training_section
from utfproof.reporting.report_verify import verify_section

COMMANDS = (
    ("utfproof verify -o {folder}/verify.json", "every claim decided anew"),
    ("utfproof frontier --heads 1..4 --layers 1..6 --json > {folder}/frontier.json", "how small hosts can be"),
    (
        "utfproof emulate sparse,tied,shared-key,random --shapes all --attention all --json > {folder}/emulate.json",
        "errors against their bounds",
    ),
    ("utfproof bench all -o {folder}/bench-all.json", "times beside those of other tools"),
    (
        "utfproof train parentheses/sparse/attention --steps 200 --results {folder}/training",
        "a brief run of one of the paper's experiments (needs torch); without --steps a full one",
    ),
)
"""What fills a folder: commands, and what each is for."""


def sections_of_report(found: Gathered, training: Training | None = None) -> list[Section]:
    """The page's sections, those that the folder has something for.

    MalformedInput, naming the file, for a document that is not whole or contradicts itself or another one.
    """
    parts = [
        verify_section(found.of("verify")),
        frontier_section(found.of("frontier")),
        emulation_section(found.of("emulation")),
        bench_section(found.of("bench")),
        training_section(training),
        others_section(found.of, found.forms),
    ]
    return [part for part in parts if part is not None]


def report_page(found: Gathered, parts: list[Section]) -> str:
    """The page of these sections, with the list of all files of the folder."""
    known = [source for source in found.sources if source.kind]
    fine = all(good for one in parts for good, _ in one.lines)
    title = (
        f"utfproof report: {counted(len(known), 'file')}, {'all as it should be' if fine else 'NOT as it should be'}"
    )
    body = [
        '<a class="skip" href="#_main">Skip to the results</a>',
        _header(found, parts),
        '<main id="_main" tabindex="-1">',
        *map(section, parts),
        section(_files(found)),
        "</main>",
        "<footer><p>Every number on this page is read from the files above. Certificates are checked with "
        "<code>utfproof check</code>, which trusts nothing on this page.</p></footer>",
    ]
    return whole_page(title, _style(), part("report.js"), body)


def _style() -> str:
    """page.css, its palettes once more for the button and for paper, and the report's own rules."""
    shared = part("page.css")
    light, dark = (_palette(rules) for rules in re.findall(r":root \{(.*?)\}", shared, re.DOTALL))
    chosen = (
        f'\n:root[data-theme="light"] {{ color-scheme: light; {light} }}'
        f'\n:root[data-theme="dark"] {{ color-scheme: dark; {dark} }}'
        f"\n@media print {{ :root, :root[data-theme] {{ color-scheme: light; {light} --paper: #fff; --ink: #000; }} }}\n"
    )
    return shared + chosen + part("report.css")


def _palette(rules: str) -> str:
    return " ".join(re.findall(r"--[a-z]+: #[0-9a-f]{6};", rules))


def _header(found: Gathered, parts: list[Section]) -> str:
    items = "".join(
        f"<li{'' if good else ' class=not'}><strong>{escape(part.title)}</strong> {escape(line)}</li>"
        for part in parts
        for good, line in part.lines
    )
    links = "".join(f'<a href="#_{part.name}">{escape(part.title)}</a>' for part in [*parts, _files(found)])
    return (
        '<header><div class="top"><p class="eyebrow">utfproof report</p>'
        '<button type="button" id="_theme" hidden>Dark page</button></div>'
        "<h1>What was found</h1>"
        '<p class="lead">Can a fixed transformer act as every transformer of a class when only its embedding changes? '
        f"The results in <code>{escape(found.folder)}</code>.</p>"
        f'<nav aria-label="Contents">{links}</nav><ul class="state">{items}</ul></header>'
    )


def _files(found: Gathered) -> Section:
    known = [source for source in found.sources if source.kind]
    others = [source for source in found.sources if not source.kind]
    rows = [
        (Markup(f"<code>{escape(source.name)}</code>"), KINDS[source.kind or ""], f"{source.size:,}",
         Markup(f"<code>{source.digest[:16]}</code>"))
        for source in known
    ]  # fmt: skip
    body = table("Files that this page is made of", ("file", "what it is", "bytes", "SHA-256 begins"), rows)
    if others:
        left = [(Markup(f"<code>{escape(source.name)}</code>"), source.why, f"{source.size:,}") for source in others]
        body += table(
            f"Not understood, and not on this page: {counted(len(others), 'file')}", ("file", "why", "bytes"), left
        )
    return Section("files", "Files", body, ())
