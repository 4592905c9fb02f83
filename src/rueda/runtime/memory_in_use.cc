#include "rueda/runtime/memory_in_use.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "rueda/runtime/operation.h"

namespace rueda::runtime {
namespace {

Range range_of(const void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  return {.begin = begin, .end = memory == nullptr ? begin : begin + bytes};
}

// Calls f(range, whether it is written). Results that the engine allocates belong to nobody else. The input
// of an allgather may be a part of its output.
template <class F>
void for_each_range(const Tensor& tensor, const F& f) {
  const Range input = range_of(tensor.input, tensor.bytes());
  const bool is_given = tensor.output != nullptr && tensor.output != tensor.allocated.get();
  const size_t output_bytes = tensor.output_bytes > 0 ? tensor.output_bytes : tensor.bytes();
  const Range output = range_of(is_given ? tensor.output : nullptr, output_bytes);
  if (!input.is_empty()) f(input, input == output && !tensor.is_only_read);
  if (!output.is_empty() && input != output) f(output, true);
}

}  // namespace

template <class F>
void MemoryInUse::for_each_conflict(const Operation& operation, size_t index, const F& f) {
  for_each_range(operation.tensors[index], [&](const Range& range, bool is_written) {
    uses_.for_each_overlap(range, [&](const Range&, Use& use) {
      const bool is_own = use.handle == operation.handle && use.index == index;
      if (!is_own && (is_written || use.is_written)) f(use);
    });
  });
}

void MemoryInUse::add(const std::shared_ptr<Operation>& operation, size_t index) {
  for_each_conflict(*operation, index, [&](Use& use) {
    operation->shares_memory.store(true, std::memory_order_release);
    if (use.operation == nullptr) return;  // no transfer can contain both any more
    use.operation->shares_memory.store(true, std::memory_order_release);
    operation->tensors[index].request.shares_memory = true;
  });
  if (operation->tensors[index].request.shares_memory) name_those_before(*operation, index);
  for_each_range(operation->tensors[index], [&](const Range& range, bool is_written) {
    uses_.add(range, {.is_written = is_written,
                      .handle = operation->handle,
                      .index = index,
                      .operation = operation,
                      .event = nullptr});
  });
}

// Whether the coordinator has ordered them already is not known here; it ignores those. The last one that
// writes all the memory comes after all others that use it, so these need not be named.
void MemoryInUse::name_those_before(Operation& operation, size_t index) {
  struct Before {
    const Use* use = nullptr;
    Range range;
  };
  control::TensorRequest& request = operation.tensors[index].request;
  for_each_range(operation.tensors[index], [&](const Range& mine, bool is_written) {
    std::vector<Before> uses;
    uses_.for_each_overlap(mine, [&](const Range& range, Use& use) {
      const bool is_in_flight = use.operation != nullptr && use.handle != operation.handle;
      if (is_in_flight && (is_written || use.is_written)) uses.push_back({.use = &use, .range = range});
    });
    std::ranges::sort(uses, std::greater(), [](const Before& one) { return one.use->handle; });
    for (const auto& [use, range] : uses) {
      const control::TensorRequest& other = use->operation->tensors[use->index].request;
      if (other.process_set != request.process_set)
        request.after.push_back({.process_set = other.process_set, .name = other.name});
      if (use->is_written && range.contains(mine)) break;
    }
  });
  std::ranges::sort(request.after);  // one tensor may use the memory twice, as its input and as its output
  request.after.erase(std::ranges::unique(request.after).begin(), request.after.end());
}

void MemoryInUse::ended(const Operation& operation, size_t index,
                        const std::shared_ptr<backend::DeviceEvent>& event) {
  for_each_range(operation.tensors[index], [&](const Range& range, bool) {
    uses_.erase_if(range, [&](Use& use) {
      if (use.handle != operation.handle || use.index != index) return false;
      if (event == nullptr) return true;
      use.operation = nullptr;
      use.event = event;
      ++launched_;
      return false;
    });
  });
}

// A tensor that shares memory was perhaps submitted before the program waited, so it still has to wait.
void MemoryInUse::is_waited_for(const Operation& operation) {
  if (launched_ == 0 || operation.shares_memory.load(std::memory_order_acquire)) return;
  for (const Tensor& tensor : operation.tensors) {
    for_each_range(tensor, [&](const Range& range, bool) {
      uses_.erase_if(range, [&](Use& use) {
        const bool is_over = use.handle == operation.handle && use.event != nullptr;
        launched_ -= is_over ? 1 : 0;
        return is_over;
      });
    });
  }
}

MemoryInUse::Conflicts MemoryInUse::before(const Operation& operation, size_t index) {
  Conflicts found;
  for_each_conflict(operation, index, [&](Use& use) {
    if (use.event != nullptr)
      found.events.push_back(use.event);
    else
      found.is_running = found.is_running || use.operation->tensors[use.index].is_started;
  });
  return found;
}

DeviceEvents MemoryInUse::to_look_through() const {
  if (launched_ < look_at_) return {};
  DeviceEvents events;
  uses_.for_each([&](const Use& use) {
    if (use.event != nullptr) events.push_back(use.event);
  });
  return events;
}

void MemoryInUse::forget(const DeviceEvents& ended) {
  uses_.erase_all_if([&](const Use& use) {
    const bool is_over = use.event != nullptr && std::ranges::binary_search(ended, use.event);
    launched_ -= is_over ? 1 : 0;
    return is_over;
  });
  look_at_ = std::max(kManyLaunched, 2 * launched_);
}

void MemoryInUse::clear() {
  uses_.clear();
  launched_ = 0;
}

}  // namespace rueda::runtime
