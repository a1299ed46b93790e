"""Implementation of the public functions of `frossl`, which the command line calls; loaded on first use.

No module here may be named like a public function: once imported, the module would replace the function as an
attribute of this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frossl._api.catalog import list_names as list_names
    from frossl._api.checkpoint_scores import Checkpoints as Checkpoints
    from frossl._api.checkpoint_scores import checkpoints as checkpoints
    from frossl._api.data_tools import check as check
    from frossl._api.data_tools import pack as pack
    from frossl._api.data_tools import views as views
    from frossl._api.demo_run import Demo as Demo
    from frossl._api.demo_run import demo as demo
    from frossl._api.embedding import EmbedResult as EmbedResult
    from frossl._api.embedding import embed as embed
    from frossl._api.eval_context import EvalOptions as EvalOptions
    from frossl._api.evaluate import finetune as finetune
    from frossl._api.evaluate import knn as knn
    from frossl._api.evaluate import linear as linear
    from frossl._api.evaluate import measure as measure
    from frossl._api.evaluate import probe as probe
    from frossl._api.exports import export as export
    from frossl._api.options import RunOptions as RunOptions
    from frossl._api.reports import compare as compare
    from frossl._api.reports import list_runs as list_runs
    from frossl._api.reports import report as report
    from frossl._api.reports import spectrum as spectrum
    from frossl._api.run import Run as Run
    from frossl._api.train import plan as plan
    from frossl._api.train import pretrain as pretrain
    from frossl._api.train import replay as replay
    from frossl._api.train import resume as resume
    from frossl.engine.plan import Plan as Plan
    from frossl.evaluation import KNN as KNN
    from frossl.evaluation import Evaluation as Evaluation
    from frossl.evaluation import Evaluations as Evaluations
    from frossl.evaluation import FineTune as FineTune
    from frossl.evaluation import LinearProbe as LinearProbe
    from frossl.evaluation import SGDProbe as SGDProbe
    from frossl.exporting import load_encoder as load_encoder
    from frossl.health import DoctorReport as DoctorReport
    from frossl.health import doctor as doctor
    from frossl.live import watch as watch
    from frossl.recipes import recipe as recipe
    from frossl.recipes import recipe_text as recipe_text
    from frossl.recipes import recipes as recipes

_HOME = {
    "Checkpoints": "_api.checkpoint_scores",
    "RunOptions": "_api.options",
    "Evaluation": "evaluation",
    "Evaluations": "evaluation",
    "FineTune": "evaluation",
    "KNN": "evaluation",
    "LinearProbe": "evaluation",
    "SGDProbe": "evaluation",
    "Demo": "_api.demo_run",
    "EmbedResult": "_api.embedding",
    "DoctorReport": "health",
    "Plan": "engine.plan",
    "Run": "_api.run",
    "EvalOptions": "_api.eval_context",
    "check": "_api.data_tools",
    "checkpoints": "_api.checkpoint_scores",
    "compare": "_api.reports",
    "demo": "_api.demo_run",
    "doctor": "health",
    "embed": "_api.embedding",
    "export": "_api.exports",
    "finetune": "_api.evaluate",
    "knn": "_api.evaluate",
    "linear": "_api.evaluate",
    "load_encoder": "exporting",
    "measure": "_api.evaluate",
    "list_names": "_api.catalog",
    "pack": "_api.data_tools",
    "plan": "_api.train",
    "pretrain": "_api.train",
    "probe": "_api.evaluate",
    "recipe": "recipes",
    "recipe_text": "recipes",
    "recipes": "recipes",
    "replay": "_api.train",
    "report": "_api.reports",
    "resume": "_api.train",
    "list_runs": "_api.reports",
    "spectrum": "_api.reports",
    "views": "_api.data_tools",
    "watch": "live",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'frossl._api' has no attribute {name!r}")
    return getattr(import_module(f"frossl.{_HOME[name]}"), name)
