// Rank modulo p with FFLAS-FFPACK, timed on demand; compiled by utfproof/benchmarks/fflas.py.
// Standard input: "load N P FILE" (row-major float64, 0 ... P-1), then any number of "run"; "run" answers with the rank and
// the seconds, elapsed and of a processor, for Modular<double> and for ModularBalanced<double>, each on a fresh copy made outside the timed span.
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <fflas-ffpack/fflas-ffpack.h>
#include <givaro/modular-balanced.h>
#include <givaro/modular.h>

#ifdef OPENBLAS_CONFIG
extern "C" char *OPENBLAS_CONFIG(void);
#endif

template <class Field> void timed_rank(const std::vector<double> &entries, size_t n, double p) {
    Field field(p);
    double *matrix = FFLAS::fflas_new<double>(n * n); // aligned, as its vector kernels expect
    for (size_t i = 0; i < n * n; ++i) field.init(matrix[i], entries[i]);
    auto start = std::chrono::steady_clock::now();
    std::clock_t used = std::clock();
    size_t rank = FFPACK::Rank(field, n, n, matrix, n);
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    used = std::clock() - used;
    FFLAS::fflas_delete(matrix);
    std::cout << rank << " " << seconds.count() << " " << double(used) / CLOCKS_PER_SEC << " ";
}

int main() {
#ifdef OPENBLAS_CONFIG
    std::cout << OPENBLAS_CONFIG() << std::endl;
#else
    std::cout << "unknown" << std::endl;
#endif
    std::cout.precision(9);
    std::vector<double> entries;
    size_t n = 0;
    double p = 3;
    std::string word, file;
    while (std::cin >> word) {
        if (word == "load") {
            std::cin >> n >> p >> file;
            entries.resize(n * n);
            std::ifstream(file, std::ios::binary).read(reinterpret_cast<char *>(entries.data()), n * n * sizeof(double));
            std::cout << "loaded" << std::endl;
        } else {
            timed_rank<Givaro::Modular<double>>(entries, n, p);
            timed_rank<Givaro::ModularBalanced<double>>(entries, n, p);
            std::cout << std::endl;
        }
    }
}
