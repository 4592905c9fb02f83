"""The hook of gradients in C with each CPython of this machine: one library serves all of them. Not each has
torch, so a class of ours with a DLPack table of its own stands for torch.Tensor.
"""

import glob
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import setup_extras  # noqa: E402 (found in tools)

PLUGIN = ROOT / "build/release/librueda_torch.so"

PROGRAM = """
import ctypes, sys, weakref
from own_dlpack import CPU, Numbers, dims, make_exchange
from rueda import _core, epochs
from rueda.basics import basics
from rueda.open_operations import Repeated, open_operations, writing_back
from rueda.operations import Call
from rueda.process_sets import global_process_set
from rueda.repeats import prepare

class Tensor:
    def __init__(self, count):
        self.numbers = (ctypes.c_float * count)(*range(count))
        self.shape, self.strides = dims(count), dims(1)
    def is_neg(self):
        return False

exchange = make_exchange(
    lambda tensor: Numbers(ctypes.addressof(tensor.numbers), CPU, tensor.shape, tensor.strides)
)

library = ctypes.PyDLL(sys.argv[1])
install, make = library["rueda_torch_install_hooks"], library["rueda_torch_make_hook"]
await_all = library["rueda_torch_await_gradients"]
install.argtypes, install.restype = [ctypes.py_object] * 4, ctypes.c_char_p
make.argtypes, make.restype = [ctypes.py_object] * 3, ctypes.py_object
await_all.argtypes = [ctypes.py_object, ctypes.c_int]
assert install(Tensor, exchange, open_operations, writing_back) == b""

class Gradient:
    def __init__(self, parameter):
        self.parameter, self.passes_left, self.reduction, self.prepared = parameter, 1, None, None
        self.is_ready = self.is_settled = self.is_outstanding = False
        self.sparse_dim = None

class Object:
    pass

basics.init()
COUNT, MANY = 5, 50
activity = Object()
activity.epoch, activity.is_possible = epochs.current(), False
general, gradients, hooks = [], [], []
def in_general(parameter):
    general.append(parameter)
    if parameter.grad is None:
        raise KeyError("no gradient")
for index in range(MANY):
    parameter = Object()
    parameter.grad = Tensor(COUNT)
    gradient = Gradient(parameter)
    call = Call(_core.ALLREDUCE, _core.FLOAT32, (COUNT,), 0, op=_core.SUM, prescale=2.0)
    gradient.prepared = Repeated(prepare([(f"g{index}", 0, call)], global_process_set, "Allreduce"))
    gradients.append(gradient)
    hooks.append(make(weakref.ref(gradient), activity, in_general))

def backward():
    for hook, gradient in zip(hooks, gradients):
        assert hook(gradient.parameter) is None

backward()
assert len(general) == MANY and not activity.is_possible  # no process set was checked yet
for gradient in gradients:
    gradient.prepared.recurring.checked_in = epochs.current()
for step in range(20):
    backward()
    assert len(general) == MANY and len(open_operations) == MANY and activity.is_possible
    assert gradients[7].reduction is gradients[7].prepared and gradients[7].passes_left == 0
    assert await_all(gradients, 1) == 1
    assert not open_operations and gradients[7].reduction is None and gradients[7].passes_left == 1
assert list(gradients[3].parameter.grad.numbers) == [2.0**20 * at for at in range(COUNT)]

assert await_all(gradients, 1) == 0  # nothing is under way
gradients[0].parameter.grad = Tensor(COUNT + 1)  # another shape
hooks[0](gradients[0].parameter)
assert len(general) == MANY + 1
gradients[1].parameter.grad = None
try:
    hooks[1](gradients[1].parameter)
except KeyError as error:
    assert error.args == ("no gradient",)
else:
    raise SystemExit("the error was lost")
del gradients[2]
assert hooks[2](Object()) is None  # its gradient is gone
basics.shutdown()
hooks[3](gradients[3].parameter)
assert len(general) == MANY + 3
print("passed")
"""


def pythons():
    """One CPython of each version from 3.9 on: this one, pyenv's, the system's, and a newer Debian's."""
    found = {}
    others = ["/usr/bin/python3", str(setup_extras.python_program())]
    for path in (sys.executable, *glob.glob("/root/.pyenv/versions/*/bin/python3"), *others):
        if not os.access(path, os.X_OK):
            continue
        ask = "import sys; v = sys.version_info; print(v[0] * 100 + v[1], sys.implementation.name)"
        said = subprocess.run(
            [path, "-c", ask], capture_output=True, text=True, timeout=60, check=False
        ).stdout
        number, _, name = said.strip().partition(" ")
        if name == "cpython" and int(number) >= 309:
            found.setdefault(int(number), path)
    return [pytest.param(path, id=f"python3.{number - 300}") for number, path in sorted(found.items())]


@pytest.mark.parametrize("python", pythons())
def test_one_library_serves_every_python(python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    variables = {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tests/multiprocess'}", "RUEDA_INTERFACE": "lo"}
    variables["RUEDA_LIBRARY"] = str(PLUGIN.with_name("librueda.so"))
    done = subprocess.run(
        [python, str(program), str(PLUGIN)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0 and done.stdout == "passed\n", done.stdout + done.stderr
