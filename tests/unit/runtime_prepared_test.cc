// Prepared operations: what a run keeps for the next one.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "../allocations.h"
#include "rueda/runtime/operations.h"

namespace rueda {
namespace {
thread_local int64_t t_allocations = 0;
std::atomic<int64_t> g_allocations{0};
}  // namespace

int64_t allocations_of_thread() { return t_allocations; }
int64_t allocations() { return g_allocations.load(std::memory_order_relaxed); }
void count_allocation() {
  ++t_allocations;
  g_allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace rueda

#if RUEDA_COUNTS_ALLOCATIONS
// Not inlined: GCC would see free() called on what operator new has returned, and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  rueda::count_allocation();
  if (void* const made = std::malloc(bytes > 0 ? bytes : 1)) return made;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace rueda::runtime::prepared_test {
namespace {

class Prepared : public testing::Test {
 protected:
  Prepared() {
    for (size_t i = 0; i < kTensors; ++i) {
      Tensor tensor;
      tensor.request.name =
          "a name that is longer than a string keeps inside itself, number " + std::to_string(i);
      tensor.request.shape = {64};
      numbers_.push_back(operations_.prepare(std::move(tensor)));
      data_.emplace_back(64);
    }
  }

  // As a front end and the engine thread do it. `order`: which tensor ends first.
  void step(size_t order) {
    handles_.clear();
    for (size_t i = 0; i < kTensors; ++i)
      handles_.push_back(
          operations_.start({.number = numbers_[i], .input = data_[i].data(), .output = data_[i].data()})
              .value());
    operations_.take_submitted(taken_);
    ASSERT_EQ(taken_.size(), kTensors);
    for (size_t i = 0; i < kTensors; ++i)
      operations_.finish({taken_[(i * order + 3) % kTensors], 0}, Status::ok());
    taken_.clear();
    for (const int64_t handle : handles_) {
      EXPECT_EQ(operations_.poll(handle), 1);
      operations_.release(handle);
    }
    EXPECT_TRUE(operations_.is_empty());
  }

  static constexpr size_t kTensors = 50;
  Operations operations_{[] {}};
  std::vector<int64_t> numbers_, handles_;
  std::vector<std::vector<float>> data_;
  std::vector<std::shared_ptr<Operation>> taken_;
};

TEST_F(Prepared, runs_allocate_nothing_once_they_have_run) {
  if (!RUEDA_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer allocates itself";
  for (size_t warm_up = 0; warm_up < 3; ++warm_up) step(7);
  const int64_t before = allocations_of_thread();
  for (size_t run = 0; run < 100; ++run) step(run % 2 == 0 ? 7 : 11);
  EXPECT_EQ(allocations_of_thread() - before, 0);
  (void)operations_.submit(std::vector<Tensor>(1));
  EXPECT_GT(allocations_of_thread() - before, 0) << "what is submitted allocates, and is counted";
}

TEST_F(Prepared, runs_keep_what_was_described) {
  for (const bool has_feedback : {true, false}) {
    Tensor tensor;
    tensor.request.name = has_feedback ? "with" : "without";
    tensor.request.shape = {64};
    tensor.request.wire = Wire::kInt8;
    tensor.has_feedback = has_feedback;
    tensor.is_only_read = true;
    tensor.output_bytes = 256;
    tensor.memory.device = 3;
    const int64_t number = operations_.prepare(std::move(tensor));
    for (int run = 0; run < 2; ++run) {
      const int64_t handle =
          operations_.start({.number = number, .input = data_[0].data(), .output = data_[1].data()}).value();
      const std::shared_ptr<Operation> operation = operations_.find(handle);
      const Tensor& started = operation->tensors.front();
      EXPECT_EQ(started.has_feedback, has_feedback);
      EXPECT_EQ(started.request.wire, Wire::kInt8);
      EXPECT_TRUE(started.is_only_read);
      EXPECT_EQ(started.output_bytes, 256U);
      EXPECT_EQ(started.memory.device, 3);
      EXPECT_EQ(started.input, data_[0].data());
      EXPECT_EQ(started.output, data_[1].data());
      operations_.finish({operation, 0}, Status::ok());
      operations_.release(handle);
    }
  }
}

TEST_F(Prepared, runs_begin_as_new_operations_do) {
  step(7);
  const int64_t handle =
      operations_.start({.number = numbers_[0], .input = data_[0].data(), .output = data_[1].data()}).value();
  const std::shared_ptr<Operation> operation = operations_.find(handle);
  operations_.finish({operation, 0}, {Code::kMismatch, "it fails"});
  EXPECT_EQ(operations_.wait(handle, std::nullopt).code, Code::kMismatch);
  operations_.release(handle);
  operations_.take_submitted(taken_);
  step(7);
  EXPECT_EQ(operation->status.code, Code::kMismatch) << "it is still held here, so the next run had another";
  EXPECT_EQ(operations_.find(handle), nullptr);
}

TEST_F(Prepared, runs_that_end_with_the_epoch_leave_the_next_start_refused) {
  const int64_t handle =
      operations_.start({.number = numbers_[0], .input = data_[0].data(), .output = data_[0].data()}).value();
  operations_.close({Code::kPeerLost, "rank 1 is gone"});
  EXPECT_EQ(operations_.wait(handle, std::nullopt).code, Code::kPeerLost);
  EXPECT_EQ(operations_.start({.number = numbers_[1], .input = data_[1].data(), .output = data_[1].data()})
                .status()
                .code,
            Code::kPeerLost);
  operations_.release(handle);
}

TEST_F(Prepared, numbers_go_on_where_another_epoch_has_ended) {
  EXPECT_EQ(operations_.next_numbers().prepared, 1 + static_cast<int64_t>(kTensors));
  Operations next([] {}, 1, operations_.next_numbers().prepared);
  EXPECT_EQ(next.prepared(numbers_.back()), nullptr);
  EXPECT_EQ(next.start({.number = numbers_.back()}).status().code, Code::kInvalidArgument);
  EXPECT_EQ(next.prepare(Tensor()), 1 + static_cast<int64_t>(kTensors));
}

}  // namespace
}  // namespace rueda::runtime::prepared_test
