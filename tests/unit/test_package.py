"""Public names, imports, and the torchvision fix."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import frossl


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )


def test_every_public_name_loads_and_type_checkers_see_the_same_names():
    for name in frossl.__all__:
        assert getattr(frossl, name).__module__.startswith("frossl.")
    for name in frossl.__all__:  # again: a module that was imported must not hide a function of its name
        assert hasattr(getattr(frossl, name), "__module__"), name
    tree = ast.parse(Path(frossl.__file__).read_text())
    typed = {
        (alias.asname, node.module.removeprefix("frossl."))
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("frossl.")
        for alias in node.names
    }
    assert typed == set(frossl._HOME.items())
    assert set(dir(frossl)) >= set(frossl.__all__)


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
