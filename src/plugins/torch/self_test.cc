#include "plugins/torch/self_test.h"

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "rueda/rueda.h"

namespace rueda::torch {
namespace {

constexpr size_t kLine = 64;  // torch's kernels load and store whole lines
constexpr size_t kBytes[] = {1, 64, 4096, 100'000};

bool is_aligned(const void* at) { return reinterpret_cast<uintptr_t>(at) % kLine == 0; }

bool is_simple_block(const Allocator& allocator, const DataPtr& made) {
  return made.data != nullptr && made.data == made.context.get() && is_aligned(made.data) &&
         made.context.get_deleter() == allocator.raw_deleter() && made.device_type == 0 &&
         made.device_index == -1 && allocator.is_simple_data_ptr(made);
}

std::string test_block(ArenaAllocator& ours, size_t bytes, bool is_in_arena) {
  DataPtr made = ours.allocate(bytes);
  if (!is_simple_block(ours, made)) return "a block does not have the form that torch expects";
  if ((rueda_is_shared_buffer(made.data) != 0) != is_in_arena) return "a block does not lie where it should";
  std::memset(made.data, 7, bytes);
  DataPtr copy = ours.allocate(bytes);
  ours.copy_data(copy.data, made.data, bytes);
  if (std::memcmp(copy.data, made.data, bytes) != 0) return "a block was not copied";
  copy = DataPtr{};                                                         // freed by its deleter
  std::thread([moved = std::move(made)]() mutable { moved = {}; }).join();  // by another thread
  void* const raw = ours.allocate(bytes).context.release();  // as raw_allocate and raw_deallocate do
  ours.raw_deleter()(raw);
  return "";
}

}  // namespace

std::string test_original(Allocator& original) {
  if (original.raw_deleter() == nullptr) return "torch's allocator has no deleter of its own";
  // Placed between words that nobody may touch: an object larger than ours would overwrite them.
  struct {
    volatile uint64_t before = 0x5a5a5a5a5a5a5a5a;
    DataPtr made;
    volatile uint64_t after = 0xa5a5a5a5a5a5a5a5;
  } frame;
  new (&frame.made) DataPtr(original.allocate(kLine));
  if (!is_simple_block(original, frame.made)) return "torch's allocator returns objects of another form";
  if (frame.before != 0x5a5a5a5a5a5a5a5a || frame.after != 0xa5a5a5a5a5a5a5a5)
    return "torch's allocator returns objects of another size";
  return "";
}

std::string test_ours(ArenaAllocator& ours) {
  const auto placed_before = ours.placed();
  for (const size_t bytes : kBytes) {
    if (std::string why = test_block(ours, bytes, false); !why.empty()) return why;
    ours.await(bytes);
    std::string why;
    {
      const Placing placing;
      why = test_block(ours, bytes, true);
    }
    ours.forget(bytes);
    if (!why.empty()) return why;
  }
  const DataPtr nothing = ours.allocate(0);
  if (nothing.data != nullptr && !is_simple_block(ours, nothing)) return "an empty block has another form";
  return ours.placed() == placed_before + 3 * static_cast<int64_t>(std::size(kBytes))
             ? ""
             : "the arena gave another number of blocks than it was asked for";
}

}  // namespace rueda::torch
