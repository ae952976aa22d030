"""What a process of a model has in memory: a page of the cache that a sequence takes can be read at once, in every process.

Loads from memory that is not mapped cost a fault each, even masked ones: attention took up to 14 times as long.
"""
import struct

import pytest
from rank_serving import RankServer

THREADS = 1

PAGE = 4096
LAYER = 2 * 64 * 128 * 2 // PAGE             # keys and values of 64 positions: 4 heads of 32 halves


def mapped(pid):
    """Pages that are there, in memory of plain pages, which caches are in."""
    n, at, found = 0, None, False
    with open(f"/proc/{pid}/smaps") as maps, open(f"/proc/{pid}/pagemap", "rb") as table:
        for line in maps:
            first = line.split(" ", 1)[0]
            if "-" in first:
                at = [int(x, 16) // PAGE for x in first.split("-")]
            elif line.startswith("VmFlags:") and " nh" in line:
                found = True
                table.seek(at[0] * 8)
                entries = table.read((at[1] - at[0]) * 8)
                n += sum(e >> 63 for e, in struct.iter_unpack("<Q", entries))
    if not found:
        pytest.skip("this kernel has no huge pages, and so no memory without them")
    return n


@pytest.mark.parametrize("split, layers", [("row", 6), ("layer", 3)])
def test_pages_of_the_cache(weft, weft_env, tinypy, split, layers):
    """They are there after the first two tokens: only a few of them would be, of what these read and write."""
    with RankServer(weft, weft_env, tinypy, "-c", "2048", "--parallel", "4", "-sm", split) as s:
        before = [mapped(p) for p in s.ranks.values()]
        assert s.ask("/completion", {"prompt": "def f(x):", "n_predict": 2})[0] == 200
        assert [n for p, n in zip(s.ranks.values(), before) if mapped(p) - n < layers * LAYER] == []
