#!/usr/bin/env bash
# Builds wheel and sdist, installs the wheel in a fresh environment and uses it as a stranger would.
#   scripts/smoke_wheel.sh                    without extras
#   scripts/smoke_wheel.sh plots,cluster      with these
set -euo pipefail
unset PYTHONPATH  # another copy of the package there would be the one that is found
root=$(cd "$(dirname "$0")/.." && pwd)
extras=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}

# from a copy of what is tracked, so that nothing that happens to lie about is packaged
git -C "$root" archive --format=tar HEAD | tar -x -C "$work" --one-top-level=source
"$python" -m venv "$work/build" && "$work/build/bin/pip" install --quiet --disable-pip-version-check build
"$work/build/bin/python" -m build --outdir "$work/dist" "$work/source" >/dev/null
ls "$work/dist"

"$python" -m venv "$work/fresh"
wheel=$(ls "$work"/dist/*.whl)
"$work/fresh/bin/pip" install --quiet --disable-pip-version-check -c "$root/constraints.txt" "$wheel${extras:+[$extras]}"
cd "$work"
use="$work/fresh/bin/utfproof"

"$use" --version
"$use" certify sparse -H 2 -L 2 -d 2 --d-in 3 -o sparse.json >/dev/null
"$use" certify random -H 2 -L 2 -d 2 --d-in 3 --witness -o random.json >/dev/null
"$use" check sparse.json random.json
refuted=0
"$use" certify printed-tree-row -H 2 -L 1 -d 1 --d-in 2 -o printed.json >/dev/null || refuted=$?
test "$refuted" = 1
"$use" check printed.json
"$use" build random -H 2 -L 1 -d 1 --d-in 2 -o host.safetensors >/dev/null
"$use" decide host.safetensors -o host.json >/dev/null
"$use" check host.json
"$use" build target -H 2 -L 1 -d 1 --d-in 2 --seed 3 -o target.safetensors >/dev/null
"$use" embed sparse target.safetensors -o E.safetensors >/dev/null
"$use" emulate sparse --target target.safetensors --embedding E.safetensors >/dev/null
"$use" verify "thm:designed-R*" --workers 1 >/dev/null
"$use" frontier --heads 1..2 --layers 1..2 >/dev/null
# the checker alone, with nothing on its path but itself
cp "$work"/fresh/lib/python*/site-packages/utfproof/certificates/checker.py alone.py
"$python" -I alone.py sparse.json
case ",$extras," in *,plots,*) "$use" frontier --heads 2 --layers 1..3 --plot frontier.png >/dev/null && test -s frontier.png ;; esac
case ",$extras," in *,torch,*) "$use" train parentheses/sparse/attention --steps 2 --set batch=4 --results results -o run >/dev/null ;; esac
case ",$extras," in *,cluster,*)
  printf '[sweep]\nname = "smoke"\n[[jobs]]\ncommand = "certify"\nconstruction = "sparse"\nshape = [[1, 1, 1, 1], [2, 1, 1, 1]]\n' > grid.toml
  "$use" sweep grid.toml -o jobs --table jobs.parquet >/dev/null ;;
esac
echo "the wheel works${extras:+ with $extras}"
