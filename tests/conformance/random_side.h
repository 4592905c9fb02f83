// One rank's side of a random program: submits its tensors to an engine, and compares every result, bit for
// bit, with the scalar definition.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine_job.h"
#include "random_program.h"

namespace rueda::runtime::random_program {

// Device memory of a side, whose tensors get their values later, in the order of a stream.
class SideDevices {
 public:
  virtual ~SideDevices() = default;
  virtual int32_t device_of(uint64_t pick) = 0;
  virtual std::byte* allocate(int32_t device, size_t bytes) = 0;
  virtual Memory fill_later(int32_t device, std::byte* memory, const Bytes& bytes) = 0;
  virtual void* stream() = 0;  // one that waits for results
  virtual void synchronize() = 0;
};

struct Outcome {
  int64_t tensors = 0, planned = 0, departures = 0;
  bool is_local = false;
};

// One rank's side of a program.
class Side {
 public:
  // devices: null if all tensors are in host memory.
  Side(Engine& engine, Rank rank, const Setup& setup, std::shared_ptr<memory::Arena> arena,
       SideDevices* devices = nullptr)
      : engine_(engine),
        rank_(rank),
        setup_(setup),
        own_(mix(setup.seed + static_cast<uint64_t>(rank))),
        arena_(std::move(arena)),
        devices_(devices) {}

  Outcome run(const Program& program) {
    sets_ = program.sets;
    for (const Block& block : program.blocks)
      for (int i = 0; i < block.repeats && !is_broken_; ++i) do_block(block);
    // A rank that leaves ends what other ranks still do in a process set of their own.
    if (!is_broken_) check(run_one(engine_, make_tensor(Collective::kBarrier, "last", {}, nullptr)));
    outcome_.planned = engine_.counters().planned_batches;
    outcome_.departures = engine_.counters().departures;
    outcome_.is_local = engine_.session().reduces_in_shared_memory;
    return outcome_;
  }

 private:
  struct Prepared {
    control::TensorRequest request;
    int64_t number = 0;
  };
  // A tensor that has been submitted.
  struct Open {
    Moment moment;
    Tensor tensor;
    int64_t handle = -1;
    size_t index = 0;  // in its operation
  };

  void do_block(const Block& block) {
    ++round_;
    std::vector<Item> items = block.items;
    switch (block.kind) {
      case Kind::kShuffled:
        std::shuffle(items.begin(), items.end(), own_);
        [[fallthrough]];
      case Kind::kStep:
        return step(items);
      case Kind::kOneByOne:
        for (const Item& item : items) step({item});
        return;
      case Kind::kGroup:
        return group(items);
      case Kind::kUneven:
        return uneven(block);
      case Kind::kNewSet:
        return in_new_set(items);
    }
  }

  void step(const std::vector<Item>& items, const std::vector<bool>& is_present = {}) {
    std::vector<Open> all;
    all.reserve(items.size());
    for (const Item& item : items) {
      if (!is_member(item)) continue;
      Open& open = all.emplace_back(prepare(item, is_present));
      open.handle = begin(std::move(open.tensor));
    }
    if (round_ % 16 == 0) check(run_one(engine_, make_tensor(Collective::kBarrier, "barrier", {}, nullptr)));
    for (const Open& open : all) finish(open);
  }

  // Ranks differ in which of their tensors they prepare.
  int64_t begin(Tensor tensor) {
    if ((tensors_++ + static_cast<uint64_t>(rank_)) % 3 != 0) return must_submit(engine_, std::move(tensor));
    const PreparedStart addresses{
        .input = tensor.input, .output = tensor.output, .ready = tensor.memory.ready};
    tensor.input = tensor.output = tensor.memory.ready = nullptr;
    Prepared& known = prepared_[tensor.request.name];
    if (known.number == 0 || known.request != tensor.request) {
      engine_.operations().forget(known.number);
      known.request = tensor.request;
      const Result<int64_t> number = engine_.submissions().prepare(std::move(tensor));
      EXPECT_TRUE(number.is_ok()) << number.status().why;
      known.number = number.is_ok() ? number.value() : 0;
    }
    PreparedStart start = addresses;
    start.number = known.number;
    const Result<int64_t> handle = engine_.submissions().start(start);
    EXPECT_TRUE(handle.is_ok()) << handle.status().why;
    engine_.submissions().wake();
    return handle.is_ok() ? handle.value() : -1;
  }

  void group(const std::vector<Item>& items) {
    std::vector<Open> all;
    std::vector<Tensor> tensors;
    for (const Item& item : items) {
      if (!is_member(item)) continue;
      Open& open = all.emplace_back(prepare(item, {}));
      open.index = all.size() - 1;
      open.tensor.request.group_index = static_cast<int32_t>(open.index);
      open.tensor.request.group_size = static_cast<int32_t>(items.size());
      open.tensor.request.group_name = items[0].name;
      tensors.push_back(std::move(open.tensor));
    }
    if (all.empty()) return;
    const Result<int64_t> handle = engine_.submissions().submit(std::move(tensors));
    check(handle.status());
    if (is_broken_) return;
    await(handle.value());
    for (const Open& open : all) compare(open, *engine_.operations().find(handle.value()));
    engine_.operations().release(handle.value());
  }

  void uneven(const Block& block) {
    const auto steps_of = [&](Rank rank) { return mix(block.seed + static_cast<uint64_t>(rank)) % 4; };
    const uint64_t first = round_;
    for (uint64_t i = 0; i < steps_of(rank_) && !is_broken_; ++i) {
      std::vector<bool> is_present;
      for (const Rank rank : sets_[0]) is_present.push_back(steps_of(rank) > i);
      round_ = first + i;
      step(block.items, is_present);
    }
    round_ = first + 4;
    Tensor join = make_tensor(Collective::kJoin, "join", {}, nullptr);
    join.request.tag = rank_ * 10;
    const int64_t handle = must_submit(engine_, std::move(join));
    await(handle);
    EXPECT_TRUE(is_broken_ || engine_.operations().find(handle)->tag == (std::ssize(sets_[0]) - 1) * 10);
    engine_.operations().release(handle);
  }

  void in_new_set(const std::vector<Item>& items) {
    const Result<int32_t> id = engine_.add_process_set(sets_[kDynamicSet]);
    check(id.status());
    if (is_broken_) return;
    dynamic_id_ = id.value();
    step(items);
    check(engine_.remove_process_set(id.value()));
    std::erase_if(prepared_, [&](const auto& one) { return one.second.request.process_set == id.value(); });
  }

  [[nodiscard]] bool is_member(const Item& item) const {
    return std::ranges::count(sets_[item.set], rank_) > 0 && !is_broken_;
  }

  Open prepare(const Item& item, const std::vector<bool>& is_present) {
    Open open{.moment = {.setup = setup_,
                         .item = item,
                         .members = sets_[item.set],
                         .round = round_,
                         .is_present = is_present},
              .tensor = {}};
    const Bytes input = input_of(open.moment, rank_);
    const uint64_t pick = mix(std::hash<std::string>()(item.name));
    const bool is_on_device = devices_ != nullptr && pick % 3 != 0;
    const int32_t device = is_on_device ? devices_->device_of(pick / 3) : -1;
    std::byte* const data = memory(item.name, input.size(), device);
    open.tensor = make_tensor(item.what, item.name, {open.moment.rows(rank_), item.columns}, data);
    if (open.tensor.output != nullptr && !item.is_in_place())
      open.tensor.output = memory(item.name + "out", input.size(), device);
    if (is_on_device)
      open.tensor.memory = devices_->fill_later(device, data, input);
    else
      std::ranges::copy(input, data);
    open.tensor.request.memory = open.tensor.memory.kind;
    open.tensor.request.device = device;
    control::TensorRequest& request = open.tensor.request;
    request.dtype = item.dtype;
    request.op = item.op;
    request.prescale = item.prescale;
    request.postscale = item.postscale;
    request.priority = item.priority;
    if (item.is_numbered) {
      request.name = item.name + " call ";
      request.numbered_at = static_cast<uint16_t>(request.name.size());
      request.name += std::to_string(++times_[item.name]) + " in all";
    }
    request.process_set = item.set == kDynamicSet ? dynamic_id_ : static_cast<int32_t>(item.set);
    if (item.what == Collective::kBroadcast) request.root = item.root(open.moment.members);
    if (item.what == Collective::kAlltoall) request.splits = open.moment.splits(rank_);
    return open;
  }

  void finish(const Open& open) {
    await(open.handle);
    if (!is_broken_) compare(open, *engine_.operations().find(open.handle));
    engine_.operations().release(open.handle);
  }

  // In one of the ways in which threads wait.
  void await(int64_t handle) {
    if (is_broken_) return;
    const Deadline deadline = Deadline::after(60 * kSecond);
    const auto way = own_() % 4;
    if (way == 3 && devices_ != nullptr) {
      const Status waits = engine_.wait_on_stream(handle, devices_->stream(), deadline);
      if (waits.is_ok()) return devices_->synchronize();
      return check(waits);
    }
    while (way == 0 && engine_.operations().poll(handle) == 0 && !deadline.is_past(monotonic_now()))
      std::this_thread::yield();
    check(way == 1 ? engine_.operations().wait(handle, deadline) : engine_.wait(handle, deadline));
  }

  // A rank whose call failed goes no further; the others then fail because it leaves.
  void check(const Status& status) {
    EXPECT_TRUE(status.is_ok() || is_broken_) << here() << ": " << status.why;
    is_broken_ = is_broken_ || !status.is_ok();
  }

  // Reports only the first difference of a rank.
  void compare(const Open& open, const Operation& operation) {
    const Item& item = open.moment.item;
    const Tensor& found = operation.tensors[open.index];
    const Expected expected = expected_of(open.moment, rank_);
    ++outcome_.tensors;
    if (is_wrong_) return;
    is_wrong_ = true;
    ASSERT_EQ(found.result_shape, (std::vector<int64_t>{expected.rows, item.columns})) << here(item);
    ASSERT_EQ(found.received_splits, expected.received_splits) << here(item);
    const bool is_close = setup_.rounds_at_every_hop && is_16bit_float(item.dtype) &&
                          is_reduction(item.what) && are_close(item.dtype, expected.bytes, found.output);
    ASSERT_TRUE(is_close || first_difference(item.dtype, expected.bytes, found.output) == -1) << here(item);
    is_wrong_ = false;
  }

  [[nodiscard]] std::string here() const {
    return "seed " + std::to_string(setup_.seed) + ", rank " + std::to_string(rank_) + ", round " +
           std::to_string(round_);
  }
  [[nodiscard]] std::string here(const Item& item) const {
    std::ostringstream out;
    out << here() << ", " << name_of(item.what) << " " << item.name << ": " << item.rows << " x "
        << item.columns << " " << name_of(item.dtype) << " " << name_of(item.op) << ", factors "
        << item.prescale << " and " << item.postscale << ", process set " << item.set;
    return out.str();
  }

  // The same for a name each time, so that shared buffers stay registered.
  std::byte* memory(const std::string& name, size_t bytes, int32_t device) {
    std::span<std::byte>& known = memory_[name];
    if (known.data() != nullptr && bytes <= known.size()) return known.data();
    if (device >= 0) {
      known = {devices_->allocate(device, bytes), bytes};
    } else if (arena_ && mix(std::hash<std::string>()(name)) % 4 != 0) {
      known = {static_cast<std::byte*>(arena_->allocate(bytes)), bytes};
    } else {
      known = own_memory_.emplace_back(bytes + 1);
    }
    return known.data();
  }

  Engine& engine_;
  Rank rank_;
  const Setup& setup_;
  std::mt19937_64 own_;
  std::shared_ptr<memory::Arena> arena_;
  std::vector<std::vector<Rank>> sets_;
  int32_t dynamic_id_ = -1;
  uint64_t round_ = 0;
  uint64_t tensors_ = 0;  // of all blocks but groups
  std::map<std::string, Prepared> prepared_;
  std::map<std::string, int> times_;  // that a numbered tensor was submitted
  bool is_broken_ = false, is_wrong_ = false;
  Outcome outcome_;
  std::map<std::string, std::span<std::byte>> memory_;
  std::deque<Bytes> own_memory_;
  SideDevices* devices_;
};

}  // namespace rueda::runtime::random_program
