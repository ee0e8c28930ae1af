"""The sizes of buckets, against the twin's formula."""

from __future__ import annotations

import pytest

from smpc_dp.crypto.active import FEWEST, GROUP, bucket_size
from tests.reference import active_twin


def test_buckets_have_the_published_sizes() -> None:
    assert [bucket_size(count, 1) for count in (31, 253, GROUP)] == [8, 6, 4]
    assert [bucket_size(GROUP, groups) for groups in (4993, 4994)] == [4, 5]


@pytest.mark.parametrize("groups", [1, 2, 1000])
def test_sizes_in_whole_numbers_are_those_of_the_formula(groups: int) -> None:
    counts = [*range(FEWEST, 300, 31), *(int(2.9**power) for power in range(6, 11)), GROUP]
    assert [bucket_size(count, groups) for count in counts] == [
        active_twin.bucket_size(count, groups) for count in counts
    ]


@pytest.mark.parametrize("triples", [0, FEWEST - 1, GROUP + 1])
def test_a_group_of_another_size_is_refused(triples: int) -> None:
    with pytest.raises(ValueError, match=f"triples: {triples}, not between 31 and 65536"):
        bucket_size(triples, 1)
