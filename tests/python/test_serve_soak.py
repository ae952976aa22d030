"""The short form of soak.py."""
from soak import soak

THREADS = 1


def test_many_requests_of_which_a_fifth_leave(weft, weft_env, tinypy, sanitized):
    first, last, compared = soak(weft, weft_env, tinypy, 150 if sanitized else 700)
    assert compared >= 50
    assert last[1] <= first[1] + 2
    assert sanitized or last[0] < first[0] + (16 << 20)
