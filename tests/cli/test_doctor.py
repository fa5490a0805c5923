"""What `gpuctl doctor` says about Pulumi's engine."""

from pathlib import Path

import pytest

from infra.stack.installation import VERSION
from operations.doctor import Check, engine_check
from tests.infra.test_engine import cache, cached, command

__all__ = ["cache"]  # the fixture


def test_doctor_shows_the_engine_that_commands_use(cache: Path) -> None:
    command(cached(cache), f"v{VERSION}")
    assert engine_check() == Check("Pulumi's engine", f"{cached(cache)} {VERSION}")


def test_doctor_says_what_happens_without_an_engine(cache: Path, tmp_path: Path) -> None:
    remedy = (
        "the first command that needs it downloads it; if get.pulumi.com is closed, put `pulumi`"
        f" >= {VERSION} on PATH, name it in GPUCTL_PULUMI, or build it with `make engine` in"
        " gpuctl's checkout"
    )
    assert engine_check() == Check(
        "Pulumi's engine",
        f"PATH has no `pulumi`, and {cache}/engine has none",
        remedy,
        needed=False,
    )
    old = command(tmp_path / "bin" / "pulumi", "v3.100.0")
    assert engine_check() == Check(
        "Pulumi's engine", f"{old} is 3.100.0; gpuctl needs >= {VERSION}", remedy, needed=False
    )
    assert not cache.exists()


def test_doctor_fails_for_a_setting_that_commands_would_refuse(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCTL_PULUMI", "/no/such/pulumi")
    assert engine_check() == Check(
        "Pulumi's engine",
        "the setting 'pulumi' ($GPUCTL_PULUMI) is /no/such/pulumi, which does not exist",
        f"name the command `pulumi` of Pulumi >= {VERSION} there, or remove the setting",
        needed=True,
    )
