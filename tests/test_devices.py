"""Device profiles and the cache that they are kept in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fxremat.base import cache
from fxremat.base.errors import OptionError
from fxremat.costs import devices
from fxremat.costs.devices import NAMED, DeviceProfile, measured, profile


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fxremat"


def test_named_profiles_are_sane() -> None:
    for name, found in NAMED.items():
        assert found.name == name
        assert found.rate(torch.float16) >= found.rate(torch.float32) >= found.rate(torch.float64)
        assert found.rounding == (1 if name == "cpu" else 512)
        assert (found.memory is None) == (name == "cpu")
    assert NAMED["h100"].rate(torch.bfloat16) == pytest.approx(989.4e12)
    assert NAMED["h100"].rate(torch.int8) == NAMED["h100"].rate(torch.float32)


def test_a_profile_without_positive_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="rates and bandwidth must be positive"):
        DeviceProfile("bad", (("float32", 0.0),), 1.0, 0.0)
    with pytest.raises(ValueError, match="launch must be >= 0"):
        DeviceProfile("bad", (("float32", 1.0),), 1.0, -1.0)


def test_profile_takes_a_name_a_profile_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    own = DeviceProfile("own", (("float32", 1.0),), 1.0, 0.0)
    assert profile("H100", "cpu") is NAMED["h100"]
    assert profile(own, "cpu") is own
    monkeypatch.setattr(devices, "_measure", lambda _: own)
    assert profile(None, "cpu") == own


def test_an_unknown_name_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"unknown device profile 'h1000'; did you mean 'h100'"):
        profile("h1000", "cpu")
    with pytest.raises(OptionError, match="device profile 3 is a int"):
        profile(3, "cpu")  # type: ignore[arg-type]


def test_a_device_that_is_not_here_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError, match=r"'cuda' cannot be measured .* name a profile"):
        profile(None, "cuda")


def test_measuring_works_under_a_fake_mode_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeTensorMode():
        found = measured("cpu")
    # Above what the fastest machine does, which is what fake tensors would seem to reach.
    assert 1e8 < found.rate(torch.float32) < 1e15
    assert 1e8 < found.bandwidth < 1e13
    assert 0 < found.launch < 1e-2
    monkeypatch.setattr(devices, "_measure", lambda _: pytest.fail("measured again"))
    assert measured("cpu") == found


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 2}', '{"format": 2, "rates": 3}', "\xff"]
)
def test_a_corrupted_file_is_measured_again(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = DeviceProfile("own", (("float32", 1.0),), 1.0, 0.0)
    monkeypatch.setattr(devices, "_measure", lambda _: own)
    measured("cpu")
    (file,) = folder.glob("*.json")
    file.write_bytes(text.encode("latin-1"))
    again = DeviceProfile("again", (("float32", 2.0),), 1.0, 0.0)
    monkeypatch.setattr(devices, "_measure", lambda _: again)
    assert measured("cpu") == again


def test_cache_round_trip_leaves_one_file(folder: Path) -> None:
    assert cache.load("a b/c") is None
    assert cache.store("a b/c", {"x": [1, 2.5, "y"]})
    assert cache.load("a b/c") == {"x": [1, 2.5, "y"]}
    assert {p.name for p in folder.iterdir()} <= {"a_b_c.json", ".lock"}


def test_an_unwritable_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    assert not cache.store("name", {})
    assert cache.load("name") is None


def test_the_name_covers_threads() -> None:
    assert f"{torch.get_num_threads()} threads" in cache.machine(torch.device("cpu"))
    assert torch.__version__ in cache.machine(torch.device("cpu"))
