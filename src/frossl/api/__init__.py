"""The verbs, as Python functions. The command line calls these."""

from frossl.api.catalog import names, recipe, recipes
from frossl.api.first_run import Demo, demo
from frossl.api.looking import check, pack, views
from frossl.api.measuring import (
    Checkpoints,
    Comparison,
    Where,
    checkpoints,
    finetune,
    knn,
    linear,
    measure,
    probe,
)
from frossl.api.reports import compare, spectrum
from frossl.api.run import Run
from frossl.api.training import pretrain, replay, resume
from frossl.artifacts import load_encoder

__all__ = [
    "Checkpoints",
    "Comparison",
    "Demo",
    "Run",
    "Where",
    "check",
    "checkpoints",
    "compare",
    "demo",
    "finetune",
    "knn",
    "linear",
    "load_encoder",
    "measure",
    "names",
    "pack",
    "pretrain",
    "probe",
    "recipe",
    "recipes",
    "replay",
    "resume",
    "spectrum",
    "views",
]
