"""A cluster's life while EC2 knows each new resource only later: the engine, no machines."""

import pytest

from config.cluster.cluster_file import Cluster
from config.progress import silent
from infra.stack.installation import Engine
from lab import fault_table
from provision import up as life
from provision.aws.clients import client
from provision.aws.resources import find_all
from provision.down import down
from provision.state.store import ClusterStore
from tests.infra.region import Region
from tests.provision.test_record import a_record
from tests.provision.test_sweep import tagged
from tests.provision.unbooted import nothing_boots

pytestmark = [pytest.mark.engine, pytest.mark.thorough]


def test_up_again_and_down_leave_nothing(here: Region, engine: Engine) -> None:
    del engine  # it exists
    fault_table.write(here.faults, {"consistency": ["1"]})
    demo = Cluster.model_validate({"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"})
    life.up(life.plan(demo, here.target, silent), here.target, silent, boot=nothing_boots)
    claims = client(here.target, "ec2").describe_capacity_reservations()["CapacityReservations"]
    first, claim = sorted(claims, key=lambda one: one["CreateDate"])
    assert claim["PlacementGroupArn"].endswith(":placement-group/gpuctl-demo")
    assert (first["State"], claim["State"]) == ("cancelled", "cancelled")
    assert life.plan(demo, here.target, silent).plan.is_empty
    down("demo", here.target, silent)
    here.faults.unlink()
    assert find_all(here.target, None) == []


def test_what_a_killed_up_requested_last_is_removed_although_ec2_lists_it_later(
    here: Region, engine: Engine
) -> None:
    del engine  # it exists
    killed = a_record()
    ClusterStore(here.target).write(killed)
    fault_table.write(here.faults, {"consistency": ["2"]})
    ec2 = client(here.target, "ec2")
    ec2.create_vpc(CidrBlock="10.213.0.0/16", TagSpecifications=tagged("vpc", killed.name))
    assert find_all(here.target, None) == []
    down(killed.name, here.target, silent)
    here.faults.unlink()
    assert find_all(here.target, None) == []
