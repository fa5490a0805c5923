"""Which modules are mutated, and the tests that ought to notice.

The quickest tests come first: a mutant is killed by the first test that fails.
"""

_MODES = ("tests/engine/plan/test_modes.py", "tests/engine/plan/test_mode_scripts.py")
_RUN_FILES = ("tests/config/test_complaints.py", "tests/config/test_load.py")
_NUMBERS = (
    "tests/engine/agent/judge/test_judge.py",
    "tests/engine/agent/judge/test_table_edges.py",
    "tests/engine/agent/judge/test_numbers.py",
)
_TABLES = (
    "tests/engine/agent/judge/test_nccl_tests.py",
    *_NUMBERS,
    "tests/engine/agent/judge/test_public_outputs.py",
)
_STATES = ("tests/engine/agent/head/test_states.py", "tests/engine/agent/head/test_any_order.py")
_MANIFESTS = (
    *("tests/formats/test_manifest_values.py", "tests/formats/test_manifests.py"),
    "tests/formats/test_manifest_files.py",
)

SUBJECTS: dict[str, tuple[str, ...]] = {
    "engine/agent/node/interruption.py": ("tests/engine/agent/node/test_interruption.py",),
    "engine/agent/judge/failures.py": ("tests/engine/agent/judge/test_failures.py",),
    "engine/agent/judge/kernel_messages.py": ("tests/engine/agent/node/test_kernel_log.py",),
    "engine/agent/judge/nccl_warnings.py": ("tests/engine/agent/judge/test_nccl_warnings.py",),
    "engine/agent/judge/failure_patterns.py": ("tests/engine/agent/judge/test_watchdog.py",),
    "engine/agent/metrics/node_counters.py": ("tests/engine/agent/metrics/test_node_counters.py",),
    "engine/agent/metrics/idle_gpus.py": ("tests/engine/agent/metrics/test_samples.py",),
    "engine/agent/metrics/openmetrics.py": ("tests/engine/agent/metrics/test_openmetrics.py",),
    "engine/analysis/metrics/summary.py": ("tests/engine/analysis/test_metrics.py",),
    "engine/analysis/metrics/usage.py": ("tests/engine/analysis/test_metrics.py",),
    "engine/analysis/metrics/curves.py": ("tests/engine/analysis/test_metrics.py",),
    "engine/agent/node/output.py": (
        "tests/engine/agent/node/test_output.py",
        "tests/engine/agent/node/test_full_disks.py::test_a_log_that_has_no_room_ends_and_the_output_goes_on",
        "tests/engine/agent/head/test_promises.py",
    ),
    "engine/agent/journal/lines.py": (
        "tests/engine/agent/journal/test_lines.py",
        "tests/engine/agent/judge/test_nccl_tests.py",
    ),
    "engine/agent/judge/output_checks.py": _NUMBERS,
    "engine/agent/judge/nccl_correctness.py": _NUMBERS,
    "engine/agent/judge/rdma_check.py": (
        "tests/engine/agent/judge/test_proof_edges.py",
        "tests/engine/agent/judge/test_proof.py",
        "tests/engine/agent/judge/test_torn_lines.py",
    ),
    "engine/agent/judge/bandwidth_gates.py": ("tests/engine/plan/test_gates.py",),
    "engine/agent/judge/case_progress.py": ("tests/engine/plan/test_cases.py",),
    "engine/agent/node/nccl_json_files.py": _NUMBERS,
    "engine/agent/judge/table_json.py": _NUMBERS,
    "engine/agent/judge/table_rows.py": _TABLES,
    "engine/agent/judge/tables.py": _TABLES,
    "engine/agent/judge/table_events.py": ("tests/engine/agent/judge/test_table_events.py",),
    "engine/agent/node/ranks.py": ("tests/engine/agent/node/test_ranks.py",),
    "engine/agent/journal/redaction.py": ("tests/engine/agent/journal/test_redaction.py",),
    "engine/agent/head/retry.py": ("tests/engine/agent/head/test_retry.py",),
    "engine/agent/head/queue.py": ("tests/engine/agent/head/test_queue.py",),
    "engine/agent/head/decisions.py": _STATES,
    "engine/agent/head/verdicts.py": _STATES,
    "engine/plan/proposal.py": ("tests/cli/test_up_for.py",),
    "formats/kubernetes/requirements.py": ("tests/cli/test_up_for.py",),
    "engine/plan/cases.py": ("tests/engine/plan/test_cases.py",),
    "engine/plan/gates.py": ("tests/engine/plan/test_gates.py",),
    "engine/analysis/comparison.py": ("tests/engine/analysis/test_comparison.py",),
    "engine/analysis/measurements.py": ("tests/engine/analysis/test_comparison.py",),
    **{
        f"engine/analysis/bisect/{name}.py": (
            "tests/engine/analysis/test_bisect_edges.py",
            "tests/engine/analysis/test_bisect.py",
        )
        for name in ("launch", "report", "rounds", "verdict")
    },
    "engine/record/run_context.py": ("tests/engine/record/test_setting.py",),
    "engine/analysis/timeline.py": ("tests/engine/analysis/test_timeline.py",),
    "engine/plan/environment.py": ("tests/engine/plan/test_plan.py", *_MODES),
    "engine/plan/hostfile.py": ("tests/engine/plan/test_modes.py",),
    "engine/agent/journal/journal_file.py": ("tests/engine/agent/journal/test_journal_file.py",),
    "engine/agent/journal/rotating_file.py": ("tests/engine/agent/journal/test_journal_file.py",),
    "engine/record/nccl_tests.py": ("tests/engine/agent/judge/test_nccl_tests.py",),
    "engine/plan/node_choice.py": ("tests/engine/agent/head/test_queue.py",),
    "engine/plan/order.py": ("tests/engine/plan/test_order.py", "tests/engine/plan/test_modes.py"),
    "engine/plan/remote_paths.py": (
        "tests/engine/plan/test_plan.py",
        "tests/engine/plan/test_modes.py",
    ),
    "engine/plan/launch_plan.py": (
        "tests/engine/plan/test_plan.py",
        *_MODES,
        "tests/engine/plan/test_presets.py",
    ),
    "engine/plan/rules.py": (
        "tests/engine/plan/test_rules.py",
        "tests/engine/plan/test_reference.py",
    ),
    "config/loading/messages.py": _RUN_FILES,
    "config/yaml/composing.py": ("tests/config/test_marked_yaml.py", *_RUN_FILES),
    "config/run/image_reference.py": _RUN_FILES,
    "config/yaml/marked_yaml.py": (
        "tests/config/test_marked_yaml.py",
        *_RUN_FILES,
        "tests/config/test_templates.py",
    ),
    "config/run/owned_variables.py": (
        "tests/config/test_owned.py",
        *_RUN_FILES,
        "tests/engine/plan/test_reference.py",
    ),
    "config/run/sweep_rules.py": _RUN_FILES,
    "config/run/role_rules.py": _RUN_FILES,
    "config/cluster/cluster_rules.py": _RUN_FILES,
    "config/run/run_rules.py": _RUN_FILES,
    "config/loading/templates.py": (
        "tests/config/test_templates.py",
        "tests/config/test_complaints.py",
    ),
    "nodes/public_keys.py": ("tests/nodes/test_public_keys.py",),
    "provision/capacity/offers.py": ("tests/provision/test_capacity.py",),
    "provision/preflight/quotas.py": ("tests/provision/test_limits.py",),
    "provision/preflight/replacements.py": ("tests/provision/test_replacements.py",),
    "provision/removal/sweep.py": (
        "tests/provision/test_removal.py",
        "tests/provision/test_sweep.py",
    ),
    **{
        f"engine/plan/modes/{name}.py": _MODES
        for name in (
            *("__init__", "ddp", "deepspeed", "horovod", "job", "mpi", "mpirun", "nccl_tests"),
            *("ps_worker", "ray", "task", "torchrun"),
        )
    },
    **{
        f"{name}.py": _MANIFESTS
        for name in (
            "config/loading/manifests",
            "config/loading/substitutions",
            "formats/converted",
            "formats/foreign_file",
            "formats/kubernetes/container",
            "formats/kubernetes/manifest_format",
            "formats/kubernetes/manifest_reading",
            "formats/kubernetes/mpi_run",
            "formats/kubernetes/placeholders",
            "formats/kubernetes/pod",
            "formats/kubernetes/schema",
            "formats/kubeflow/mpijob",
            "formats/kubeflow/runtimes",
            "formats/kubeflow/trainjob",
            "formats/volcano/volcano",
        )
    },
    **{
        f"formats/dstack/{name}.py": ("tests/formats/test_dstack.py",)
        for name in (
            *("commands", "dstack_file", "dstack_task", "format", "references", "task_env"),
            *("task_image", "task_resources"),
        )
    },
    "config/run/requirements.py": ("tests/engine/plan/test_requirement_check.py",),
    "engine/plan/requirement_check.py": ("tests/engine/plan/test_requirement_check.py",),
    "smoke/differences.py": ("tests/smoke/test_differences.py",),
}
