"""Hooks of the documentation site (mkdocs.yml): pages that stand outside docs/, links out of docs/, pictures inlined,
formulas set.

Pictures are inlined so that they take the page's text colour, light or dark. On a hosting site that shows Markdown
they are ordinary images with colours of their own.
"""

from __future__ import annotations

import importlib
import posixpath
import re
from html import unescape
from pathlib import Path
from typing import Any

from write_explorer import content as explorer

from utfproof.reporting.mathematics import display, in_html

ROOT = Path(__file__).parents[1]
INCLUDED = {"proofs/README.md": "machine-checked-proofs.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages outside docs/ and what they are called on the site."""
LINK = re.compile(r"(?<!!)\[([^\]\[]*)\]\(([^)\s]+)\)")
BLOCK = re.compile(r'<div class="language-text highlight"><pre>(?:<span></span>)?<code>([^<]*)</code></pre>\s*</div>')
PICTURE = re.compile(r'<img alt="([^"]*)" src="([^"]*pictures/([\w-]+\.svg))"\s*/?>')


def source_of(page: str) -> str:
    """The file, from the repository's root, that a page of the site is made of."""
    outside = {name: path for path, name in INCLUDED.items()}
    return outside.get(page, f"docs/{page}")


def site_links(markdown: str, page: str) -> str:
    """The links of a page as the site needs them: those to included pages go there, those out of docs/ become plain text."""
    folder = posixpath.dirname(source_of(page))

    def rewrite(found: re.Match[str]) -> str:
        words, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, mark, anchor = target.partition("#")
        resolved = posixpath.normpath(posixpath.join(folder, path))
        if resolved in INCLUDED:
            to = INCLUDED[resolved]
        elif resolved.startswith("docs/") and (ROOT / resolved).is_file():
            to = resolved.removeprefix("docs/")
        else:
            return words
        return f"[{words}]({posixpath.relpath(to, posixpath.dirname(page) or '.')}{mark}{anchor})"

    parts = re.split(r"(^```.*?^```\s*$|`[^`\n]+`)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("`") else LINK.sub(rewrite, part) for part in parts)


def inlined(html: str) -> str:
    """Images of docs/pictures as the SVG itself, without the colours that it has when it stands alone."""

    def picture(found: re.Match[str]) -> str:
        content = (ROOT / "docs" / "pictures" / found[3]).read_text(encoding="utf-8")
        return re.sub(r"<style>.*?</style>", "", content, count=1, flags=re.DOTALL).strip()

    return PICTURE.sub(picture, html)


def displayed(html: str, markdown: str) -> str:
    """Formulas that stand on a line of their own, an indented block in the Markdown: as MathML where they can be told. What is
    fenced is code."""

    def formula(found: re.Match[str]) -> str:
        line = found[1].strip("\n")
        made = display(line) if f"\n\n    {unescape(line)}\n" in markdown else None
        return found[0] if made is None else f'<div class="formula">{made}</div>'

    return BLOCK.sub(formula, html)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand outside docs/, and the one that is computed."""
    File = importlib.import_module("mkdocs.structure.files").File
    for path, name in INCLUDED.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    files.append(File.generated(config, "frontier-explorer.html", content=explorer()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as the site needs them."""
    return site_links(markdown, page.file.src_uri)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Formulas as MathML, pictures inlined."""
    written = page.file.src_uri
    if written.startswith("proofs/") or written == "mathematics.md":
        html = displayed(html, page.markdown)
    return inlined(in_html(html))
