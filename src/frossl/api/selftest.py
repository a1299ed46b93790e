"""Does this device compute what it should? Loss, views, gather and a step against float64 on the CPU."""

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
from frossl.api.catalog import recipe
from frossl.augment import ViewSpec, make_views, plan, standardize
from frossl.augment.geometry import LARGE
from frossl.augment.photometry import blur, gray, jitter, solarize
from frossl.augment.plan import Plan, one_thread
from frossl.augment.random import uniforms
from frossl.config import Config, Device
from frossl.data import ArraySource, Dataset, Part
from frossl.data.dataset import IMAGENET
from frossl.engine.step import train_step
from frossl.objectives import OBJECTIVES
from frossl.runs import RunFolder
from frossl.types import Clock, own_random_numbers

SHAPES = ((3, 24, 12), (3, 12, 24))
"""More images than columns and fewer: many objectives take the smaller side."""
OPTIONS: dict[str, dict[str, Any]] = {"wmse": {"eps": 0.1}}
"""Without it, whitening 12 images in 24 columns is not defined."""
VALUE, GRADIENT = 1e-4, 2e-3
"""What float32 may lose, relative to the largest term and to the gradient's length; seen: 1e-5 and 2e-5."""
PIXELS = 1e-3
"""In [0, 1]: compiled loops end their blurs at three deviations, which makes 5e-4."""
ROUNDED = 0.035
"""The same where torch resizes large images as bytes: a step and a half of 255, times 1.8³ by the jitter."""
GATHERED = 1e-9
"""Of float64."""
PATIENCE = 60
"""Seconds that two processes may take."""
STARTED_BY = (
    "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK",
    "SLURM_STEP_NUM_TASKS", "TORCHELASTIC_RUN_ID", "WORLD_SIZE",
)  # fmt: skip
"""What launchers leave in the environment: two further processes are no part of theirs."""

CLOCK = Clock(step=0, total=1, epoch=0, seed=0)


class Outcome(NamedTuple):
    good: bool
    detail: str
    """With the largest error that was seen."""


Trial = Callable[[Device], Outcome]


def losses(device: Device) -> Outcome:
    """Every objective and its gradient: float32 on the device, float64 on the CPU."""
    values: dict[str, float] = {}
    gradients: dict[str, float] = {}
    for name in OBJECTIVES:
        for V, N, D in SHAPES:
            z = _projections(V, N, D)
            with one_thread():
                found, slope = _loss(name, z.to(device))
                exact, right = _loss(name, z.double())
            scale = max(1.0, *(abs(part.item()) for part in exact.parts.values()))
            off = (found.total.detach().cpu().double() - exact.total.detach()).abs() / scale
            values[name] = max(values.get(name, 0.0), _size(off))
            turned = (slope.cpu().double() - right).norm() / right.norm()
            gradients[name] = max(gradients.get(name, 0.0), _size(turned))
    lost = [name for name in OBJECTIVES if values[name] > VALUE or gradients[name] > GRADIENT]
    worst, steepest = (max(errors, key=errors.__getitem__) for errors in (values, gradients))
    said = (
        f"largest error of a value {values[worst]:.1e} ({worst}), of a gradient {gradients[steepest]:.1e} "
        f"({steepest}); allowed {VALUE:.0e} and {GRADIENT:.0e}"
    )
    return Outcome(not lost, f"{', '.join(lost)} off: {said}" if lost else said)


def _size(error: Tensor) -> float:
    """What is not a number is as wrong as can be."""
    return math.inf if error.isnan() else error.item()


def _projections(V: int, N: int, D: int) -> Tensor:
    """Views that have something in common, float32."""
    rng = torch.Generator().manual_seed(0)
    return torch.randn(N, D, generator=rng) + 0.5 * torch.randn(V, N, D, generator=rng) + 0.2


def _loss(name: str, z: Tensor) -> tuple[Any, Tensor]:
    """The terms at z and the gradient in z, with whatever tensors the objective takes."""
    V, N, D = z.shape
    rng = torch.Generator().manual_seed(1)
    tensors = {
        "target": torch.randn(V, N, D, generator=rng) + 0.3,
        "queue": torch.randn(*((2, 5, D) if name == "swav" else (2 * N, D)), generator=rng),
        "slices": F.normalize(torch.randn(D, 16, generator=rng), dim=0),
    }
    tensors["queue"] = tensors["queue"] if name == "swav" else F.normalize(tensors["queue"])
    taken = inspect.signature(OBJECTIVES[name].function).parameters
    inputs: dict[str, Any] = {key: tensor.to(z) for key, tensor in tensors.items() if key in taken}
    if "rng" in taken:
        inputs["rng"] = torch.Generator().manual_seed(2)
    z = z.clone().requires_grad_()
    terms = OBJECTIVES[name].function(z, **OPTIONS.get(name, {}), **inputs)
    return terms, torch.autograd.grad(terms.total, z)[0]


def views(device: Device) -> Outcome:
    """What makes views on the device, against torch's own resize and our adjustments in float64."""
    kernel = engine.best_view_kernel(device)
    ids, numbers = torch.arange(24), torch.arange(2)
    drawn = uniforms(seed=1, epoch=2, ids=ids.to(device), views=numbers)
    if not torch.equal(drawn.cpu(), uniforms(seed=1, epoch=2, ids=ids, views=numbers)):
        return Outcome(False, "random numbers of views are not those of the CPU")
    said, good = [], True
    for stored, size in ((32, 24), (96, 64)):
        images = _images(len(ids), stored)
        spec = ViewSpec(
            size=size, count=2, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, solarize=0.2
        )
        chosen = plan(spec, ids, numbers, CLOCK, height=stored, width=stored)
        exact, sure = _exact_views(images, spec, chosen)
        if kernel == "numba":
            from frossl.augment.fused import fused_views  # an extra

            found = fused_views(images, spec, chosen, mean=(0.0,) * 3, std=(1.0,) * 3)
        else:
            there = Plan(*(part.to(device) for part in vars(chosen).values()))
            found = standardize(make_views(images.to(device), spec, there), (0.0,) * 3, (1.0,) * 3)
        error = _size((found.cpu().double().flatten(0, 1) - exact)[sure].abs().max())
        rounded = kernel == "torch" and device == "cpu" and stored >= LARGE
        allowed = ROUNDED if rounded else PIXELS
        good = good and error <= allowed
        said.append(f"{error:.1e} at {size} pixels (allowed {allowed:g})")
    return Outcome(good, f"by {kernel}; largest error of a pixel in [0, 1]: {', '.join(said)}")


def _images(count: int, size: int) -> Tensor:
    """Smooth random pictures, uint8 (count, 3, size, size)."""
    coarse = torch.rand(count, 3, 7, 7, generator=torch.Generator().manual_seed(3))
    smooth = F.interpolate(coarse, (size, size), mode="bicubic").clamp(0, 1)
    return (smooth * 255).round().byte()


def _exact_views(images: Tensor, spec: ViewSpec, chosen: Plan) -> tuple[Tensor, Tensor]:
    """(P, C, S, S) in float64, and which pixels are sure: at its threshold, solarizing goes either way."""
    crops = []
    for p, (top, left, height, width) in enumerate(chosen.box.tolist()):
        crop = images[p % len(images), None, :, top : top + height, left : left + width].double() / 255
        crops.append(F.interpolate(crop, (spec.size,) * 2, mode=spec.interpolation, antialias=True)[0])
    views = torch.stack(crops).clamp(0, 1)
    views = torch.where(chosen.flip[:, None, None, None], views.flip(-1), views)
    views = gray(jitter(views, chosen.jitter.double(), chosen.order), chosen.gray)
    views = blur(views, chosen.sigma.double(), largest=spec.sigma[1])
    return solarize(views, chosen.solarize), (views - 128 / 255).abs() > ROUNDED


def gather(device: Device) -> Outcome:
    """Two real processes: with half of the images each they must have the gradient of one with all."""
    kind = "cuda" if device == "cuda" and torch.cuda.device_count() > 1 else "cpu"
    ours = {name: value for name, value in os.environ.items() if name not in STARTED_BY}
    process = subprocess.Popen(
        [sys.executable, "-m", "frossl.engine.pair", kind, str(PATIENCE)],
        env={**ours, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return Outcome(False, f"two processes on this machine did not come together within {PATIENCE} s")
    finally:
        with suppress(ProcessLookupError):  # the second one too
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    try:
        found = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        last = [line for line in err.splitlines() if line.strip()][-1:]
        return Outcome(False, f"two processes ended with code {process.returncode}: {''.join(last)[:300]}")
    said = f"{found['backend']}; largest error of the gradient {found['error']:.1e}, allowed {GATHERED:.0e}"
    return Outcome(found["error"] <= GATHERED, said)


def step(device: Device) -> Outcome:
    """Two steps of a run, twice from the beginning: finite, and the same to the bit."""
    train = replace(recipe("demo").train, device=device, batch_size=32, devices=1, num_nodes=1)
    config = replace(recipe("demo"), train=train)
    data = Dataset("made up", Part(ArraySource(_images(64, 32)), None), None, IMAGENET)
    with own_random_numbers(range(torch.cuda.device_count())):
        (losses, one), (_, other) = (_two_steps(config, data) for _ in range(2))
    different = [name for name, tensor in one.items() if not torch.equal(tensor, other[name])]
    finite = all(tensor.isfinite().all() for tensor in one.values())
    said = f"loss {losses[0]:.4f}, then {losses[1]:.4f}"
    if not finite:
        return Outcome(False, f"{said}; weights are not finite")
    if different:
        return Outcome(False, f"{said}; {len(different)} of {len(one)} tensors differ, first {different[0]}")
    return Outcome(True, f"{said}; all {len(one)} tensors of the networks the same")


def _two_steps(config: Config, data: Dataset) -> tuple[list[float], dict[str, Tensor]]:
    state = engine.build(engine.settle(config, data), data, RunFolder(os.devnull))
    losses = []
    for number in range(2):
        clock = state.loader.clock(number)
        state.set_lr(clock)
        batch = state.to_device(state.loader.source.read(state.loader.ids(number)))
        terms, _ = train_step(batch, state, clock)
        losses.append(terms.total.item())
    state.guard.look_back()
    return losses, {name: tensor.cpu().clone() for name, tensor in state.method.state_dict().items()}


TRIALS: dict[str, Trial] = {
    "loss: every objective as in float64": losses,
    "augmentations: the views as in float64": views,
    "gather: two processes have the gradient of one": gather,
    "training: two steps, finite and repeatable to the bit": step,
}
