"""Any grid of jobs over a concurrent.futures executor: processes on this machine, a Dask cluster beyond it (docs/sweeps.md).

spec       a TOML file -> the jobs it asks for, refused with one line where it is wrong
jobs       a job, its content key, and running one (what a job of each command does stands with the command)
executor   where jobs run: worker processes here, or a Dask scheduler
store      the folder of results: one file a job, each all or nothing
segments   the folder of many results: batches in an index with archives, each all or nothing
layout     which of the two a folder is
run        the driver: only what is missing runs
table      the results as rows, Parquet or CSV
"""

from __future__ import annotations
