#include "plugins/tensorflow/kernel.h"

#include <memory>

namespace rueda::tensorflow {
namespace {

std::string read_string(TF_OpKernelConstruction* construction, const char* name, TfStatus& status) {
  int32_t list_size = 0;
  int32_t length = 0;
  tf.TF_OpKernelConstruction_GetAttrSize(construction, name, &list_size, &length, status.get());
  if (!status.is_ok() || length <= 0) return {};
  std::string value(static_cast<size_t>(length), '\0');
  tf.TF_OpKernelConstruction_GetAttrString(construction, name, value.data(), value.size(), status.get());
  return value;
}

int32_t read_int(TF_OpKernelConstruction* construction, const char* name, TfStatus& status) {
  int64_t value = 0;
  tf.TF_OpKernelConstruction_GetAttrInt64(construction, name, &value, status.get());
  return static_cast<int32_t>(value);
}

// Returns the attribute tensor_name if the front end gave one (in eager mode, in which nodes have no names of
// their own). Otherwise returns the node's name, without its scopes if asked.
std::string read_name(TF_OpKernelConstruction* construction, TfStatus& status) {
  std::string given = read_string(construction, "tensor_name", status);
  if (!status.is_ok() || !given.empty()) return given;
  const TF_StringView node = tf.TF_OpKernelConstruction_GetName(construction);
  std::string name(node.data, node.len);
  unsigned char is_scope_ignored = 0;
  tf.TF_OpKernelConstruction_GetAttrBool(construction, "ignore_name_scope", &is_scope_ignored, status.get());
  if (is_scope_ignored != 0) name.erase(0, name.rfind('/') + 1);  // npos + 1 is 0
  return name;
}

void read_reduction(TF_OpKernelConstruction* construction, Kernel& kernel, TfStatus& status) {
  kernel.op = read_int(construction, "reduce_op", status);
  if (!status.is_ok()) return;
  tf.TF_OpKernelConstruction_GetAttrFloat(construction, "prescale_factor", &kernel.prescale, status.get());
  if (!status.is_ok()) return;
  tf.TF_OpKernelConstruction_GetAttrFloat(construction, "postscale_factor", &kernel.postscale, status.get());
  if (status.is_ok()) kernel.wire = read_int(construction, "wire", status);
}

}  // namespace

Kernel* read_kernel(TF_OpKernelConstruction* construction, rueda_collective what, bool is_group) {
  TfStatus status;
  auto kernel = std::make_unique<Kernel>();
  kernel->what = what;
  kernel->is_group = is_group;
  if (what == RUEDA_JOIN) {
    kernel->name = "join.noname";  // a rank has only one at a time, so one name is enough
    return kernel.release();
  }
  kernel->name = read_name(construction, status);
  if (status.is_ok()) kernel->process_set = read_int(construction, "process_set_id", status);
  if (status.is_ok() && (what == RUEDA_ALLREDUCE || what == RUEDA_REDUCESCATTER)) {
    read_reduction(construction, *kernel, status);
  }
  if (status.is_ok() && what == RUEDA_BROADCAST) {
    kernel->root_rank = read_int(construction, "root_rank", status);
  }
  if (status.is_ok()) return kernel.release();
  tf.TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

}  // namespace rueda::tensorflow
