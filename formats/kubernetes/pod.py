"""A pod's template: its only container, and the containers that prepare something before it.

An init container ends before the pod's container begins, and shares with it the volumes that both
mount (https://kubernetes.io/docs/concepts/workloads/pods/init-containers/, 2026-11-26). A run has
one container on a node, without volumes: an init container becomes the first commands of the job
there, if it has the job's image, or calls only programs that every image has, and if what it writes
is where the job reads it.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from config.mistakes import Path
from config.yaml.hints import quote, shorten
from formats.converted import Placed
from formats.foreign_file import ForeignFile
from formats.kubernetes.container import Container, container_at, require_command

_KNOWN = {
    "name",
    "image",
    "command",
    "args",
    "env",
    "workingDir",
    # Refused in this module, or meaningful to Kubernetes alone.
    "envFrom",
    "imagePullPolicy",
    "ports",
    "stdin",
    "tty",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
}
_POD_KNOWN = {
    "containers",
    "initContainers",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "hostNetwork",
    "hostIPC",
    "hostPID",
    "hostname",
    "subdomain",
    "dnsPolicy",
    "schedulerName",
    "automountServiceAccountToken",
    "enableServiceLinks",
}
_WAITING = {"nslookup", "getent", "nc", "ping", "sleep", "dig", "host", "ssh-keyscan"}
# In a loop that sleeps these only ask whether another part of the system answers.
_ASKING = {"curl", "wget", "kubectl", "ssh", "pg_isready", "redis-cli", "mysqladmin"}
_KEEPS = re.compile(r"\s-(?:o|O|-output|-output-document)[ =]?(?!\s*(?:/dev/null|-(?:\s|$)))")
_KUBECTL_WAITS = re.compile(r"\bkubectl\s+(?:-\S+\s+(?:\w\S*\s+)??)*(?:wait|rollout\s+status)\b")
_HARMLESS = {
    *("echo", "done", "fi", "true", "false", "test", "[", "[[", "exit", "set", "date", ":"),
    *("break", "continue"),
}
_FILTERS = {"awk", "cut", "grep", "head", "printf", "seq", "sort", "tail", "tr", "wc"}
# bash, which every image of a run has, and coreutils (docs/do/containers.md).
_EVERYWHERE = {
    "cat",
    "cd",
    "chgrp",
    "chmod",
    "chown",
    "cp",
    "head",
    "id",
    "install",
    "ln",
    "ls",
    "mkdir",
    "mv",
    "printf",
    "pwd",
    "rm",
    "rmdir",
    "sleep",
    "sort",
    "tail",
    "tee",
    "touch",
    "tr",
}
_KEYWORDS = re.compile(
    r"^\s*(?:(?:until|while|do|if|elif|then|else|!|\{|timeout\s+(?:-\S+\s+)*\S+|for\s.*)(?:\s+|$))*"
)
_REDIRECTION = re.compile(r"[0-9]*[<>]&[0-9-]|&>>?|\$\(\([^()]*\)\)")
_PART = re.compile(r"[;&|\n(`]+")
_ON_NODES = "do that in `setup.commands` of the cluster file"


def container_of_pod(manifest: ForeignFile, template: Path) -> Container:
    """Return the only container of a pod's template, with its init containers; refuse others."""
    pod = (*template, "spec")
    manifest.warn_unknown(template, {"metadata", "spec"})
    manifest.warn_unknown(pod, _POD_KNOWN)
    init = tuple(_init_containers(manifest, pod))
    at = (*pod, "containers")
    if manifest.entries(at)[1:]:
        hint = "keep the one that does the work: a node runs one"
        manifest.refuse_part((*at, 1), hint, on_key=False)
    container = _container(manifest, (*at, 0))
    # Only the job's variables can have secrets: an init container finds its own among them.
    secrets = {
        name: value for earlier in init for name, value in earlier.env.items() if _is_secret(value)
    }
    return replace(container, env=secrets | container.env, init=init)


def check_init_containers(
    manifest: ForeignFile, container: Container, image: Placed | None
) -> None:
    """Refuse init containers that cannot run in the job's image, with the job's secrets."""
    for init in container.init:
        name = f"init container {quote(init.name)}"
        own = init.image.value if init.image else ""
        if own and own != (image.value if image else "") and not _runs_everywhere(init):
            job = f"the job's is {shorten(image.value)}" if image else "the job has none"
            message = f"{name} has the image {shorten(own)}, and a run has one: {job}"
            hint = f"give both one image, or {_ON_NODES}"
            manifest.complain("E225", message, hint, init.at, on_key=True)
        for variable, secret in init.env.items():
            if _is_secret(secret) and container.env[variable].value != secret.value:
                message = f"{name} takes {variable} from a secret, and the job has another value"
                manifest.complain("E225", message, "give one of them another name", init.at)


def _container(manifest: ForeignFile, at: Path, *known: str) -> Container:
    manifest.warn_unknown(at, {*_KNOWN, *known})
    if manifest.get((*at, "envFrom")):
        manifest.refuse_part((*at, "envFrom"), "write its variables in 'env'")
    return container_at(manifest, at)


def _init_containers(manifest: ForeignFile, pod: Path) -> Iterator[Container]:
    """Yield the containers that prepare something; leave out those that only wait for others."""
    for index in range(len(manifest.entries((*pod, "initContainers")))):
        at = (*pod, "initContainers", index)
        name = manifest.get((*at, "name"))
        name = name if isinstance(name, str) else str(index)
        refusal = _refusal(manifest, pod, at)
        if refusal:
            message = f"init container {quote(name)} {refusal[0]}"
            manifest.complain("E225", message, refusal[1], at, on_key=True)
        elif _only_waits_for_others(manifest, at):
            manifest.warn_ignored(at, "a run starts when its nodes are ready and reach each other")
        else:
            init = replace(_container(manifest, at, "restartPolicy"), name=name)
            require_command(manifest, init)
            yield init


def _refusal(manifest: ForeignFile, pod: Path, at: Path) -> tuple[str, str] | None:
    """Return why the container cannot be commands of the job, and what to do instead, or None."""
    if manifest.get((*at, "restartPolicy")) == "Always":
        hint = "start it in the background in the job's command, or remove it"
        return "runs next to the job (restartPolicy: Always)", hint
    own = _mounts(manifest, at)
    of_job = _mounts(manifest, (*pod, "containers", 0))
    for volume, places in own.items():
        if volume in of_job and not places <= of_job[volume]:
            first, of_jobs = min(places - of_job[volume]), min(of_job[volume])
            message = f"has volume {quote(volume)} at {first}, and the job at {of_jobs}"
            return f"{message}: nothing is mounted here", "mount it at the same path in both"
        if volume not in of_job and volume in _of_the_host(manifest, pod):
            return f"changes the node, by volume {quote(volume)} (hostPath)", _ON_NODES
    return None


def _mounts(manifest: ForeignFile, at: Path) -> dict[str, set[str]]:
    """Return the places of each volume in the container."""
    mounts: dict[str, set[str]] = {}
    for index in range(len(manifest.entries((*at, "volumeMounts")))):
        mount = (*at, "volumeMounts", index)
        place = manifest.text((*mount, "mountPath")).rstrip("/") or "/"
        part = manifest.text((*mount, "subPath"))
        place += f" (subPath {part})" if part else ""
        mounts.setdefault(manifest.text((*mount, "name")), set()).add(place)
    return mounts


def _of_the_host(manifest: ForeignFile, pod: Path) -> set[str]:
    """Return the names of the pod's volumes that are folders of the node."""
    volumes = [
        (*pod, "volumes", index) for index in range(len(manifest.entries((*pod, "volumes"))))
    ]
    return {manifest.text((*at, "name")) for at in volumes if manifest.get((*at, "hostPath"))}


def _is_secret(variable: Placed) -> bool:
    return not isinstance(variable.value, str)


def _only_waits_for_others(manifest: ForeignFile, at: Path) -> bool:
    """Return whether the container does nothing but look for others, and sleep."""
    words = [*manifest.texts((*at, "command")), *manifest.texts((*at, "args"))]
    programs, script = _programs(words), " ".join(words)
    waiting = set(_WAITING)
    if programs & {"sleep"} and re.search(r"\b(?:until|while)\b", script):
        waiting |= set() if _KEEPS.search(script) else _ASKING
    elif len(_KUBECTL_WAITS.findall(script)) == script.count("kubectl "):
        waiting.add("kubectl")
    return bool(programs & waiting) and programs <= waiting | _HARMLESS | _FILTERS


def _runs_everywhere(init: Container) -> bool:
    """Return whether it calls only programs that every image has."""
    programs = _programs(init.words)
    hides_more = any(text in word for word in init.words for text in ("$(", "`", "<("))
    return bool(programs) and programs <= _EVERYWHERE | _HARMLESS and not hides_more


def _programs(words: Collection[str]) -> set[str]:
    """Return the programs that a container's words call, by themselves or in a shell's script."""
    ordered = list(words)
    script = (
        ordered[-1] if any(re.fullmatch(r"-\w*c", word) for word in ordered) else " ".join(ordered)
    )
    parts = _PART.split(_REDIRECTION.sub(" ", script))
    calls = [_KEYWORDS.sub("", part).split()[:1] for part in parts]
    names = {call[0].rpartition("/")[2].rstrip(")") for call in calls if call}
    return {name for name in names if name and "=" not in name}
