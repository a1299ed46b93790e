"""In an empty environment, beside README.md: every module imports without extras, the README's blocks run."""

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

import frossl

EXTRAS = ("simplejpeg", "numba", "datasets", "pyarrow", "onnx", "onnxruntime", "faiss", "wandb")

NEED_MORE = ("frossl.__main__", "frossl.augment.fused")
"""Runs the command line; is the extra `fast` itself."""

assert "site-packages" in frossl.__file__, f"not the wheel: {frossl.__file__}"
assert (Path(frossl.__file__).parent / "py.typed").is_file()
present = [name for name in EXTRAS if find_spec(name)]
assert not present, f"not an environment without extras: {present}"
for module in pkgutil.walk_packages(frossl.__path__, "frossl."):
    if module.name not in NEED_MORE:
        importlib.import_module(module.name)

random = np.random.default_rng(0)
for i in range(120):
    pixels = np.kron(random.integers(0, 256, (6, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    path = Path("photos", "ab"[i % 2], f"{i}.jpg")
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)

Path("typed.py").write_text(
    "import frossl\n\n\ndef features() -> int:\n    return frossl.load_encoder('runs/minute').num_features\n"
)
blocks = re.findall(r"^```python\n(.*?)^```$", Path("README.md").read_text(), re.MULTILINE | re.DOTALL)
for block in blocks:
    subprocess.run([sys.executable, "-c", block], check=True, env={**os.environ, "FROSSL_MAX_STEPS": "4"})
sys.stdout.write(f"frossl {frossl.__version__}: {len(blocks)} blocks of the README ran\n")
