// Collectives of a job of one rank, whose results are their inputs: they end on the thread that submits them,
// and no engine is woken. Only where that is quick.
#pragma once

#include "rueda/runtime/operation.h"

namespace rueda::runtime {

// Whether the tensor is such a collective of one rank, with nothing to be copied, or little.
bool may_end_at_once(const Tensor& tensor);
// Puts the result where it belongs. False if there is no memory for it.
bool end_at_once(Tensor& tensor);

}  // namespace rueda::runtime
