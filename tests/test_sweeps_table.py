"""The table of a sweep: cells of CSV files."""

import csv

import pytest

from utfproof.sweeps import table


@pytest.mark.parametrize("text", ['=HYPERLINK("http://x")', "+1", "-1", "@SUM(A1)", "\t=1"])
def test_cells_are_no_formulas_and_hold_no_escapes(tmp_path, text):
    rows = [{"command": "c", "verdict": text, "reason": "\x1b[2J", "m": -3}]
    table.write_table(rows, tmp_path / "t.csv", table.overview(rows))
    with (tmp_path / "t.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert (row["verdict"], row["reason"], row["m"]) == (f"'{text}", r"\x1b[2J", "-3")
