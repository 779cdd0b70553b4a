"""What a device can do: arithmetic rates, bandwidth, launch time, allocator granularity.

A profile is named ("h100"), for planning on a machine without the device, or measured on this
machine once and kept in the cache folder. Named figures are the makers' published peak rates,
dense (without structured sparsity), with tensor cores where the dtype has them by default in
PyTorch: float32 matmuls do not use TF32 unless asked, so its rate is not listed. Launch times are
the usual estimate of 5 microseconds a kernel.

Real kernels reach 50 to 80 % of the peaks. What a planner needs is the ratio of one op's time to
another's, and there the error mostly cancels.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import torch

from fxremat.base import cache
from fxremat.base.errors import OptionError
from fxremat.costs.tensor_meta import outside_fakes

__all__ = ["NAMED", "DeviceProfile", "measured", "profile", "seconds_of"]

FORMAT = 2


@dataclass(frozen=True)
class DeviceProfile:
    """Figures of one device.

    Attributes:
        name: what reports call it.
        rates: pairs of dtype name ("float32") and floating-point operations per second.
        bandwidth: bytes per second between the device's memory and its processors.
        launch: seconds that any op takes on top, however small it is.
        rounding: granularity of the allocator in bytes: 1 on CPU, 512 on CUDA.
        memory: bytes of the device's memory, or None where it has no fixed limit.
        draws: random numbers per second, or None where drawing takes no longer than writing, as on
            GPUs. CPUs draw one after the other, whatever the number of threads.

    Raises:
        ValueError: if a rate or the bandwidth is not positive, or there is no rate at all.
    """

    name: str
    rates: tuple[tuple[str, float], ...]
    bandwidth: float
    launch: float
    rounding: int = 1
    memory: int | None = None
    draws: float | None = None

    def __post_init__(self) -> None:
        """Check the figures."""
        if not self.rates or min(r for _, r in self.rates) <= 0 or self.bandwidth <= 0:
            raise ValueError(f"profile {self.name!r}: rates and bandwidth must be positive")
        if self.launch < 0 or self.rounding < 1 or (self.draws is not None and self.draws <= 0):
            raise ValueError(
                f"profile {self.name!r}: launch must be >= 0, rounding >= 1, draws > 0 or None"
            )

    def rate(self, dtype: torch.dtype) -> float:
        """FLOP/s in a dtype; one that is not listed computes at the rate of float32."""
        table = dict(self.rates)
        least = min(table.values())
        return table.get(str(dtype).removeprefix("torch."), table.get("float32", least))


def _gpu(
    name: str, memory: float, bandwidth: float, f64: float, f32: float, half: float, **more: float
) -> DeviceProfile:
    """A GPU from the figures in its data sheet: memory in GB, bandwidth in GB/s, rates in TFLOP/s.

    ``half`` counts for float16 and, unless ``bf16`` is given, bfloat16; ``fp8`` for both float8s.
    """
    rates = {"float64": f64, "float32": f32, "float16": half, "bfloat16": more.get("bf16", half)}
    for kind in ("float8_e4m3fn", "float8_e5m2") if "fp8" in more else ():
        rates[kind] = more["fp8"]
    return DeviceProfile(
        name=name,
        rates=tuple((k, v * 1e12) for k, v in rates.items()),
        bandwidth=bandwidth * 1e9,
        launch=5e-6,
        rounding=512,
        memory=int(memory * 1e9),
    )


# Sources: NVIDIA data sheets of H100 (SXM), H200 (SXM), A100 (SXM), L4, L40S, V100 (SXM2), T4;
# NVIDIA white papers of GA102 (RTX 3090) and Ada (RTX 4090), half precision with float32
# accumulation; AMD data sheet of Instinct MI300X, matrix rates. V100 and T4 have no bfloat16
# units: there it runs at the rate of float32. "cpu": eight cores at 3 GHz with AVX2 (16 float32
# multiply-adds a core and cycle, half of the peak), two channels of DDR4, draws as measured on a
# server's core.
NAMED: dict[str, DeviceProfile] = {
    p.name: p
    for p in (
        _gpu("h100", 80, 3350, 67, 67, 989.4, fp8=1978.9),
        _gpu("h200", 141, 4800, 67, 67, 989.4, fp8=1978.9),
        _gpu("a100", 40, 1555, 19.5, 19.5, 312),
        _gpu("a100-80g", 80, 2039, 19.5, 19.5, 312),
        _gpu("l4", 24, 300, 0.47, 30.3, 121, fp8=242.5),
        _gpu("l40s", 48, 864, 1.43, 91.6, 362.05, fp8=733),
        _gpu("rtx3090", 24, 936.2, 0.556, 35.6, 71),
        _gpu("rtx4090", 24, 1008, 1.29, 82.6, 165.2, fp8=330.3),
        _gpu("v100", 16, 900, 7.8, 15.7, 125, bf16=15.7),
        _gpu("t4", 16, 320, 0.25, 8.1, 65, bf16=8.1),
        _gpu("mi300x", 192, 5300, 163.4, 163.4, 1307.4, fp8=2614.9),
        DeviceProfile(
            "cpu", (("float64", 2e11), ("float32", 4e11), ("bfloat16", 4e11)), 4e10, 2e-6, draws=7e7
        ),
    )
}


def profile(spec: str | DeviceProfile | None, device: torch.device | str) -> DeviceProfile:
    """The profile that a caller means.

    Args:
        spec: a name in :data:`NAMED`, a profile, or None to measure ``device``.
        device: read only where ``spec`` is None.

    Raises:
        OptionError: for an unknown name, another type, or a device that is not on this machine.
    """
    if isinstance(spec, DeviceProfile):
        return spec
    if spec is None:
        return measured(device)
    if not isinstance(spec, str):
        raise OptionError(
            f"device profile {spec!r} is a {type(spec).__name__}; "
            "give a name, a DeviceProfile, or None to measure the device"
        )
    return NAMED[check_name(spec).lower()]


def check_name(name: str) -> str:
    """The name of a profile, as it was given.

    Raises:
        OptionError: if there is none of that name.
    """
    if name.lower() not in NAMED:
        near = difflib.get_close_matches(name.lower(), NAMED, n=1, cutoff=0)[0]
        raise OptionError(
            f"unknown device profile {name!r}; did you mean {near!r}? known: {', '.join(NAMED)}"
        )
    return name


def measured(device: torch.device | str) -> DeviceProfile:
    """Measure a device of this machine, or read what an earlier run measured.

    Takes about a second. Kept per torch version, device name and thread count.

    Raises:
        OptionError: if the device is not on this machine.
    """
    device = torch.device(device)
    present = torch.cuda.is_available() if device.type == "cuda" else device.type == "cpu"
    if not present:
        raise OptionError(
            f"device {str(device)!r} cannot be measured on this machine; "
            f"name a profile instead: {', '.join(NAMED)}"
        )
    name = f"profile {cache.machine(device)}"
    found = _parse(cache.load(name))
    if found is None:
        with outside_fakes():
            found = _measure(device)
        cache.store(name, {"format": FORMAT, **asdict(found)})
    return found


def _parse(data: dict[str, Any] | None) -> DeviceProfile | None:
    if data is None or data.get("format") != FORMAT:
        return None
    try:
        return msgspec.convert(data, DeviceProfile)
    except msgspec.ValidationError:
        return None


def _measure(device: torch.device) -> DeviceProfile:
    cuda = device.type == "cuda"
    kinds = (torch.float32, torch.bfloat16, torch.float64)
    return DeviceProfile(
        name=f"{device.type} (measured)",
        rates=tuple((str(k).removeprefix("torch."), _matmul_rate(k, device)) for k in kinds),
        bandwidth=_bandwidth(device),
        launch=_launch(device),
        rounding=512 if cuda else 1,
        memory=torch.cuda.get_device_properties(device).total_memory if cuda else None,
        draws=None if cuda else _draws(device),
    )


def seconds_of(run: Callable[[], object], device: torch.device) -> list[float]:
    """Times of three runs, after one that does not count."""
    spent = []
    for _ in range(4):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        spent.append(time.perf_counter() - start)
    return spent[1:]


def _shortest(run: Callable[[], object], device: torch.device) -> float:
    return max(min(seconds_of(run, device)), 1e-9)


def _matmul_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Best rate over square matmuls that grow until one takes 10 ms: slow dtypes stay cheap."""
    best, size, spent = 0.0, 256, 0.0
    while spent < 0.01 and size <= 8192:
        left = torch.full((size, size), 0.5, dtype=dtype, device=device)
        spent = _shortest(lambda left=left: left @ left, device)  # type: ignore[misc]
        best = max(best, 2 * size**3 / spent)
        size *= 2
    return best


def _bandwidth(device: torch.device) -> float:
    count = 1 << (28 if device.type == "cuda" else 26)
    source = torch.zeros(count, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * count / _shortest(lambda: target.copy_(source), device)


def _draws(device: torch.device) -> float:
    """Bernoulli draws per second, as dropout makes them; the global generator is left alone."""
    count, own = 1 << 20, torch.Generator(device)
    drawn = torch.empty(count, device=device)
    return count / _shortest(lambda: drawn.bernoulli_(0.5, generator=own), device)


def _launch(device: torch.device) -> float:
    small = torch.zeros(8, device=device)

    def many() -> None:
        for _ in range(200):
            small.neg()

    return _shortest(many, device) / 200
