"""How long a run's supervisor waits for what."""

from __future__ import annotations

from dataclasses import dataclass

from engine.agent.journal.run_secrets_file import LOST_SUPERVISOR_S


@dataclass(frozen=True)
class Times:
    """The times of a supervisor, in seconds.

    `reach_s` is for a node that has just booted to accept ssh, with `retry_s` between two attempts,
    and `reconnect_s` for one whose connection has ended; `prepare_s` is for its worker to be
    prepared. A node is lost after `silence_s` without a heartbeat; a silence of `notable_s` is
    reported when it ends. `head_silence_s`, after which a node ends its job, is longer: the
    supervisor gives a node up before that. Without a sign of life of the supervisor for `hung_s`
    its process stops answering; `answer_s` is for the first answer. A node has `stop_s` to stop,
    beyond the run's `stop_grace` for its job and again for its unit. A worker ends its job
    `lost_supervisor_s` after its supervisor. `look_s` is between two checks whether a lost node is
    back. `most_backoff_s` is the longest pause between two attempts, unless the run file's
    `backoff` is longer. A client has `acknowledge_s` to announce that it destroys the cluster, and
    `lease_s` for each next announcement. Each step of saving has `save_s`: the nodes cost money
    meanwhile.
    """

    reach_s: float = 60
    retry_s: float = 1.0
    reconnect_s: float = 5.0
    prepare_s: float = 60
    answer_s: float = 30.0
    notable_s: float = 5.0
    silence_s: float = 15.0
    head_silence_s: float = 20.0
    hung_s: float = 120.0
    stop_s: float = 10
    lost_supervisor_s: float = LOST_SUPERVISOR_S
    look_s: float = 2.0
    most_backoff_s: int = 300
    acknowledge_s: float = 60
    lease_s: float = 180
    save_s: float = 900.0


TIMES = Times()
