"""Public names, imports, and the torchvision fix."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import frossl
from tests.support import ROOT


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )


def test_every_public_name_loads():
    for name in frossl.__all__:
        assert getattr(frossl, name).__module__.startswith("frossl.")
    for name in frossl.__all__:  # again: a module that was imported must not hide a function of its name
        assert hasattr(getattr(frossl, name), "__module__"), name
    assert len(frossl.__all__) == len(set(frossl.__all__))
    assert set(dir(frossl)) == {*frossl.__all__, "__version__"}
    with pytest.raises(AttributeError, match="'frossl' has no attribute 'pretrian'"):
        frossl.pretrian  # noqa: B018


def test_a_star_import_binds_every_public_name():
    bound: dict[str, object] = {}
    exec("from frossl import *", bound)
    assert bound.keys() - {"__builtins__"} == set(frossl.__all__)


def test_type_checkers_know_the_type_of_every_public_name(tmp_path):
    """A second with the cache that `make lint` leaves, half a minute without."""
    names = [*frossl.__all__, "__version__", "Watch", "pretrian"]
    file = tmp_path / "typed.py"
    file.write_text("import frossl\n" + "".join(f"reveal_type(frossl.{name})\n" for name in names))
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-pretty", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    types = dict(zip(names, re.findall(r'Revealed type is "(.*)"$', done.stdout, re.MULTILINE), strict=True))
    assert [name for name, seen in types.items() if seen == "Any"] == ["pretrian"], done.stdout
    assert types["load_encoder"].endswith("-> frossl.networks.encoder.Encoder")
    assert types["VICRegLoss"].endswith("-> frossl.objectives.vicreg.VICRegLoss")
    assert types["__version__"] == "str"


def test_importing_frossl_imports_no_torch():
    heavy = "{'torch', 'torchvision', 'timm', 'sklearn', 'numpy', 'PIL', 'rich', 'typer'}"
    done = python(f"import sys, frossl; print({heavy} & set(sys.modules))")
    assert done.stdout.strip() == "set()", done.stderr


def test_torchvision_is_fixed_where_it_would_fail_and_only_there():
    plain = python("import torchvision")
    fixed = python(
        "import frossl.compat as c, torchvision.transforms, torchvision.datasets, timm;"
        "print(c.fix_torchvision())"
    )
    assert fixed.returncode == 0, fixed.stderr
    assert fixed.stdout.strip() == str(plain.returncode != 0)


def test_every_module_imports_alone():
    root = Path(frossl.__file__).parent
    modules = [
        "frossl." + ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(root.rglob("*.py"))
        if path.name != "__main__.py" and path != root / "__init__.py"
    ]
    code = f"""
import importlib, sys
for name in {modules!r}:
    for loaded in [m for m in sys.modules if m.split(".")[0] == "frossl" and m != "frossl.compat"]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_a_star_import_of_objectives_hides_no_package():
    scope: dict[str, object] = {"frossl": frossl}
    exec("from frossl.objectives import *", scope)
    assert scope["frossl"] is frossl
    assert {"FroSSLLoss", "frossl_loss", "renyi_variance", "OBJECTIVES"} <= scope.keys()
