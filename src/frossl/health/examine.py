"""`doctor`: check what is slow, missing or wrong on this machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import get_args

import torch

import frossl.engine as engine
from frossl.config import Device
from frossl.errors import ConfigError
from frossl.health import environment
from frossl.health import hardware as hardware_checks
from frossl.health.findings import Accelerator, DoctorReport, Finding, Hardware
from frossl.health.selftest import SELF_TESTS, SelfTest


def doctor(*, self_test: bool = False, device: Device | None = None, test: bool = False) -> DoctorReport:
    """Check versions, devices and environment: what is slow or missing here, and how to fix it.

    Nothing is changed, and nothing is left on disk except what numba compiles.

    Args:
        self_test: Also run self-tests, for half a minute: every objective with its gradient and the views are
            compared with float64 on the CPU, two processes with one, and two training steps with themselves.
        device: Device of the self-tests; by default the best one available.
        test: Deprecated name of `self_test`.

    Returns:
        Facts about the machine, and findings, each with the command or setting that fixes it.

    Raises:
        ConfigError: If there is no such device.
    """
    if test:
        warnings.warn("test= is now self_test=", DeprecationWarning, stacklevel=2)
        self_test = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of torch on drivers and devices are reported as findings
        devices = hardware_checks.accelerators()
        chosen = _checked(device) or engine.best_device()
        hardware = hardware_checks.hardware_facts()
        findings = [*_checks(hardware, devices, chosen)]
        if self_test:
            findings += [_run(title, test_of, chosen) for title, test_of in SELF_TESTS.items()]
    versions = environment.installed_versions()
    return DoctorReport(versions, hardware, devices, chosen if self_test else None, tuple(findings))


def _checked(device: Device | None) -> Device | None:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device is not None and device not in get_args(Device):
        raise ConfigError("device", device, f"give {', '.join(get_args(Device))}")
    if device is not None and not available[device]:
        raise ConfigError("device", device, "torch sees no such device here; leave it out")
    return device


def _checks(hardware: Hardware, devices: tuple[Accelerator, ...], device: Device) -> Iterator[Finding]:
    yield from environment.check_packages()
    yield environment.check_torchvision()
    yield from hardware_checks.check_gpus(devices)
    if device == "cpu":
        yield hardware_checks.check_instructions(hardware)
        yield hardware_checks.check_threads(hardware)
        yield hardware_checks.check_waiting()
        yield hardware_checks.check_precision()
        yield environment.check_view_kernel()
    yield environment.check_jpeg()
    yield environment.check_cache()
    yield environment.check_current_folder()
    yield from environment.check_max_steps()
    yield environment.check_extras()


def _run(title: str, self_test: SelfTest, device: Device) -> Finding:
    try:
        passed, detail = self_test(device)
    except Exception as error:  # a device may fail in any way
        first_line = (str(error).splitlines() or [""])[0]
        return Finding("problem", title, f"{type(error).__name__}: {first_line[:300]}")
    return Finding("ok" if passed else "problem", title, detail)
