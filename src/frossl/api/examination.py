"""What is slow or missing on this machine, and the command that mends it."""

from __future__ import annotations

import itertools
import math
import os
import platform
import shlex
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

import frossl.engine as engine
from frossl.api.catalog import recipe
from frossl.api.selftest import TRIALS, Trial
from frossl.compat import mend_torchvision
from frossl.config import Device
from frossl.data import decode
from frossl.data.parts import cache_root
from frossl.errors import ConfigError, InputError
from frossl.networks import build_backbone
from frossl.runs.machine import cores, memory
from frossl.runs.provenance import PACKAGES, cpu_name, version_of
from frossl.types import own_random_numbers

Level = Literal["ok", "hint", "problem"]

FAST = ("numba", "simplejpeg")
EXTRAS = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "datasets": "hf",
    "onnxruntime": "onnx",
    "pyarrow": "parquet",
    "faiss": "search",
}
"""Packages that are needed for what is asked for by name, and the extra that installs each."""
INSTALLED_BY = ("jpeg", "fast", *EXTRAS.values())

GB = 1e9
ROOMY, FULL = 1.0 * GB, 0.01 * GB
"""Bytes that should be free, and less than which nothing can be done."""
NVIDIA, DISPLAY = "0x10de", "0x03"
"""A maker and a class of devices, as PCI counts them."""
WORTH_IT = 2.0
"""How many times as fast a way must be to be recommended: timings here are short, and machines noisy."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    """`problem` is what makes something fail, `hint` what costs time or surprises."""
    title: str
    detail: str = ""
    mend: str = ""
    """The command or setting that mends it; empty where there is nothing to mend."""


@dataclass(frozen=True)
class Hardware:
    """What there is, and what this process may use of it. Memory is in bytes."""

    system: str
    cpu: str
    capability: str
    """The vector instructions that torch uses."""
    cores: int
    usable: float
    """Cores that this process may use: its affinity, and the quota of its control groups."""
    threads: int
    """Of torch."""
    memory: int | None
    free: int | None


@dataclass(frozen=True)
class Accelerator:
    """A device beside the CPU."""

    device: Device
    name: str
    memory: int | None
    free: int | None
    bf16: bool


@dataclass(frozen=True)
class Examination:
    """What `doctor` has found."""

    versions: dict[str, str | None]
    """Of Python and of packages; None for one that is not installed."""
    hardware: Hardware
    devices: tuple[Accelerator, ...]
    tested: Device | None
    """The device whose results were compared with float64, if any."""
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Nothing is known that makes frossl fail."""
        return all(finding.level != "problem" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"healthy": self.healthy, **asdict(self)}


def doctor(*, test: bool = False, device: Device | None = None) -> Examination:
    """Look at versions, devices and surroundings: what is slow or missing here, and what mends it.

    test: also compute. Every objective with its gradient and the views are held against float64 on the CPU,
    two processes against one, two training steps against themselves; half a minute. device: where (by default
    the best one there is). Nothing is changed, and nothing is left on disk but what numba compiles.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, on drivers and devices: they come as findings
        devices = _accelerators()
        where = _checked(device) or engine.best_device()
        hardware = _hardware()
        findings = [*_looks(hardware, devices, where)]
        if test:
            findings += [_tried(title, trial, where) for title, trial in TRIALS.items()]
    return Examination(_versions(), hardware, devices, where if test else None, tuple(findings))


def _checked(device: Device | None) -> Device | None:
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device is not None and device not in get_args(Device):
        raise ConfigError("device", device, f"give {', '.join(get_args(Device))}")
    if device is not None and not there[device]:
        raise ConfigError("device", device, "torch sees no such device here; leave it out")
    return device


def _tried(title: str, trial: Trial, device: Device) -> Finding:
    try:
        good, detail = trial(device)
    except Exception as error:  # a device may fail in any way; that is what is asked
        first = (str(error).splitlines() or [""])[0]
        return Finding("problem", title, f"{type(error).__name__}: {first[:300]}")
    return Finding("ok" if good else "problem", title, detail)


# what there is


def _versions() -> dict[str, str | None]:
    found = {name: version_of(name) for name in (*PACKAGES, *FAST, *EXTRAS)}
    found["mlflow"] = found["mlflow"] or version_of("mlflow-skinny")
    found["faiss"] = version_of("faiss-cpu")
    return {"python": platform.python_version(), **found}


def _hardware() -> Hardware:
    here, (total, free) = cores(), memory()
    return Hardware(
        system=platform.platform(),
        cpu=cpu_name(),
        capability=torch.backends.cpu.get_cpu_capability(),
        cores=here.total,
        usable=here.usable,
        threads=torch.get_num_threads(),
        memory=total,
        free=free,
    )


def _accelerators() -> tuple[Accelerator, ...]:
    found = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        with torch.cuda.device(number):
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        found.append(Accelerator("cuda", torch.cuda.get_device_name(number), total, free, bf16))
    if torch.backends.mps.is_available():
        most = torch.mps.recommended_max_memory()
        free = most - torch.mps.driver_allocated_memory()
        found.append(Accelerator("mps", f"{cpu_name()} (MPS)", most, free, False))
    return tuple(found)


# what is looked at


def _looks(hardware: Hardware, devices: tuple[Accelerator, ...], device: Device) -> Iterator[Finding]:
    yield from _packages()
    yield _torchvision()
    yield from _graphics(devices)
    if device == "cpu":
        yield _instructions(hardware)
        yield _threads(hardware)
        yield _precision()
        yield _view_kernel()
    yield _jpeg()
    yield _cache()
    yield _current_folder()
    yield from _steps()
    yield _extras()


def _packages() -> Iterator[Finding]:
    """What frossl declares that it needs, against what is installed."""
    from packaging.requirements import Requirement

    try:
        needed = [Requirement(text) for text in requires("frossl") or ()]
    except PackageNotFoundError:  # a folder of sources: nothing is declared
        return
    wrong = False
    for need in needed:
        optional = need.marker is not None and not need.marker.evaluate({"extra": ""})
        if optional and not any(need.marker.evaluate({"extra": extra}) for extra in INSTALLED_BY):  # type: ignore[union-attr]
            continue
        found = version_of(need.name)
        if need.name == "frossl" or (optional and found is None):
            continue
        if found is None or not need.specifier.contains(found, prereleases=True):
            wrong = True
            said = f"{need.name} {found} is not {need.specifier}" if found else f"{need.name} is missing"
            mend = f"pip install {shlex.quote(f'{need.name}{need.specifier}')}"
            yield Finding("hint" if optional else "problem", said, "frossl declares that it needs it", mend)
    if not wrong:
        yield Finding("ok", "packages as frossl needs them")


def _torchvision() -> Finding:
    if not mend_torchvision():
        return Finding("ok", "torchvision loads beside this torch")
    return Finding(
        "ok",
        "torchvision was mended",
        "its compiled operators do not load beside this torch (another build); frossl needs none of them. In "
        "your own code, import frossl.compat before torchvision or timm",
    )


def _graphics(devices: tuple[Accelerator, ...]) -> Iterator[Finding]:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    built = torch.version.cuda or torch.version.hip
    for found in devices:
        if found.device == "mps":
            detail = "used only when asked for (train.device): nobody has run frossl on it yet"
            yield Finding("ok", "MPS is there", detail)
        elif found.bf16:
            yield Finding("ok", f"{found.name}: trains in bf16-mixed")
        else:
            yield Finding("hint", f"{found.name} has no bf16", "frossl trains in 32-true there")
    if any(found.device == "cuda" for found in devices):
        return
    if built and hidden is not None and hidden.strip() in ("", "-1"):
        said = f"CUDA_VISIBLE_DEVICES={hidden} hides every GPU"
        yield Finding("hint", said, "frossl trains on the CPU", "unset CUDA_VISIBLE_DEVICES")
    elif _has_nvidia() and not built:
        mend = "install the build that https://pytorch.org/get-started/locally names for your driver"
        title = "there is an NVIDIA GPU, and torch was built without CUDA"
        yield Finding("hint", title, "frossl trains on the CPU", mend)
    elif _has_nvidia():
        yield Finding("problem", "torch sees no GPU, though there is one", _cuda_says(), "nvidia-smi")
    elif not devices:
        yield Finding("ok", "no GPU", "frossl trains on the CPU")


def _has_nvidia() -> bool:
    if Path("/dev/nvidia0").exists():
        return True
    for place in Path("/sys/bus/pci/devices").glob("*"):
        try:
            maker, kind = ((place / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if maker == NVIDIA and kind.startswith(DISPLAY):
            return True
    return False


def _cuda_says() -> str:
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return (str(error).splitlines() or [""])[0]
    return f"its driver does not answer (torch was built for CUDA {torch.version.cuda}): install or update it"


def _instructions(hardware: Hardware) -> Finding:
    """Without vector instructions of 256 bits and more torch computes several times slower."""
    known = hardware.capability
    if platform.machine() not in ("x86_64", "AMD64") or known != "DEFAULT":
        return Finding("ok", f"CPU instructions: {known}")
    if forced := os.environ.get("ATEN_CPU_CAPABILITY"):
        title = f"ATEN_CPU_CAPABILITY={_shown(forced)} keeps torch from AVX2"
        return Finding(
            "hint", title, "its own loops then take no vector instructions", "unset ATEN_CPU_CAPABILITY"
        )
    return Finding("hint", "this CPU has no AVX2", "all figures of frossl's docs are from CPUs that have it")


def _threads(hardware: Hardware) -> Finding:
    now, best = hardware.threads, cores().threads
    if now == best:
        return Finding("ok", f"torch uses {_counted(now, 'thread')} on {hardware.usable:g} usable cores")
    a, b = torch.ones(2, 512, 512).unbind()
    here, there = _fastest([_product(a, b, threads) for threads in (now, best)])
    measured = f"a matrix product takes {here / there:.1f} times as long as on {best}, measured just now"
    if here < 1.1 * there:
        measured = f"{best} were no faster just now: are the other cores busy?" if now < best else ""
    variables = [name for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ]
    # without them torch takes a thread for each core that it sees, and sees no quota
    unset = variables and cores().quota is None
    mend = f"unset {' '.join(variables)}" if unset else f"export OMP_NUM_THREADS={best}"
    why = ", ".join(f"{name}={_shown(os.environ[name])}" for name in variables)
    title = f"torch uses {_counted(now, 'thread')} on {hardware.usable:g} usable cores"
    return Finding("hint", f"{title} ({why})" if why else title, measured, mend)


def _product(a: Tensor, b: Tensor, threads: int) -> Callable[[], None]:
    def multiply() -> None:
        torch.set_num_threads(threads)
        a @ b

    return multiply


def _fastest(ways: Sequence[Callable[[], None]], *, enough: float = 0.3) -> list[float]:
    """Seconds that each way takes at best, in turn: the rest is what runs beside it. Threads stay as they
    were."""
    threads = torch.get_num_threads()
    seconds = [math.inf] * len(ways)
    began = time.perf_counter()
    try:
        for rounds in itertools.count():
            for number, way in enumerate(ways):
                start = time.perf_counter()
                way()
                if rounds:  # the first one warms up
                    seconds[number] = min(seconds[number], time.perf_counter() - start)
            if rounds > 2 and time.perf_counter() - began > enough:
                break
    finally:
        torch.set_num_threads(threads)
    return seconds


def _precision() -> Finding:
    """frossl takes 32-true on a CPU (docs/decisions.md); one with the instructions may be faster in bf16."""
    with own_random_numbers():
        backbone = build_backbone(recipe("demo").network, size=20).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.ones(8, 3, 20, 20).to(memory_format=torch.channels_last)

    def way(half: bool) -> Callable[[], None]:
        def forward_and_backward() -> None:
            torch.set_num_threads(1)  # a ratio that other work on the machine disturbs least
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                features = backbone(images)
            features.float().sum().backward()

        return forward_and_backward

    full, half = _fastest([way(False), way(True)])
    measured = "half a ResNet-18 on one thread, measured just now"
    if half * WORTH_IT < full:
        title = f"bf16 takes {half / full:.1f} of the time of float32 on this CPU"
        detail = f"{measured}; frossl takes float32 on a CPU unless a --config says otherwise"
        return Finding("hint", title, detail, '[train] precision = "bf16-mixed"')
    return Finding(
        "ok", "frossl trains in float32 here", f"bf16 takes {half / full:.1f} times as long: {measured}"
    )


def _view_kernel() -> Finding:
    if not _installed("numba"):
        detail = "numba is not installed: views take six to ten times as long on a CPU (docs/results.md)"
        return Finding("hint", "views are made by torch", detail, "pip install 'frossl[fast]'")
    try:
        import frossl.augment.fused  # noqa: F401  an extra
    except Exception as error:  # numba has not met this Python or numpy, or may not write what it compiles
        detail = f"training would stop: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        mend = "pip install --upgrade numba"
        if "locator" in str(error) and (free := _free_place("frossl-numba")):
            mend = f"export NUMBA_CACHE_DIR={shlex.quote(str(free))}"
        return Finding("problem", "numba is installed, and does not work", detail, mend)
    return Finding("ok", "views are made by numba")


def _jpeg() -> Finding:
    if decode.simplejpeg is not None:  # type: ignore[attr-defined]
        return Finding("ok", "JPEG files are decoded by simplejpeg")
    detail = "simplejpeg is not installed: it decodes 1.2 times as many files a second (docs/scale.md)"
    return Finding("hint", "JPEG files are decoded by Pillow", detail, "pip install 'frossl[jpeg]'")


def _cache() -> Finding:
    try:
        path = cache_root()
    except RuntimeError as error:  # no $HOME, and a user that the system does not know
        return Finding("problem", "no home folder", f"{error}", "export HOME=/a/folder/of/yours")
    free = _free_place("frossl-cache")
    mend = f"export FROSSL_CACHE={shlex.quote(str(free))}" if free else "set FROSSL_CACHE to another folder"
    kept = "data sets that are fetched by name, and indexes of folders, are kept there"
    return _place("cache", path, mend, kept=kept)


def _free_place(name: str) -> Path | None:
    """A folder that could be written to."""
    home = Path(os.path.expanduser("~")) / ".cache"
    places = (*([home] if home.is_absolute() else []), Path.cwd(), Path(tempfile.gettempdir()))
    return next((place / name for place in places if _refusal(place / name) is None), None)


def _current_folder() -> Finding:
    kept = (
        "runs are kept below it by default: two checkpoints and a third being written take 0.1 GB (default "
        "recipe) to 1.2 GB (ResNet-50)"
    )
    return _place("current folder", Path.cwd(), "give runs another place: --out FOLDER", kept=kept)


def _place(what: str, path: Path, mend: str, *, kept: str) -> Finding:
    if (refused := _refusal(path)) is not None:
        return Finding("problem", f"{what} {_shown(path)} cannot be written to", f"{refused}; {kept}", mend)
    free = shutil.disk_usage(_nearest(path)).free
    title = f"{what} {_shown(path)}: {free / GB:,.1f} GB free"
    if free >= ROOMY:
        return Finding("ok", title)
    return Finding("problem" if free < FULL else "hint", title, kept, mend)


def _refusal(path: Path) -> str | None:
    """Why nothing can be written there; by trying, as rights do not tell of read-only and full disks."""
    try:
        with tempfile.TemporaryFile(dir=_nearest(path)) as file:
            file.write(bytes(1 << 20))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _nearest(path: Path) -> Path:
    """The folder itself, or the one in which it would be made."""
    return next((place for place in (path, *path.absolute().parents) if os.path.lexists(place)), path)


def _steps() -> Iterator[Finding]:
    try:
        steps = engine.max_steps()
    except InputError as error:
        yield Finding("problem", "no training starts", str(error), "unset FROSSL_MAX_STEPS")
        return
    if steps is not None:
        title = f"FROSSL_MAX_STEPS={steps} ends every training after {_counted(steps, 'step')}"
        yield Finding("hint", title, "it is meant for smoke tests", "unset FROSSL_MAX_STEPS")


def _extras() -> Finding:
    missing = [name for name in EXTRAS if not _installed(name)]
    if not missing:
        return Finding("ok", f"extras: {', '.join(EXTRAS)}")
    extras = ",".join(EXTRAS[name] for name in missing)
    detail = (
        "needed only for --logger NAME, data sets of Hugging Face (hf:NAME), exports to ONNX, Parquet files, "
        "and near-duplicates among more than 100,000 images"
    )
    title = f"not installed: {', '.join(missing)}"
    return Finding("hint", title, detail, f"pip install 'frossl[{extras}]'")


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # a name that was put into sys.modules without a module
        return False


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _shown(value: object) -> str:
    """As it is where it can be printed on one line, else with escapes."""
    return str(value) if str(value).isprintable() else repr(str(value))
