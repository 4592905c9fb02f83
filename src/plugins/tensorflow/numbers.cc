#include "plugins/tensorflow/numbers.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "plugins/tensorflow/engine_api.h"

namespace rueda::tensorflow {
namespace {

// What process_set_included_op answers instead of failing; the numbers are Horovod's.
constexpr int32_t kNotInitialized = -1;
constexpr int32_t kUnknownSet = -3;

struct Asked {
  Question which;
  int32_t process_set = 0;
};

int32_t is_included(int32_t process_set) {
  const int count = engine.process_set_ranks(process_set, nullptr, 0);
  if (count < 0) return engine.is_initialized() != 0 ? kUnknownSet : kNotInitialized;
  std::vector<int32_t> ranks(static_cast<size_t>(count));
  engine.process_set_ranks(process_set, ranks.data(), count);
  return std::find(ranks.begin(), ranks.end(), engine.rank()) != ranks.end() ? 1 : 0;
}

int32_t find_answer(const Asked& asked) {
  switch (asked.which) {
    case Question::kRank:
      return engine.rank();
    case Question::kLocalRank:
      return engine.local_rank();
    case Question::kLocalSize:
      return engine.local_size();
    case Question::kSize:
      return engine.process_set_ranks(asked.process_set, nullptr, 0);
    case Question::kIsIncluded:
      return is_included(asked.process_set);
  }
  return -1;
}

}  // namespace

template <Question kWhich>
void* create_question(TF_OpKernelConstruction* construction) {
  auto* const asked = new Asked{.which = kWhich};
  if constexpr (kWhich == Question::kSize || kWhich == Question::kIsIncluded) {
    TfStatus status;
    int64_t process_set = 0;
    tf.TF_OpKernelConstruction_GetAttrInt64(construction, "process_set_id", &process_set, status.get());
    if (!status.is_ok()) tf.TF_OpKernelConstruction_Failure(construction, status.get());
    asked->process_set = static_cast<int32_t>(process_set);
  }
  return asked;
}

template void* create_question<Question::kRank>(TF_OpKernelConstruction*);
template void* create_question<Question::kLocalRank>(TF_OpKernelConstruction*);
template void* create_question<Question::kLocalSize>(TF_OpKernelConstruction*);
template void* create_question<Question::kSize>(TF_OpKernelConstruction*);
template void* create_question<Question::kIsIncluded>(TF_OpKernelConstruction*);

void answer(void* kernel, TF_OpKernelContext* context) {
  const auto& asked = *static_cast<const Asked*>(kernel);
  TfStatus status;
  const int32_t value = find_answer(asked);
  if (value < 0 && asked.which != Question::kIsIncluded) {
    if (engine.is_initialized() != 0) {
      status.set(kTfInvalidArgument, "Process set " + std::to_string(asked.process_set) +
                                         " does not exist, or has not been registered.");
    } else {
      status.set(kTfFailedPrecondition, "Horovod has not been initialized; use hvd.init().");
    }
    return tf.TF_OpKernelContext_Failure(context, status.get());
  }
  TF_Tensor* const output =
      tf.TF_AllocateOutput(context, 0, kTfInt32, nullptr, 0, sizeof(value), status.get());
  if (!status.is_ok()) return tf.TF_OpKernelContext_Failure(context, status.get());
  std::memcpy(tf.TF_TensorData(output), &value, sizeof(value));
  tf.TF_DeleteTensor(output);
}

void forget_question(void* kernel) { delete static_cast<Asked*>(kernel); }

}  // namespace rueda::tensorflow
