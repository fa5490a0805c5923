import os
import socket

from infra.lock import holders

COMPLAINT = (
    "error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to"
    " end or delete the lock file with `pulumi cancel`.\n"
    "  file:///s/.pulumi/locks/organization/gpuctl/demo/1.json: created by root@{host} (pid {pid})"
    " at 2026-11-20T19:44:33Z"
)


def test_the_holder_is_read_from_the_complaint() -> None:
    [holder] = holders(COMPLAINT.format(host="elsewhere", pid=7))
    assert str(holder) == "root@elsewhere (pid 7) since 2026-11-20T19:44:33Z"
    assert not holder.is_here


def test_a_pid_that_is_another_program_by_now_holds_nothing() -> None:
    [holder] = holders(COMPLAINT.format(host=socket.gethostname(), pid=os.getpid()))
    assert holder.is_here
    assert not holder.is_alive


def test_a_complaint_without_lock_has_no_holder() -> None:
    assert holders("error: something else") == ()
