"""The certificates of a verify document on the page: exact canonical bytes, once each, linked from every use."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterator
from typing import Any

from utfproof.certificates.format import Certificate
from utfproof.errors import MalformedInput
from utfproof.reporting.document import claims_of, counted, plain


def certificates_of(document: dict[str, Any]) -> Certificates:
    """The document's certificates. MalformedInput where one's canonical bytes do not have the digest that names it."""
    texts: dict[str, str] = {}
    found = document.get("certificates") or {}
    for digest, content in found.items():
        raw = _canonical(digest, content)
        full = hashlib.sha256(raw).hexdigest()
        if len(digest) < 8 or not full.startswith(digest):
            raise MalformedInput(f"certificate {plain(digest)[:70]} of the verify document has the digest {full[:16]}")
        texts[digest] = raw.decode()
    uses: dict[str, int] = dict.fromkeys(texts, 0)
    for claim in claims_of(document):
        for instance in claim["instances"]:
            if instance.get("certificate") in uses:
                uses[instance["certificate"]] += 1
    return Certificates(texts, found, uses)


def _canonical(digest: str, content: object) -> bytes:
    if not isinstance(content, dict):
        raise MalformedInput(f"certificate {plain(digest)[:70]} of the verify document is no JSON object")
    try:
        return Certificate(content).to_bytes()
    except Exception as error:  # rfc8785 has its own classes for what JSON cannot say
        message = " ".join(plain(error).split())[:120]
        raise MalformedInput(f"certificate {plain(digest)[:70]} has no canonical form: {message}") from error


def _sidecars(content: object) -> Iterator[str]:
    """Digests of the sidecars that a certificate names, anywhere in it."""
    if isinstance(content, dict):
        if isinstance(content.get("sidecar"), str):
            yield content["sidecar"]
        for value in content.values():
            yield from _sidecars(value)
    elif isinstance(content, list) and content and not isinstance(content[0], int):
        for value in content:
            yield from _sidecars(value)


class Certificates:
    """Canonical text, content and number of uses of each certificate, by digest."""

    def __init__(self, texts: dict[str, str], contents: dict[str, Any], uses: dict[str, int]) -> None:
        self.texts = texts
        self.contents = contents
        self.uses = uses

    def __len__(self) -> int:
        return len(self.texts)

    def link(self, digest: object) -> str:
        """A link to the certificate; its bare digest where the document does not hold it; a dash for none."""
        if digest is None:
            return "–"
        name = html.escape(plain(digest))
        if digest not in self.texts:
            return f'<code>{name}</code> <span class="quiet">(not in this document)</span>'
        return f'<a class="certificate" href="#certificate-{name}" data-certificate="{name}"><code>{name}</code></a>'

    def section(self) -> str:
        """Every certificate, folded; its text is the canonical form, to the byte."""
        if not self.texts:
            return ""
        entries = "".join(self._entry(digest) for digest in self.texts)
        return (
            '<section id="_certificates" aria-labelledby="_certificates-heading">'
            '<h2 id="_certificates-heading">Certificates</h2><p>Each is what <code>utfproof check</code> reads: canonical '
            'JSON, named by the start of its SHA-256.</p><details open id="_all-certificates"><summary>'
            f"{counted(len(self), 'certificate')}</summary>{entries}</details></section>"
        )

    def _entry(self, digest: str) -> str:
        content = self.contents[digest]
        claim = content.get("claim") if isinstance(content.get("claim"), dict) else {}
        says = " by ".join(plain(claim[name]) for name in ("verdict", "notion") if name in claim)
        said = html.escape(f"{plain(content.get('kind', ''))}: {says}; {counted(self.uses[digest], 'use')}")
        sidecars = "".join(
            f"<p>Its array lies beside it in <code>{html.escape(plain(name))}.bin</code>; have both written with "
            "<code>utfproof verify --certificates FOLDER</code>.</p>"
            for name in dict.fromkeys(_sidecars(content))
        )
        name = html.escape(plain(digest))
        return (
            f'<details class="certificate" id="certificate-{name}"><summary><code>{name}</code> '
            f'<span class="quiet">{said}</span></summary><div class="body">{sidecars}'
            f'<pre class="canonical" data-digest="{name}">{html.escape(self.texts[digest])}</pre></div></details>'
        )
