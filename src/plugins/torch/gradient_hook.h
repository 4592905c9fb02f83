// What autograd calls when a gradient is complete, and what optimizer.step() calls to await all gradients of
// a step: the usual case of rueda/torch/pending_gradients.py in C, without bytecode. All that is not usual is
// left to the Python code, which says what each attribute means. Each function needs the interpreter's lock.
//
// Example: a float32 gradient on the CPU, of the shape that was prepared in the last step, in its only
// backward pass. The hook reads its address by DLPack, puts that into the prepared request, submits it, and
// notes in the PendingGradient and in the record of open operations what pending_gradients.make_hook would
// note there.
#pragma once

#include <string>

#include "plugins/torch/dlpack.h"
#include "plugins/torch/python.h"

namespace rueda::torch {

// What all hooks of a process share.
struct HookParts {
  PyObject* tensor_type = nullptr;      // torch.Tensor: subclasses are not usual
  PyObject* exchange = nullptr;         // the capsule of its DlpackExchange
  PyObject* open_operations = nullptr;  // open_operations.open_operations
  PyObject* writing_back = nullptr;     // open_operations.writing_back
};

// Returns "", or why there can be no hooks. The parts are kept until the process ends.
std::string install_hooks(const HookParts& parts);

// A callable that takes a parameter. slot: a weak reference to its PendingGradient; activity: the Activity of
// its reducer; in_general: what does everything else. Null with an exception where there is no memory.
PyObject* make_hook(PyObject* slot, PyObject* activity, PyObject* in_general);

// Awaits the gradients of a list of PendingGradients, all of which were started by `send` or by a hook, and
// makes them ready for so many passes of the next step. 1: done. 0: something is not usual, or a reduction
// has failed; nothing has changed. -1: a handler of a signal has raised; nothing has changed.
int await_gradients(PyObject* gradients, int passes);

}  // namespace rueda::torch
