"""The short form of soak.py."""
from rank_serving import RankServer
from soak import soak

THREADS = 1


def test_many_requests_of_which_a_fifth_leave(weft, weft_env, tinypy, sanitized):
    first, last, compared = soak(weft, weft_env, tinypy, 150 if sanitized else 700)
    assert compared >= 50
    assert last[1] <= first[1] + 2
    assert sanitized or last[0] < first[0] + (16 << 20)


def test_two_processes(weft, weft_env, tinypy, sanitized):
    """Answers on two processes of MPI are those of one."""
    first, last, compared = soak(weft, weft_env, tinypy, 50 if sanitized else 200, kind=RankServer)
    assert compared >= 20
    assert last[1] <= first[1] + 2
    assert sanitized or last[0] < first[0] + (16 << 20)
