"""`gpuctl validate FILE…`: every complaint about cluster and run files, before anything costs."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import RuntimesOption, SetOption, output
from config.errors import InvalidFiles
from config.loading import load, overrides


def validate(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Cluster and run files, manifests.")
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Unknown keys in dstack's files are errors too.")
    ] = False,
    set_: SetOption = None,
    runtimes: RuntimesOption = None,
) -> None:
    """Check cluster and run files, before anything costs.

    Each complaint is one line; the exit code is 2 if there is an error. With --json the document
    lists each file with its complaints.

    $ gpuctl validate cluster.yaml run.yaml
    $ gpuctl validate *.yaml --json
    """
    out = output(context)
    given = overrides.Substitutions(tuple(set_ or ()), runtimes)
    manifest = overrides.Overrides(manifest=given)
    by_path = {path: load.check(path, manifest, is_strict=strict) for path in files}
    errors = [
        complaint
        for complaints in by_path.values()
        for complaint in complaints
        if complaint.severity == "error"
    ]
    if out.as_json:
        document = [
            {
                "file": str(path),
                "ok": not any(complaint.severity == "error" for complaint in complaints),
                "complaints": [
                    {**vars(complaint), "severity": complaint.severity} for complaint in complaints
                ],
            }
            for path, complaints in by_path.items()
        ]
        out.show(document, ())
        raise typer.Exit(InvalidFiles.exit_code if errors else 0)
    for path, complaints in by_path.items():
        for diagnostic in load.fold_ignored(complaints):
            if diagnostic.severity != "error":
                out.say(str(diagnostic))
        if not any(complaint.severity == "error" for complaint in complaints):
            out.say(f"{path}: ok")
    if errors:
        raise InvalidFiles(errors)
