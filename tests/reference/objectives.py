"""Every objective in float64 by another route: slow loops over views, pairs and images, NumPy and SciPy only.

Each function takes the projections z (V, N, D) and a constant copy s of them, which stands wherever the
formula stops the gradient: differences in z with s held fixed then give the gradient. Targets, queues and
states that are given are constants too. For V > 2: the mean over views (or pairs) times their number at
V = 2; FroSSL alone sums.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations

import numpy as np
import scipy.linalg
from scipy.integrate import trapezoid
from scipy.spatial.distance import pdist
from scipy.special import entr, erfinv, logsumexp


def difference_along(
    f: Callable[[np.ndarray], float], z: np.ndarray, direction: np.ndarray, h: float = 1e-3
) -> float:
    """The derivative of f at z along a direction, by a five-point difference."""
    e = h * direction
    return (f(z - 2 * e) - 8 * f(z - e) + 8 * f(z + e) - f(z + 2 * e)) / (12 * h)


# --- pieces ---------------------------------------------------------------------------------------


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _unit_rows(x: np.ndarray) -> np.ndarray:
    return np.stack([row / max(np.sqrt(row @ row), 1e-12) for row in x])


def _unit_columns(x: np.ndarray) -> np.ndarray:
    return _unit_rows(x.T).T


def _unit_views(z: np.ndarray) -> list[np.ndarray]:
    return [_unit_rows(view) for view in z]


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Mean cosine of rows, every norm at least 1e-8."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += (x @ y) / (max(np.linalg.norm(x), 1e-8) * max(np.linalg.norm(y), 1e-8))
    return total / len(a)


def _mse(a: np.ndarray, b: np.ndarray) -> float:
    return sum((x - y) @ (x - y) for x, y in zip(a, b, strict=True)) / a.size


def _mean_pair(views: list[np.ndarray] | np.ndarray, f: Callable[[np.ndarray, np.ndarray], float]) -> float:
    """Mean of f over the pairs v < r."""
    return _mean([f(a, b) for a, b in combinations(views, 2)])


def _cross_covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """c(A)ᵀ c(B) / N, a block of the covariance of both side by side."""
    D = a.shape[1]
    return np.cov(np.hstack([a, b]), rowvar=False, bias=True)[:D, D:]


def _second_moment(x: np.ndarray) -> np.ndarray:
    """XᵀX / N, image by image."""
    return sum((np.outer(row, row) for row in x), start=np.zeros((x.shape[1],) * 2)) / len(x)


def _cross_entropy(q: np.ndarray, scores: np.ndarray) -> float:
    """Mean over images of −Σ_k q_k log softmax(scores)_k."""
    total = 0.0
    for weights, row in zip(q, scores, strict=True):
        e = np.exp(row - row.max())
        total -= sum(w * (x - row.max() - np.log(e.sum())) for w, x in zip(weights, row, strict=True))
    return total / len(q)


# --- dimension-contrastive ------------------------------------------------------------------------


def _renyi_entropy(u: np.ndarray, alpha: float) -> float:
    """S_α of UᵀU / tr UᵀU, from the singular values of U."""
    squares = scipy.linalg.svdvals(u) ** 2
    shares = squares / squares.sum()
    if alpha == 1:
        return float(entr(shares).sum())
    return float(np.log((shares**alpha).sum()) / (1 - alpha))


def frossl(
    z: np.ndarray,
    s: np.ndarray,
    *,
    w: float = 1.4,
    b: float = 1.0,
    normalize: str = "centered",
    log: bool = True,
    alpha: float = 2.0,
) -> float:
    """−b Σ_v S_α(C_v) + (w/N) Σ_{v<r} ‖U_v − U_r‖²; without the logarithm b Σ_v ‖C_v‖² (α = 2 only)."""
    if not log and alpha != 2:
        raise ValueError("log=False is defined for alpha = 2 only")
    N = z.shape[1]
    normalizations = {
        "centered": lambda x: _unit_columns(x - x.mean(axis=0)),
        "columns": _unit_columns,
        "rows": _unit_rows,
    }
    u = np.stack([normalizations[normalize](view) for view in z])
    entropies = [_renyi_entropy(view, alpha) for view in u]
    variance = -sum(entropies) if log else sum(np.exp(-entropy) for entropy in entropies)
    invariance = sum(pdist(u[:, n], "sqeuclidean").sum() for n in range(N))
    return float(b * variance + w * invariance / N)


def vicreg(
    z: np.ndarray, s: np.ndarray, *, inv: float = 25.0, var: float = 25.0, cov: float = 1.0, eps: float = 1e-4
) -> float:
    D = z.shape[2]
    hinges, off_diagonals = [], []
    for view in z:
        covariance = np.cov(view, rowvar=False)
        variances = np.diag(covariance)
        hinges.append(sum(max(0.0, 1.0 - np.sqrt(x + eps)) for x in variances) / D)
        squares = (np.linalg.eigvalsh(covariance) ** 2).sum()
        off_diagonals.append((squares - (variances**2).sum()) / D)
    return float(inv * _mean_pair(z, _mse) + var * _mean(hinges) + 2 * cov * _mean(off_diagonals))


def barlow(
    z: np.ndarray, s: np.ndarray, *, inv: float = 1.0, cov: float = 0.0051, eps: float = 1e-5
) -> float:
    def pair(a: np.ndarray, b: np.ndarray) -> float:
        covariance = _cross_covariance(a, b)
        diagonal = off_diagonal = 0.0
        for i, j in np.ndindex(*covariance.shape):
            r = covariance[i, j] / np.sqrt((np.var(a[:, i]) + eps) * (np.var(b[:, j]) + eps))
            if i == j:
                diagonal += (1 - r) ** 2
            else:
                off_diagonal += r**2
        return inv * diagonal + cov * off_diagonal

    return float(_mean_pair(z, pair))


def _whiten(x: np.ndarray, eps: float) -> np.ndarray:
    """c(X) L⁻ᵀ, where LLᵀ is the shrunk covariance: L from a QR factorization, never forming LLᵀ."""
    n, D = x.shape
    x = x - x.mean(axis=0)
    stacked = np.vstack([np.sqrt((1 - eps) / (n - 1)) * x, np.sqrt(eps) * np.eye(D)])
    upper = np.linalg.qr(stacked, mode="r")
    upper = np.sign(np.diag(upper))[:, None] * upper
    return scipy.linalg.solve_triangular(upper, x.T, trans="T").T


def wmse(
    z: np.ndarray, s: np.ndarray, *, orders: list[list[np.ndarray]], eps: float = 0.0, detach: bool = False
) -> float:
    """`orders`: sub-batches (image indices) of every permutation. `detach`: view r of v < r is constant."""

    def whiten(view: np.ndarray, runs: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([_unit_rows(_whiten(view[run], eps)) for run in runs])

    losses = []
    for runs in orders:
        for v, r in combinations(range(len(z)), 2):
            a, b = whiten(z[v], runs), whiten((s if detach else z)[r], runs)
            losses.append(2 - 2 * _mean([x @ y for x, y in zip(a, b, strict=True)]))
    return float(_mean(losses))


def corinfomax_state(
    z: np.ndarray,
    *,
    mean: np.ndarray | None = None,
    covariance: np.ndarray | None = None,
    momentum: float = 0.01,
    rows: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (V, D) and covariance (V, D, D) after the step; 0 and I before the first one."""
    V, _, D = z.shape
    means, covariances = [], []
    for v in range(V):
        u = _unit_rows(z[v]) if rows else z[v]
        old_mean = np.zeros(D) if mean is None else mean[v]
        old_covariance = np.eye(D) if covariance is None else covariance[v]
        means.append(momentum * old_mean + (1 - momentum) * u.mean(axis=0))
        covariances.append(momentum * old_covariance + (1 - momentum) * _second_moment(u - means[v]))
    return np.stack(means), np.stack(covariances)


def corinfomax(
    z: np.ndarray,
    s: np.ndarray,
    *,
    mean: np.ndarray | None = None,
    covariance: np.ndarray | None = None,
    inv: float = 500.0,
    var: float = 1.0,
    momentum: float = 0.01,
    eps: float = 1e-6,
    rows: bool = True,
) -> float:
    D = z.shape[2]
    _, after = corinfomax_state(z, mean=mean, covariance=covariance, momentum=momentum, rows=rows)
    volumes = []
    for matrix in after:
        lower = scipy.linalg.cholesky(matrix + eps * np.eye(D), lower=True)
        volumes.append(2 * np.log(np.diag(lower)).sum() / D)
    u = _unit_views(z) if rows else list(z)
    return float(inv * _mean_pair(u, _mse) - 2 * var * _mean(volumes))


def ivne(
    z: np.ndarray, s: np.ndarray, *, inv: float = 4.16, var: float = 1.0, global_views: int | None = None
) -> float:
    """Cosine over the pairs i < j with i < global_views (None: all pairs); entropy of the N×N Gram matrix."""
    V, N, _ = z.shape
    first = V if global_views is None else global_views
    cosines = [_cosine(z[i], z[j]) for i, j in combinations(range(V), 2) if i < first]
    entropies = []
    for u in _unit_views(z):
        eigenvalues = np.linalg.eigvalsh(u @ u.T / N)
        entropies.append(entr(np.clip(eigenvalues, 0.0, None)).sum())
    return float(-inv * _mean(cosines) - var * _mean(entropies))


def _nuclear_norm(x: np.ndarray) -> float:
    """Trace of the positive factor of the polar decomposition."""
    _, positive = scipy.linalg.polar(x)
    return float(np.trace(positive))


def mmcr(z: np.ndarray, s: np.ndarray, *, local: float = 0.0) -> float:
    V, N, _ = z.shape
    u = _unit_views(z)
    loss = -_nuclear_norm(sum(u[1:], start=u[0]) / V)
    if local:
        loss += local * _mean([_nuclear_norm(np.stack([view[n] for view in u])) for n in range(N)])
    return loss


def empssl(z: np.ndarray, s: np.ndarray, *, inv: float = 200.0, var: float = 1.0, eps: float = 0.2) -> float:
    V, N, D = z.shape
    u = _unit_views(z)
    center = sum(u[1:], start=u[0]) / V
    rates = [np.log1p(D / (N * eps) * np.linalg.eigvalsh(view @ view.T)).sum() / 2 for view in u]
    return float(-inv * _mean([_cosine(view, center) for view in u]) - var * _mean(rates))


def _log_series(x: np.ndarray, order: int) -> np.ndarray:
    """The first terms of log(x) around 1, for numbers."""
    return sum(((-1) ** (k + 1) * (x - 1) ** k / k for k in range(1, order + 1)), start=np.zeros_like(x))


def matrixssl(
    z: np.ndarray,
    s: np.ndarray,
    *,
    target: np.ndarray | None = None,
    inv: float = 1.0,
    var: float = 0.5,
    eps: float = 0.5,
    order: int = 4,
) -> float:
    """Truncated logarithms from eigenvalues, complex ones for the unsymmetric cross-covariance."""
    shift = eps * np.eye(z.shape[2])
    student, teacher = _unit_views(z), _unit_views(s if target is None else target)
    losses = []
    for r, v in permutations(range(len(z)), 2):
        cross = np.linalg.eigvals(_cross_covariance(teacher[r], student[v]) + shift)
        uniformity = _log_series(cross.astype(complex), order).sum().real
        p = _cross_covariance(teacher[r], teacher[r]) + shift
        values, vectors = np.linalg.eigh(_cross_covariance(student[v], student[v]) + shift)
        alignment = sum(f * (x @ p @ x) for f, x in zip(_log_series(values, order), vectors.T, strict=True))
        losses.append(-var * uniformity - inv * alignment)
    return float(_mean(losses))


def tico_state(
    z: np.ndarray, *, covariance: np.ndarray | None = None, momentum: float = 0.9, symmetric: bool = False
) -> np.ndarray:
    """C' after the step: the online views are all of them if symmetric, else all but the last."""
    online = _unit_views(z if symmetric else z[:-1])
    batch = sum((_second_moment(u) for u in online), start=np.zeros((z.shape[2],) * 2)) / len(online)
    return (1 - momentum) * batch + (0.0 if covariance is None else momentum * covariance)


def tico(
    z: np.ndarray,
    s: np.ndarray,
    *,
    target: np.ndarray | None = None,
    covariance: np.ndarray | None = None,
    inv: float = 1.0,
    cov: float = 8.0,
    momentum: float = 0.9,
    symmetric: bool = False,
    detach: bool = False,
) -> float:
    """`detach`: the part of C' that comes from this batch is constant."""
    V = len(z)
    u, t = _unit_views(z), _unit_views(s if target is None else target)
    pairs = (permutations if symmetric else combinations)(range(V), 2)
    similarity = _mean([_mean([x @ y for x, y in zip(u[v], t[r], strict=True)]) for v, r in pairs])
    after = tico_state(s if detach else z, covariance=covariance, momentum=momentum, symmetric=symmetric)
    contrast = _mean([_mean([x @ after @ x for x in view]) for view in (u if symmetric else u[:-1])])
    return float(-inv * similarity + cov * contrast)


# --- sample-contrastive ---------------------------------------------------------------------------


def simclr(
    z: np.ndarray, s: np.ndarray, *, temperature: float = 0.1, scale: float = 1.0, positives: str = "each"
) -> float:
    """`positives`: "each" has one logarithm per positive pair, "summed" one per row, of their sum."""
    V, N, _ = z.shape
    u = np.concatenate(_unit_views(z))
    losses = []
    for i in range(V * N):
        similarity = {j: (u[i] @ u[j]) / temperature for j in range(V * N) if j != i}
        own = [x for j, x in similarity.items() if j % N == i % N]
        everything = logsumexp(list(similarity.values()))
        if positives == "each":
            losses += [everything - x for x in own]
        elif positives == "summed":
            losses.append(everything - logsumexp(own))
        else:
            raise ValueError(positives)
    return float(scale * _mean(losses))


def moco(
    z: np.ndarray,
    s: np.ndarray,
    *,
    queue: np.ndarray,
    target: np.ndarray | None = None,
    temperature: float = 0.2,
    symmetric: bool = False,
) -> float:
    """Query v and key r of the pairs v < r, or of all v ≠ r if symmetric; queue rows as they are."""
    queries, keys = _unit_views(z), _unit_views(s if target is None else target)
    losses = []
    for v, r in (permutations if symmetric else combinations)(range(len(z)), 2):
        for q, k in zip(queries[v], keys[r], strict=True):
            losses.append(np.log1p(sum(np.exp((q @ other - q @ k) / temperature) for other in queue)))
    return float(_mean(losses))


def spectral(z: np.ndarray, s: np.ndarray, *, mu: float = 1.0) -> float:
    N = z.shape[1]

    def clip(view: np.ndarray) -> np.ndarray:
        return np.stack([row * min(1.0, np.sqrt(mu / (row @ row))) if row.any() else row for row in view])

    def pair(a: np.ndarray, b: np.ndarray) -> float:
        positive = negative = 0.0
        for i, j in np.ndindex(N, N):
            if i == j:
                positive += a[i] @ b[j] / N
            else:
                negative += (a[i] @ b[j]) ** 2 / (N * (N - 1))
        return (negative - 2 * positive) / mu

    return float(_mean_pair([clip(view) for view in z], pair))


# --- codes, teachers and stopped targets ----------------------------------------------------------


def sinkhorn(scores: np.ndarray, eps: float = 0.05, iterations: int = 3) -> np.ndarray:
    """Codes (rows sum to 1) by additive potentials of prototypes and images, in the log domain."""
    x = scores / eps
    prototype = np.zeros(x.shape[1])
    image = np.full(x.shape[0], np.log(x.shape[0]) - logsumexp(x))
    for _ in range(iterations):
        prototype = -np.array([logsumexp(x[:, k] + image) for k in range(x.shape[1])])
        image = -np.array([logsumexp(x[n] + prototype) for n in range(x.shape[0])])
    return np.exp(x + prototype + image[:, None])


def swav(
    z: np.ndarray,
    s: np.ndarray,
    *,
    global_views: int = 2,
    temperature: float = 0.1,
    eps: float = 0.05,
    iterations: int = 3,
    queue: np.ndarray | None = None,
) -> float:
    """z are the scores. `queue` (global_views, Q, K): more rows for Sinkhorn alone, their codes dropped."""
    V, N, _ = z.shape
    losses = []
    for c in range(global_views):
        scores = s[c] if queue is None else np.concatenate([s[c], queue[c]])
        codes = sinkhorn(scores, eps, iterations)[:N]
        losses.append(_mean([_cross_entropy(codes, z[v] / temperature) for v in range(V) if v != c]))
    return float(_mean(losses))


def simsiam(z: np.ndarray, s: np.ndarray, *, target: np.ndarray | None = None) -> float:
    t = s if target is None else target
    return float(-_mean([_cosine(z[v], t[r]) for v, r in permutations(range(len(z)), 2)]))


def byol(z: np.ndarray, s: np.ndarray, *, target: np.ndarray | None = None) -> float:
    p, t = _unit_views(z), _unit_views(s if target is None else target)
    distances = []
    for v, r in permutations(range(len(z)), 2):
        distances.append(_mean([(x - y) @ (x - y) for x, y in zip(p[v], t[r], strict=True)]))
    return float(2 * _mean(distances))


def dino(
    z: np.ndarray,
    s: np.ndarray,
    *,
    target: np.ndarray | None = None,
    center: np.ndarray | None = None,
    temperature: float = 0.1,
    target_temperature: float = 0.04,
) -> float:
    """`target` (V_t, N, K): teacher logits of the first V_t views; without it, the first two views of s."""
    teacher = s[:2] if target is None else target
    losses = []
    for i, logits in enumerate(teacher):
        q = []
        for row in logits if center is None else logits - center:
            e = np.exp((row - row.max()) / target_temperature)
            q.append(e / e.sum())
        losses += [_cross_entropy(np.stack(q), z[v] / temperature) for v in range(len(z)) if v != i]
    return float(_mean(losses))


def dino_center(target: np.ndarray, center: np.ndarray, momentum: float = 0.9) -> np.ndarray:
    """The center after the loss."""
    rows = [row for view in target for row in view]
    return momentum * center + (1 - momentum) * sum(rows[1:], start=rows[0]) / len(rows)


def iso_state(
    z: np.ndarray, *, covariance: np.ndarray | None = None, momentum: float = 0.998, sequential: bool = True
) -> list[np.ndarray]:
    """The covariance that every view uses; the last one is the state after the step."""
    V, _, D = z.shape
    before = np.zeros((D, D)) if covariance is None else covariance
    moments = [_second_moment(view) for view in z]
    if not sequential:
        return [momentum * before + (1 - momentum) * sum(moments[1:], start=moments[0]) / V] * V
    after = []
    for moment in moments:
        before = momentum * before + (1 - momentum) * moment
        after.append(before)
    return after


def iso(
    z: np.ndarray,
    s: np.ndarray,
    *,
    target: np.ndarray | None = None,
    covariance: np.ndarray | None = None,
    momentum: float = 0.998,
    alpha: float = 0.5,
    eps: float = 0.0,
    euclidean: bool = False,
    sequential: bool = True,
) -> float:
    """‖W^½ z‖² as zᵀWz, W from the singular value decomposition of the (symmetric) covariance."""
    t = s if target is None else target
    states = iso_state(s, covariance=covariance, momentum=momentum, sequential=sequential)
    losses = []
    for v, r in permutations(range(len(z)), 2):
        vectors, values, _ = np.linalg.svd(states[v])
        W = vectors @ np.diag((values / values[0] + eps) ** alpha) @ vectors.T
        for n in range(z.shape[1]):
            x, p, y = z[v, n], s[v, n] @ W, t[r, n]
            if euclidean:
                difference = x - (y + s[v, n] - p)
                losses.append(difference @ difference)
            else:
                norm_p, norm_y = np.sqrt(p @ p), np.sqrt(y @ y)
                slope = (p @ y) / (norm_p**3 * norm_y)
                losses.append(-2 * ((x @ y) / (norm_p * norm_y) - slope * (x @ W @ x) / 2))
    return float(2 * _mean(losses))


# --- distributions of one-dimensional projections -------------------------------------------------


def _spread(z: np.ndarray, global_views: int | None) -> float:
    """Mean squared distance to the mean of the global views, which keeps its gradient."""
    center = np.mean(z if global_views is None else z[:global_views], axis=0)
    return _mean([_mse(view, center) for view in z])


def sigreg(z: np.ndarray, slices: np.ndarray) -> float:
    """N ∫ |characteristic function − Gaussian's|² Gaussian, by the trapezoid rule on 33 points of [−3, 3]."""
    t = np.linspace(-3.0, 3.0, 33)
    gaussian = np.exp(-(t**2) / 2)
    statistics = []
    for view in z:
        for a in slices.T:
            characteristic = np.mean([np.exp(1j * t * (row @ a)) for row in view], axis=0)
            integrand = np.abs(characteristic - gaussian) ** 2 * gaussian
            statistics.append(len(view) * trapezoid(integrand, t))
    return float(_mean(statistics))


def lejepa(
    z: np.ndarray,
    s: np.ndarray,
    *,
    slices: np.ndarray,
    inv: float = 0.98,
    var: float = 0.02,
    global_views: int | None = None,
) -> float:
    return float(inv * _spread(z, global_views) + var * sigreg(z, slices))


def visreg(
    z: np.ndarray,
    s: np.ndarray,
    *,
    slices: np.ndarray,
    inv: float = 0.1,
    var: float = 0.9,
    global_views: int | None = None,
    eps: float = 1e-6,
    shape_eps: float | None = None,
) -> float:
    """The deviation + eps in the scale; the constant one + shape_eps (None: eps) in the shape."""
    N = z.shape[1]
    quantiles = [np.sqrt(2) * erfinv(2 * n / (N + 1) - 1) for n in range(1, N + 1)]
    scales, centers, shapes = [], [], []
    for view, constant in zip(z, s, strict=True):
        columns = []
        for x, fixed in zip(view.T, constant.T, strict=True):
            scales.append((np.sqrt(((x - x.mean()) ** 2).mean()) + eps - 1) ** 2)
            centers.append(x.mean() ** 2)
            columns.append((x - x.mean()) / (np.std(fixed) + (eps if shape_eps is None else shape_eps)))
        for a in slices.T:
            projected = sorted(sum(weight * x for weight, x in zip(a, columns, strict=True)))
            shapes += [(x - q) ** 2 for x, q in zip(projected, quantiles, strict=True)]
    return float(inv * _spread(z, global_views) + var * (_mean(scales) + _mean(shapes) + _mean(centers)))


# --- divergences of symmetric positive definite matrices ------------------------------------------


def log_det_divergence(A: np.ndarray, B: np.ndarray) -> float:
    """tr(AB⁻¹) − D − logdet(AB⁻¹), from the generalized eigenvalues of Ax = λBx."""
    ratios = scipy.linalg.eigh(A, B, eigvals_only=True)
    return float(sum(x - 1 - np.log(x) for x in ratios))


def von_neumann_divergence(A: np.ndarray, B: np.ndarray) -> float:
    """tr A(ln A − ln B), by matrix logarithms."""
    return float(np.trace(A @ (scipy.linalg.logm(A) - scipy.linalg.logm(B))).real)


def petz_renyi_divergence(A: np.ndarray, B: np.ndarray, alpha: float) -> float:
    """log tr(A^α B^(1−α)) / (α − 1), by matrix powers."""
    power = scipy.linalg.fractional_matrix_power
    return float(np.log(np.trace(power(A, alpha) @ power(B, 1 - alpha)).real) / (alpha - 1))
