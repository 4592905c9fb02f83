// The names of the attributes that the hook of gradients reads and sets, as objects of Python.
#pragma once

#include "plugins/torch/python.h"

namespace rueda::torch {

// Of objects in pending_gradients.py and open_operations.py, and of tensors. Never released.
struct AttributeNames {
  PyObject* grad = nullptr;
  PyObject* is_neg = nullptr;
  // PendingGradient
  PyObject* parameter = nullptr;
  PyObject* passes_left = nullptr;
  PyObject* is_ready = nullptr;
  PyObject* is_settled = nullptr;
  PyObject* is_outstanding = nullptr;
  PyObject* sparse_dim = nullptr;
  PyObject* prepared = nullptr;
  PyObject* reduction = nullptr;
  // Activity
  PyObject* epoch = nullptr;
  PyObject* is_possible = nullptr;
  // Repeated
  PyObject* engine_handle = nullptr;
  PyObject* borrowed = nullptr;
  PyObject* stream = nullptr;
  PyObject* recurring = nullptr;
  // repeats.Recurring
  PyObject* address = nullptr;
  PyObject* count = nullptr;
  PyObject* checked_in = nullptr;
  PyObject* process_set = nullptr;
  PyObject* set_id = nullptr;
  // device.Stream
  PyObject* device = nullptr;
  PyObject* handle = nullptr;
};

// False, with an exception, where there is no memory.
bool intern_names(AttributeNames& names);

}  // namespace rueda::torch
