"""Grids of jobs on Dask workers, of this machine or of a cluster (docs/sweeps.md).

spec      a TOML file -> the jobs it asks for
jobs      a job, its content key, and running one
cluster   everything that talks to Dask
folder    the folder of results: JSON Lines, and the files that jobs write
run       the driver: only jobs without a result run
table     the results as rows, Parquet or CSV
"""

from __future__ import annotations
