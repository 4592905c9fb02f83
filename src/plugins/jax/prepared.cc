#include "plugins/jax/prepared.h"

#include <algorithm>

namespace rueda::jax {
namespace {

// Programs that compile again and again would fill the memory.
constexpr size_t kMost = 1 << 16;

}  // namespace

PreparedOperations::Prepared::Prepared(const rueda_request& request)
    : name(request.name), shape(request.shape, request.shape + request.ndim), terms(request) {
  terms.name = nullptr;
  terms.shape = nullptr;
  terms.input = terms.output = terms.ready = nullptr;
}

bool PreparedOperations::Prepared::is(const rueda_request& request) const {
  return request.what == terms.what && request.dtype == terms.dtype && request.op == terms.op &&
         request.process_set == terms.process_set && request.root_rank == terms.root_rank &&
         request.prescale == terms.prescale && request.postscale == terms.postscale &&
         request.device == terms.device && request.memory == terms.memory && request.wire == terms.wire &&
         std::equal(shape.begin(), shape.end(), request.shape, request.shape + request.ndim) &&
         name == request.name;
}

int64_t PreparedOperations::start(int64_t id, const rueda_request& request) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || !found->second.is(request)) {
    if (by_id_.size() >= kMost) {
      forget_all();
    } else if (found != by_id_.end()) {
      rueda_forget(found->second.prepared);
      by_id_.erase(found);
    }
    by_id_.try_emplace(id, request);
    return 0;
  }
  Prepared& known = found->second;
  if (known.prepared == 0 && rueda_prepare(&request, &known.prepared) != RUEDA_OK) {
    return 0;
  }
  rueda_start_item item{.prepared = known.prepared,
                        .input = request.input,
                        .output = request.output,
                        .ready = request.ready,
                        .handle = 0};
  if (rueda_start(&item, 1) != RUEDA_OK) {  // after a shutdown, or with a reason that a submission tells
    rueda_forget(known.prepared);
    known.prepared = 0;
    return 0;
  }
  return item.handle;
}

void PreparedOperations::forget_all() {
  for (const auto& [id, one] : by_id_) {
    rueda_forget(one.prepared);
  }
  by_id_.clear();
}

PreparedOperations& prepared_operations() {
  static PreparedOperations* const only = new PreparedOperations;
  return *only;
}

}  // namespace rueda::jax
