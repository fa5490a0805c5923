import base64
import gzip
import random

import pytest

from config.errors import InputError
from infra.program.user_data import encode


def test_small_user_data_stays_readable() -> None:
    assert base64.b64decode(encode("#cloud-config\n")) == b"#cloud-config\n"


def test_large_user_data_is_compressed_and_always_the_same() -> None:
    text = "#cloud-config\n" + "x" * 20_000
    assert gzip.decompress(base64.b64decode(encode(text))).decode() == text
    assert encode(text) == encode(text)


def test_what_ec2_would_refuse_is_refused_before() -> None:
    noise = random.Random(1).randbytes(40_000).hex()
    with pytest.raises(
        InputError, match=r"user data has \d+ bytes after compression, EC2 allows 16384"
    ):
        encode(noise)
