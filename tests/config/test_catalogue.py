"""The catalogue against EC2's own data, as moto keeps it, and what is not known stays unknown."""

from moto.ec2.models.instance_types import INSTANCE_TYPES

from config.catalogue.instance_types import (
    BASTION_TYPE,
    catalogue,
    is_instance_type,
    may_be_misspelled,
    nearest,
    price_usd_h,
)


def test_facts_agree_with_describe_instance_types() -> None:
    assert len(catalogue()) == 40
    for name, entry in catalogue().items():
        real = INSTANCE_TYPES[name]
        assert entry.vcpus == real["VCpuInfo"]["DefaultVCpus"], name
        assert entry.memory_mib == real["MemoryInfo"]["SizeInMiB"], name
        assert entry.network.cards == real["NetworkInfo"]["MaximumNetworkCards"], name
        assert entry.network.max_efa == real["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"], name
        assert entry.gpu.count == sum(
            g["Count"] for g in real.get("GpuInfo", {}).get("Gpus", ())
        ), name


def test_what_is_not_known_is_none() -> None:
    assert price_usd_h("p5e.48xlarge") is None
    assert catalogue()["p6-b200.48xlarge"].quota.spot is None
    assert catalogue()["trn2.48xlarge"].gpu.mem_mib is None
    assert price_usd_h("m7i.large") is None


def test_prices() -> None:
    assert price_usd_h("p4d.24xlarge") == 21.957642
    assert price_usd_h(BASTION_TYPE) == 0.0208


def test_nearest_names_come_most_alike_first() -> None:
    assert nearest("p5.48xlage") == ("p5.48xlarge", "p5e.48xlarge", "p5.4xlarge")
    assert nearest("P4D.24XLARGE")[0] == "p4d.24xlarge"
    assert nearest("h100") == ()


def test_any_type_of_ec2_passes_and_what_has_no_such_form_does_not() -> None:
    assert [name for name in INSTANCE_TYPES if not is_instance_type(name)] == []
    new = ("p7.48xlarge", "g8.2xlarge", "trn3.48xlarge", "p6e-gb200.36xlarge")
    assert [name for name in new if not is_instance_type(name)] == []
    slips = ("p5.48xlage", "h100", "c5", "c5.lrage", "P5.48xlarge", "g5.", "")
    assert [name for name in slips if is_instance_type(name)] == []


def test_only_accelerated_types_may_be_misspelled() -> None:
    asked = ("p4x.24xlarge", "p7.48xlarge", "p6e-gb200.36xlarge", "p5.96xlarge")
    assert [name for name in asked if not may_be_misspelled(name)] == []
    fine = ("p5.48xlarge", "p3.16xlarge", "g4ad.4xlarge", "c9.large", "hpc7a.96xlarge", "t3.small")
    assert [name for name in fine if may_be_misspelled(name)] == []
