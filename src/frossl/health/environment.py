"""Checks of the software environment: packages, extras, caches and environment variables."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

import frossl.engine as engine
from frossl.compat import fix_torchvision
from frossl.data import decode
from frossl.data.layouts import cache_root
from frossl.errors import InputError
from frossl.health.findings import Finding, counted, printable
from frossl.runs.provenance import PACKAGES, version_of

ACCELERATING_PACKAGES = ("numba", "simplejpeg")
"""Optional packages that make frossl faster."""
EXTRA_OF_PACKAGE = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "datasets": "hf",
    "onnxruntime": "onnx",
    "pyarrow": "parquet",
    "faiss": "search",
}
"""Packages for optional functions, and the extra that installs each."""
EXTRAS = ("jpeg", "fast", *EXTRA_OF_PACKAGE.values())
"""Extras whose requirements are checked."""

GB = 1e9
LOW_DISK_BYTES = 1.0 * GB
"""Free space below which a folder is reported as a hint."""
FULL_DISK_BYTES = 0.01 * GB
"""Free space below which a folder is reported as a problem."""


def installed_versions() -> dict[str, str | None]:
    """Return the versions of Python and of packages; None for a package that is not installed."""
    names = (*PACKAGES, *ACCELERATING_PACKAGES, *EXTRA_OF_PACKAGE)
    versions = {name: version_of(name) for name in names}
    versions["mlflow"] = versions["mlflow"] or version_of("mlflow-skinny")
    versions["faiss"] = version_of("faiss-cpu")
    return {"python": platform.python_version(), **versions}


def check_packages() -> Iterator[Finding]:
    """Check installed packages against the requirements of frossl."""
    from packaging.requirements import Requirement

    try:
        requirements = [Requirement(text) for text in requires("frossl") or ()]
    except PackageNotFoundError:  # run from a source folder: no metadata
        return
    satisfied = True
    for package in requirements:
        optional = package.marker is not None and not package.marker.evaluate({"extra": ""})
        if optional and not any(package.marker.evaluate({"extra": extra}) for extra in EXTRAS):  # type: ignore[union-attr]
            continue
        found = version_of(package.name)
        if package.name == "frossl" or (optional and found is None):
            continue
        if found is None or not package.specifier.contains(found, prereleases=True):
            satisfied = False
            name = package.name
            title = f"{name} {found} is not {package.specifier}" if found else f"{name} is missing"
            fix = f"pip install {shlex.quote(f'{name}{package.specifier}')}"
            yield Finding("hint" if optional else "problem", title, "frossl requires it", fix)
    if satisfied:
        yield Finding("ok", "packages satisfy the requirements of frossl")


def check_torchvision() -> Finding:
    """Check that torchvision can be imported together with this build of torch."""
    if not fix_torchvision():
        return Finding("ok", "torchvision loads beside this torch")
    return Finding(
        "ok",
        "torchvision was fixed",
        "its compiled operators do not load beside this torch (another build); frossl needs none of them. In "
        "your own code, import frossl.compat before torchvision or timm",
    )


def check_view_kernel() -> Finding:
    """Check that numba, which makes views faster on a CPU, is installed and works."""
    if not _installed("numba"):
        detail = "numba is not installed: views take six to ten times as long on a CPU (docs/results.md)"
        return Finding("hint", "views are made by torch", detail, "pip install 'frossl[fast]'")
    try:
        import frossl.augment.fused  # noqa: F401  an extra
    except Exception as error:  # numba does not support this Python or NumPy, or cannot write its cache
        detail = f"training would stop: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        fix = "pip install --upgrade numba"
        if "locator" in str(error) and (folder := _writable_folder("frossl-numba")):
            fix = f"export NUMBA_CACHE_DIR={shlex.quote(str(folder))}"
        return Finding("problem", "numba is installed but does not work", detail, fix)
    return Finding("ok", "views are made by numba")


def check_jpeg() -> Finding:
    """Check for the faster decoder of JPEG files."""
    if decode.simplejpeg is not None:  # type: ignore[attr-defined]
        return Finding("ok", "JPEG files are decoded by simplejpeg")
    detail = "simplejpeg is not installed: it decodes 1.2 times as many files a second (docs/scale.md)"
    return Finding("hint", "JPEG files are decoded by Pillow", detail, "pip install 'frossl[jpeg]'")


def check_cache() -> Finding:
    """Check that the cache folder is writable and has space."""
    try:
        path = cache_root()
    except RuntimeError as error:  # no $HOME, and a user without an entry in the password database
        return Finding("problem", "no home folder", f"{error}", "export HOME=/a/folder/of/yours")
    folder = _writable_folder("frossl-cache")
    fix = (
        f"export FROSSL_CACHE={shlex.quote(str(folder))}" if folder else "set FROSSL_CACHE to another folder"
    )
    usage = "downloaded data sets and indexes of folders are stored there"
    return _check_folder("cache", path, fix, usage=usage)


def _writable_folder(name: str) -> Path | None:
    """Return a path for a folder called `name` that could be written to, if there is one."""
    home = Path(os.path.expanduser("~")) / ".cache"
    parents = (*([home] if home.is_absolute() else []), Path.cwd(), Path(tempfile.gettempdir()))
    return next((parent / name for parent in parents if _write_error(parent / name) is None), None)


def check_current_folder() -> Finding:
    """Check that the current folder, where runs are stored by default, is writable and has space."""
    usage = (
        "runs are stored there by default: two checkpoints and a third being written take 0.1 GB (default "
        "recipe) to 1.2 GB (ResNet-50)"
    )
    return _check_folder("current folder", Path.cwd(), "write runs elsewhere: --out FOLDER", usage=usage)


def _check_folder(name: str, path: Path, fix: str, *, usage: str) -> Finding:
    if (error := _write_error(path)) is not None:
        return Finding("problem", f"{name} {printable(path)} cannot be written to", f"{error}; {usage}", fix)
    free = shutil.disk_usage(_existing(path)).free
    title = f"{name} {printable(path)}: {free / GB:,.1f} GB free"
    if free >= LOW_DISK_BYTES:
        return Finding("ok", title)
    return Finding("problem" if free < FULL_DISK_BYTES else "hint", title, usage, fix)


def _write_error(path: Path) -> str | None:
    """Try to write into a folder, and return the error if there is one.

    Permissions alone do not reveal read-only and full disks.
    """
    try:
        with tempfile.TemporaryFile(dir=_existing(path)) as file:
            file.write(bytes(1 << 20))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _existing(path: Path) -> Path:
    """Return the folder itself if it exists, else its nearest existing parent."""
    return next((folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder)), path)


def check_max_steps() -> Iterator[Finding]:
    """Check for FROSSL_MAX_STEPS, which ends every training early."""
    try:
        steps = engine.max_steps()
    except InputError as error:
        yield Finding("problem", "no training can start", str(error), "unset FROSSL_MAX_STEPS")
        return
    if steps is not None:
        title = f"FROSSL_MAX_STEPS={steps} ends every training after {counted(steps, 'step')}"
        yield Finding("hint", title, "it is for smoke tests", "unset FROSSL_MAX_STEPS")


def check_extras() -> Finding:
    """Check for packages of optional functions."""
    missing = [name for name in EXTRA_OF_PACKAGE if not _installed(name)]
    if not missing:
        return Finding("ok", f"extras: {', '.join(EXTRA_OF_PACKAGE)}")
    extras = ",".join(EXTRA_OF_PACKAGE[name] for name in missing)
    detail = (
        "needed only for --logger NAME, data sets of Hugging Face (hf:NAME), exports to ONNX, Parquet files, "
        "and near-duplicates among more than 100,000 images"
    )
    title = f"not installed: {', '.join(missing)}"
    return Finding("hint", title, detail, f"pip install 'frossl[{extras}]'")


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # an entry of sys.modules without a spec
        return False
