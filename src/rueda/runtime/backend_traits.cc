#include "rueda/runtime/backend_traits.h"

#include <memory>

#include "rueda/runtime/batch.h"

namespace rueda::runtime {
namespace {

// From this size on, copying a tensor into and out of the fusion buffer takes as long as a call of its own.
constexpr int64_t kAloneBytes = 1 << 20;

}  // namespace

control::BackendTraitsLookup make_traits_lookup(const backend::BackendTable& backends, const Groups& groups) {
  return [&backends, &groups](int32_t process_set, const control::Terms& terms) -> control::BackendTraits {
    std::shared_ptr<const Group> group = groups.find(process_set);
    // The other ranks may use a new set before the dispatcher of this rank has added it.
    if (group == nullptr) group = groups.find(0);
    const schedule::Spec spec = spec_of(terms, group->size());
    const Memory memory{.kind = terms.memory, .device = terms.device};
    backend::Backend* const backend = backends.choose(*group, spec, memory);
    if (backend == nullptr) return {.can_cancel = false};  // the dispatcher refuses it
    return {.alone_bytes = backend->copies_fused(*group, spec) ? kAloneBytes : 0,
            .can_cancel = backend->cancellation() != nullptr,
            .bucket_bytes = backend->bucket_bytes(*group, spec),
            .keeps_order = backend->keeps_order(),
            .obeys_tuning = backend->obeys_tuning()};
  };
}

}  // namespace rueda::runtime
