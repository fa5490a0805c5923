"""`gpuctl init`: a first cluster file, and a first run file."""

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from cli.complete import gpus
from cli.options import RuntimesOption, SetOption, chosen_target, options, output
from cli.render import proposal as proposal_text
from config.errors import InputError
from config.loading import overrides
from operations import first_files, proposal

if TYPE_CHECKING:
    from cli.output import Output


def init(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where the files are written.")
    ] = Path(),
    job: Annotated[
        str | None,
        typer.Option("--type", metavar="RUN", help="What to run, such as nccl-tests or torchrun."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="GPU", help="The GPUs (H100), or an instance type.", autocompletion=gpus
        ),
    ] = None,
    for_: Annotated[
        Path | None,
        typer.Option("--for", metavar="RUN_FILE", help="Only a cluster file, for this run file."),
    ] = None,
    set_: SetOption = None,
    runtimes: RuntimesOption = None,
) -> None:
    """Write a first cluster file and a first run file.

    On a terminal it asks what to run, on which GPUs and in which region, unless options say so.
    The run works as it is; put your commands into it later. Nothing is created on AWS.

    $ gpuctl init
    $ gpuctl init first --type nccl-tests --gpu H100 --region us-east-1
    $ gpuctl init --for train.yaml
    """
    chosen, out = chosen_target(context), output(context)
    cluster_file, run_file = folder / first_files.CLUSTER_FILE, folder / first_files.RUN_FILE
    if for_ is not None:
        if job or gpu:
            raise InputError(
                "--for names the run: --type and --gpu would describe another one", "leave them out"
            )
        given = overrides.Substitutions(tuple(set_ or ()), runtimes)
        proposed = proposal.propose(chosen, for_, substitutions=given, warn=out.complain)
        files = first_files.FirstFiles(proposed)
        run_file = for_
    else:
        job = job or _ask("What to run?", "--type", out, first_files.JOBS)
        gpu = gpu or _ask("Which GPUs?", "--gpu", out, first_files.gpu_models(), "H100")
        region = chosen.region or _region(chosen.default_region, out)
        files = first_files.first_files(replace(chosen, region=region), job, gpu)
    texts = {first_files.CLUSTER_FILE: proposal_text.first_cluster_file(files.cluster, run_file)}
    if files.run:
        texts[first_files.RUN_FILE] = files.run
    written = first_files.write_files(folder, texts)
    document = {
        "files": [str(path) for path in written],
        **proposal_text.proposal_json(files.cluster),
    }
    common = replace(options(context), region=None)  # the cluster file has it
    rehearsal = replace(common, lab=True, profile=None).program
    lab = rehearsal if common.lab_name else "gpuctl"
    on_aws = replace(common, lab=False, lab_name=None).program
    out.show(
        document,
        (
            *(f"{path} is written" for path in written),
            proposal_text.cost(files.cluster),
            "Rehearse on this machine, for nothing:",
            f"  {lab} lab start",
            f"  {rehearsal} up {quote(str(cluster_file))}",
            f"  {rehearsal} run {quote(str(run_file))}",
            "See what AWS would create, and its cost:",
            f"  {on_aws} plan {quote(str(cluster_file))}",
        ),
    )


def _region(default: str | None, out: "Output") -> str | None:
    """Return the region for the cluster file; None leaves it to the user's settings."""
    if not sys.stdin.isatty():
        return default
    return _ask("Which region?", "--region", out, (), default or "us-east-1")


def _ask(
    question: str, option: str, out: "Output", choices: Collection[str], default: str = ""
) -> str:
    """Return the person's answer; the first choice or `default` for an empty line."""
    if not sys.stdin.isatty():
        raise InputError(f"there is no terminal to ask on: {question}", f"add {option}")
    default = default or next(iter(choices))
    listed = f" {', '.join(choices)}" if choices else ""
    return out.ask(f"{question}{listed} [{default}]: ").strip() or default
