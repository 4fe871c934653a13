/* Plain loops over pairs: what the benchmark compares with.
 *
 * Everything that depends on one sample only is computed outside the inner loop. With -fopenmp the
 * sums over pairs run on all cores, and their inner loops on vectors of pairs. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* Unbiased SKCE of normal predictions, kernel exp(-W2) exp(-(y - z)^2 / 2); five exponentials per
 * pair. Returns NaN if there is no memory. */
double skce(int64_t n, const double *loc, const double *scale, const double *y)
{
    double *factor = malloc(n * sizeof(double)), *rate = malloc(n * sizeof(double));
    if (!factor || !rate) {
        free(factor);
        free(rate);
        return NAN;
    }
    for (int64_t i = 0; i < n; i++) {
        double variance = 1 + scale[i] * scale[i];
        factor[i] = 1 / sqrt(variance);
        rate[i] = -0.5 / variance;
    }
    double total = 0;
#pragma omp parallel for schedule(dynamic, 64) reduction(+ : total)
    for (int64_t i = 0; i < n; i++) {
        double mi = loc[i], si = scale[i], yi = y[i], fi = factor[i], ri = rate[i];
        double variance = 1 + si * si, sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = i + 1; j < n; j++) {
            double dm = mi - loc[j], ds = si - scale[j];
            double yy = yi - y[j], my = mi - y[j], ym = yi - loc[j];
            double v = 1 / (variance + scale[j] * scale[j]);
            double bracket = exp(-0.5 * yy * yy) - fi * exp(ri * my * my)
                             - factor[j] * exp(rate[j] * ym * ym)
                             + sqrt(v) * exp(-0.5 * v * dm * dm);
            sum += exp(-sqrt(dm * dm + ds * ds)) * bracket;
        }
        total += sum;
    }
    free(factor);
    free(rate);
    return total / (0.5 * n * (n - 1));
}

enum { BLOCK = 256 }; /* pairs whose sums over components stay in the cache */

/* The same of d independent components, [d][n]. Returns NaN if there is no memory. */
double skce_diagonal(int64_t n, int64_t d, const double *loc, const double *scale, const double *y)
{
    double *factor = malloc(n * sizeof(double)), *variance = malloc(n * d * sizeof(double));
    double *rate = malloc(n * d * sizeof(double));
    if (!factor || !variance || !rate) {
        free(factor);
        free(variance);
        free(rate);
        return NAN;
    }
    for (int64_t i = 0; i < n; i++) {
        double product = 1;
        for (int64_t k = i; k < n * d; k += n) {
            variance[k] = scale[k] * scale[k];
            rate[k] = 1 / (1 + variance[k]);
            product *= rate[k];
        }
        factor[i] = sqrt(product);
    }
    double total = 0;
#pragma omp parallel for schedule(dynamic, 16) reduction(+ : total)
    for (int64_t i = 0; i < n; i++) {
        for (int64_t start = i + 1; start < n; start += BLOCK) {
            int64_t size = n - start < BLOCK ? n - start : BLOCK;
            double w2[BLOCK] = {0}, yz[BLOCK] = {0}, mz[BLOCK] = {0}, ym[BLOCK] = {0};
            double mm[BLOCK] = {0}, product[BLOCK];
            for (int64_t j = 0; j < size; j++)
                product[j] = 1;
            for (int64_t k = 0; k < d; k++) {
                int64_t at = k * n + i, first = k * n + start;
                double mi = loc[at], si = scale[at], yi = y[at], ri = rate[at], vi = 1 + variance[at];
#pragma omp simd
                for (int64_t j = 0; j < size; j++) {
                    double dm = mi - loc[first + j], ds = si - scale[first + j];
                    double a = yi - y[first + j], b = mi - y[first + j], c = yi - loc[first + j];
                    double v = 1 / (vi + variance[first + j]);
                    w2[j] += dm * dm + ds * ds;
                    yz[j] += a * a;
                    mz[j] += ri * b * b;
                    ym[j] += rate[first + j] * c * c;
                    mm[j] += v * dm * dm;
                    product[j] *= v;
                }
            }
            double sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < size; j++)
                sum += exp(-sqrt(w2[j]))
                       * (exp(-0.5 * yz[j]) - factor[i] * exp(-0.5 * mz[j])
                          - factor[start + j] * exp(-0.5 * ym[j])
                          + sqrt(product[j]) * exp(-0.5 * mm[j]));
            total += sum;
        }
    }
    free(factor);
    free(variance);
    free(rate);
    return total / (0.5 * n * (n - 1));
}

/* Unbiased SKCE of d classes, probabilities [d][n], kernel exp(-TV) 1(y = z). */
double skce_classes(int64_t n, int64_t d, const double *probs, const int64_t *y)
{
    double total = 0;
#pragma omp parallel for schedule(dynamic, 16) reduction(+ : total)
    for (int64_t i = 0; i < n; i++) {
        for (int64_t start = i + 1; start < n; start += BLOCK) {
            int64_t size = n - start < BLOCK ? n - start : BLOCK;
            double distance[BLOCK] = {0}, product[BLOCK] = {0};
            for (int64_t k = 0; k < d; k++) {
                const double *column = probs + k * n + start;
                double p = probs[k * n + i];
#pragma omp simd
                for (int64_t j = 0; j < size; j++) {
                    distance[j] += fabs(p - column[j]);
                    product[j] += p * column[j];
                }
            }
            double sum = 0;
            const double *own = probs + y[i] * n + start;
            for (int64_t j = 0; j < size; j++)
                sum += exp(-0.5 * distance[j])
                       * ((y[i] == y[start + j]) - probs[y[start + j] * n + i] - own[j] + product[j]);
            total += sum;
        }
    }
    return total / (0.5 * n * (n - 1));
}

static uint64_t next(uint64_t *state) /* xorshift64* */
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(2685821657736338717);
}

/* Bootstrapped values (2 / n) sum_{i<j} centred(X*_i, X*_j), given the centred matrix [n, n].
 * Returns zero if there was memory for the indices. */
int bootstrap(int64_t n, const double *centred, int64_t resamples, uint64_t seed, double *out)
{
    int64_t *index = malloc(n * sizeof(int64_t));
    if (!index)
        return 1;
    for (int64_t b = 0; b < resamples; b++) {
        for (int64_t i = 0; i < n; i++)
            index[i] = (int64_t)(((next(&seed) >> 32) * (uint64_t)n) >> 32);
        double total = 0;
        for (int64_t i = 0; i < n; i++) {
            const double *row = centred + index[i] * n;
            double sum = 0;
            for (int64_t j = i + 1; j < n; j++)
                sum += row[index[j]];
            total += sum;
        }
        out[b] = 2 * total / n;
    }
    free(index);
    return 0;
}
