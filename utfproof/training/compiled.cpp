// What training does on a CPU: causal softmax attention over short sequences, forward and backward, one sequence after another
// within the cache; a few rows times a matrix that no cache holds, which is read once; and a few averages of states that many
// sequences share, each read where it stands.
//
// Each product is made of tiles of ROWS rows and up to three vectors of columns that stay in registers. Nothing depends on the
// number of threads: a sum is never divided.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr long BYTES = 64, ROWS = 8;
#else
constexpr long BYTES = 32, ROWS = 4;
#endif

template <class T> struct Of;
template <> struct Of<float> {
    typedef float Vec __attribute__((vector_size(BYTES), aligned(4), may_alias));
    typedef int32_t Bit;
    typedef int32_t Bits __attribute__((vector_size(BYTES), aligned(4), may_alias));
    static constexpr int TERMS = 7, MANTISSA = 23;
    static constexpr float LOWEST = -87, MAGIC = 12582912.0f, HIGH = 0.693359375f, LOW = -2.12194440e-4f;
};
template <> struct Of<double> {
    typedef double Vec __attribute__((vector_size(BYTES), aligned(8), may_alias));
    typedef int64_t Bit;
    typedef int64_t Bits __attribute__((vector_size(BYTES), aligned(8), may_alias));
    static constexpr int TERMS = 13, MANTISSA = 52;
    static constexpr double LOWEST = -708, MAGIC = 6755399441055744.0, HIGH = 0.693145751953125,
                            LOW = 1.42860682030941723212e-6;
};

template <class T> constexpr long LANES = BYTES / sizeof(T);
template <class T> long whole(long count) { return (count + LANES<T> - 1) / LANES<T> * LANES<T>; }
template <class T> typename Of<T>::Vec &at(T *place) { return *reinterpret_cast<typename Of<T>::Vec *>(place); }
template <class T> const typename Of<T>::Vec &at(const T *place) {
    return *reinterpret_cast<const typename Of<T>::Vec *>(place);
}

template <class T> constexpr T LEAST = -std::numeric_limits<T>::infinity();
template <class T> constexpr T inverse_factorial(int i) { return i ? inverse_factorial<T>(i - 1) / i : T(1); }

// The sum, or the largest, of a vector's numbers.
template <class T, bool LARGEST> T folded(typename Of<T>::Vec x) {
    typename Of<T>::Bits order;
#pragma GCC unroll 4
    for (int half = LANES<T> / 2; half; half /= 2) {
        for (int i = 0; i < LANES<T>; i++) order[i] = i ^ half;
        const typename Of<T>::Vec other = __builtin_shuffle(x, order);
        x = LARGEST ? (other > x ? other : x) : x + other;
    }
    return x[0];
}

// e^x for x <= 0, at least e^LOWEST: 2^k e^r with |r| <= log(2)/2, and the series of e^r.
template <class T> typename Of<T>::Vec exponential(typename Of<T>::Vec x) {
    using F = Of<T>;
    using V = typename F::Vec;
    using B = typename F::Bits;
    const V lowest = V{} + F::LOWEST;
    x = x < lowest ? lowest : x;
    const V shifted = x * T(1.44269504088896340736) + F::MAGIC, k = shifted - F::MAGIC;
    const V r = (x - k * F::HIGH) - k * F::LOW;
    V sum = V{} + inverse_factorial<T>(F::TERMS);
#pragma GCC unroll 16
    for (int i = F::TERMS - 1; i >= 0; i--) sum = sum * r + inverse_factorial<T>(i);
    return (V)((B)sum + ((B)shifted << F::MANTISSA));
}

// c [R, C vectors] = or += a b for b [inner, C vectors]; a's entry (row, k) stands at row * across + k * along.
template <class T, int R, int C>
void tile(long inner, const T *a, long across, long along, const T *b, long width, T *c, long stride, bool add) {
    typename Of<T>::Vec sum[R][C];
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 3
        for (int j = 0; j < C; j++) sum[i][j] = add ? at(c + i * stride + j * LANES<T>) : typename Of<T>::Vec{};
    for (long k = 0; k < inner; k++, a += along, b += width)
#pragma GCC unroll 8
        for (int i = 0; i < R; i++)
#pragma GCC unroll 3
            for (int j = 0; j < C; j++) sum[i][j] += a[i * across] * at(b + j * LANES<T>);
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 3
        for (int j = 0; j < C; j++) at(c + i * stride + j * LANES<T>) = sum[i][j];
}

// The same for R rows and `columns` columns, whole vectors.
template <class T, int R = ROWS>
void product(long columns, long inner, const T *a, long across, long along, const T *b, long width, T *c, long stride,
             bool add = false) {
    const long L = LANES<T>;
    long done = 0;
    for (; columns - done >= 3 * L; done += 3 * L)
        tile<T, R, 3>(inner, a, across, along, b + done, width, c + done, stride, add);
    if (columns - done == 2 * L) tile<T, R, 2>(inner, a, across, along, b + done, width, c + done, stride, add);
    if (columns - done == L) tile<T, R, 1>(inner, a, across, along, b + done, width, c + done, stride, add);
}

// x [rows, width] as columns of `stride` numbers.
template <class T> void transposed(const T *x, long rows, long width, T *found, long stride) {
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < width; j++) found[j * stride + i] = x[i * width + j];
}

// Zeros, and a vector beyond; they start where a line of the cache starts, so that no vector of a row of whole ones is on two.
template <class T> struct Space {
    std::vector<T> held;
    Space(long rows, long width) : held(rows * width + 2 * LANES<T>) {}
    operator T *() { return reinterpret_cast<T *>((reinterpret_cast<uintptr_t>(held.data()) + BYTES - 1) / BYTES * BYTES); }
};

// A tensor [sequences, rows, width], whose matrices are read where they stand. Tiles read past a matrix's edges, which changes
// only what is thrown away; the last matrices, past which nothing may be read, are copied.
template <class T> struct Matrices {
    const T *first;
    long sequences, size, beyond;
    Space<T> copy;

    Matrices(const T *first, long sequences, long rows, long width)
        : first(first), sequences(sequences), size(rows * width), beyond(ROWS * width + LANES<T>), copy(1, size + beyond) {}

    const T *of(long sequence) {
        const T *held = first + sequence * size;
        if ((sequences - 1 - sequence) * size >= beyond) return held;
        std::memcpy(copy, held, size * sizeof(T));
        return copy;
    }
};

// Logits of ROWS rows, and the keys that each sees: all see those before `least`, none those from `most` on.
template <class T> struct Rows {
    using V = typename Of<T>::Vec;
    using B = typename Of<T>::Bits;
    long keys, least, most, limits[ROWS];
    T *S;

    Rows(T *S, long keys, const int64_t *look, long row, long rows, long repeat) : keys(keys), least(keys), most(0), S(S) {
        for (long i = 0; i < ROWS; i++) {
            const long place = std::min(row + i, rows - 1) / repeat;
            limits[i] = (look ? look[place] : place) + 1;
            least = std::min(least, limits[i]);
            most = std::max(most, limits[i]);
        }
        least = least / LANES<T> * LANES<T>;
    }

    // x where row i sees the keys from j on, else `other`.
    V seen(long i, long j, V x, T other) const {
        if (j < least) return x;
        B key;
        for (int lane = 0; lane < LANES<T>; lane++) key[lane] = lane;
        return key < B{} + typename Of<T>::Bit(limits[i] - j) ? x : V{} + other;
    }

    V &operator()(long i, long j) { return at(S + i * keys + j); }
};

template <class T>
void forward(long start, long end, long sequences, long rows, long n, long e, long f, long repeat, const T *q, const T *k,
             const T *v, const int64_t *look, T *found, T *tops, T *units) {
    using V = typename Of<T>::Vec;
    const long L = LANES<T>, keys = whole<T>(n), wide = whole<T>(f);
    Matrices<T> queries(q, sequences, rows, e), values(v, sequences, n, f);
    Space<T> Kt(e, keys), S(ROWS, keys), averages(ROWS, wide);
    for (long b = start; b < end; b++) {
        const T *Q = queries.of(b), *values_here = values.of(b);
        transposed(k + b * n * e, n, e, (T *)Kt, keys);
        for (long row = 0; row < rows; row += ROWS) {
            Rows<T> part(S, keys, look ? look + b * (rows / repeat) : look, row, rows, repeat);
            product<T>(whole<T>(part.most), e, Q + row * e, e, 1, Kt, keys, S, keys);
            V sums[ROWS], largest[ROWS];
            for (long i = 0; i < ROWS; i++) largest[i] = part.seen(i, 0, part(i, 0), LEAST<T>);
            for (long j = L; j < part.most; j += L)
                for (long i = 0; i < ROWS; i++) {
                    const V x = part.seen(i, j, part(i, j), LEAST<T>);
                    largest[i] = x > largest[i] ? x : largest[i];
                }
            for (long i = 0; i < ROWS; i++) {
                largest[i] = V{} + folded<T, true>(largest[i]);
                sums[i] = V{};
            }
            for (long j = 0; j < part.most; j += L)
                for (long i = 0; i < ROWS; i++)
                    sums[i] += part(i, j) = part.seen(i, j, exponential<T>(part(i, j) - largest[i]), 0);
            product<T>(wide, part.most, S, keys, 1, values_here, f, averages, wide);
            for (long i = 0; i < std::min(ROWS, rows - row); i++) {
                const long place = b * rows + row + i;
                tops[place] = largest[i][0];
                units[place] = 1 / folded<T, false>(sums[i]);
                for (long j = 0; j < f; j++) found[place * f + j] = averages[i * wide + j] * units[place];
            }
        }
    }
}

template <class T>
void backward(long start, long end, long sequences, long rows, long n, long e, long f, long repeat, const T *q, const T *k,
              const T *v, const int64_t *look, const T *tops, const T *units, const T *g, T *dq, T *dk, T *dv) {
    using V = typename Of<T>::Vec;
    const bool shared = k == v;
    const long L = LANES<T>, keys = whole<T>(n), wide_e = whole<T>(e), wide_f = whole<T>(f);
    const long padded = (rows + ROWS - 1) / ROWS * ROWS;
    Matrices<T> queries(q, sequences, rows, e), known(k, sequences, n, e), gradients(g, sequences, rows, f);
    Space<T> Kt(e, keys), own_values(shared ? 0 : f, keys), A(padded, keys), D(padded, keys);
    Space<T> back_q(ROWS, wide_e), back_k(keys, wide_e), own_back_v(shared ? 0 : keys, wide_f);
    T *const Vt = shared ? Kt : own_values, *const back_v = shared ? back_k : own_back_v;
    std::vector<long> most(padded / ROWS);
    for (long b = start; b < end; b++) {
        const T *Q = queries.of(b), *K = known.of(b), *G = gradients.of(b);
        transposed(K, n, e, (T *)Kt, keys);
        if (!shared) transposed(v + b * n * f, n, f, Vt, keys);
        for (long row = 0; row < rows; row += ROWS) {
            T *slopes = D + row * keys;
            Rows<T> part(A + row * keys, keys, look ? look + b * (rows / repeat) : look, row, rows, repeat);
            product<T>(whole<T>(part.most), e, Q + row * e, e, 1, Kt, keys, part.S, keys);
            product<T>(whole<T>(part.most), f, G + row * f, f, 1, Vt, keys, slopes, keys);
            most[row / ROWS] = part.most;
            V lost[ROWS];
            T top[ROWS], unit[ROWS];
            for (long i = 0; i < ROWS; i++) {
                const long place = b * rows + std::min(row + i, rows - 1);
                top[i] = tops[place], unit[i] = units[place], lost[i] = V{};
            }
            for (long j = 0; j < part.most; j += L)
                for (long i = 0; i < ROWS; i++) {
                    part(i, j) = part.seen(i, j, exponential<T>(part(i, j) - top[i]) * unit[i], 0);
                    lost[i] += part(i, j) * at(slopes + i * keys + j);
                }
            for (long i = 0; i < ROWS; i++) lost[i] = V{} + folded<T, false>(lost[i]);
            for (long j = 0; j < part.most; j += L)
                for (long i = 0; i < ROWS; i++)
                    at(slopes + i * keys + j) = part(i, j) * (at(slopes + i * keys + j) - lost[i]);
            for (long i = 0; i < ROWS; i++)
                for (long j = whole<T>(part.most); j < keys; j += L) part(i, j) = at(slopes + i * keys + j) = V{};
            product<T>(wide_e, part.most, slopes, keys, 1, K, e, back_q, wide_e);
            for (long i = 0; i < std::min(ROWS, rows - row); i++)
                std::memcpy(dq + (b * rows + row + i) * e, back_q + i * wide_e, e * sizeof(T));
        }
        for (long key = 0, row = 0; key < n; key += ROWS) {
            if (!look)
                while (most[row / ROWS] <= key) row += ROWS;
            product<T>(wide_f, rows - row, A + row * keys + key, 1, keys, G + row * f, f, back_v + key * wide_f, wide_f);
            product<T>(wide_e, rows - row, D + row * keys + key, 1, keys, Q + row * e, e, back_k + key * wide_e, wide_e,
                       shared);
        }
        for (long i = 0; i < n; i++) {
            std::memcpy(dk + (b * n + i) * e, back_k + i * wide_e, e * sizeof(T));
            if (!shared) std::memcpy(dv + (b * n + i) * f, back_v + i * wide_f, f * sizeof(T));
        }
    }
}

constexpr long STRIP = 16, BLOCK = 48;

// Numbers that are wanted soon: hardware looks less far ahead. A place that does not exist is no fault.
template <class T> void ahead(const T *x, long count) {
    for (long i = 0; i < count; i += 64 / sizeof(T)) __builtin_prefetch(x + i, 0, 2);
}

template <int N> using Count = std::integral_constant<int, N>;

// f(row, R) for all rows, four at a time as far as they go.
template <class F> void by_rows(long rows, F f) {
    long row = 0;
    for (; rows - row >= 4; row += 4) f(row, Count<4>{});
    for (; row < rows; row++) f(row, Count<1>{});
}

// f(R) for tiles of R rows: as few tiles as can be, of at most MOST rows, and as few rows as do for that.
template <int MOST, int R = 1, class F> void with_tiles(long rows, F f) {
    if constexpr (R < MOST)
        if ((rows + MOST - 1) / MOST * R < rows) return with_tiles<MOST, R + 1>(rows, f);
    f(Count<R>{});
}

// Columns start * BLOCK ... end * BLOCK of x [rows, inner] y [inner, width], y strip by strip, in tiles of R rows.
template <class T, int R>
void few_by(long start, long end, long rows, long inner, long width, const T *x, const T *y, T *found) {
    const long first = start * BLOCK, count = std::min(end * BLOCK, width) - first, wide = whole<T>(count);
    const long padded = (rows + R - 1) / R * R;
    Space<T> X(padded, inner), C(padded, wide), edge(STRIP, wide);
    std::memcpy(X, x, rows * inner * sizeof(T));
    for (long k = 0; k < inner; k += STRIP) {
        const long depth = std::min(STRIP, inner - k);
        const T *from = y + k * width + first;
        const bool last = (inner - k - depth) * width < LANES<T>;  // past y nothing may be read
        for (long i = 0; last && i < depth; i++) std::memcpy(edge + i * wide, from + i * width, count * sizeof(T));
        for (long j = 0; j < wide; j += 3 * LANES<T>) {
            for (long i = STRIP; !last && i < 2 * STRIP; i++) ahead(from + i * width + j, 3 * LANES<T>);
            for (long row = 0; row < padded; row += R)
                product<T, R>(std::min(wide - j, 3 * LANES<T>), depth, X + row * inner + k, inner, 1,
                              (last ? (T *)edge : from) + j, last ? wide : width, C + row * wide + j, wide, k > 0);
        }
    }
    for (long i = 0; i < rows; i++) std::memcpy(found + i * width + first, C + i * wide, count * sizeof(T));
}

template <class T> void few(long start, long end, long rows, long inner, long width, const T *x, const T *y, T *found) {
    with_tiles<ROWS>(rows, [&](auto R) { few_by<T, R()>(start, end, rows, inner, width, x, y, found); });
}

// sums [R, C, LANES] = or += products, lane by lane, of `depth` numbers (whole vectors) of R rows of x and of C of y.
template <class T, int R, int C>
void meet(long depth, const T *x, long along_x, const T *y, long along_y, T *sums, bool add) {
    constexpr long L = LANES<T>;
    typename Of<T>::Vec sum[R][C];
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < C; j++) sum[i][j] = add ? at(sums + (i * C + j) * L) : typename Of<T>::Vec{};
    for (long k = 0; k < depth; k += L)
#pragma GCC unroll 8
        for (int i = 0; i < R; i++)
#pragma GCC unroll 4
            for (int j = 0; j < C; j++) sum[i][j] += at(x + i * along_x + k) * at(y + j * along_y + k);
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < C; j++) at(sums + (i * C + j) * L) = sum[i][j];
}

// Columns start * BLOCK ... end * BLOCK of x [rows, inner] y^T for y [width, inner], in tiles of R rows of x and C of y.
template <class T, int R>
void few_back_by(long start, long end, long rows, long inner, long width, const T *x, const T *y, T *found) {
    constexpr long L = LANES<T>, C = 4, DEPTH = 16 * L;
    const long padded = (rows + R - 1) / R * R, deep = whole<T>(inner), vectors = inner / L * L;
    const long stop = std::min(end * BLOCK, width);
    Space<T> X(padded, deep), edge(C, deep), sums(padded * C, L);
    for (long i = 0; i < rows; i++) std::memcpy(X + i * deep, x + i * inner, inner * sizeof(T));
    for (long first = start * BLOCK; first < stop; first += C) {
        const long count = std::min(C, stop - first);
        const T *from = y + first * inner;
        const long direct = count == C ? vectors : 0;  // the rest of the rows is copied: past y nothing may be read
        for (long i = 0; i < count; i++)
            std::memcpy(edge + i * deep + direct, from + i * inner + direct, (inner - direct) * sizeof(T));
        for (long k = 0; k < direct; k += DEPTH)
            for (long row = 0; row < padded; row += R)
                meet<T, R, C>(std::min(DEPTH, direct - k), X + row * deep + k, deep, from + k, inner, sums + row * C * L,
                              k > 0);
        for (long row = 0; direct < deep && row < padded; row += R)
            meet<T, R, C>(deep - direct, X + row * deep + direct, deep, edge + direct, deep, sums + row * C * L, direct > 0);
        for (long i = 0; i < rows; i++)
            for (long j = 0; j < count; j++) found[i * width + first + j] = folded<T, false>(at(sums + (i * C + j) * L));
    }
}

template <class T>
void few_back(long start, long end, long rows, long inner, long width, const T *x, const T *y, T *found) {
    with_tiles<BYTES == 64 ? 6 : 3>(rows, [&](auto R) { few_back_by<T, R()>(start, end, rows, inner, width, x, y, found); });
}

// Averages of shared states, sum over k < seen[b] of A [b, r, k] x [index[b, k]], and their gradients: A [sequences, rows, n],
// x [states, m]. Tiles of R rows and C vectors stay in registers.
constexpr int WIDE = BYTES == 64 ? 4 : 2;
constexpr long PIECE = 64;

// What is met of a row at a time: a vector, or at the edge a number. (As a template's argument a vector would lose its alignment.)
template <class T> struct Vectors {
    using V = typename Of<T>::Vec;
    static constexpr long SIZE = LANES<T>;
};
template <class T> struct Numbers {
    using V = T;
    static constexpr long SIZE = 1;
};
template <class K, class T> typename K::V &met(T *place) { return *reinterpret_cast<typename K::V *>(place); }
template <class K, class T> const typename K::V &met(const T *place) {
    return *reinterpret_cast<const typename K::V *>(place);
}

// f(column, what is met, C) for the columns from `first` to `last`.
template <class T, class F> void by_columns(long first, long last, F f) {
    const long L = LANES<T>;
    for (; last - first >= WIDE * L; first += WIDE * L) f(first, Vectors<T>{}, Count<WIDE>{});
    for (; last - first >= L; first += L) f(first, Vectors<T>{}, Count<1>{});
    for (; first < last; first++) f(first, Numbers<T>{}, Count<1>{});
}

template <class T>
void averages(long start, long end, long rows, long n, long m, const T *A, const T *x, const int64_t *index,
              const int64_t *seen, T *found) {
    for (long b = start; b < end; b++)
        by_rows(rows, [&](long row, auto R) {
            const T *a = A + (b * rows + row) * n;
            by_columns<T>(0, m, [&](long j, auto kind, auto C) {
                using K = decltype(kind);
                typename K::V sum[R()][C()] = {};
                for (long k = 0; k < seen[b]; k++)
                    for (int c = 0; c < C(); c++) {
                        const typename K::V held = met<K>(x + index[b * n + k] * m + j + c * K::SIZE);
                        for (int i = 0; i < R(); i++) sum[i][c] += a[i * n + k] * held;
                    }
                for (int i = 0; i < R(); i++)
                    for (int c = 0; c < C(); c++)
                        met<K>(found + (b * rows + row + i) * m + j + c * K::SIZE) = sum[i][c];
            });
        });
}

// dA, 0 from seen[b] on.
template <class T>
void averages_weights(long start, long end, long rows, long n, long m, const T *g, const T *x, const int64_t *index,
                      const int64_t *seen, T *dA) {
    using V = typename Of<T>::Vec;
    const long L = LANES<T>, whole_m = m / L * L;
    for (long b = start; b < end; b++)
        by_rows(rows, [&](long row, auto R) {
            const T *from = g + (b * rows + row) * m;
            T *to = dA + (b * rows + row) * n;
            for (int i = 0; i < R(); i++) std::fill(to + i * n + seen[b], to + (i + 1) * n, T(0));
            for (long k = 0; k < seen[b]; k++) {
                const T *held = x + index[b * n + k] * m;
                V sum[R()] = {};
                for (long j = 0; j < whole_m; j += L)
                    for (int i = 0; i < R(); i++) sum[i] += at(from + i * m + j) * at(held + j);
                for (int i = 0; i < R(); i++) {
                    to[i * n + k] = folded<T, false>(sum[i]);
                    for (long j = whole_m; j < m; j++) to[i * n + k] += from[i * m + j] * held[j];
                }
            }
        });
}

// dx, zeros before, in its columns start * PIECE ... end * PIECE.
template <class T>
void averages_states(long start, long end, long sequences, long rows, long n, long m, const T *A, const T *g,
                     const int64_t *index, const int64_t *seen, T *dx) {
    for (long first = start * PIECE; first < std::min(end * PIECE, m); first += PIECE)
        by_columns<T>(first, std::min(first + PIECE, m), [&](long j, auto kind, auto C) {
            using K = decltype(kind);
            for (long b = 0; b < sequences; b++)
                by_rows(rows, [&](long row, auto R) {
                    const T *a = A + (b * rows + row) * n;
                    typename K::V slopes[R()][C()];
                    for (int i = 0; i < R(); i++)
                        for (int c = 0; c < C(); c++)
                            slopes[i][c] = met<K>(g + (b * rows + row + i) * m + j + c * K::SIZE);
                    for (long k = 0; k < seen[b]; k++)
                        for (int c = 0; c < C(); c++) {
                            typename K::V &to = met<K>(dx + index[b * n + k] * m + j + c * K::SIZE);
                            typename K::V sum = to;
                            for (int i = 0; i < R(); i++) sum += a[i * n + k] * slopes[i][c];
                            to = sum;
                        }
                });
        });
}

}  // namespace

extern "C" const long block_columns = BLOCK, piece_columns = PIECE;

#define BOTH_WAYS(T)                                                                                                           \
    extern "C" void forward_##T(long start, long end, long sequences, long rows, long n, long e, long f, long repeat,         \
                                const T *q, const T *k, const T *v, const int64_t *look, T *found, T *tops, T *units) {       \
        forward(start, end, sequences, rows, n, e, f, repeat, q, k, v, look, found, tops, units);                             \
    }                                                                                                                         \
    extern "C" void backward_##T(long start, long end, long sequences, long rows, long n, long e, long f, long repeat,        \
                                 const T *q, const T *k, const T *v, const int64_t *look, const T *tops, const T *units,      \
                                 const T *g, T *dq, T *dk, T *dv) {                                                           \
        backward(start, end, sequences, rows, n, e, f, repeat, q, k, v, look, tops, units, g, dq, dk, dv);                    \
    }                                                                                                                         \
    extern "C" void few_##T(long start, long end, long rows, long inner, long width, const T *x, const T *y, T *found) {      \
        few(start, end, rows, inner, width, x, y, found);                                                                     \
    }                                                                                                                         \
    extern "C" void few_back_##T(long start, long end, long rows, long inner, long width, const T *x, const T *y, T *found) { \
        few_back(start, end, rows, inner, width, x, y, found);                                                                \
    }                                                                                                                         \
    extern "C" void averages_##T(long start, long end, long rows, long n, long m, const T *A, const T *x,                     \
                                 const int64_t *index, const int64_t *seen, T *found) {                                       \
        averages(start, end, rows, n, m, A, x, index, seen, found);                                                           \
    }                                                                                                                         \
    extern "C" void averages_weights_##T(long start, long end, long rows, long n, long m, const T *g, const T *x,             \
                                         const int64_t *index, const int64_t *seen, T *dA) {                                  \
        averages_weights(start, end, rows, n, m, g, x, index, seen, dA);                                                      \
    }                                                                                                                         \
    extern "C" void averages_states_##T(long start, long end, long sequences, long rows, long n, long m, const T *A,          \
                                        const T *g, const int64_t *index, const int64_t *seen, T *dx) {                       \
        averages_states(start, end, sequences, rows, n, m, A, g, index, seen, dx);                                            \
    }

BOTH_WAYS(float)
BOTH_WAYS(double)
