#include "bench/gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/pattern.h"

namespace rueda::bench {
namespace {

constexpr int64_t kLineElements = 16;  // 64 bytes of float32

class Allreduces final : public GradientExchange {
 public:
  Allreduces(Rank& rank, const Gradients& gradients, rueda_wire wire)
      : rank_(rank), gradients_(gradients), wire_(wire) {}

  Status begin(size_t index, int64_t label) override {
    const std::span<float> values = gradients_.tensor(index);
    const std::string name = fmt::format("bench.gradient.{}.{}", label, index);
    const Result<int64_t> handle = rank_.submit({.name = name.c_str(),
                                                 .count = std::ssize(values),
                                                 .input = values.data(),
                                                 .output = values.data(),
                                                 .wire = wire_});
    if (!handle.is_ok()) return handle.status();
    handles_.push_back(handle.value());
    return Status::ok();
  }

  Status finish() override {
    Status first = Status::ok();
    for (const int64_t handle : handles_) {
      Status status = rank_.finish(handle);
      if (first.is_ok()) first = std::move(status);
    }
    handles_.clear();
    return first;
  }

 private:
  Rank& rank_;
  const Gradients& gradients_;
  rueda_wire wire_;
  std::vector<int64_t> handles_;
};

// Tensors that the forward pass needs earlier may overtake a part.
constexpr int64_t kPartElements = int64_t{1} << 18;  // 1 MiB

// Each step reads the same values from another place, so that the sums of consecutive steps differ.
constexpr int64_t shift_of(int64_t step) { return step % 2 * kLineElements; }

}  // namespace

Result<Gradients> Gradients::make(const Rank& rank, const workload::Model& model, std::string_view memory) {
  std::vector<TensorRange> places;
  int64_t next = 0;
  for (const workload::Parameter& parameter : model.parameters) {
    places.push_back({next, parameter.count});
    next += (parameter.count + kLineElements - 1) / kLineElements * kLineElements;
  }
  Result<Buffer> buffer = Buffer::make(rank.library(), memory, next);
  if (!buffer.is_ok()) return buffer.status();
  Gradients gradients(std::move(buffer).value(), std::move(places));
  gradients.bytes_ = model.bytes();
  return gradients;
}

std::span<float> Gradients::tensor(size_t index) const {
  const TensorRange place = tensors_[index];
  return buffer_.values().subspan(static_cast<size_t>(place.first), static_cast<size_t>(place.count));
}

void Gradients::prepare(int rank, int64_t iteration) const {
  fill(buffer_.values(), pattern_of(rank, iteration));
}

bool Gradients::hold_sum(int ranks, int64_t iteration, double rounding) const {
  for (size_t index = 0; index < tensors_.size(); ++index) {
    const Pattern sum = pattern_of_sum(ranks, iteration, tensors_[index].first);
    if (!(rounding > 0 ? nearly_holds(tensor(index), sum, rounding) : holds(tensor(index), sum)))
      return false;
  }
  return true;
}

Result<CrossStep> CrossStep::make(Rank& rank, const workload::Model& model, std::string_view memory) {
  Result<Gradients> sums = Gradients::make(rank, model, memory);
  if (!sums.is_ok()) return sums.status();
  const size_t last = sums.value().size() - 1;
  const int64_t end = sums.value().first(last) + std::ssize(sums.value().tensor(last));
  Result<Buffer> values = Buffer::make(rank.library(), memory, end + kLineElements);
  if (!values.is_ok()) return values.status();
  fill(values.value().values(), pattern_of(rank.rank(), 0));
  return CrossStep(rank, std::move(sums).value(), std::move(values).value());
}

Status CrossStep::begin(size_t index, int64_t step) {
  const std::span<float> sum = sums_.tensor(index);
  const float* values = values_.values().data() + sums_.first(index) + shift_of(step);
  const int64_t parts = (std::ssize(sum) + kPartElements - 1) / kPartElements;
  std::vector<std::string> names;
  for (int64_t part = 1; part <= parts; ++part)
    names.push_back(fmt::format("bench.gradient.{}_{}of{}", index, part, parts));
  std::vector<BenchOperation> operations;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t at = part * kPartElements;
    operations.push_back({.name = names[static_cast<size_t>(part)].c_str(),
                          .count = std::min(kPartElements, std::ssize(sum) - at),
                          .input = values + at,
                          .output = sum.data() + at,
                          .priority = static_cast<int32_t>(index) - static_cast<int32_t>(sums_.size())});
  }
  const Result<int64_t> handle = rank_->submit_group(operations);
  if (!handle.is_ok()) return handle.status();
  flights_[index] = {.handle = handle.value(), .step = step};
  return Status::ok();
}

Result<bool> CrossStep::finish(size_t index) {
  const Flight flight = std::exchange(flights_[index], {});
  if (flight.handle == 0) return true;
  if (Status status = rank_->finish(flight.handle); !status.is_ok()) return status;
  const std::span<const float> sum = sums_.tensor(index);
  const auto at = [&](int64_t element) {
    return pattern_of_sum(rank_->size(), shift_of(flight.step), sums_.first(index) + element);
  };
  return holds(sum.first(1), at(0)) && holds(sum.last(1), at(std::ssize(sum) - 1));
}

bool CrossStep::hold_sum(int64_t step) const { return sums_.hold_sum(rank_->size(), shift_of(step)); }

std::unique_ptr<GradientExchange> make_allreduces(Rank& rank, const Gradients& gradients, rueda_wire wire) {
  return std::make_unique<Allreduces>(rank, gradients, wire);
}

}  // namespace rueda::bench
