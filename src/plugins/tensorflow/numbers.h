// The operations that answer with one number about the job: rank, size and their relatives. Any thread.
#pragma once

#include "plugins/tensorflow/tf_api.h"

namespace rueda::tensorflow {

enum class Question { kRank, kLocalRank, kLocalSize, kSize, kIsIncluded };

template <Question kWhich>
void* create_question(TF_OpKernelConstruction* construction);
void answer(void* kernel, TF_OpKernelContext* context);
void forget_question(void* kernel);

}  // namespace rueda::tensorflow
