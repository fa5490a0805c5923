"""The kind of a file, derived from its keys, because no file states its kind."""

from difflib import get_close_matches
from itertools import islice
from typing import Any, Literal

from config.cluster.cluster_file import Cluster
from config.cluster.hosts_file import HostsCluster
from config.loading.formats import format_of
from config.loading.manifests import is_manifest
from config.run.run_file import RUN_TYPES
from config.yaml.marked_yaml import Document

_MOST_KEYS = 100  # a file with more top keys is neither
Kind = Literal["cluster", "run"]


def kind_of_document(document: Document) -> Kind | None:
    """Return the kind of the file: files of other tools are runs, any other has it by its keys."""
    return "run" if format_of(document) or is_manifest(document) else kind_of(document.data)


def kind_of(data: Any) -> Kind | None:
    """Return the kind of file that has such keys, even misspelled; None if none or both fit."""
    if not isinstance(data, dict):
        return None
    cluster = {*Cluster.model_fields, *HostsCluster.model_fields}
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
