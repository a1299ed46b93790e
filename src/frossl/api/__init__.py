"""The verbs, as Python functions. The command line calls these."""

from frossl.api.catalog import names, recipe, recipes
from frossl.api.first_run import Demo, demo
from frossl.api.looking import check, pack, views
from frossl.api.measuring import finetune, knn, linear, measure, probe
from frossl.api.planning import Plan
from frossl.api.reports import compare, spectrum
from frossl.api.run import Run
from frossl.api.saved import Checkpoints, checkpoints
from frossl.api.subject import Comparison, Where
from frossl.api.training import plan, pretrain, replay, resume
from frossl.artifacts import load_encoder

__all__ = [
    "Checkpoints",
    "Comparison",
    "Demo",
    "Plan",
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
    "plan",
    "pretrain",
    "probe",
    "recipe",
    "recipes",
    "replay",
    "resume",
    "spectrum",
    "views",
]
