#include "bench/gradients.h"

#include <fmt/format.h>

#include "bench/pattern.h"

namespace rueda::bench {
namespace {

constexpr int64_t kLineElements = 16;  // 64 bytes of float32

class Allreduces final : public Exchange {
 public:
  Allreduces(Rank& rank, const Gradients& gradients) : rank_(rank), gradients_(gradients) {}

  Status begin(size_t index, int64_t label) override {
    const std::span<float> values = gradients_.tensor(index);
    const std::string name = fmt::format("bench.gradient.{}.{}", label, index);
    const Result<int64_t> handle = rank_.submit(
        {.name = name.c_str(), .count = std::ssize(values), .input = values.data(), .output = values.data()});
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
  std::vector<int64_t> handles_;
};

}  // namespace

Result<Gradients> Gradients::make(const Rank& rank, const Model& model, std::string_view memory) {
  std::vector<Place> places;
  int64_t next = 0;
  for (const Parameter& parameter : model.parameters) {
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
  const Place place = tensors_[index];
  return buffer_.values().subspan(static_cast<size_t>(place.first), static_cast<size_t>(place.count));
}

void Gradients::prepare(int rank, int64_t iteration) const {
  fill(buffer_.values(), pattern_of(rank, iteration));
}

bool Gradients::hold_sum(int ranks, int64_t iteration) const {
  for (size_t index = 0; index < tensors_.size(); ++index)
    if (!holds(tensor(index), pattern_of_sum(ranks, iteration, tensors_[index].first))) return false;
  return true;
}

std::unique_ptr<Exchange> make_allreduces(Rank& rank, const Gradients& gradients) {
  return std::make_unique<Allreduces>(rank, gradients);
}

}  // namespace rueda::bench
