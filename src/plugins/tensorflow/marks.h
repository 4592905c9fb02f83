// The operation with which compiled functions say that a step of training has ended. Any thread.
#pragma once

#include "plugins/tensorflow/tf_api.h"

namespace rueda::tensorflow {

void* create_mark(TF_OpKernelConstruction* construction);
void mark(void* kernel, TF_OpKernelContext* context);
void forget_mark(void* kernel);

}  // namespace rueda::tensorflow
