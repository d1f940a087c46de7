#!/usr/bin/env bash
# Compares small models with the libraries that people use, live: each library from the package index, in an environment of its own.
# PYTHON names the interpreter, FOLDER where the environments stand (kept, so that a second run installs nothing), NANOGPT a folder
# with nanoGPT's model.py, which no index has (left out without it). Every library is tried: exit 1 where one disagrees or cannot be compared, 3 where nothing disagrees and one could not be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} FOLDER=${FOLDER:-out/models}
mkdir -p "$FOLDER"
export OMP_NUM_THREADS=1 PYTHONPATH=.
# this package is read from here, and its requirements installed beside the library: TransformerLens 2 wants a NumPy before 2
needed=$("$PYTHON" -c '
import tomllib
names = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]
print(*(n for n in names if not n.startswith("numpy")), sep="\n")')
mapfile -t needed <<<"$needed"
missing=() wrong=()

install() { # NAME PACKAGES...: the environment, tried twice, the second time from nothing
  local name=$1 log=$FOLDER/$1.log
  shift
  for attempt in 1 2; do
    rm -rf "${FOLDER:?}/$name"
    if "$PYTHON" -m venv "$FOLDER/$name" >"$log" 2>&1 &&
      "$FOLDER/$name/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 "${needed[@]}" "$@" >>"$log" 2>&1; then
      touch "$FOLDER/$name/.done"
      return
    fi
    echo "== $name: attempt $attempt to install $* failed; the end of $log:"
    tail -n 3 "$log" | cut -c1-300
  done
  return 1
}

compare() { # NAME LIBRARY PACKAGES...
  local name=$1 library=$2 begin=$SECONDS
  shift 2
  if [ ! -e "$FOLDER/$name/.done" ] && ! install "$name" "$@"; then
    echo "== $name could not be installed, so nothing of it was compared"
    missing+=("$name")
    return
  fi
  echo "== $name: its environment took $((SECONDS - begin)) s"
  "$FOLDER/$name/bin/python" scripts/freeze_models.py "$library" ${WRITE:+--write "$WRITE/$name.safetensors"} || wrong+=("$name")
  echo "== $name took $((SECONDS - begin)) s"
}

compare torch torch
if [ -n "${NANOGPT:-}" ]; then
  compare nanogpt nanogpt
fi
compare transformers transformers transformers==5.23.0
compare x-transformers x-transformers x-transformers==2.31.10
compare transformer-lens-2 transformer-lens transformer-lens==2.18.0 "datasets<3" "pyarrow<18"
compare transformer-lens-3 transformer-lens transformer-lens==3.9.0
compare transformer-lens-4 transformer-lens-bridge transformer-lens==4.3.0
if [ -e "$FOLDER/transformer-lens-3/.done" ]; then
  "$FOLDER/transformer-lens-3/bin/python" scripts/freeze_models.py guide || wrong+=("the first lines of docs/embed-your-model.md")
fi
[ ${#wrong[@]} -eq 0 ] || echo "== wrong: ${wrong[*]}"
[ ${#missing[@]} -eq 0 ] || echo "== not installed, so not compared: ${missing[*]} (is the package index reachable?)"
[ ${#wrong[@]} -eq 0 ] || exit 1
[ ${#missing[@]} -eq 0 ] || exit 3
