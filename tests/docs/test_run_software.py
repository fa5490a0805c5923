"""The run files of the pages and of `stacks/`: the software that they need is there, or named."""

from pathlib import Path

import pytest

from config.cluster.cluster_file import Cluster
from config.errors import InvalidFiles
from config.loading.load import load_run
from config.loading.templates import templates
from config.run.run_file import Run
from engine.plan.requirement_check import missing_software
from engine.plan.stand_in import stand_in
from tests.docs.pages import PAGES, Block, blocks


def warnings(run: Run) -> list[str]:
    """The warnings of software that a Deep Learning AMI lacks."""
    there = stand_in(Cluster(name="demo", nodes=1, instance_type="p5.48xlarge"))
    return list(missing_software(run, there, there.nodes, {}))


@pytest.mark.parametrize(
    "block",
    [
        block
        for page in PAGES
        for block in blocks(page)
        if block.language == "yaml" and "commands:" in block.text and "type: " in block.text
    ],
    ids=lambda block: block.name,
)
def test_a_run_file_of_a_page_works_on_the_default_image(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(block.text)
    try:
        run = load_run(file)
    except InvalidFiles:
        return  # a part of a file, or a file of another tool
    assert warnings(run) == []


@pytest.mark.parametrize("name", [each.name for each in templates() if not each.is_users])
def test_a_template_names_the_software_that_its_nodes_need(name: str) -> None:
    (template,) = (each for each in templates() if each.name == name)
    for text in warnings(load_run(template.path)):
        needed = text.partition(" needs ")[2].partition(",")[0]
        extended = template.path.read_text().partition("extends: ")[2].partition("\n")[0]
        source = template.path.with_name(f"{extended}.yaml") if extended else template.path
        assert all(word in source.read_text().partition("\ntype:")[0] for word in needed.split())
