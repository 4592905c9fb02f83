"""rueda_init read lists of process sets that were not there."""

import ctypes

import pytest
from harness import library


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("set_count", ctypes.c_int32),
        ("set_sizes", ctypes.POINTER(ctypes.c_int32)),
        ("set_ranks", ctypes.POINTER(ctypes.c_int32)),
        ("expected_size", ctypes.c_int32),
    ]


ONE = (ctypes.c_int32 * 1)(1)
BAD = {
    "set_count and set_sizes do not fit together": [(-1, ONE, ONE), (1, None, ONE)],
    "set_ranks is null": [(1, ONE, None)],
}


@pytest.mark.parametrize("sentence, options", [(s, o) for s, group in BAD.items() for o in group])
def test_lists_that_are_missing_are_refused(sentence, options):
    core = ctypes.CDLL(library())
    core.rueda_last_error.restype = ctypes.c_char_p
    given = Options(ctypes.sizeof(Options), *options, 0)
    assert core.rueda_init(ctypes.byref(given)) != 0
    assert sentence in core.rueda_last_error().decode()
    assert not core.rueda_is_initialized()
