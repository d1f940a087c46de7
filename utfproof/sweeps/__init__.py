"""Grids of jobs on Dask workers, of this machine or of a cluster (docs/sweeps.md).

spec      a TOML file -> the jobs it asks for
jobs      a job, its content key, and running one
cluster   everything that talks to Dask
store     the folder of results: one SQLite database
run       the driver: only jobs without a result run
table     the results as rows, Parquet or CSV
"""

from __future__ import annotations
