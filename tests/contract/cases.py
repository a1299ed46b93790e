"""One way to call every objective, and the same call of its reference: what the contract tests run over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from frossl.objectives import OBJECTIVES
from frossl.types import LossTerms
from tests.reference import objectives as reference


@dataclass(frozen=True)
class Case:
    """An objective with options, and what its reference calls the same options."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    by_hand: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Extra tensors, made by `extra`: constants that both sides get."""
    label: str = ""
    ordered: bool = False
    """The order of views matters, by definition."""

    def __str__(self) -> str:
        return f"{self.name}-{self.label}" if self.label else self.name

    def extra(self, V: int, N: int, D: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng((V, N, D))
        covariance = np.einsum("vnd,vne->vde", x := rng.normal(size=(V, 2 * D, D)), x) / (2 * D)
        queue = rng.normal(size=(2 * N, D))
        tensors = {
            "target": rng.normal(size=(V, N, D)) + 0.3,
            "teacher": rng.normal(size=(2, N, D)),
            "queue": queue / np.linalg.norm(queue, axis=1, keepdims=True),
            "scores": rng.normal(size=(2, 5, D)),
            "mean": 0.1 * rng.normal(size=(V, D)),
            "covariance": covariance,
            "one covariance": covariance[0],
            "center": rng.normal(size=D),
            "slices": (a := rng.normal(size=(D, 6))) / np.linalg.norm(a, axis=0),
        }
        keyword = {"teacher": "target", "one covariance": "covariance", "scores": "queue"}
        return {keyword.get(name, name): tensors[name] for name in self.needs}

    def arguments(self, z: Tensor) -> dict[str, Any]:
        extra = {k: torch.as_tensor(v).to(z) for k, v in self.extra(*z.shape).items()}
        return {**self.options, **extra}

    def loss(self, z: Tensor) -> LossTerms:
        return OBJECTIVES[self.name].function(z, **self.arguments(z))

    def reference(self, z: np.ndarray, s: np.ndarray) -> float:
        """The reference at z, with everything that carries no gradient taken from s."""
        function: Callable[..., float] = getattr(reference, self.name)
        order = {"orders": [[np.arange(z.shape[1])]]} if self.name == "wmse" else {}
        return function(z, s, **self.by_hand, **order, **self.extra(*z.shape))


WEIGHTS = {"invariance_weight": 0.9, "variance_weight": 1.3}

CASES = [
    *(
        Case(
            "frossl",
            {**WEIGHTS, "normalize": how, "log": log},
            {"w": 0.9, "b": 1.3, "normalize": how, "log": log},
            label=how + ("" if log else "-nolog"),
        )
        for how in ("centered", "columns", "rows")
        for log in (True, False)
    ),
    *(
        Case(
            "frossl", {"alpha": a, "normalize": "rows"}, {"alpha": a, "normalize": "rows"}, label=f"order{a}"
        )
        for a in (0.5, 1, 3, 4, 5)
    ),
    Case("vicreg", {"covariance_weight": 3.0}, {"cov": 3.0}),
    Case("barlow", {"covariance_weight": 0.1}, {"cov": 0.1}),
    Case("wmse", {"eps": 0.1}, {"eps": 0.1}),
    Case("wmse", {"eps": 0.1, "detach": True}, {"eps": 0.1, "detach": True}, label="detach", ordered=True),
    Case("corinfomax", {"invariance_weight": 2.0, "eps": 0.01}, {"inv": 2.0, "eps": 0.01}),
    Case(
        "corinfomax",
        {"momentum": 0.4, "rows": False, "eps": 0.01, "invariance_weight": 2.0},
        {"momentum": 0.4, "rows": False, "eps": 0.01, "inv": 2.0},
        needs=("mean", "covariance"),
        label="later",
        ordered=True,
    ),
    Case("ivne"),
    Case("ivne", {"global_views": 2}, {"global_views": 2}, label="global"),
    Case("mmcr"),
    Case("mmcr", {"local_weight": 0.3}, {"local": 0.3}, label="local"),
    Case("simclr", {"temperature": 0.4}, {"temperature": 0.4}),
    Case(
        "simclr",
        {"temperature": 0.4, "positives": "summed", "invariance_weight": 2.0, "variance_weight": 2.0},
        {"temperature": 0.4, "positives": "summed", "scale": 2.0},
        label="summed",
    ),
    Case("moco", needs=("queue", "target"), ordered=True),
    Case("moco", {"symmetric": True}, {"symmetric": True}, needs=("queue",), label="symmetric"),
    Case("swav", {"eps": 0.5}, {"eps": 0.5}),
    Case("swav", {"eps": 0.5}, {"eps": 0.5}, needs=("scores",), label="queue"),
    Case("simsiam"),
    Case("simsiam", needs=("target",), label="target", ordered=True),
    Case("byol"),
    Case("byol", needs=("target",), label="target", ordered=True),
    Case("dino", {"target_temperature": 0.5}, {"target_temperature": 0.5}),
    Case(
        "dino",
        {"target_temperature": 0.5},
        {"target_temperature": 0.5},
        needs=("teacher", "center"),
        label="later",
        ordered=True,
    ),
    Case("tico", {"symmetric": True}, {"symmetric": True}),
    Case("tico", needs=("target", "one covariance"), label="later", ordered=True),
    Case("tico", {"detach": True}, {"detach": True}, label="detach", ordered=True),
    Case("empssl", {"invariance_weight": 2.0}, {"inv": 2.0}),
    Case("matrixssl"),
    Case("matrixssl", {"order": 3}, {"order": 3}, needs=("target",), label="target", ordered=True),
    Case("spectral"),
    Case("spectral", {"mu": 7.0}, {"mu": 7.0}, label="mu7"),
    Case("iso", {"sequential": False, "eps": 0.1}, {"sequential": False, "eps": 0.1}),
    Case("iso", {"eps": 0.1}, {"eps": 0.1}, needs=("target", "one covariance"), label="later", ordered=True),
    Case(
        "iso",
        {"euclidean": True, "eps": 0.1, "alpha": 1.0},
        {"euclidean": True, "eps": 0.1, "alpha": 1.0},
        label="euclidean",
        ordered=True,
    ),
    Case("lejepa", WEIGHTS, {"inv": 0.9, "var": 1.3}, needs=("slices",)),
    Case("lejepa", {"global_views": 2}, {"global_views": 2}, needs=("slices",), label="global"),
    Case("visreg", WEIGHTS, {"inv": 0.9, "var": 1.3}, needs=("slices",)),
    Case(
        "visreg",
        {"global_views": 2, "eps": 0.0, "shape_eps": 1e-4},
        {"global_views": 2, "eps": 0.0, "shape_eps": 1e-4},
        needs=("slices",),
        label="global",
    ),
]

CASES += [Case(name) for name in OBJECTIVES if name not in {case.name for case in CASES}]
"""Every objective, those that are not listed with the options of their signature."""
