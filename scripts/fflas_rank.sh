#!/usr/bin/env bash
# FFLAS-FFPACK's rank modulo 127 beside gfp.rank: processor seconds over those of a float64 product, one thread, in one process.
#   fflas_rank.sh GIVARO FFLAS OPENBLAS SIZE...    prints JSON
#
# GIVARO, FFLAS: clones of their sources. OPENBLAS: the folder of the wheel scipy-openblas32. Needs g++ and GMP's headers.
set -euo pipefail
givaro=$(realpath "$1") fflas=$(realpath "$2") blas=$(realpath "$3") folder=$(mktemp -d)
shift 3
trap 'rm -rf "$folder"' EXIT
mkdir "$folder"/{givaro,gmp++,recint}
find "$givaro/src" \( -name '*.h' -o -name '*.inl' \) -exec cp -t "$folder/givaro" {} +
cp "$givaro"/src/kernel/gmp++/*.{h,inl} "$folder/gmp++" 2> /dev/null || true
cp "$givaro"/src/kernel/recint/*.h "$folder/recint"
cp -r "$fflas/fflas-ffpack" "$folder"
: > "$folder/fflas-ffpack/fflas-ffpack-thresholds.h"
defines=(-D__GIVARO_HAVE_INT128 -D__GIVARO_HAVE_LITTLE_ENDIAN -D__GIVARO_SIZEOF_LONG=8 -D__GIVARO_HAVE_STDINT_H)
for name in HAVE_BLAS HAVE_CBLAS HAVE_INT128 HAVE_LITTLE_ENDIAN HAVE_STDINT_H HAVE_CXX11 SIZEOF_LONG=8; do defines+=("-D__FFLASFFPACK_$name"); done
for name in givaro-config.h givaro/givaro-config.h fflas-ffpack/config.h; do : > "$folder/$name"; done
for name in $(grep -rhoE '\bcblas_[a-z0-9]+' "$folder/fflas-ffpack" | sort -u); do defines+=("-D$name=scipy_$name"); done
cat > "$folder/rank.cpp" << 'END'
#include "fflas-ffpack/fflas-ffpack-config.h"
#include <givaro/modular-balanced.h>
#include <givaro/modular.h>
#include "fflas-ffpack/fflas-ffpack.h"
#define RANK(name, field, type) \
  extern "C" long name(type* a, long n) { Givaro::field<type> F(127); return FFPACK::Rank(F, n, n, a, n); }
RANK(modular_float, Modular, float)
RANK(balanced_float, ModularBalanced, float)
RANK(modular_double, Modular, double)
RANK(balanced_double, ModularBalanced, double)
END
sources=$(find "$givaro/src/kernel" -name '*.C' ! -name 'gmp++_int_*.C')
g++ -O3 -march=native -DNDEBUG -w -fPIC -shared "${defines[@]}" -I"$folder" -I"$folder/gmp++" -I"$folder/givaro" "$folder/rank.cpp" \
  $sources "$givaro/src/kernel/gmp++/gmp++_int_lib.C" -L"$blas/lib" -Wl,-rpath,"$blas/lib" -lscipy_openblas -lgmpxx -lgmp -o "$folder/rank.so"
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "${PYTHON:-python3}" - "$folder/rank.so" "$@" << 'END'
import ctypes, json, os, statistics, sys, time
import numpy as np
from utfproof.benchmarks.timing import circumstances, library
from utfproof.exact import gfp
theirs, rows = ctypes.CDLL(sys.argv[1]), []
for n in map(int, sys.argv[2:]):
    matrix = np.random.default_rng(n).integers(-63, 64, (n, n))
    wide = np.random.default_rng(n).standard_normal((n, n))
    def fflas(field, work):
        getattr(theirs, field).restype = ctypes.c_long
        assert getattr(theirs, field)(ctypes.c_void_p(work.ctypes.data), ctypes.c_long(n)) == n
    names = ["modular_float", "balanced_float", "modular_double", "balanced_double"]
    calls = {"float64 product": lambda work: np.matmul(wide, wide, work), "utfproof": lambda work: gfp.rank(work, 127, overwrite=True)}
    calls |= {f"FFLAS-FFPACK {name}": lambda work, name=name: fflas(name, work) for name in names}
    seconds = {name: [] for name in calls}
    for _ in range(6):  # the first is thrown away
        for name, call in calls.items():
            work = np.array(matrix % 127 if "modular" in name else matrix, "f4" if "float" in name[-5:] or name == "utfproof" else "f8")
            begun = time.process_time()
            call(work)
            seconds[name].append(time.process_time() - begun)
    ratios = {name: statistics.median(a / b for a, b in zip(s[1:], seconds["float64 product"][1:])) for name, s in seconds.items()}
    rows.append({"size": n, "ratios": ratios, "processor_seconds": {name: s[1:] for name, s in seconds.items()}})
print(json.dumps({"benchmark": "rank modulo 127", "threads": 1, "blas": library(), **circumstances(), "results": rows}, indent=1))
END
