#include "plugins/torch/attribute_names.h"

#include <utility>

namespace rueda::torch {

bool intern_names(AttributeNames& n) {
  const std::pair<PyObject**, const char*> all[] = {
      {&n.grad, "grad"},
      {&n.is_neg, "is_neg"},
      {&n.parameter, "parameter"},
      {&n.passes_left, "passes_left"},
      {&n.is_ready, "is_ready"},
      {&n.is_settled, "is_settled"},
      {&n.is_outstanding, "is_outstanding"},
      {&n.sparse_dim, "sparse_dim"},
      {&n.prepared, "prepared"},
      {&n.reduction, "reduction"},
      {&n.epoch, "epoch"},
      {&n.is_possible, "is_possible"},
      {&n.engine_handle, "engine_handle"},
      {&n.borrowed, "borrowed"},
      {&n.stream, "stream"},
      {&n.recurring, "recurring"},
      {&n.address, "address"},
      {&n.count, "count"},
      {&n.checked_in, "checked_in"},
      {&n.process_set, "process_set"},
      {&n.set_id, "_set_id"},
      {&n.device, "device"},
      {&n.handle, "handle"},
  };
  for (const auto& [name, text] : all)
    if ((*name = g_python.intern(text)) == nullptr) return false;
  return true;
}

}  // namespace rueda::torch
