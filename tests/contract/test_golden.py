"""The figures of the original implementations: value and gradient of every case."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from frossl.objectives import OBJECTIVES, CorInfoMaxLoss, DINOLoss, TiCoLoss, frossl_loss
from frossl.objectives.lejepa import sigreg
from frossl.objectives.swav import sinkhorn
from tests.reference import golden


def tensor(*args: Any, **kwargs: Any) -> Tensor:
    return torch.as_tensor(golden.views(*args, **kwargs))


def unit_rows(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def slices(D: int) -> Tensor:
    d, k = torch.meshgrid(torch.arange(D).double(), torch.arange(7).double(), indexing="ij")
    a = torch.cos(0.4 + 1.3 * d + 0.7 * k + 0.9 * d * k)
    return a / a.norm(dim=0)


def frossl_options(variant: str, V: int, N: int, given: dict[str, Any]) -> dict[str, Any]:
    """The authors' three losses and the paper's equation as one loss with one meaning of w."""
    if variant in ("A", "A-2024-02"):
        return {"normalize": "centered", "invariance_weight": given["w"]}
    if variant == "B":  # has no factor V
        return {"normalize": "rows", "invariance_weight": given["w"] / V}
    if variant == "C":
        return {"normalize": "columns", "invariance_weight": given["w"]}
    if variant == "eq7":  # has neither 1/N nor V
        return {"normalize": "centered", "invariance_weight": given["gamma"] * N / V}
    how = {"centred": "centered"}.get(given["normalize"], given["normalize"])
    return {"normalize": how, "invariance_weight": given["w"], "log": given.get("log", True)}


def options_of(case: dict[str, Any]) -> dict[str, Any]:
    """Our keywords for a case of any objective but FroSSL."""
    name, variant = case["id"].split("/")[:2]
    V, N, D, o = case["V"], case["N"], case["D"], case["options"]
    target = tensor(V, N, D, shift=0.6)
    match name:
        case "vicreg":
            preset = "paper" if variant == "solo" else "released"
            return dict(OBJECTIVES["vicreg"].presets[preset](V))
        case "barlow":
            return {"covariance_weight": o["lambd"], "eps": o["bn_eps"]}
        case "wmse":
            return {"sub_batch": o["w_size"], "eps": o["w_eps"], "detach": variant == "solo"}
        case "corinfomax":
            options = {"invariance_weight": o["alpha"], "momentum": o["la_R"], "eps": o["R_eps"]}
            return {**options, "rows": o["normalize_rows"]}
        case "ivne":
            every = {"invariance_weight": o["alpha_cos"], "variance_weight": o["alpha_vne"]}
            return {**every, "global_views": 2} if variant == "official" else every
        case "mmcr":
            return {"local_weight": o["lmbda"]}
        case "simclr":
            preset = {"official": "released", "solo-V": "solo-learn"}.get(variant, "paper")
            return {**OBJECTIVES["simclr"].presets[preset](V), "temperature": o["tau"]}
        case "moco":
            queue = unit_rows(tensor(1, 16, D, shift=2.0)[0])
            return {"queue": queue, "temperature": o["tau"], "symmetric": variant == "symmetric"}
        case "swav":
            return {"eps": o["epsilon"], "iterations": o["iterations"], "temperature": o["temperature"]}
        case "simsiam" | "byol":
            return {"target": target}
        case "dino":
            center = 0.2 * torch.cos(1 + 0.7 * torch.arange(D).double())
            temperatures = {"temperature": o["student_temp"], "target_temperature": o["teacher_temp"]}
            return {"target": target[:2], "center": center, "momentum": o["center_momentum"], **temperatures}
        case "tico":
            options = {"momentum": o["beta"], "covariance_weight": o["rho"]}
            return {**options, "detach": variant == "step1-Bdetached"}
        case "empssl":
            return {"invariance_weight": o["patch_sim"], "variance_weight": o["tcr"], "eps": o["eps"]}
        case "matrixssl":
            weights = {"invariance_weight": o["gamma"], "variance_weight": o["mce_lambd"]}
            return {"target": target, "eps": o["mce_mu"], "order": o["order"], **weights}
        case "spectral":
            return {"mu": o["mu"]}
        case "isoloss":
            options = {"momentum": o["dp_tau"], "alpha": o["dp_alpha"], "eps": o["eps_iso"]}
            return {"target": target, "euclidean": variant == "euclidean", **options}
        case "lejepa":
            weights = {"invariance_weight": 1 - o["lamb"], "variance_weight": o["lamb"]}
            return {"slices": slices(D), "global_views": o.get("n_global"), **weights}
        case "visreg" if variant == "lightly-reg":
            weights = {"invariance_weight": 0.0, "variance_weight": 1.0}
            return {"slices": slices(D), "eps": 0.0, "shape_eps": 1e-4, **weights}
        case "visreg":
            weights = {"invariance_weight": 1 - o["lamb"], "variance_weight": o["lamb"]}
            return {"slices": slices(D), "global_views": o["n_global"], **weights}
        case "renyi":
            return {"normalize": "rows", "alpha": o["alpha"], "invariance_weight": 0.0}
    raise AssertionError(f"no mapping for {case['id']}")


def loss_of(case: dict[str, Any], z: Tensor) -> Tensor:
    name, variant = case["id"].split("/")[:2]
    V, N, D = case["V"], case["N"], case["D"]
    if name == "frossl":
        total = frossl_loss(z, **frossl_options(variant, V, N, case["options"])).total
        # this state of the authors' code divides the Gram matrix by N, not by its trace
        return total + 2 * V * math.log(D * D / N) if variant == "A-2024-02" else total
    if (name, variant) == ("lejepa", "sigreg"):
        return sigreg(z, slices(D)).mean()
    options = options_of(case)
    if "permutation" in case["options"]:
        return permuted_wmse(z, options)
    function = OBJECTIVES[{"isoloss": "iso", "renyi": "frossl"}.get(name, name)].function
    if variant == "step2":
        before = function(tensor(V, N, D), **options)
        check_state(case, before.state)
        options |= before.state
    return function(0.25 * z if name == "swav" else z, **options).total


def permuted_wmse(z: Tensor, options: dict[str, Any]) -> Tensor:
    """The case fixes its permutation, we draw ours: give images in the order in which ours undoes it."""
    N = z.shape[1]
    wanted = torch.tensor([(5 * i + 3) % N for i in range(N)])
    drawn = torch.randperm(N, generator=torch.Generator().manual_seed(5))
    place = torch.empty(N, dtype=torch.int64)
    place[drawn] = wanted
    return OBJECTIVES["wmse"].function(z[:, place], rng=torch.Generator().manual_seed(5), **options).total


def check_state(case: dict[str, Any], state: dict[str, Tensor]) -> None:
    if "C_trace_before" in case:
        assert state["covariance"].trace().item() == pytest.approx(case["C_trace_before"], rel=1e-9)


def shift_of(case: dict[str, Any]) -> float:
    return 0.4 if case["id"].split("/")[1] == "step2" else 0.0


def test_inputs_are_the_ones_the_figures_were_made_with():
    check = golden.GOLDEN["input_check"]
    z = golden.views(*check["shape"])
    np.testing.assert_allclose(z[0, 0, :3], check["first3"], rtol=0, atol=1e-13)
    assert z.sum() == pytest.approx(check["sum"], rel=1e-11)
    assert (z * z).sum() == pytest.approx(check["sum_of_squares"], rel=1e-11)
    assert len(golden.GOLDEN["cases"]) == 201


@pytest.mark.parametrize("case", golden.GOLDEN["cases"], ids=lambda case: case["id"])
def test_value_and_gradient_are_those_of_the_original(case):
    shape = case["V"], case["N"], case["D"]
    z = tensor(*shape, shift=shift_of(case)).requires_grad_()
    total = loss_of(case, z)
    total.backward()
    assert total.item() == pytest.approx(case["value"], rel=1e-9, abs=1e-11)
    dot = (z.grad.numpy() * golden.direction(*shape)).sum()
    assert dot == pytest.approx(case["grad_dot"], rel=1e-7, abs=1e-7 * case["grad_norm"])
    assert z.grad.norm().item() == pytest.approx(case["grad_norm"], rel=1e-7)


@pytest.mark.parametrize("case", golden.cases("corinfomax/step2"), ids=lambda case: case["id"])
def test_corinfomax_keeps_the_state_of_the_original(case):
    shape = case["V"], case["N"], case["D"]
    loss = CorInfoMaxLoss(**options_of(case))
    loss(tensor(*shape))
    loss(tensor(*shape, shift=0.4))
    after = case["state_after"]
    np.testing.assert_allclose(loss.mean.sum(1), after["mu_sum"], rtol=1e-9)
    np.testing.assert_allclose(loss.covariance.diagonal(dim1=1, dim2=2).sum(1), after["R_trace"], rtol=1e-9)
    np.testing.assert_allclose(loss.covariance.square().sum((1, 2)), after["R_fro2"], rtol=1e-9)


@pytest.mark.parametrize("case", golden.cases("dino/"), ids=lambda case: case["id"])
def test_dino_moves_the_center_of_the_original(case):
    options = options_of(case)
    target, center = options.pop("target"), options.pop("center")
    loss = DINOLoss(**options)
    loss.center = center
    loss(tensor(case["V"], case["N"], case["D"]), target=target)
    np.testing.assert_allclose(loss.center, case["center_after"], rtol=1e-9)


@pytest.mark.parametrize("case", golden.cases("swav/"), ids=lambda case: case["id"])
def test_sinkhorn_gives_the_codes_of_the_original(case):
    codes = sinkhorn(0.25 * tensor(case["V"], case["N"], case["D"])[0])
    given = case["codes_view0"]
    assert codes[0, 0].item() == pytest.approx(given["q00"], rel=1e-9)
    np.testing.assert_allclose(codes.sum(0), given["col_sums"], rtol=1e-9)
    assert codes.square().sum().item() == pytest.approx(given["fro2"], rel=1e-9)


TERMS = [case for case in golden.GOLDEN["cases"] if "terms" in case]


@pytest.mark.parametrize("case", TERMS, ids=lambda case: case["id"])
def test_parts_are_the_terms_of_the_original(case):
    name = case["id"].split("/")[0]
    V, N, D = case["V"], case["N"], case["D"]
    parts = OBJECTIVES[name].function(tensor(V, N, D), **options_of(case)).parts
    given = {key: np.asarray(value) for key, value in case["terms"].items()}
    o = case["options"]
    expected = {
        "vicreg": lambda: {
            "invariance": 25 * given["inv"],
            "variance": (50 if "solo" in case["id"] else 25) * given["var_v"].mean(),
            "covariance": 2 * given["cov_v"].mean(),
        },
        "corinfomax": lambda: {
            "invariance": o["alpha"] * given["mse"],
            "variance": -2 / D * given["logdet_v"].mean(),
        },
        "empssl": lambda: {
            "invariance": -o["patch_sim"] * given["cos"],
            "variance": -o["tcr"] * given["tcr"],
        },
        "matrixssl": lambda: {"invariance": given["alignment"], "variance": given["uniformity"]},
        "visreg": lambda: {key: o.get("lamb", 1.0) * given[key] for key in ("scale", "shape", "center")},
    }[name]()
    for key, value in expected.items():
        assert parts[key].item() == pytest.approx(float(value), rel=1e-9), key


def test_tico_state_is_the_covariance_of_the_original():
    for case in golden.cases("tico/step2"):
        loss = TiCoLoss(momentum=case["options"]["beta"])
        loss(tensor(case["V"], case["N"], case["D"]))
        assert loss.covariance.trace().item() == pytest.approx(case["C_trace_before"], rel=1e-9)
