"""Capsules of DLPack, against numpy's and torch's own."""

import gc
import weakref

import numpy as np
import pytest
import torch

from rueda import dlpack


class Given:
    """An array on the CPU whose capsules are rueda's."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return dlpack.CPU, 0

    def __dlpack__(self, **_):
        array = self.array
        return dlpack.capsule(self, array.ctypes.data, array.shape, array.dtype.name, (dlpack.CPU, 0))


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 4)])
def test_what_one_side_gives_the_other_reads(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)
    view = dlpack.view(array.__dlpack__())
    assert (view.shape, view.dtype, view.device_type, view.is_contiguous) == (shape, dtype, dlpack.CPU, True)
    assert view.address == array.ctypes.data or array.size == 0
    np.testing.assert_array_equal(np.from_dlpack(Given(array)), array)


def test_types_that_numpy_lacks():
    for dtype in (torch.bfloat16, torch.bool):
        tensor = torch.ones(3, dtype=dtype)
        view = dlpack.view(tensor.__dlpack__())
        assert f"torch.{view.dtype}" == str(dtype) and view.address == tensor.data_ptr()
        back = torch.from_dlpack(
            dlpack.capsule(tensor, view.address, view.shape, view.dtype, (dlpack.CPU, 0))
        )
        assert back.dtype == dtype and back.data_ptr() == tensor.data_ptr()
    with pytest.raises(ValueError, match="type code 5"):
        dlpack.view(torch.ones(2, dtype=torch.complex64).__dlpack__())


def test_strides_are_seen():
    matrix = np.zeros((3, 4), np.float32)
    assert not dlpack.view(matrix.T.__dlpack__()).is_contiguous
    assert dlpack.view(matrix[1:2].__dlpack__()).is_contiguous
    assert dlpack.is_contiguous((1, 3), (99, 1)) and not dlpack.is_contiguous((2, 3), (99, 1))


def test_memory_lives_as_long_as_its_consumer_and_no_longer():
    array = np.arange(4.0)
    given = Given(array)
    gone = weakref.ref(given)
    taken = np.from_dlpack(given)
    del given
    gc.collect()
    assert gone() is not None and taken.tolist() == [0, 1, 2, 3]
    del taken
    gc.collect()
    assert gone() is None

    given = Given(array)
    gone = weakref.ref(given)
    unused = given.__dlpack__()
    del given
    assert gone() is not None
    del unused
    gc.collect()
    assert gone() is None, "a capsule that nobody consumed"
