"""Self-tests of a device: losses, views, gather and training steps, compared with float64 on the CPU."""

from __future__ import annotations

import inspect
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import frossl.engine as engine
from frossl.augment import Plan, ViewSpec, make_views, plan, standardize, view_set
from frossl.augment.geometry import LARGE_IMAGE_SIZE
from frossl.augment.photometry import blur, gray, jitter, solarize
from frossl.augment.plan import one_thread
from frossl.augment.random import uniforms
from frossl.config import Config, Device
from frossl.data import ArraySource, Dataset, Split
from frossl.data.dataset import IMAGENET
from frossl.engine.step import train_step
from frossl.objectives import OBJECTIVES
from frossl.recipes import recipe
from frossl.types import Batch, Clock, isolated_rng

LOSS_SHAPES = ((3, 24, 12), (3, 12, 24))
"""Shapes (V, N, D) with more images than columns and fewer: many objectives use the smaller Gram matrix."""
OBJECTIVE_OPTIONS: dict[str, dict[str, Any]] = {"wmse": {"eps": 0.1}}
"""Options of objectives; without this one, whitening 12 images in 24 columns is not defined."""
MAX_VALUE_ERROR = 1e-4
"""Largest error of a loss in float32, relative to its largest term; measured: 1e-5."""
MAX_GRADIENT_ERROR = 2e-3
"""Largest error of a gradient in float32, relative to its norm; measured: 2e-5."""
MAX_PIXEL_ERROR = 1e-3
"""Largest error of a pixel in [0, 1]; compiled loops truncate blurs at three deviations, which makes 5e-4."""
MAX_ROUNDED_PIXEL_ERROR = 0.035
"""Largest error where torch resizes large images as bytes: 1.5 / 255, times 1.8³ by the color jitter."""
MAX_GATHER_ERROR = 1e-9
"""Largest relative error of a gathered gradient in float64."""
TWO_PROCESSES_TIMEOUT = 60
"""Seconds that the test with two processes may take."""
LAUNCHER_VARIABLES = (
    "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK",
    "SLURM_STEP_NUM_TASKS", "TORCHELASTIC_RUN_ID", "WORLD_SIZE",
)  # fmt: skip
"""Environment variables of launchers, which the two processes of the test must not inherit."""

CLOCK = Clock(step=0, total=1, epoch=0, seed=0)


class SelfTestResult(NamedTuple):
    """Result of a self-test."""

    passed: bool
    detail: str
    """Description, with the largest error."""


SelfTest = Callable[[Device], SelfTestResult]


def losses(device: Device) -> SelfTestResult:
    """Compare every objective and its gradient in float32 on the device with float64 on the CPU."""
    values: dict[str, float] = {}
    gradients: dict[str, float] = {}
    for name in OBJECTIVES:
        for V, N, D in LOSS_SHAPES:
            z = _projections(V, N, D)
            with one_thread():
                found, gradient = _loss(name, z.to(device))
                exact, exact_gradient = _loss(name, z.double())
            scale = max(1.0, *(abs(part.item()) for part in exact.parts.values()))
            value_error = (found.total.detach().cpu().double() - exact.total.detach()).abs() / scale
            values[name] = max(values.get(name, 0.0), _magnitude(value_error))
            gradient_error = (gradient.cpu().double() - exact_gradient).norm() / exact_gradient.norm()
            gradients[name] = max(gradients.get(name, 0.0), _magnitude(gradient_error))
    failed = [
        name for name in OBJECTIVES if values[name] > MAX_VALUE_ERROR or gradients[name] > MAX_GRADIENT_ERROR
    ]
    worst, worst_gradient = (max(errors, key=errors.__getitem__) for errors in (values, gradients))
    detail = (
        f"largest error of a value {values[worst]:.1e} ({worst}), of a gradient "
        f"{gradients[worst_gradient]:.1e} ({worst_gradient}); allowed {MAX_VALUE_ERROR:.0e} and "
        f"{MAX_GRADIENT_ERROR:.0e}"
    )
    return SelfTestResult(not failed, f"{', '.join(failed)} off: {detail}" if failed else detail)


def _magnitude(error: Tensor) -> float:
    """Return an error as a number; NaN counts as infinite."""
    return math.inf if error.isnan() else error.item()


def _projections(V: int, N: int, D: int) -> Tensor:
    """Return correlated projections (V, N, D) in float32."""
    rng = torch.Generator().manual_seed(0)
    return torch.randn(N, D, generator=rng) + 0.5 * torch.randn(V, N, D, generator=rng) + 0.2


def _loss(name: str, z: Tensor) -> tuple[Any, Tensor]:
    """Return the loss terms at z and the gradient in z, with the other inputs that the objective takes."""
    V, N, D = z.shape
    rng = torch.Generator().manual_seed(1)
    tensors = {
        "target": torch.randn(V, N, D, generator=rng) + 0.3,
        "queue": torch.randn(*((2, 5, D) if name == "swav" else (2 * N, D)), generator=rng),
        "slices": F.normalize(torch.randn(D, 16, generator=rng), dim=0),
    }
    tensors["queue"] = tensors["queue"] if name == "swav" else F.normalize(tensors["queue"])
    parameters = inspect.signature(OBJECTIVES[name].function).parameters
    inputs: dict[str, Any] = {key: tensor.to(z) for key, tensor in tensors.items() if key in parameters}
    if "rng" in parameters:
        inputs["rng"] = torch.Generator().manual_seed(2)
    z = z.clone().requires_grad_()
    terms = OBJECTIVES[name].function(z, **OBJECTIVE_OPTIONS.get(name, {}), **inputs)
    return terms, torch.autograd.grad(terms.total, z)[0]


def views(device: Device) -> SelfTestResult:
    """Compare the views made on the device with resizing and color adjustments in float64."""
    kernel = engine.best_view_kernel(device)
    ids, numbers = torch.arange(24), torch.arange(2)
    drawn = uniforms(seed=1, epoch=2, ids=ids.to(device), views=numbers, count=64)
    if not torch.equal(drawn.cpu(), uniforms(seed=1, epoch=2, ids=ids, views=numbers, count=64)):
        return SelfTestResult(False, "random numbers of views differ from those of the CPU")
    details, passed = [], True
    for stored, size in ((32, 24), (96, 64)):
        images = _images(len(ids), stored)
        (spec,) = view_set("symmetric", size=size)
        spec = replace(spec, solarize=0.2)
        chosen = plan(spec, ids, numbers, CLOCK, height=stored, width=stored)
        exact, certain = _exact_views(images, spec, chosen)
        if kernel == "numba":
            from frossl.augment.fused import fused_views  # an extra

            found = fused_views(images, spec, chosen, mean=(0.0,) * 3, std=(1.0,) * 3)
        else:
            batch = Batch(images, ids).to(device)
            found = standardize(make_views(batch, spec, chosen.to(device)), (0.0,) * 3, (1.0,) * 3)
        error = _magnitude((found.cpu().double().flatten(0, 1) - exact)[certain].abs().max())
        as_bytes = kernel == "torch" and device == "cpu" and stored >= LARGE_IMAGE_SIZE
        allowed = MAX_ROUNDED_PIXEL_ERROR if as_bytes else MAX_PIXEL_ERROR
        passed = passed and error <= allowed
        details.append(f"{error:.1e} at {size} pixels (allowed {allowed:g})")
    return SelfTestResult(passed, f"by {kernel}; largest error of a pixel in [0, 1]: {', '.join(details)}")


def _images(count: int, size: int) -> Tensor:
    """Return smooth random images, uint8 (count, 3, size, size)."""
    coarse = torch.rand(count, 3, 7, 7, generator=torch.Generator().manual_seed(3))
    smooth = F.interpolate(coarse, (size, size), mode="bicubic").clamp(0, 1)
    return (smooth * 255).round().byte()


def _exact_views(images: Tensor, spec: ViewSpec, chosen: Plan) -> tuple[Tensor, Tensor]:
    """Return views (P, C, S, S) in float64, and a mask without pixels near the threshold of solarizing."""
    crops = []
    for p, (top, left, height, width) in enumerate(chosen.box.tolist()):
        crop = images[p % len(images), None, :, top : top + height, left : left + width].double() / 255
        crops.append(F.interpolate(crop, (spec.size,) * 2, mode=spec.interpolation, antialias=True)[0])
    views = torch.stack(crops).clamp(0, 1)
    (flip,), (amounts, order), (grayed,), (sigma,), (solarized,) = (
        chosen.parameters[name] for name in ("flip", "jitter", "gray", "blur", "solarize")
    )
    views = torch.where(flip[:, None, None, None], views.flip(-1), views)
    views = gray(jitter(views, amounts.double(), order), grayed)
    views = blur(views, sigma.double(), largest=spec.sigma[1])
    return solarize(views, solarized), (views - 128 / 255).abs() > MAX_ROUNDED_PIXEL_ERROR


def gather(device: Device) -> SelfTestResult:
    """Compare the gradient of two processes with half of the images each with that of one process."""
    kind = "cuda" if device == "cuda" and torch.cuda.device_count() > 1 else "cpu"
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHER_VARIABLES}
    process = subprocess.Popen(
        [sys.executable, "-m", "frossl.health.two_processes", kind, str(TWO_PROCESSES_TIMEOUT)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=TWO_PROCESSES_TIMEOUT)
    except subprocess.TimeoutExpired:
        return SelfTestResult(
            False, f"two processes did not connect and finish within {TWO_PROCESSES_TIMEOUT} s"
        )
    finally:
        with suppress(ProcessLookupError):  # ends the second process, too
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    try:
        found = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        last = [line for line in err.splitlines() if line.strip()][-1:]
        return SelfTestResult(
            False, f"two processes ended with code {process.returncode}: {''.join(last)[:300]}"
        )
    error = found["error"]
    detail = f"{found['backend']}; largest error of the gradient {error:.1e}, allowed {MAX_GATHER_ERROR:.0e}"
    return SelfTestResult(error <= MAX_GATHER_ERROR, detail)


def step(device: Device) -> SelfTestResult:
    """Train two steps, twice from the start: weights must be finite, and the same to the bit."""
    train = replace(recipe("demo").train, device=device, batch_size=32, devices=1, num_nodes=1)
    config = replace(recipe("demo"), train=train)
    data = Dataset("synthetic", Split(ArraySource(_images(64, 32)), None), None, IMAGENET)
    with isolated_rng(range(torch.cuda.device_count())):
        (losses, first), (_, second) = (_two_steps(config, data) for _ in range(2))
    different = [name for name, tensor in first.items() if not torch.equal(tensor, second[name])]
    finite = all(tensor.isfinite().all() for tensor in first.values())
    detail = f"loss {losses[0]:.4f}, then {losses[1]:.4f}"
    if not finite:
        return SelfTestResult(False, f"{detail}; weights are not finite")
    if different:
        detail = f"{detail}; {len(different)} of {len(first)} tensors differ, first {different[0]}"
        return SelfTestResult(False, detail)
    return SelfTestResult(True, f"{detail}; all {len(first)} tensors of the networks the same")


def _two_steps(config: Config, data: Dataset) -> tuple[list[float], dict[str, Tensor]]:
    """Return the losses of two training steps, and all tensors of the networks after them."""
    state = engine.build(engine.settle(config, data), data)
    losses = []
    for number in range(2):
        clock = state.loader.clock(number)
        state.set_lr(clock)
        batch = state.to_device(state.loader.read(state.loader.ids(number)))
        terms, _ = train_step(batch, state, clock)
        losses.append(terms.total.item())
    state.guard.check_last()
    return losses, {name: tensor.cpu().clone() for name, tensor in state.method.state_dict().items()}


SELF_TESTS: dict[str, SelfTest] = {
    "loss: every objective as in float64": losses,
    "augmentations: the views as in float64": views,
    "gather: two processes have the gradient of one": gather,
    "training: two steps, finite and repeatable to the bit": step,
}
