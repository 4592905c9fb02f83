#include "rueda/runtime/at_once.h"

#include <cstring>

namespace rueda::runtime {
namespace {

// A larger copy would hold up the thread that submits, which may go on computing meanwhile.
constexpr size_t kMostCopied = 256 << 10;

}  // namespace

bool may_end_at_once(const Tensor& tensor) {
  const control::TensorRequest& request = tensor.request;
  const bool is_in_place = tensor.input == tensor.output && tensor.output != nullptr;
  // On a device only what needs no copy, and whose stream is known, in whose order it then ends.
  if (request.memory == MemoryKind::kDevice && !(is_in_place && tensor.ready_stream.is_given)) return false;
  if (request.what == Collective::kJoin || !(is_in_place || tensor.bytes() <= kMostCopied)) return false;
  if (request.what == Collective::kAlltoall)
    return request.splits.size() == 1 && request.splits[0] == request.shape[0];
  if (!is_reduction(request.what)) return true;
  // The sum of bools is 0 or 1, whatever their bytes are.
  return request.prescale == 1.0 && request.postscale == 1.0 && request.dtype != DType::kBool &&
         request.op != ReduceOp::kAdasum;
}

bool end_at_once(Tensor& tensor) {
  tensor.result_shape = tensor.request.shape;
  if (tensor.request.what == Collective::kBarrier) return true;
  if (tensor.request.what == Collective::kAlltoall) tensor.received_splits = tensor.request.splits;
  if (tensor.output == nullptr) {
    tensor.allocated = allocate_host(tensor.bytes());
    if (tensor.allocated == nullptr) return false;
    tensor.output = tensor.allocated.get();
  }
  const bool has_bytes = tensor.input != tensor.output && tensor.bytes() > 0;
  if (has_bytes) std::memcpy(tensor.output, tensor.input, tensor.bytes());
  return true;
}

}  // namespace rueda::runtime
