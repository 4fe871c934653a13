/* Plain loops over pairs: what the benchmark compares with.
 *
 * Everything that depends on one sample only is computed outside the inner loop. */

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
    for (int64_t i = 0; i < n; i++) {
        double mi = loc[i], si = scale[i], yi = y[i], fi = factor[i], ri = rate[i];
        double variance = 1 + si * si, sum = 0;
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
