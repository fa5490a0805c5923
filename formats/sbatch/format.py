"""Slurm's batch scripts as a format (docs/do/slurm.md)."""

from config.diagnostic import Diagnostic
from config.loading.formats import Format, Reading
from config.loading.overrides import Substitutions
from config.yaml.marked_yaml import Document
from formats.sbatch.batch_file import BatchFile, compose, values_of
from formats.sbatch.batch_job import ARRAY_TASK, SUBMIT_DIR, job
from formats.sbatch.options import options_reference


def _read(document: Document, given: Substitutions) -> Reading:
    """Return the batch script as a run file."""
    file = BatchFile(document, given)
    file.diagnostics += _of_header(file)
    file.placeholders |= {ARRAY_TASK, SUBMIT_DIR}
    return file.reading(job(file))


def _of_header(file: BatchFile) -> list[Diagnostic]:
    """Return the diagnostics about lines of the header that are no option."""
    header, name = file.header, file.document.file
    diagnostics = [
        Diagnostic(name, fault.at.line + 1, fault.at.column + 1, "E203", fault.message, fault.hint)
        for fault in header.faults
    ]
    if header.unread:
        first = header.unread[0]
        message = f"'{first.text.strip()[:60]}' is behind the first command: sbatch reads no more"
        hint = "move it to the lines before, if it should count"
        diagnostics.append(Diagnostic(name, first.line + 1, 1, "W206", message, hint))
    return diagnostics


FORMAT = Format(
    title="a batch script of Slurm",
    compose=compose,
    recognise=lambda document: values_of(document) is not None,
    read=_read,
    pages=lambda: {"look-up/sbatch-options.md": options_reference()},
)
