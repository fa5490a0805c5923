import pytest
from pulumi.automation import DiagnosticEvent

from config.folders import cache_home
from infra.stack.engine_events import DamagedState, Failure, complaint, error, failure_of

URN = "urn:pulumi:demo::gpuctl::aws:ec2/instance:Instance::node0"


def diagnosed(message: str, urn: str = URN) -> str:
    event = DiagnosticEvent(message=message, color="raw", severity="error", urn=urn)
    return str(error("demo", failure_of(event)))


def test_aws_own_words_are_kept_and_the_framing_is_not() -> None:
    message = (
        f"<{{%reset%}}>creating {URN}: 1 error occurred:\n"
        "\t* creating EC2 Instance: operation error EC2: RunInstances, https response error"
        " StatusCode: 500, RequestID: 1, api error InsufficientInstanceCapacity: We currently do"
        " not have sufficient p5.48xlarge capacity.\n\n<{%reset%}>"
    )
    assert diagnosed(message) == (
        "node0 (aws:ec2/instance:Instance) failed: InsufficientInstanceCapacity: We currently do"
        " not have sufficient p5.48xlarge capacity.; name other zones in capacity.zones, ask for"
        " fewer nodes, or try again later"
    )


def test_the_code_of_a_service_with_typed_errors_is_found_too() -> None:
    message = (
        "creating EFS File System: operation error EFS: CreateFileSystem, https response error"
        " StatusCode: 403, RequestID: 0a1b-2c3d, FileSystemLimitExceeded: You have reached the"
        " maximum number of file systems."
    )
    assert diagnosed(message, "urn:pulumi:demo::gpuctl::aws:efs/fileSystem:FileSystem::shared") == (
        "shared (aws:efs/fileSystem:FileSystem) failed: FileSystemLimitExceeded: You have reached"
        " the maximum number of file systems.; remove file systems that nobody needs, or ask for a"
        " higher quota (Service Quotas)"
    )


def test_a_complaint_without_aws_is_one_line_with_what_to_do() -> None:
    message = "1 error occurred:\n\t* waiting for EC2 Instance (i-1): timeout\n\n"
    assert diagnosed(message) == (
        "node0 (aws:ec2/instance:Instance) failed: waiting for EC2 Instance (i-1): timeout;"
        " gpuctl keeps a record of what exists: run the same command again to continue, or"
        " `gpuctl down demo` to remove it"
    )


def test_a_state_that_is_read_only_says_so() -> None:
    text = "open /state/home/workspaces/demo.json: read-only file system"
    assert diagnosed(f"error: {text}", urn="") == (
        f"{text}; mount that file system writable, or set GPUCTL_STATE to a folder that you can"
        " write"
    )


def test_a_plugin_that_does_not_start_is_installed_anew() -> None:
    text = diagnosed("error: no resource plugin 'pulumi-resource-aws' found", urn="")
    plugins = cache_home() / "pulumi" / "plugins"
    assert text == (
        f"no resource plugin 'pulumi-resource-aws' found; remove {plugins}, and run the same"
        " command again: gpuctl installs it anew"
    )


FULL = "write /state/demo.json.18ea.tmp: no space left on device"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (f"code: 255\nstdout: \nstderr: error: {FULL}\n", FULL),
        (f"stderr: error: 2 errors occurred:\n  1) {FULL}\n  2) Unknown", FULL),
        (
            "code: 255\nstderr: error: unexpected end of JSON input\n",
            "unexpected end of JSON input",
        ),
        ("error: no stack", "no stack"),
        ("killed\n\n", "killed"),
        ("", "Pulumi's engine failed"),
        (
            "\n code: -9\n stdout: \n stderr: ",
            "Pulumi's engine was killed by SIGKILL, and says nothing",
        ),
        (
            "\n code: 3\n stdout: \n stderr: \n",
            "Pulumi's engine ended with exit code 3, and says nothing",
        ),
        ("\n code: 1\n stdout: no memory\n stderr: \n", "no memory"),
    ],
)
def test_what_an_engine_says_that_ended(output: str, line: str) -> None:
    assert complaint(output) == line


def test_a_damaged_state_names_what_finds_the_rest() -> None:
    damaged = error("demo", Failure("", "failed to load checkpoint: unexpected end of JSON input"))
    assert isinstance(damaged, DamagedState)
    assert str(damaged) == (
        "Pulumi's state of demo is damaged: failed to load checkpoint: unexpected end of JSON"
        " input; `gpuctl down demo` finds by its tags what exists, and removes it"
    )


def test_a_full_disk_says_what_to_do_and_what_bills() -> None:
    assert str(error("demo", Failure("", FULL))) == (
        f"{FULL}; make room on that disk; `gpuctl status` shows what exists and bills,"
        " `gpuctl down demo` removes it"
    )
