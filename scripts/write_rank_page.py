"""Writes docs/rank-beyond-memory.md from results/rank-cpu.json (no figure in it is typed by hand).

    python scripts/write_rank_page.py [--check]

--check writes nothing and leaves with 1 if the page is not what the data say.
"""

from __future__ import annotations

import sys
from typing import Any

from measure_rank import INTERPRETER
from pages import ROOT, settle, table
from write_performance import load

PAGE = ROOT / "docs" / "rank-beyond-memory.md"
DATA = "rank-cpu.json"
PLANNED = 10**5
WIDTH = 1000
"""Columns of a block in the plan."""
CORES, NETWORK = 16, 10
"""Of a machine in the plan; Gbit/s between machines."""


def operations(size: int, width: int) -> tuple[float, float]:
    """Of a square matrix of full rank: of all blocks, and of what each block needs after all before it (panel and G)."""
    alone = sum(4.0 * (size - start) * width**2 for start in range(0, size, width))
    return 2 * size**3 / 3 + alone / 2, alone


def achieved(row: dict[str, Any]) -> float:
    """10^9 operations a second of the processor in a whole run."""
    run = row["whole"]
    return operations(row["M"], run["said"]["block_width"])[0] / run["processor_seconds"] / 1e9


def measured(rows: list[dict[str, Any]]) -> str:
    """A row for each size."""
    header = ["M", "matrix in float64, MB", "limit, MB", "taken, MB", "announced / taken", "blocks of columns",
              "written, MB", "read, MB", "processor s", "GFLOP/s", "a product's", "in memory, processor s"]  # fmt: skip
    found = []
    for row in rows:
        run, said = row["whole"], row["whole"]["said"]
        beside = row.get("in_memory", {}).get("processor_seconds")
        found.append(
            [str(row["M"]), f"{8e-6 * row['M'] ** 2:.0f}", f"{row['limit'] / 1e6:.0f}", f"{run['taken'] / 1e6:.0f}",
             f"{run['announced'] / run['taken']:.2f}", f"{said['blocks']} of {said['block_width']}",
             f"{said['bytes_written'] / 1e6:.0f}", f"{said['bytes_read'] / 1e6:.0f}", f"{run['processor_seconds']:.1f}",
             f"{achieved(row):.0f}", f"{row['product_gflops']:.0f}", "" if beside is None else f"{beside:.1f}"]
        )  # fmt: skip
    return table(header, found)


def killed(rows: list[dict[str, Any]]) -> str:
    """What became of the runs that were killed."""
    told = [
        f"M = {row['M']}, {row['resumed']['said']['blocks_resumed']} of {row['resumed']['said']['blocks']} blocks there, "
        f"{row['resumed']['processor_seconds']:.1f} s for the rest"
        for row in rows
        if "resumed" in row
    ]
    return "; ".join(told)


def plan(rate: float) -> str:
    """Machines, and the hours of the slower of all work shared out and of what goes one after the other."""
    every, alone = operations(PLANNED, WIDTH)
    rows = []
    for machines in (1, 4, 16, 64):
        shared = every / (machines * CORES * rate * 1e9) / 3600
        after = alone / (CORES * rate * 1e9) / 3600
        received = 2 * PLANNED**2 / 1e9 * (machines > 1)
        rows.append(
            [str(machines), f"{shared:.2f}", f"{after:.2f}", f"{max(shared, after):.2f}",
             f"{4 * PLANNED**2 / machines / 1e9:.1f}", f"{received:.0f}", f"{received * (machines - 1):.0f}",
             f"{received * 8 / NETWORK / 60:.1f}"]
        )  # fmt: skip
    header = ["machines", "shared out, h", "one after the other, h", "at least, h", "columns on each, GB",
              "G to each, GB", "G in all, GB", f"minutes at {NETWORK} Gbit/s"]  # fmt: skip
    return table(header, rows)


def page() -> str:
    """The whole page."""
    document = load(DATA)
    rows = document["rows"]
    largest = rows[-1]
    rate = achieved(largest)
    return f"""# Rank beyond memory

Written by `python scripts/write_rank_page.py` from `results/{DATA}`.

`utfproof rank` finds the rank of a stored matrix modulo a prime, and its rank profiles: which rows and which columns
depend on those before them. It holds as many columns as `--max-memory` allows, and keeps on disk what they leave for
those behind.

```
$ utfproof build random -H 2 -L 2 -d 2 --d-in 3 -o host.safetensors
...
$ utfproof rank host.safetensors --tensor U --max-memory 1G --folder blocks
rank host.safetensors
...
  rank ... 3 modulo 2097143: full, so this is its rank
...
```

A rank modulo a prime is never larger than the rank, and where it is full it is the rank. Floats are taken as the dyadic
rationals that they are. With `--folder` a run that was killed goes on behind the last block that was settled; the matrix
must be the same file, and a block that has changed on disk is refused (each carries a checksum).

## How

Columns come in blocks of w. Let P be a block's pivot rows and C its pivot columns, once the blocks before it have been
applied. Each column behind it becomes rest − G top: top are its entries in the rows P, rest those in the rows that remain,
and G = A[rest, C] A[P, C]⁻¹. So a block of pivots is one matrix G, kept as int32, and applying it is one product. A block
of columns is read once, updated by each G before it, and what remains of it is eliminated in memory; nothing is written
twice. For a square matrix that is 4 M²/2 bytes written, and about 4 M³/(6 w) read. Sums of products are reduced modulo p
only when they would get too long to be exact, as in memory.

## Measured

`python scripts/measure_rank.py --sizes {",".join(str(row["M"]) for row in rows)} -o results/{DATA}`

Random matrices of residues modulo {document["prime"]} in a file of int32, two of whose columns were made dependent; the
limit is a tenth of the matrix in float64, and {INTERPRETER / 1e6:.0f} MB for the interpreter. All runs found the rank and
the two columns. Taken: the largest anonymous resident set of the whole process, start and imports included as in the
processor's seconds. A product is of squares of M/10 columns. {document["machine"]}.

{measured(rows)}

Killed with SIGKILL halfway and run again, with the same answer: {killed(rows)}.

## A plan for M = 10⁵ across machines

No code sends blocks between machines; this says what it would take, from the rates above. The matrix is
{4 * PLANNED**2 / 1e9:.0f} GB of int32, all G together {2 * PLANNED**2 / 1e9:.0f} GB.

* **Who holds what.** Blocks of {WIDTH} columns, {PLANNED // WIDTH} of them, are dealt out to machines in turn (block J to
  machine J mod K), so that all have work to the end. Each machine keeps its own columns; they never move.
* **What is sent.** When a block is settled its G goes to all others, {4 * PLANNED * WIDTH / 1e9:.1f} GB for the first and
  less for each that follows, and each applies it to its own columns behind. That is all: rows are never exchanged, since G
  comes with the positions of its pivot rows.
* **What goes one after the other.** A block can be settled only after the one before it. Its machine applies the newest G
  to the next block first, settles it, sends G, and only then serves its other columns. The table has the time of this
  chain beside that of all the work shared out; the slower of the two is what is left.
* **After a loss.** G files are the checkpoint: {2 * PLANNED**2 / 1e9:.0f} GB on any shared disk, each whole or absent. A
  machine that is lost is replaced by one that reads its columns from the source again and applies the G files to them: at
  worst the work of one machine is done twice.
* **Whether it is right.** A checksum does not see a wrong product. Each block takes along one more column, a random
  combination of its own: if every product was right, elimination finds no pivot in it; a wrong entry shows but for about
  one chance in p.

With {CORES} cores a machine, each at the {rate:.0f} GFLOP/s that the run at M = {largest["M"]} had on one:

{plan(rate)}
"""


if __name__ == "__main__":
    sys.exit(settle({PAGE: page()}))
