#!/usr/bin/env bash
# Compares small models with the libraries that people use, live: each library from the package index, in an environment of its own.
# PYTHON names the interpreter, FOLDER where the environments stand (kept, so that a second run installs nothing).
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} FOLDER=${FOLDER:-out/models}
mkdir -p "$FOLDER"
# this package is read from here, and its requirements installed beside the library: TransformerLens 2 wants a NumPy before 2
mapfile -t needed < <("$PYTHON" -c '
import tomllib
names = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]
print(*(n for n in names if not n.startswith("numpy")), sep="\n")')

compare() { # NAME LIBRARY PACKAGES...
  local name=$1 library=$2
  shift 2
  if [ ! -e "$FOLDER/$name/.done" ]; then
    "$PYTHON" -m venv "$FOLDER/$name"
    "$FOLDER/$name/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 "${needed[@]}" "$@"
    touch "$FOLDER/$name/.done"
  fi
  OMP_NUM_THREADS=1 PYTHONPATH=. "$FOLDER/$name/bin/python" scripts/freeze_models.py "$library" ${WRITE:+--write "$WRITE/$name.safetensors"}
}

compare torch torch
compare transformers transformers transformers==5.23.0
compare x-transformers x-transformers x-transformers==2.31.10
compare transformer-lens-2 transformer-lens transformer-lens==2.18.0 "datasets<3" "pyarrow<18"
compare transformer-lens-3 transformer-lens transformer-lens==3.9.0
compare transformer-lens-4 transformer-lens-bridge transformer-lens==4.3.0
PYTHONPATH=. "$FOLDER/transformer-lens-3/bin/python" scripts/freeze_models.py guide
