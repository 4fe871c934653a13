"""Writes numbers.json: densities, moments, probabilities, quantiles and scores, by mpmath.

Every formula is written from the definition, at 60 digits: probabilities by incomplete functions
or plain sums, quantiles by bisection, scores by quadrature of ∫ (F − 1(y ≤ ·))². Nothing of the
library is imported. Parameters and points are single-precision numbers (levels above 1 − 2⁻²⁴
apart), so that both precisions start from exactly the same. Beside each number stands its size,
|f| + Σ |x ∂f / ∂x| over all that it depends on: rounding the inputs once changes it by about eps
times that, and no program in this precision can be expected to do better.

Not run by the tests, since it takes minutes; needs mpmath. Some parts alone, whose rows replace
those of the same families:

    python tests/distributions/numbers_by_mpmath.py [PART ...]
"""

# ruff: noqa: B008, B023, E731
import functools
import json
import pathlib
import sys
from functools import cache

import mpmath as mp
import numpy as np
from mpmath import exp, log, mpf, sqrt

mp.mp.dps = 60
SMALL, LARGE = 2.0**-40, 2.0**40
LEVELS = (1e-30, 1e-9, 0.001, 0.3, 0.5, 0.975, 1 - 2.0**-20, 1 - 2.0**-50)
TEMPERATURES = (0.125, 8.0)
rows: list = []


def single(x):
    """x in single precision; levels that would become 1 stay as they are."""
    return float(x) if 1 - 2.0**-24 < x < 1 else float(np.float32(float(x)))


def size(f, inputs):
    """|f| + Σ |x ∂f / ∂x|, by central differences."""
    step = mpf(10) ** -15
    total = abs(f(*inputs))
    for i, x in enumerate(inputs):
        moved = [f(*inputs[:i], x * (1 + s), *inputs[i + 1 :]) for s in (step, -step)] if x else ()
        total += abs(moved[0] - moved[1]) / (2 * step) if x else 0
    return total


def add(family, method, params, at, value, its_size):
    """A row: family, method, parameters, point or level or None, value, size."""
    if mp.isnan(value) or (value != 0 and not 1e-37 < abs(value) < 1e38):
        return
    if method == "cdf" and value == 0:  # below what mpmath resolves
        return
    rows.append([family, method, params, at, float(value), float(f"{float(its_size):.3g}")])


def add_function(family, method, f, params, *at):
    inputs = [mpf(x) for x in (*params, *at)]
    # A logarithm that happens to be near zero is a difference of numbers of order one.
    floor = 1 if method.startswith(("log_prob", "tempered")) else 0
    add(family, method, params, *at or [None], f(*inputs), max(size(f, inputs), floor))


def upwards(f, low, high):
    """Where an increasing f becomes positive, by bisection of the logarithm."""
    low, high = mpf(low), mpf(high)
    for _ in range(130):
        middle = sqrt(low * high)
        low, high = (low, middle) if f(middle) >= 0 else (middle, high)
    return high


def quantile(cdf, level, centre):
    """Bisection of the distance from the centre; the centre itself if it is the quantile."""
    below = cdf(centre)
    if abs(below - level) < mpf(10) ** -40:
        return centre
    if level > below:
        return centre + upwards(lambda t: cdf(centre + t) - level, mpf(10) ** -60, mpf(10) ** 90)
    return centre - upwards(lambda t: level - cdf(centre - t), mpf(10) ** -60, mpf(10) ** 90)


def add_quantiles(family, params, cdf, log_density, centre=None, levels=LEVELS):
    """dQ / dx = −(∂F / ∂x) / density, which is why sizes are those of the cdf over the density."""
    inputs = [mpf(x) for x in params]
    for level in map(single, levels):
        if centre is None:
            y = upwards(lambda t: cdf(*inputs, t) - mpf(level), mpf(10) ** -60, mpf(10) ** 60)
        else:
            y = quantile(lambda t: cdf(*inputs, t), mpf(level), mpf(centre))
        its_size = size(cdf, [*inputs, y]) / exp(log_density(*inputs, y))
        add(family, "icdf", params, level, y, max(its_size, abs(y)))


def add_crps(family, params, y, cdf, nodes, *, loc=0, log_scale=0):
    """∫_{−∞}^y F² + ∫_y^∞ (1 − F)², between `nodes`; its size by the laws of location and scale."""
    inputs, y = [mpf(x) for x in params], mpf(y)
    with mp.workdps(30):
        lower = [t for t in nodes if t < y] + [y]
        upper = [y] + [t for t in nodes if t > y]
        value = mp.quad(lambda t: cdf(*inputs, t) ** 2, lower) if lower[1:] else mpf(0)
        if upper[1:]:
            value += mp.quad(lambda t: (1 - cdf(*inputs, t)) ** 2, upper)
    slope = 2 * cdf(*inputs, y) - 1
    by_scale = abs(value - (y - loc) * slope)
    its_size = value + (abs(y) + abs(mpf(loc))) * abs(slope) + (1 + abs(log_scale)) * by_scale
    add(family, "crps", params, float(y), value, its_size)


def add_tempered(family, params, y, log_density, tempered):
    for t in TEMPERATURES:
        new = tempered(mpf(t), *map(mpf, params))
        if new is not None:
            f = lambda *i, t=t: log_density(*tempered(mpf(t), *i[:-1]), i[-1])
            add_function(family, f"tempered {t}", f, params, y)


# ---- families with a location and a scale ----------------------------------------------------

PLACES = (
    (0.0, 1.0),
    (1e5, 1.0),
    (-3.0, 2.0**-10),
    (0.375 * SMALL, 0.75 * SMALL),
    (0.375 * LARGE, 0.75 * LARGE),
)


def both_sides(tail):
    """F from the probability of the upper tail at z ≥ 0."""
    return lambda z, *shape: 1 - tail(z, *shape) if z > 0 else tail(-z, *shape)


def normal_tail(z):
    return mp.erfc(z / sqrt(2)) / 2


def laplace_tail(z):
    return exp(-z) / 2


def student_tail(z, df):
    if z * z < df:
        return mpf(1) / 2 - mp.betainc(mpf(1) / 2, df / 2, 0, z * z / (df + z * z), True) / 2
    return mp.betainc(df / 2, mpf(1) / 2, 0, df / (df + z * z), True) / 2


def generalized_tail(z, power):
    return mp.gammainc(1 / power, z**power, mp.inf, True) / 2


def student_density(z, df):
    constant = mp.loggamma((df + 1) / 2) - mp.loggamma(df / 2) - log(df * mp.pi) / 2
    return constant - (df + 1) / 2 * mp.log1p(z * z / df)


def student_tempered(t, loc, scale, df):
    new = (df + 1) / t - 1
    return (loc, scale * sqrt(df / new), new) if new > 0 else None


# family: density and tail of z, variance of z, tempered, shapes, points z, nodes of the crps
LOCATION_SCALE = {
    "Normal": (
        lambda z: -z * z / 2 - log(2 * mp.pi) / 2,
        normal_tail,
        lambda: mpf(1),
        lambda t, loc, scale: (loc, scale * sqrt(t)),
        [()],
        (-36, -11, -3, -0.5, 0, 0.25, 2, 11),
        (0.5, 2, 6, 15),
    ),
    "Laplace": (
        lambda z: -abs(z) - log(2),
        laplace_tail,
        lambda: mpf(2),
        lambda t, loc, scale: (loc, scale * t),
        [()],
        (-600, -60, -3, -0.5, 0, 0.25, 2, 30),
        (0.5, 2, 10, 50),
    ),
    "Logistic": (
        lambda z: -abs(z) - 2 * mp.log1p(exp(-abs(z))),
        lambda z: 1 / (1 + exp(z)),
        lambda: mp.pi**2 / 3,
        lambda t, loc, scale: None,
        [()],
        (-600, -60, -3, -0.5, 0, 0.25, 2, 30),
        (0.5, 2, 10, 50),
    ),
    "StudentT": (
        student_density,
        student_tail,
        lambda df: df / (df - 2) if df > 2 else mp.nan,
        student_tempered,
        [(4.5,), (0.5,), (1.0,), (1 + 2.0**-10,), (2.25,), (60.0,), (1e4,)],
        (-1e6, -30, -3, -0.125, 0, 0.5, 5, 1e3),
        (0.5, 2, 8, 50, 1000, mp.inf),
    ),
    "GeneralizedNormal": (
        lambda z, power: -(abs(z) ** power) + log(power / 2) - mp.loggamma(1 / power),
        generalized_tail,
        lambda power: mp.gamma(3 / power) / mp.gamma(1 / power),
        lambda t, loc, scale, power: (loc, scale * t ** (1 / power), power),
        [(0.75,), (0.3125,), (1.0,), (2.0,), (4.5,), (60.0,)],
        (-30, -3, -1, -0.5, 0, 0.25, 0.984375, 1.03125, 5),
        None,
    ),
}


def location_scale(family):
    density, tail, variance, tempered, shapes, points, nodes = LOCATION_SCALE[family]
    cdf_of_z = both_sides(tail)

    def log_density(loc, scale, *rest):
        return density((rest[-1] - loc) / scale, *rest[:-1]) - log(scale)

    def cdf(loc, scale, *rest):
        return cdf_of_z((rest[-1] - loc) / scale, *rest[:-1])

    for number, shape in enumerate(shapes):
        for place, (loc, scale) in enumerate(PLACES):
            if number and place not in (0, 1 + number % 4):
                continue
            params = [*map(single, (loc, scale)), *map(single, shape)]
            for z in points:
                y = single(loc + z * scale)
                add_function(family, "log_prob", log_density, params, y)
                add_function(family, "cdf", cdf, params, y)
                if nodes and place != 1 and (not shape or shape[0] > 1):
                    ends = [loc + scale * t for t in (*(-t for t in nodes[::-1]), 0, *nodes)]
                    add_crps(family, params, y, cdf, ends, loc=loc)
            add_quantiles(family, params, cdf, log_density, loc)
            add_function(family, "variance", lambda loc, scale, *s: scale**2 * variance(*s), params)
            add_tempered(family, params, single(loc + 1.375 * scale), log_density, tempered)


# ---- positive numbers and proportions ---------------------------------------------------------


def log_normal():
    def log_density(loc, scale, y):
        return -(((log(y) - loc) / scale) ** 2) / 2 - log(2 * mp.pi) / 2 - log(scale * y)

    def on_the_log_scale(loc, scale, y):  # with respect to dy / y
        return log_density(loc, scale, y) + log(y)

    def cdf(loc, scale, y):
        return both_sides(normal_tail)((log(y) - loc) / scale)

    def variance(loc, scale):
        return mp.expm1(scale**2) * exp(2 * loc + scale**2)

    shapes = (0.3, 0.4), (-27.5, 1), (27.5, 1), (0, 2.0**-20), (1, 3), (0, 0.01), (5, 2.0**-10)
    for shape in shapes:
        params = loc, scale = [single(x) for x in shape]
        for z in (-11, -3, -0.5, 0, 0.25, 2, 8):
            y = single(exp(loc + mpf(z) * scale))
            add_function("LogNormal", "log_prob", log_density, params, y)
            add_function("LogNormal", "cdf", cdf, params, y)
            nodes = [0, *(exp(loc + mpf(t) * scale) for t in (-9, -4, -1, 1, 3, 6, 10, 16))]
            add_crps("LogNormal", params, y, cdf, nodes, log_scale=loc)
        add_quantiles("LogNormal", params, cdf, log_density)
        add_function("LogNormal", "mean", lambda loc, scale: exp(loc + scale**2 / 2), params)
        add_function("LogNormal", "variance", variance, params)
        new = lambda t, loc, scale: (loc, scale * sqrt(t))
        for t in TEMPERATURES:
            y = single(exp(loc + mpf(1.375) * scale))
            f = lambda *i, t=t: on_the_log_scale(*new(t, *i[:-1]), i[-1]) - log(i[-1])
            add_function("LogNormal", f"tempered {t}", f, params, y)


def gamma():
    def log_density(k, rate, y):
        return k * log(rate) + (k - 1) * log(y) - rate * y - mp.loggamma(k)

    def cdf(k, rate, y):
        x = rate * y
        if x <= 0:
            return mpf(0)
        if x < k:
            return mp.gammainc(k, 0, x, True)
        return 1 - mp.gammainc(k, x, mp.inf, True)

    shapes = (0.01, 1), (0.3, SMALL), (0.7, 2), (1, LARGE), (4.5, 1), (60, 2.0**-10)
    for shape in (*shapes, (1e4, 2.0**-10), (1e4, 1), (1e4, LARGE)):
        params = k, rate = [single(x) for x in shape]
        find = lambda level: upwards(
            lambda t: cdf(mpf(k), mpf(rate), t) - level, mpf(10) ** -60, mpf(10) ** 30
        )
        for level in (1e-30, 1e-6, 0.01, 0.5, 0.99, 1 - mpf(10) ** -6, 1 - mpf(10) ** -25):
            y = single(find(level))
            if y > 1e-37:
                add_function("Gamma", "log_prob", log_density, params, y)
                add_function("Gamma", "cdf", cdf, params, y)
                if 1e-8 < level < 1 - 1e-8:
                    at = 1e-20, 1e-6, 0.01, 0.3, 0.7, 0.99, 1 - mpf(10) ** -6, 1 - mpf(10) ** -20
                    nodes = [0, *(t for t in map(find, at) if t > mpf(10) ** -59)]
                    add_crps("Gamma", params, y, cdf, nodes)
        add_crps("Gamma", params, 0.0, cdf, nodes)
        add_quantiles("Gamma", params, cdf, log_density)
        add_function("Gamma", "mean", lambda k, rate: k / rate, params)
        add_function("Gamma", "variance", lambda k, rate: k / rate**2, params)
        new = lambda t, k, rate: (k / t, rate / t)
        add_tempered("Gamma", params, single(1.25 * k / rate), log_density, new)


def beta_tail(a, b, y):
    """F(y) of Beta(a, b) by its series of positive terms, for y ≤ ½ or so."""
    term = total = mpf(1)
    n = 0
    while term > mpf(10) ** -62 * total or (a + b + n) * y > a + 1 + n:
        term *= (a + b + n) / (a + 1 + n) * y
        total += term
        n += 1
    constant = mp.loggamma(a + b) - mp.loggamma(a + 1) - mp.loggamma(b)
    return exp(constant + a * log(y) + b * mp.log1p(-y)) * total


def beta_quantile(a, b, level):
    """Newton's method for log F, a concave function of log y: it converges from anywhere."""
    y = mpf(1) / 2
    if beta_tail(a, b, y) < level:
        return 1 - beta_quantile(b, a, 1 - level)
    for _ in range(200):
        below = beta_tail(a, b, y)
        constant = mp.loggamma(a + b) - mp.loggamma(a) - mp.loggamma(b)
        slope = exp(constant + a * log(y) + (b - 1) * mp.log1p(-y)) / below
        step = log(level / below) / slope
        y *= exp(step)
        if abs(step) < mpf(10) ** -40:
            break
    return y


def beta():
    def log_density(a, b, y):
        constant = mp.loggamma(a + b) - mp.loggamma(a) - mp.loggamma(b)
        return constant + (a - 1) * log(y) + (b - 1) * mp.log1p(-y)

    def cdf(a, b, y):
        return beta_tail(a, b, y) if y < 0.5 else 1 - beta_tail(b, a, 1 - y)

    def variance(a, b):
        return a * b / (a + b) ** 2 / (a + b + 1)

    shapes = (0.01, 0.01), (0.3, 5), (2, 1), (100, 0.01), (1e4, 1e-3), (1e4, 1), (5000, 0.5)
    for shape in (*shapes, (300, 200), (1e4, 1e4), (1, 1e4), (1e-3, 1e4)):
        params = a, b = [single(x) for x in shape]
        middle, width = a / (a + b), np.sqrt(float(variance(mpf(a), mpf(b))))
        points = {single(middle + z * width) for z in (-5, -1, 0, 1, 5)}
        for y in sorted(y for y in points | {single(0.001), 0.5, single(0.999)} if 0 < y < 1):
            add_function("Beta", "log_prob", log_density, params, y)
            add_function("Beta", "cdf", cdf, params, y)
        for level in map(single, LEVELS if a + b < 1000 else ()):
            y = beta_quantile(mpf(a), mpf(b), mpf(level))
            if 1e-37 < y < 1 - mpf(10) ** -20:
                inputs = [mpf(a), mpf(b), y]
                its_size = max(size(cdf, inputs) / exp(log_density(*inputs)), y)
                add("Beta", "icdf", params, level, y, its_size)
        add_function("Beta", "mean", lambda a, b: a / (a + b), params)
        add_function("Beta", "variance", variance, params)
        new = lambda t, a, b: (a / t, b / t)
        add_tempered("Beta", params, single(min(middle, 0.875)), log_density, new)


def uniform():
    def log_density(low, high, y):
        return -log(high - low)

    def cdf(low, high, y):
        return (y - low) / (high - low)

    def crps(low, high, y):
        width, inside = high - low, min(max(y, low), high)
        left, right = inside - low, high - inside
        return (left**3 + right**3) / (3 * width**2) + abs(y - inside)

    for params in (0.0, 1.0), (1e5, 100001.0), (-SMALL, SMALL), (-LARGE, 3 * LARGE):
        params = low, high = [single(x) for x in params]
        for share in (-1000, -0.5, 0.125, 0.5, 0.9375, 30):
            y = single(low + share * (high - low))
            add_function("Uniform", "crps", crps, params, y)
            if 0 < share < 1:
                add_function("Uniform", "log_prob", log_density, params, y)
                add_function("Uniform", "cdf", cdf, params, y)
        add_function("Uniform", "mean", lambda low, high: (low + high) / 2, params)
        add_function("Uniform", "variance", lambda low, high: (high - low) ** 2 / 12, params)
        for level in map(single, LEVELS):
            f = lambda low, high, level: low + level * (high - low)
            add_function("Uniform", "icdf", f, params, level)


# ---- counts and classes -----------------------------------------------------------------------


def add_counts(family, params, log_probability, spread):
    """Probabilities, their sums, and quantiles whose levels no rounding can mistake."""
    inputs = [mpf(x) for x in params]
    last = int(spread[-1])

    @cache
    def sums(*inputs):
        total, found = mpf(0), []
        for y in range(last + 1):
            total += exp(log_probability(*inputs, y))
            found.append(total)
        return found

    def cdf(*inputs):
        return sums(*inputs[:-1])[int(mp.nint(inputs[-1]))]

    below = sums(*inputs)
    for y in spread:
        f = lambda *params, y=int(y): log_probability(*params, y)
        value = f(*inputs)
        add(family, "log_prob", params, int(y), value, max(size(f, inputs), abs(value), 1))
        f = lambda *params, y=int(y): cdf(*params, y)
        add(family, "cdf", params, int(y), f(*inputs), size(f, inputs))
    for level in map(single, LEVELS):
        if below[-1] > level:
            y = next(y for y, total in enumerate(below) if total >= level)
            distance = below[y] - level
            distance = min(distance, level - below[y - 1]) if y else abs(distance)
            if distance > 1e-3 * level * max(1, last / 1000):
                add(family, "icdf", params, level, mpf(y), mpf(y))


def counts():
    def poisson(rate, y):
        return y * log(rate) - rate - mp.loggamma(y + 1)

    def negative_binomial(rate, k, y):
        constant = mp.loggamma(y + k) - mp.loggamma(k) - mp.loggamma(y + 1)
        return constant + k * log(k / (k + rate)) + (y * log(rate / (k + rate)) if y else 0)

    for rate in (1e-3, 0.7, 13.0, 300.0):
        rate, width = single(rate), np.sqrt(rate)
        at = [np.floor(rate + z * width) for z in (-8, -3, -1, 0, 1, 4, 12)] + [0, 1, 2]
        add_counts("Poisson", [rate], poisson, sorted({y for y in at if y >= 0}))
        add_function("Poisson", "variance", lambda rate: rate, [rate])
    for rate in (1e-3, 2.0, 100.0):
        for k in (0.01, 1.0, 30.0, 1e4):
            params = rate, k = [single(rate), single(k)]
            width = np.sqrt(rate + rate**2 / k)
            at = [np.floor(rate + z * width) for z in (-3, -1, 0, 1, 4)] + [0, 1, 2, 5]
            spread = sorted({y for y in at if 0 <= y <= 3000})
            add_counts("NegativeBinomial", params, negative_binomial, spread)
            add_function("NegativeBinomial", "variance", lambda r, k: r + r * r / k, params)


def classes():
    def two(p, y):
        return log(p) if y else mp.log1p(-p)

    def two_tempered(p, t):
        return p ** (1 / t) / (p ** (1 / t) + (1 - p) ** (1 / t))

    for p in (SMALL, 1e-6, 0.3, 0.5, 1 - 2.0**-20):
        p = single(p)
        for y in (0, 1):
            f = lambda p, y=y: two(p, y)
            add("Bernoulli", "log_prob", [p], y, f(mpf(p)), size(f, [mpf(p)]))
            for t in TEMPERATURES:
                if not 1e-30 < two_tempered(mpf(p), t) < 1 - 1e-7:
                    continue  # no probability in single precision
                f = lambda p, y=y, t=t: two(two_tempered(p, t), y)
                # The tempered distribution is held as a probability, which is rounded.
                rounded = 1 if y else 1 / (1 - two_tempered(mpf(p), t))
                value = f(mpf(p))
                its_size = max(size(f, [mpf(p)]), rounded if abs(value) > 1e-6 else abs(value))
                add("Bernoulli", f"tempered {t}", [p], y, value, its_size)
        add_function("Bernoulli", "variance", lambda p: p * (1 - p), [p])
        add("Bernoulli", "cdf", [p], 0, 1 - mpf(p), 1)
    for probs in ([0.25, 0.5, 0.25], [2.0**-24, 0.75, 0.25 - 2.0**-24]):
        probs = [single(x) for x in probs]
        total = mp.fsum(probs)
        for y, p in enumerate(probs):
            add("Categorical", "log_prob", probs, y, log(mpf(p)), max(abs(log(mpf(p))), 1))
            add("Categorical", "cdf", probs, y, mp.fsum(probs[: y + 1]) / total, 1)
            for t in TEMPERATURES:
                value = log(mpf(p)) / t - log(mp.fsum(mpf(x) ** (1 / mpf(t)) for x in probs))
                if value > -85:
                    add("Categorical", f"tempered {t}", probs, y, value, abs(log(mpf(p))) / t + 1)
    for logits in ([0.5, -1.25, 2.0], [1000.0, -500.0, 999.0], [-3.0, 1e5, 1e5]):
        total = log(mp.fsum(exp(mpf(x)) for x in logits))
        for y, x in enumerate(logits):
            add("CategoricalLogits", "log_prob", logits, y, x - total, abs(x) + abs(total) + 1)
            upto = log(mp.fsum(map(exp, map(mpf, logits[: y + 1]))))
            add("CategoricalLogits", "cdf", logits, y, exp(upto - total), 1 + abs(x))
            for t in TEMPERATURES:
                value = x / mpf(t) - log(mp.fsum(exp(mpf(x) / t) for x in logits))
                its_size = (abs(x) + abs(total)) / t + 1
                add("CategoricalLogits", f"tempered {t}", logits, y, value, its_size)


def dirichlet():
    def log_density(a, y):
        powers = mp.fsum((x - 1) * log(z) for x, z in zip(a, y, strict=True))
        return mp.loggamma(mp.fsum(a)) - mp.fsum(map(mp.loggamma, a)) + powers

    for a in ([1e4, 1.0, 0.01], [1e4, 1e-3, 1e-3], [0.01, 0.01, 0.01], [2.0, 3.0, 4.0], [1e4] * 3):
        a = [single(x) for x in a]
        exact, total = [mpf(x) for x in a], mp.fsum(a)
        for i, x in enumerate(exact):
            value = x * (total - x) / total**2 / (total + 1)
            add("Dirichlet", f"mean {i}", a, None, x / total, x / total)
            add("Dirichlet", f"variance {i}", a, None, value, value)
        for y in ([0.25, 0.5, 0.25], [1 - 2.0**-9, 2.0**-10, 2.0**-10]):
            for t in (1.0, *TEMPERATURES):
                f = lambda *i, t=t, n=len(a): log_density([x / t for x in i[:n]], i[n:])
                inputs = [*exact, *map(mpf, y)]
                name = "log_prob" if t == 1 else f"tempered {t}"
                add("Dirichlet", name, a, y, f(*inputs), max(size(f, inputs), 1))


# ---- mixtures, draws, quantiles ---------------------------------------------------------------


def mixtures():
    """Three normal components: parameters are three weights, three means, three scales."""

    def split(inputs):
        w, loc, scale = inputs[:3], inputs[3:6], inputs[6:9]
        return [x / mp.fsum(w) for x in w], loc, scale, inputs[9:]

    def log_density(*inputs):
        w, loc, scale, (y,) = split(inputs)
        terms = (a * mp.npdf(y, b, c) for a, b, c in zip(w, loc, scale, strict=True))
        return log(mp.fsum(terms))

    def cdf(*inputs):
        w, loc, scale, (y,) = split(inputs)
        below = both_sides(normal_tail)
        terms = (a * below((y - b) / c) for a, b, c in zip(w, loc, scale, strict=True))
        return mp.fsum(terms)

    def mean(*inputs):
        w, loc, _, _ = split(inputs)
        return mp.fsum(a * b for a, b in zip(w, loc, strict=True))

    def variance(*inputs):
        w, loc, scale, _ = split(inputs)
        centre = mp.fsum(a * b for a, b in zip(w, loc, strict=True))
        terms = zip(w, loc, scale, strict=True)
        return mp.fsum(a * ((b - centre) ** 2 + c**2) for a, b, c in terms)

    equal = [single(1 / 3)] * 3
    for w in ([0.25, 0.5, 0.25], [1 - 2.0**-19, 2.0**-20, 2.0**-20], equal):
        for c in (1.0, SMALL, LARGE):
            for shift in (0.0, 1e5):
                locs = [single(c * (x + shift)) for x in (-1.0, 0.5, 3.0)]
                scales = [single(c * x) for x in (0.5, 1.0, 0.125)]
                params = [*map(single, w), *locs, *scales]
                for z in (-30, -1.25, 0.5, 2.75, 3.25, 8):
                    y = single(c * (z + shift))
                    add_function("Mixture", "log_prob", log_density, params, y)
                    add_function("Mixture", "cdf", cdf, params, y)
                    steps = sorted(
                        x + s * t for x, s in zip(locs, scales, strict=True) for t in (-9, -2, 2, 9)
                    )
                    if not shift:
                        add_crps("Mixture", params, y, cdf, steps, loc=0)
                add_quantiles("Mixture", params, cdf, log_density, locs[1])
                add_function("Mixture", "mean", mean, params)
                add_function("Mixture", "variance", variance, params)


def draws():
    """Moments and scores of 7 draws, written out in full; weights first."""
    base = np.array([-1.5, -0.25, 0.5, 0.75, 2.0, 2.125, 6.0])
    weights = np.array([1, 2, 3, 1, 2, 4, 1.0])
    for c in (1.0, SMALL, LARGE):
        for shift in (0.0, 1e5):
            for w in (None, weights):
                z = [mpf(single(c * (x + shift))) for x in base]
                p = [mpf(1) / 7] * 7 if w is None else [mpf(x) / int(w.sum()) for x in w]
                params = [[0.0] * 7 if w is None else [float(x) for x in w], [float(x) for x in z]]
                mean = mp.fsum(a * x for a, x in zip(p, z, strict=True))
                add("Ensemble", "mean", params, None, mean, abs(mean))
                variance = mp.fsum(a * (x - mean) ** 2 for a, x in zip(p, z, strict=True))
                # The mean is rounded, which is a smaller error than a rounding of the draws.
                add("Ensemble", "variance", params, None, variance, variance)
                for at in (-2.0, 0.75, 1.0, 40.0):
                    y = mpf(single(c * (at + shift)))
                    below = mp.fsum(a for a, x in zip(p, z, strict=True) if x <= y)
                    add("Ensemble", "cdf", params, float(y), below, 1)
                    first = mp.fsum(a * abs(x - y) for a, x in zip(p, z, strict=True))
                    second = mp.fsum(a * b * abs(x - u) for a, x in zip(p, z) for b, u in zip(p, z))
                    half = second / 2
                    add("Ensemble", "crps", params, float(y), first - half, first + half)


PARTS = {
    **{family.lower(): functools.partial(location_scale, family) for family in LOCATION_SCALE},
    **{
        part.__name__: part
        for part in (log_normal, gamma, beta, uniform, counts, classes, dirichlet, mixtures, draws)
    },
}


def main():
    path = pathlib.Path(__file__).with_name("numbers.json")
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
        print(name, len(rows), flush=True)
    families = {row[0] for row in rows}
    kept = [row for row in json.loads(path.read_text()) if row[0] not in families]
    lines = map(json.dumps, kept + rows)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
