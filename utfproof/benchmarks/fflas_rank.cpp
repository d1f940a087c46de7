// Usage: fflas_rank FILE N P. FILE holds N x N row-major float64 residues modulo P.
// Prints the rank and the processor seconds of FFLAS-FFPACK's faster field.
#include <ctime>
#include <fstream>
#include <iostream>
#include <vector>

#include <fflas-ffpack/fflas-ffpack.h>
#include <givaro/modular-balanced.h>
#include <givaro/modular.h>

template <class Field> double timed_rank(const std::vector<double> &entries, size_t n, double p, size_t &rank) {
    Field field(p);
    double *matrix = FFLAS::fflas_new<double>(n * n); // aligned, as its vector kernels expect
    for (size_t i = 0; i < n * n; ++i) field.init(matrix[i], entries[i]);
    std::clock_t start = std::clock();
    rank = FFPACK::Rank(field, n, n, matrix, n);
    double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
    FFLAS::fflas_delete(matrix);
    return seconds;
}

int main(int, char **arguments) {
    size_t n = std::stoul(arguments[2]), rank = 0;
    double p = std::stod(arguments[3]);
    std::vector<double> entries(n * n);
    std::ifstream(arguments[1], std::ios::binary).read(reinterpret_cast<char *>(entries.data()), n * n * sizeof(double));
    double plain = timed_rank<Givaro::Modular<double>>(entries, n, p, rank);
    double balanced = timed_rank<Givaro::ModularBalanced<double>>(entries, n, p, rank);
    std::cout << rank << " " << std::min(plain, balanced) << std::endl;
}
