"""Where the outputs of a run come back to."""

from pathlib import Path

import pytest

from config.errors import InputError
from config.run.code_rules import run_sources
from config.run.run_file import Run
from engine.plan.source_tree import tree_of
from engine.record.outputs_folder import choose_outputs, make_outputs_folder, outputs_folder
from tests.engine.conftest import make_run

RUN = "train-000001"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_outputs_of_another_machines_run_come_to_the_current_folder(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert outputs_folder(runs, RUN) == tmp_path / "outputs" / RUN


def test_another_folder_can_be_chosen_until_outputs_are_there(runs: Path, tmp_path: Path) -> None:
    choose_outputs(runs, RUN, tmp_path / "first")
    choose_outputs(runs, RUN, tmp_path / "second\n\udcff")
    make_outputs_folder(outputs_folder(runs, RUN))
    choose_outputs(runs, RUN, tmp_path / "second\n\udcff")
    with pytest.raises(InputError) as caught:
        choose_outputs(runs, RUN, tmp_path / "third")
    place = tmp_path / "second\n\udcff" / RUN
    assert str(caught.value) == (
        f"the outputs of run {RUN} are in {place} already; copy or move them from there"
    )


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_is_no_folder_for_outputs(runs: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as caught:
        choose_outputs(runs, RUN, tmp_path / name)
    assert str(caught.value) == (
        f"outputs cannot come back to {tmp_path / name}: {tmp_path / 'file'}: it is not a folder;"
        " name another folder with --outputs DIR"
    )


def test_a_link_to_nothing_is_no_folder_for_outputs(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "outputs").symlink_to(tmp_path / "none")
    with pytest.raises(InputError) as caught:
        choose_outputs(runs, RUN, tmp_path / "outputs")
    assert caught.value.message == (
        f"outputs cannot come back to {tmp_path / 'outputs'}: {tmp_path / 'outputs'}: it is not a"
        " folder"
    )


def test_a_name_that_is_too_long_is_an_input_error(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 300)
    with pytest.raises(InputError) as caught:
        choose_outputs(runs, RUN, folder)
    assert caught.value.message == f"outputs cannot come back to {folder}: File name too long"


def test_a_folder_that_nobody_may_write_takes_no_outputs(runs: Path) -> None:
    with pytest.raises(InputError) as caught:
        choose_outputs(runs, RUN, Path("/proc/sys/outputs"))
    assert str(caught.value) == (
        "outputs cannot come back to /proc/sys/outputs: /proc/sys: you may not write there;"
        " name another folder with --outputs DIR"
    )


def test_outputs_do_not_travel_with_the_code_of_the_next_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    folder = tmp_path / "outputs" / RUN
    make_outputs_folder(folder)
    (folder / "model").write_text("weights")
    run: Run = make_run(workdir=".")
    tree = tree_of(run_sources(run, tmp_path, None))
    assert [path for path, *_ in tree.files] == ["train.py"]
