"""The catalogue against EC2's own data, as moto keeps it, and what is not known stays unknown."""

from moto.ec2.models.instance_types import INSTANCE_TYPES

from config.catalogue import BASTION_TYPE, catalogue, is_instance_type, nearest, price_usd_h


def test_facts_agree_with_describe_instance_types() -> None:
    assert len(catalogue()) == 41
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


def test_any_type_of_ec2_passes_and_a_slip_of_the_pen_does_not() -> None:
    assert [name for name in INSTANCE_TYPES if not is_instance_type(name)] == []
    slips = ("p5.48xlage", "p4x.24xlarge", "h100", "c5", "c5.lrage", "P5.48xlarge", "g5.", "")
    assert [name for name in slips if is_instance_type(name)] == []
