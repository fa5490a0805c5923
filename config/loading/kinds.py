"""The kind of a file, derived from its keys, because no file states its kind."""

from difflib import get_close_matches
from itertools import islice
from typing import Any, Literal

from config.cluster.cluster_file import Cluster
from config.dstack import is_dstack
from config.run.run_file import RUN_TYPES
from config.yaml.marked_yaml import Document

_MOST_KEYS = 100  # a file with more top keys is neither
Kind = Literal["cluster", "run", "manifest", "dstack"]


def kind_of_document(document: Document) -> Kind | None:
    """Return the kind of the file: dstack's by its name or keys, any other by its keys alone."""
    return "dstack" if is_dstack(document) else kind_of(document.data)


def kind_of(data: Any) -> Kind | None:
    """Return the kind of file that has such keys, even misspelled; None if none or both fit.

    Every Kubernetes manifest that describes a run has the kind `manifest` (config/manifests).
    """
    if not isinstance(data, dict):
        return None
    if "apiVersion" in data:
        return "manifest"
    cluster = set(Cluster.model_fields)
    run = {key for model in RUN_TYPES.values() for key in model.model_fields}
    meant = [
        [key] if key in cluster | run else get_close_matches(key, cluster | run, n=1, cutoff=0.75)
        for key in islice(data, _MOST_KEYS)
    ]
    of_cluster = sum(not run.issuperset(keys) for keys in meant)
    of_run = sum(not cluster.issuperset(keys) for keys in meant)
    if of_cluster == of_run:
        return None
    return "cluster" if of_cluster > of_run else "run"
