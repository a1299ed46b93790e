"""The verbs, as Python functions; the command line calls these. Each is loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frossl.api.catalog import names as names
    from frossl.api.catalog import recipe as recipe
    from frossl.api.catalog import recipe_text as recipe_text
    from frossl.api.catalog import recipes as recipes
    from frossl.api.embedding import Embedded as Embedded
    from frossl.api.embedding import embed as embed
    from frossl.api.examination import Examination as Examination
    from frossl.api.examination import doctor as doctor
    from frossl.api.exporting import export as export
    from frossl.api.first_run import Demo as Demo
    from frossl.api.first_run import demo as demo
    from frossl.api.looking import check as check
    from frossl.api.looking import pack as pack
    from frossl.api.looking import views as views
    from frossl.api.measuring import finetune as finetune
    from frossl.api.measuring import knn as knn
    from frossl.api.measuring import linear as linear
    from frossl.api.measuring import measure as measure
    from frossl.api.measuring import probe as probe
    from frossl.api.planning import Plan as Plan
    from frossl.api.reports import compare as compare
    from frossl.api.reports import report as report
    from frossl.api.reports import runs as runs
    from frossl.api.reports import spectrum as spectrum
    from frossl.api.run import Run as Run
    from frossl.api.saved import Checkpoints as Checkpoints
    from frossl.api.saved import checkpoints as checkpoints
    from frossl.api.subject import Comparison as Comparison
    from frossl.api.subject import Where as Where
    from frossl.api.training import Choices as Choices
    from frossl.api.training import plan as plan
    from frossl.api.training import pretrain as pretrain
    from frossl.api.training import replay as replay
    from frossl.api.training import resume as resume
    from frossl.artifacts import load_encoder as load_encoder
    from frossl.live import watch as watch

_HOME = {
    "Checkpoints": "api.saved",
    "Choices": "api.training",
    "Comparison": "api.subject",
    "Demo": "api.first_run",
    "Embedded": "api.embedding",
    "Examination": "api.examination",
    "Plan": "api.planning",
    "Run": "api.run",
    "Where": "api.subject",
    "check": "api.looking",
    "checkpoints": "api.saved",
    "compare": "api.reports",
    "demo": "api.first_run",
    "doctor": "api.examination",
    "embed": "api.embedding",
    "export": "api.exporting",
    "finetune": "api.measuring",
    "knn": "api.measuring",
    "linear": "api.measuring",
    "load_encoder": "artifacts",
    "measure": "api.measuring",
    "names": "api.catalog",
    "pack": "api.looking",
    "plan": "api.training",
    "pretrain": "api.training",
    "probe": "api.measuring",
    "recipe": "api.catalog",
    "recipe_text": "api.catalog",
    "recipes": "api.catalog",
    "replay": "api.training",
    "report": "api.reports",
    "resume": "api.training",
    "runs": "api.reports",
    "spectrum": "api.reports",
    "views": "api.looking",
    "watch": "live",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'frossl.api' has no attribute {name!r}")
    return getattr(import_module(f"frossl.{_HOME[name]}"), name)
