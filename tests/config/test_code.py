"""The user's files that travel: ignore rules, places, limits, and what is refused."""

import os
from pathlib import Path

import pytest

from config.errors import InvalidFiles
from config.loading.load import check, load_run
from config.mistakes import Mistake
from config.run.code_rules import code_mistakes, outside_paths, run_sources
from config.run.run_file import Run
from config.run.sources import folder_sources, leads_out

HEAD = "type: task\nname: train\ncommands: [python3 train.py]\n"


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_of(folder: Path, lines: str) -> Run:
    (folder / "run.yaml").write_text(HEAD + lines)
    return load_run(folder / "run.yaml")


def complaints(folder: Path, lines: str) -> list[str]:
    (folder / "run.yaml").write_text(HEAD + lines)
    found = check(folder / "run.yaml")
    return [str(one).removeprefix(f"{folder}/") for one in found]


def paths(folder: Path) -> list[str]:
    return [source.path for source in folder_sources(folder) if source.kind != "folder"]


def test_ignore_files_are_read_as_git_reads_them(tmp_path: Path) -> None:
    write(tmp_path, a="", **{"a.pyc": "", "keep.pyc": "", "data__x": "", "data__keep": ""})
    write(tmp_path, **{"sub__data__x": "", "sub__b.pyc": "", "sub__only": "", ".git__HEAD": ""})
    (tmp_path / ".gitignore").write_text("*.pyc\n/data/*\n!keep.pyc\n")
    (tmp_path / ".gpuctlignore").write_text("!/data/keep\n.g*ignore\n")
    (tmp_path / "sub" / ".gitignore").write_text("!b.pyc\nonly\n.gitignore\n")
    assert paths(tmp_path) == ["a", "data/keep", "keep.pyc", "sub/b.pyc", "sub/data/x"]


def test_a_folder_of_a_repository_has_the_rules_of_the_folders_above(tmp_path: Path) -> None:
    write(tmp_path, **{"repo__.git__HEAD": "", "repo__job__a.pt": "", "repo__job__b": ""})
    (tmp_path / ".gitignore").write_text("b\n")  # above the repository
    (tmp_path / "repo" / ".gitignore").write_text("*.pt\n")
    assert paths(tmp_path / "repo" / "job") == ["b"]
    (tmp_path / "repo" / ".git" / "HEAD").unlink()
    (tmp_path / "repo" / ".git").rmdir()
    assert paths(tmp_path / "repo" / "job") == ["a.pt", "b"]


def test_links_stay_links_and_sockets_stay_here(tmp_path: Path) -> None:
    write(tmp_path, **{"sub__a": "text"})
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("sub")
    os.mkfifo(tmp_path / "fifo")
    found = {one.path: (one.kind, one.target) for one in folder_sources(tmp_path)}
    assert found == {
        "folder": ("link", "sub"),
        "out": ("link", "/etc/passwd"),
        "sub": ("folder", ""),
        "sub/a": ("file", ""),
    }


@pytest.mark.parametrize(
    ("path", "target", "out"),
    [
        ("a", "b", False),
        ("a", "..", True),
        ("a", "/etc", True),
        ("x/a", "../b", False),
        ("x/a", "../../b", True),
        ("x/a", "../x/../../b", True),
    ],
)
def test_which_links_lead_out(path: str, target: str, out: bool) -> None:
    assert leads_out(path, target) is out


def test_files_come_to_their_places_and_override_the_folder(tmp_path: Path) -> None:
    write(tmp_path, **{"job__train.py": "", "job__.gitignore": "big", "job__big": "xx"})
    write(tmp_path, **{"other.py": "other", "tools__t.sh": ""})
    lines = "workdir: job\nfiles: [other.py:train.py, tools:lib/tools, job/big, tools/t.sh:bin/]\n"
    found = run_sources(run_of(tmp_path, lines), tmp_path)
    assert [(one.path, one.kind, one.size) for one in found] == [
        (".gitignore", "file", 3),
        ("bin", "folder", 0),
        ("bin/t.sh", "file", 0),
        ("job", "folder", 0),
        ("job/big", "file", 2),
        ("lib", "folder", 0),
        ("lib/tools", "folder", 0),
        ("lib/tools/t.sh", "file", 0),
        ("train.py", "file", 5),
    ]


def test_what_is_refused_is_located(tmp_path: Path) -> None:
    write(tmp_path, **{"train.py": "x" * 2000, "small": "x"})
    (tmp_path / "out").symlink_to("/etc")
    relative = "correct the path: it is relative to the run file"
    outside = "which is not in the working folder"
    place = "write LOCAL:REMOTE with a relative REMOTE"
    assert complaints(tmp_path, "workdir: scr\n") == [
        f"run.yaml:4:10: E242 'workdir' is 'scr', which does not exist; {relative}"
    ]
    assert complaints(tmp_path, "workdir: train.py\n") == [
        f"run.yaml:4:10: E242 'workdir' is 'train.py', which is no folder; {relative}"
    ]
    assert complaints(
        tmp_path, "files: [a, small:/x, ../small, a:b:c]\noutputs: [/x, 'a**']\n"
    ) == [
        f"run.yaml:4:9: E242 'files[0]' is 'a', which does not exist; {relative}",
        f"run.yaml:4:12: E241 'files[1]' is 'small:/x', {outside}; {place}",
        f"run.yaml:4:22: E241 'files[2]' is '../small', {outside}; {place}",
        "run.yaml:4:32: E241 'files[3]' is 'a:b:c', which is not LOCAL:REMOTE; write a path, a"
        " colon and a path",
        "run.yaml:5:11: E241 'outputs[0]' is '/x', which is not in the working folder; write a"
        " relative path, and let the job write there",
        "run.yaml:5:15: E241 'outputs[1]' is 'a**', where ** is a part of a name; write ** alone"
        " between two /: logs/**/*.json",
    ]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    assert complaints(tmp_path, "files: [pipe, loop]\n") == [
        "run.yaml:4:9: E242 'files[0]' is 'pipe': it is a pipe, not a regular file; name a"
        " regular file or a folder",
        f"run.yaml:4:15: E242 'files[1]': {tmp_path}/loop cannot be read: Too many levels of"
        " symbolic links; make it readable, or name it in .gpuctlignore",
    ]
    (tmp_path / "pipe").unlink()
    (tmp_path / "loop").unlink()
    assert complaints(tmp_path, "workdir: .\nfiles: [small]\ncode_limit: 1K\n") == [
        "run.yaml:4:10: W241 links lead out of the working folder: out; on the nodes they lead to"
        " what those have at that path",
        "run.yaml:6:13: E243 the code has 0.0 MiB, above 'code_limit' 1K, the largest file is"
        " train.py (0.0 MiB); name what is not needed in .gpuctlignore, or raise 'code_limit'",
    ]


def test_a_repository_is_instead_of_a_folder_and_has_no_password(tmp_path: Path) -> None:
    url = "https://me:word@github.com/me/train"
    assert complaints(tmp_path, f"workdir: .\nrepo: {{url: '{url}', commit: 12ab}}\n") == [
        "run.yaml:5:1: E223 'workdir' and 'repo' both say what the working folder begins with;"
        " remove one of them",
        f"run.yaml:5:13: E203 'repo.url' is '{url}'; write https://HOST/PATH, ssh://HOST/PATH or"
        " USER@HOST:PATH, without a password",
        "run.yaml:5:60: E203 'repo.commit' is '12ab'; write all 40 digits of a commit",
    ]


@pytest.mark.parametrize(
    ("url", "is_good"),
    [
        ("https://github.com/me/train.git", True),
        ("ssh://git@host:22/me/train", True),
        ("git@github.com:me/train.git", True),
        ("ext::sh -c id", False),
        ("--upload-pack=id", False),
        ("file:///etc", False),
        ("ssh://-oProxyCommand=id/x", False),
        ("http://host/x", False),
    ],
)
def test_urls_of_repositories(tmp_path: Path, url: str, is_good: bool) -> None:
    assert (complaints(tmp_path, f"repo: {{url: '{url}'}}\n") == []) is is_good


def test_too_many_files_end_the_search(tmp_path: Path) -> None:
    write(tmp_path, a="", b="", c="")
    (mistake,) = code_mistakes({"workdir": "."}, tmp_path, most=2)
    assert mistake == Mistake(
        "E243",
        "'workdir' is '.', which has more than 2 files",
        "name what is not needed in .gpuctlignore",
        ("workdir",),
    )


def test_paths_outside_need_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, home = tmp_path / "job", tmp_path / "job" / "home"
    write(job, **{"home__.ssh__id": "key", "inside__a": ""})
    write(tmp_path, near="")
    (job / "leads").symlink_to("../near")
    monkeypatch.setenv("HOME", str(home))
    lines = "workdir: inside\nfiles: [inside/a, ../near:near, leads, ~/.ssh/id:id]\n"
    assert outside_paths(run_of(job, lines), job) == (tmp_path / "near",)
    assert outside_paths(run_of(job, "workdir: .\n"), job) == (job,)  # it contains the home
    assert outside_paths(run_of(home, "workdir: ..\n"), home) == (job,)


def test_a_limit_that_is_exceeded_raises_before_anything_runs(tmp_path: Path) -> None:
    write(tmp_path, a="aa")
    with pytest.raises(InvalidFiles, match="E243 the code has"):
        run_of(tmp_path, "workdir: .\ncode_limit: 1\n")


def test_the_example_names_a_script_that_travels() -> None:
    folder = Path(__file__).parents[2] / "stacks" / "train"
    run = load_run(folder / "run.yaml")
    assert [source.path for source in run_sources(run, folder)] == ["run.yaml", "train.py"]
    assert run.model_dump()["commands"] == ("python3 train.py",)
