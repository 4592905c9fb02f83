#include "plugins/tensorflow/marks.h"

#include "plugins/tensorflow/engine_api.h"

namespace rueda::tensorflow {
namespace {

struct Mark {
  int64_t source = 0;  // of rueda_mark_step
};

}  // namespace

void* create_mark(TF_OpKernelConstruction* construction) {
  auto* const made = new Mark;
  TfStatus status;
  tf.TF_OpKernelConstruction_GetAttrInt64(construction, "source", &made->source, status.get());
  if (!status.is_ok()) tf.TF_OpKernelConstruction_Failure(construction, status.get());
  return made;
}

void mark(void* kernel, TF_OpKernelContext* /*context*/) {
  engine.mark_step(static_cast<const Mark*>(kernel)->source);
}

void forget_mark(void* kernel) { delete static_cast<Mark*>(kernel); }

}  // namespace rueda::tensorflow
