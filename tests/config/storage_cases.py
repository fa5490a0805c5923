"""Mistakes in `storage` and what is said of them: part of `tests.config.test_complaints`."""

CLUSTER = "name: demo\nnodes: 2\ninstance_type: p4d.24xlarge\n"
LUSTRE = CLUSTER + "storage: {shared: {type: fsx-lustre, "

STORAGE_CASES: list[tuple[str, list[str]]] = [
    (
        CLUSTER + "storage: {root_gib: 200}\n",
        ["4:11: E101 unknown key 'root_gib'; did you mean 'root'?"],
    ),
    (
        CLUSTER + "storage: {buckets: [my-data]}\n",
        [
            "4:11: E214 'storage.buckets' needs a role, and without instance_profile nodes have"
            " none; name an instance profile that exists: `instance_profile: NAME`"
        ],
    ),
    (
        CLUSTER + "instance_profile: ours\nstorage: {buckets: ['s3://my-data', my-data/train]}\n",
        [
            "5:21: E203 'storage.buckets[0]' is 's3://my-data'; write the name of an S3 bucket,"
            " without s3:// and without a folder (my-data)",
            "5:37: E203 'storage.buckets[1]' is 'my-data/train'; write the name of an S3 bucket,"
            " without s3:// and without a folder (my-data)",
        ],
    ),
    (
        CLUSTER + "storage: {root: {gib: 30, iops: 20000}}\n",
        [
            "4:33: E213 'storage.root.iops' is 20000, a gp3 of 30 GiB has 15000;"
            " set gib to 40 or more, or fewer iops"
        ],
    ),
    (
        CLUSTER + "storage: {root: {gib: 200, throughput: 1000}}\n",
        [
            "4:40: E213 'storage.root.throughput' is 1000, a gp3 of 3000 iops has 750;"
            " set iops to 4000 or more, or less throughput"
        ],
    ),
    (
        CLUSTER + "storage: {root: {iops: 90000, throughput: 100}}\n",
        [
            "4:24: E202 'storage.root.iops' is 90000, above 80000; use 3000 to 80000",
            "4:43: E202 'storage.root.throughput' is 100, below 125; use 125 to 2000",
        ],
    ),
    (
        CLUSTER + "storage: {shared: {type: efs, capacity_gib: 1200}}\n",
        [
            "4:31: E214 'storage.shared.capacity_gib' has no effect: efs grows and scales by"
            " itself; remove it"
        ],
    ),
    (
        LUSTRE + "capacity_gib: 3000}}\n",
        [
            "4:52: E213 'storage.shared.capacity_gib' is 3000, no size of FSx for Lustre;"
            " use 2400 or 4800"
        ],
    ),
    (
        LUSTRE + "throughput: 250}}\n",
        [
            "4:38: E214 'storage.shared.throughput' has no effect: a scratch one has 200 MB/s per"
            " TiB; set deployment to persistent, or remove it"
        ],
    ),
    (
        LUSTRE + "deployment: persistent, throughput: 300}}\n",
        [
            "4:74: E201 'storage.shared.throughput' is the number 300, which is not allowed;"
            " use 125, 250, 500 or 1000"
        ],
    ),
    (
        CLUSTER + "image: stock-debian-12\nstorage: {shared: {type: fsx-lustre}}\n",
        [
            "5:26: E214 'storage.shared.type' is fsx-lustre, for which Debian has no client;"
            " use efs, or another image"
        ],
    ),
    (
        CLUSTER + "storage: {shared: {type: efs, path: /usr/share}}\n",
        [
            "4:37: E215 'storage.shared.path' is in a system folder; use a new folder, such as"
            " /shared, or one below /mnt, /opt or /home"
        ],
    ),
    (
        CLUSTER + "storage: {scratch: /data/fast, shared: {type: efs, path: /data}}\n",
        [
            "4:40: E215 'storage.shared.path' is /data, 'storage.scratch' /data/fast;"
            " keep them apart"
        ],
    ),
    (
        CLUSTER + "storage: {scratch: 'with space'}\n",
        [
            "4:20: E203 'storage.scratch' is 'with space'; write a folder's whole path of letters,"
            " digits, '.', '_' and '-', such as /shared"
        ],
    ),
]
