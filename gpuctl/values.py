"""The types of what the Python API returns, for annotations."""

from config.diagnostic import Diagnostic
from config.explanation import Explanation, Field
from config.loading.templates import Template
from config.settings import Setting
from gpuctl.api import GcResult
from operations.bisect import Bisect
from operations.capacity import CapacityReport, ReservedCapacity
from operations.cost import Costs
from operations.debug import RunProcesses, ShownProcess
from operations.doctor import Check
from operations.drift import Drift
from operations.files import Copied
from operations.heal import Replacement
from operations.health import Health
from operations.kept_logs import Pruning
from operations.known import ListedRun, RunRecord
from operations.lab import Labs
from operations.lease import Extension
from operations.login import Hosts
from operations.node_commands import Completed
from operations.out_of_service import Outage
from operations.prepared_run import PreparedRun
from operations.proposal import Proposal
from operations.release import Teardown
from operations.rent import FleetPlan
from operations.results import Comparison, RunResults
from operations.run_client import EndedRun
from operations.run_queue import Queue
from operations.run_report import Report
from operations.runs import RunResult, StoppedRun
from operations.status import ClusterStatus, Inventory
from operations.team import Access, Member
from operations.usage import ClusterUsage, NodeSummary

__all__ = [
    "Access",
    "Bisect",
    "CapacityReport",
    "Check",
    "ClusterStatus",
    "ClusterUsage",
    "Comparison",
    "Completed",
    "Copied",
    "Costs",
    "Diagnostic",
    "Drift",
    "EndedRun",
    "Explanation",
    "Extension",
    "Field",
    "FleetPlan",
    "GcResult",
    "Health",
    "Hosts",
    "Inventory",
    "Labs",
    "ListedRun",
    "Member",
    "NodeSummary",
    "Outage",
    "PreparedRun",
    "Proposal",
    "Pruning",
    "Queue",
    "Replacement",
    "Report",
    "ReservedCapacity",
    "RunProcesses",
    "RunRecord",
    "RunResult",
    "RunResults",
    "Setting",
    "ShownProcess",
    "StoppedRun",
    "Teardown",
    "Template",
]
