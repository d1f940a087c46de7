"""Pictures of a host drawn from its own matrices: the blocks of E (fig:E-block), R_Q, R_K, R_V, U and R_all, and an
overview (fig:overview). Plain SVG text; nothing here knows what a construction ought to look like.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from utfproof.constructions import CONSTRUCTIONS, build_host, hosts, resolve_m
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import r_all
from utfproof.reporting.content import PageBlock, embedding_blocks, nodes, word_text
from utfproof.reporting.document import counted
from utfproof.reporting.svg import (
    FONT,
    ZERO,
    Label,
    cells,
    diagonal_runs,
    frame,
    label_text,
    label_width,
    number,
    rect,
    svg,
    text,
)
from utfproof.shapes import ColumnGroup, Shape, Word, column_groups, matching_dimension
from utfproof.systems import Universal

MAX_SIDE = 600
"""Largest m and M that are drawn."""
MAX_HEADS = 32
"""Largest number of heads in all layers together, H·L: each has three matrices."""

_KINDS = ("Q", "K", "OV", "")


@dataclass(frozen=True)
class Picture:
    """One drawing. construction and shape say of what host; name: "E", "R_V^{1,0}", ...; part: the group it stands in
    ("overview", "E", "R_all", "parameters"); caption: what was found, a sentence; svg: the drawing."""

    construction: str
    shape: str
    m: int
    part: str
    name: str
    caption: str
    svg: str


def draw(shape: Shape, constructions: Sequence[str] | None = None) -> list[Picture]:
    """Every picture of these constructions at a shape; by default of all {0,1} constructions that exist there.

    Raises ResourceLimit beyond MAX_SIDE coordinates or columns or MAX_HEADS heads, MalformedInput for a construction
    that is unknown or has random weights, NotDefined for a named one that does not exist at the shape.
    """
    names = hosts(drawn=False)
    pictures: list[Picture] = []
    for name in names if constructions is None else constructions:
        require_drawable(shape)
        try:
            if name in CONSTRUCTIONS:
                require_drawable(shape, resolve_m(CONSTRUCTIONS[name], shape, None))
            host = build_host(name, shape)
        except NotDefined:
            if constructions is None:
                continue
            raise
        pictures += pictures_of(host)
    return pictures


def require_drawable(shape: Shape, m: int = 1) -> None:
    """ResourceLimit for shapes whose pictures would have more than MAX_SIDE rows or columns or MAX_HEADS heads."""
    if shape.heads * shape.layers > MAX_HEADS:
        raise ResourceLimit(
            f"pictures are drawn for at most {MAX_HEADS} heads in all layers, {shape} has "
            f"{shape.heads * shape.layers}; choose a smaller shape"
        )
    side = max(m, matching_dimension(shape))
    if side > MAX_SIDE:
        raise ResourceLimit(
            f"pictures are drawn up to {MAX_SIDE} coordinates and columns, {shape} needs {side}; choose a smaller shape"
        )


def pictures_of(host: Universal) -> list[Picture]:
    """Overview, E (where R_all determines it), R_all (also after the row permutation) and every parameter matrix."""
    _require_index_maps(host)
    blocks = embedding_blocks(host)
    shape = str(host.shape)

    def picture(part: str, name: str, caption: str, drawing: str) -> Picture:
        return Picture(host.construction, shape, host.m, part, name, caption, drawing)

    found = [picture("overview", "Overview", overview_caption(host), overview_svg(host))]
    if blocks is not None:
        caption = (
            f"Each of the m = {host.m} coordinates holds one column of W_all: the block where R_all has the one of "
            "that column. Edges lead from the blocks of a head word to those of its continuations."
        )
        found.append(picture("E", "E", caption, embedding_svg(host)))
    found.append(picture("R_all", "R_all", r_all_caption(host), r_all_svg(host)))
    if blocks is not None:
        caption = "Rows reordered so that row j is the coordinate which column j reads."
        found.append(picture("R_all", "R_all, rows permuted", caption, r_all_svg(host, permuted=True)))
    for name, matrix in parameters(host):
        height, width = matrix.shape
        caption = f"{height} × {width}, {counted(matrix.nonzeros, 'one')}"
        found.append(picture("parameters", name, caption, matrix_svg(host, name, matrix)))
    return found


def parameters(host: Universal) -> list[tuple[str, SelectionMatrix]]:
    """(name, matrix) of R_Q, R_K and R_V of every head, then U; layers count from 1 in names, heads from 0."""
    named = []
    for layer in range(1 if host.tied else host.shape.layers):
        for head in range(host.shape.heads):
            index = f"^{{{head}}}" if host.tied else f"^{{{layer + 1},{head}}}"
            maps = host.maps(layer, head)
            named += [(f"R_Q{index}", maps.query), (f"R_K{index}", maps.key), (f"R_V{index}", maps.value[0])]
    order = ("R_V", "R_Q", "R_K")
    return [*sorted(named, key=lambda item: order.index(item[0][:3])), ("U", host.U)]


def _require_index_maps(host: Universal) -> None:
    require_drawable(host.shape, host.m)
    if not isinstance(host.U, SelectionMatrix):
        raise MalformedInput(
            f"pictures are drawn of {{0,1}} hosts given as index maps (sparse, tied, ...), not of "
            f"{host.construction or 'weights from a file'}"
        )


# --- E -----------------------------------------------------------------------------------------------------


def embedding_svg(host: Universal) -> str:
    """fig:E-block from the host's R_all: the coordinates of E from left to right, their blocks by depth.

    MalformedInput where R_all is not made of different unit columns, so that it does not say what a coordinate holds.
    """
    _require_index_maps(host)
    blocks = embedding_blocks(host)
    if blocks is None:
        raise MalformedInput(
            f"R_all of {host.construction or 'this host'} does not say what each coordinate of E holds"
        )
    left, width = 64.0, 960.0
    unit = width / host.m
    depths = sorted({block.depth for block in blocks if block.kind})
    body = [_legend(blocks, left, 10), text(left - 10, 45, "E", anchor="end")]
    body += [rect(left + b.start * unit, 32, b.width * unit, 26, b.kind, title=_tooltip(b)) for b in blocks]
    top = 92.0
    place: dict[Word, tuple[float, float]] = {}
    for depth in depths:
        here = [block for block in blocks if block.kind and block.depth == depth]
        height = _row_height(here, unit)
        body.append(text(left - 10, top + height / 2, f"depth {depth}", anchor="end"))
        body += [_subtree(word, blocks, left, unit, top, height) for word in nodes(here)]
        body += [_block(block, left, unit, top, height) for block in here]
        edges = ""
        for word, spans in nodes(here).items():
            for start, end in spans:
                edges += f"M{number(left + start * unit)} {number(top - 3)}h{number((end - start) * unit)}"
            middle = left + sum(spans[0]) / 2 * unit
            if word and word[:-1] in place:
                x, y = place[word[:-1]]
                edges += f"M{number(x)} {number(y)}L{number(middle)} {number(top - 3)}"
            place[word] = (middle, top + height + 2)
        body.append(f'<path fill="none" stroke="currentColor" stroke-opacity=".45" stroke-width=".8" d="{edges}"/>')
        top += height + 42
    title = f"Blocks of E for {host.construction} at {host.shape}, m = {host.m}, from left to right and by depth"
    return svg(left + width + 4, top - 30, title, body)


def _tooltip(block: PageBlock) -> str:
    last = block.start + block.width - 1
    where = f"coordinate {last}" if block.width == 1 else f"coordinates {block.start} to {last}"
    return f"{where}: {label_text(block.label)}"


def _row_height(blocks: Iterable[PageBlock], unit: float) -> float:
    """Tall enough for upright labels where some block is too narrow for a level one."""
    upright = [label_width(b.label) for b in blocks if label_width(b.label) + 4 > b.width * unit >= FONT + 1]
    return max([30.0, *(width + 12 for width in upright)])


def _block(block: PageBlock, left: float, unit: float, top: float, height: float) -> str:
    x, width = left + block.start * unit, block.width * unit
    shape = rect(x, top, width, height, block.kind, title=_tooltip(block))
    level = label_width(block.label) + 4 <= width
    if not level and width < FONT + 1:
        return shape
    return shape + text(x + width / 2, top + height / 2, block.label, upright=not level)


def _subtree(word: Word, blocks: Sequence[PageBlock], left: float, unit: float, top: float, height: float) -> str:
    """A dashed outline of E_w, all that is read after passing w, where it is one stretch and more than w's own blocks."""
    below = [block for block in blocks if block.kind and block.route[: len(word)] == word]
    start, end = min(b.start for b in below), max(b.start + b.width for b in below)
    if sum(b.width for b in below) < end - start or all(b.route == word for b in below):
        return ""
    label = [("E", ""), (word_text(word), "sub")] if word else [("E", "")]
    x, width = left + start * unit, (end - start) * unit
    outline = (
        f'<rect x="{number(x)}" y="{number(top)}" width="{number(width)}" height="{number(height)}" fill="none" '
        'stroke="currentColor" stroke-opacity=".4" stroke-dasharray="3 3"/>'
    )
    own = max(b.start + b.width for b in below if b.route == word)
    room = (end - own) * unit
    return outline + (text(x + width - room / 2, top + height / 2, label) if room > label_width(label) + 8 else "")


def _legend(blocks: Sequence[PageBlock], x: float, y: float) -> str:
    names = {"Q": "queries", "K": "keys", "OV": "outputs", "": "unused"}
    out = ""
    for kind in _KINDS:
        if any(block.kind == kind for block in blocks):
            out += rect(x, y - 6, 12, 12, kind) + text(x + 18, y, names[kind], anchor="start")
            x += 40 + 7 * len(names[kind])
    return out


# --- matrices ----------------------------------------------------------------------------------------------


def _cell(side: int, room: float, largest: float) -> float:
    return max(1.5, min(largest, room / side))


def _coloured(matrix: SelectionMatrix, row_kinds: np.ndarray, x: float, y: float, cell: float) -> str:
    """The ones of a matrix, coloured by what their row of E holds."""
    rows, columns = matrix.coordinates()
    parts = []
    for number_of_kind, kind in enumerate(_KINDS):
        here = row_kinds[rows] == number_of_kind
        parts.append(cells(diagonal_runs(rows[here], columns[here]), x, y, cell, kind))
    return "".join(parts)


def _row_kinds(host: Universal, blocks: Sequence[PageBlock] | None) -> np.ndarray:
    """Index into _KINDS of what each coordinate holds [m]."""
    kinds = np.full(host.m, _KINDS.index(""), dtype=np.int64)
    for block in blocks or ():
        kinds[block.start : block.start + block.width] = _KINDS.index(block.kind)
    return kinds


def _cuts(blocks: Sequence[PageBlock] | None) -> list[int]:
    return [block.start for block in blocks or () if block.start]


def matrix_svg(host: Universal, name: str, matrix: SelectionMatrix) -> str:
    """A parameter matrix [m, columns]: its ones as cells coloured by what their row of E holds, lines between blocks."""
    _require_index_maps(host)
    blocks = embedding_blocks(host)
    cell = _cell(host.m, 260, 12)
    height, width = matrix.shape
    cuts = _cuts(blocks)
    column_cuts = cuts if width == host.m else []
    body = [
        frame(2, 2, width, height, cell, cuts, column_cuts),
        _coloured(matrix, _row_kinds(host, blocks), 2, 2, cell),
    ]
    title = f"{name} of {host.construction} at {host.shape}: {height} × {width}, {counted(matrix.nonzeros, 'one')}"
    return svg(width * cell + 4, height * cell + 4, title, body)


def r_all_svg(host: Universal, *, permuted: bool = False) -> str:
    """R_all [m, M], columns in canonical order with the groups of kind and layer marked, columns of zeros tinted.

    permuted: rows reordered so that row j is the coordinate that column j reads; MalformedInput where there is none.
    """
    _require_index_maps(host)
    matrix: SelectionMatrix = r_all(host)
    M = matrix.shape[1]
    cell = _cell(max(M, host.m), 560, 14)
    rows, columns = matrix.coordinates()
    groups = column_groups(host.shape)
    kind_of_column = np.repeat([_KINDS.index(g.kind) for g in groups], [g.words * g.width for g in groups])
    starts = [group.start for group in groups]
    labels = {group: _group_label(group) for group in groups}
    level = all(label_width(label) <= group.words * group.width * cell for group, label in labels.items())
    x, y = 4.0, 24.0 if level else 50.0
    body = []
    for group, label in labels.items():
        middle = x + (group.start + group.words * group.width / 2) * cell
        body.append(text(middle, y - 12, label) if level else text(middle, y - 8, label, anchor="start", upright=True))
    row_cuts = _cuts(embedding_blocks(host))
    if permuted:
        order = matrix.unit_rows()
        if order is None:
            raise MalformedInput(f"R_all of {host.construction} at {host.shape} is no permutation of unit columns")
        place = np.full(host.m, -1, dtype=np.int64)
        place[order] = np.arange(M)
        place[place < 0] = np.arange(M, host.m)
        rows, row_cuts = place[rows], [start for start in starts if start]
    empty = np.setdiff1d(np.arange(M), columns)
    tint = "".join(f"M{start} 0h{width}v{host.m}h-{width}z" for start, width in _stretches(empty))
    if tint:
        where = f'transform="translate({number(x)} {number(y)}) scale({number(cell)})"'
        body.append(f'<path {where} fill="{ZERO}" fill-opacity=".22" d="{tint}"/>')
    body.append(frame(x, y, M, host.m, cell, row_cuts, [start for start in starts if start]))
    for index, kind in enumerate(_KINDS):
        here = kind_of_column[columns] == index
        body.append(cells(diagonal_runs(rows[here], columns[here]), x, y, cell, kind))
    note = ", rows permuted" if permuted else ""
    title = f"R_all of {host.construction} at {host.shape}{note}: {host.m} × {M}. {r_all_caption(host)}"
    return svg(M * cell + 8, y + host.m * cell + 4, title, body)


def _group_label(group: ColumnGroup) -> Label:
    return [("OV", "")] if group.kind == "OV" else [(group.kind, ""), (f"l={group.length}", "sub")]


def _stretches(indices: np.ndarray) -> list[tuple[int, int]]:
    """Consecutive indices as (start, length)."""
    if not len(indices):
        return []
    cuts = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
    return [(int(indices[a]), int(b - a)) for a, b in zip(cuts, [*cuts[1:], len(indices)], strict=True)]


def r_all_caption(host: Universal) -> str:
    """What R_all's columns are: different unit columns, or how many are zero and how many repeat an earlier one."""
    matrix: SelectionMatrix = r_all(host)
    M = matrix.shape[1]
    if matrix.unit_rows() is not None:
        spare = f"; {host.m - M} coordinates are unused" if host.m > M else ""
        return f"Each of the M = {M} columns has its one in a row of its own, so the rank is M{spare}."
    rows, columns = matrix.coordinates()
    entries: dict[int, list[int]] = {}
    for row, column in sorted(zip(rows.tolist(), columns.tolist(), strict=True)):
        entries.setdefault(column, []).append(row)
    different = len({tuple(value) for value in entries.values()})
    repeated = len(entries) - different
    bound = min(different, host.m)
    found = f"Of the M = {M} columns {M - len(entries)} are zero (tinted) and {repeated} repeat another one"
    if bound == M:
        return f"{found}; its rank is not read off here."
    return f"{found}, so the rank is at most {bound} of {M}: not universal by matching for all untied targets."


# --- overview ----------------------------------------------------------------------------------------------


def overview_caption(host: Universal) -> str:
    """The sizes of what depends on the target and of what is fixed."""
    fixed = sum(matrix.nonzeros for _, matrix in parameters(host))
    how = "used in every layer" if host.tied else "one set for each layer"
    return (
        f"(a) A target's matrices fill E, {host.shape.d_in} × {host.m} numbers. (b) The host is fixed: {fixed} ones in "
        f"{len(parameters(host))} matrices, {how}. (c) Inputs X pass through E and the host."
    )


def overview_svg(host: Universal) -> str:
    """fig:overview from data: target to E, the fixed R_V of every head with readers, and their composition."""
    _require_index_maps(host)
    blocks = embedding_blocks(host)
    shape = host.shape
    layers = 1 if host.tied else shape.layers
    side = min(110.0, 400 / shape.heads, 330 / layers)
    cell, kinds = side / host.m, _row_kinds(host, blocks)
    grid_width, grid_height = shape.heads * (side + 8), layers * (side + 8)
    height = max(190.0, 62 + grid_height)
    body = [text(8, 12, "(a) target", anchor="start"), text(372, 12, "(b) fixed host", anchor="start")]
    body += _target_cells(shape)
    body.append(_arrow(150, 80, 186))
    strip, x = 150.0, 192.0
    body.append(text(x + strip / 2, 50, f"E, {shape.d_in} × {host.m}"))
    shown = blocks or [PageBlock(0, host.m, "", ())]
    body += [rect(x + b.start * strip / host.m, 62, b.width * strip / host.m, 36, b.kind, opacity=0.5) for b in shown]
    for layer in range(layers):
        for head in range(shape.heads):
            left, top = 372 + head * (side + 8), 46 + layer * (side + 8)
            value = host.maps(layer, head).value[0]
            body.append(frame(left, top, host.m, host.m, cell) + _coloured(value, kinds, left, top, cell))
    body.append(text(372, 32, [("R", ""), ("V", "sub"), (f" of {counted(shape.heads, 'head')}", "")], anchor="start"))
    right = 372 + grid_width
    note = f"× {shape.layers} layers, tied" if host.tied else f"l = 1…{shape.layers}"
    body.append(text(right + 2, 46 + grid_height / 2, note, upright=True))
    x = right + 30
    body.append(text(x, 12, "(c) together", anchor="start"))
    steps = ["X", f"X E, width {host.m}", f"{shape.layers} layers", f"output, width {shape.d_out}"]
    for index, step in enumerate(steps):
        top = 30 + index * 40
        body.append(f'<rect x="{number(x)}" y="{top}" width="130" height="26" fill="none" stroke="currentColor"/>')
        body.append(text(x + 65, top + 13, step))
        if index:
            body.append(f'<path d="M{number(x + 65)} {top - 14}v13m-3 -4l3 4l3 -4" fill="none" stroke="currentColor"/>')
    title = f"Overview of {host.construction} at {shape}, m = {host.m}. {overview_caption(host)}"
    return svg(x + 136, height, title, body)


def _arrow(x: float, y: float, end: float) -> str:
    return f'<path d="M{x} {y}H{end}m-5 -4l5 4l-5 4" fill="none" stroke="currentColor"/>'


def _target_cells(shape: Shape) -> list[str]:
    """A row of the target's heads for each layer, each with its query, key and output part."""
    width, height = 136 / shape.heads, min(34.0, 130 / shape.layers)
    out = []
    for layer in range(shape.layers):
        for head in range(shape.heads):
            x, y = 8 + head * width, 30 + layer * height
            title = f"layer {layer + 1}, head {head}: W_Q, W_K, and M = W_V W_O"
            for index, kind in enumerate(("Q", "K", "OV")):
                third = (width - 4) / 3
                out.append(rect(x + index * third, y, third, height - 4, kind, opacity=0.4, title=title))
    return out
