// Parameter servers, each on the host of a rank. What belongs to a server is sent to its rank, summed there
// in rank order, and sent back to all ranks. Both directions are an alltoall with uneven splits, so that
// exactly these bytes cross the network.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "bench/gradients.h"

namespace rueda::bench {
namespace {

class ParameterServer final : public GradientExchange {
 public:
  ParameterServer(Rank& rank, const Gradients& gradients, ServerPlan plan)
      : rank_(rank), gradients_(gradients), plan_(std::move(plan)), flights_(plan_.transfers.size()) {
    server_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }

  Status begin(size_t index, int64_t label) override {
    const std::lock_guard lock(mutex_);
    label_ = label;
    while (ready_ < plan_.transfers.size() && plan_.transfers[ready_].last_tensor <= index) ++ready_;
    has_work_.notify_one();
    return failure_;
  }

  Status finish() override {
    std::unique_lock lock(mutex_);
    const auto limit = std::chrono::duration<double>(kWaitLimitS);
    const bool is_served =
        served_.wait_for(lock, limit, [&] { return done_ == ready_ || !failure_.is_ok(); });
    if (!is_served) return {Code::kTimeout, "a parameter server did not answer in time"};
    if (failure_.is_ok()) ready_ = pushed_ = done_ = 0;
    return failure_;  // after which a late answer may still arrive, so flights_ stays
  }

 private:
  // A transfer on its way to the servers, then back.
  struct Flight {
    ParameterServer* owner = nullptr;
    const Transfer* transfer = nullptr;
    size_t number = 0;
    int64_t label = 0, handle = 0;
    bool is_answer = false;
    std::vector<float> packed = {};  // where its pieces do not lie side by side
    std::vector<float> share = {};   // [ranks * mine], the same for every rank
  };

  // Of a transfer that lies in one tensor, from its first piece to its last one; else empty.
  [[nodiscard]] std::span<float> in_place(const Transfer& transfer) const {
    const ServerPiece& first = transfer.pieces.front();
    int64_t end = first.first;
    for (const ServerPiece& piece : transfer.pieces) {
      if (piece.tensor != first.tensor || piece.first != end) return {};
      end += piece.count;
    }
    return memory_of(first, end - first.first);
  }
  [[nodiscard]] std::span<float> memory_of(const ServerPiece& piece, int64_t count) const {
    return gradients_.tensor(piece.tensor)
        .subspan(static_cast<size_t>(piece.first), static_cast<size_t>(count));
  }

  void arrive(Flight* flight) {  // engine thread; only puts it into the queue
    const std::lock_guard lock(mutex_);
    arrived_.push_back(flight);
    has_work_.notify_one();
  }

  // Answers come before new pushes, so that servers receive and send at once.
  void serve(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto can_push = [&] {
      return pushed_ < ready_ &&
             (under_way_ == 0 || under_way_ + plan_.transfers[pushed_].elements() <= plan_.most_under_way());
    };
    while (has_work_.wait(lock, stop, [&] { return !arrived_.empty() || can_push(); })) {
      Flight* flight = nullptr;
      const bool has_arrived = !arrived_.empty();
      if (has_arrived) {
        flight = arrived_.front();
        arrived_.pop_front();
      } else {
        const size_t number = pushed_++;
        under_way_ += plan_.transfers[number].elements();
        flights_[number] = std::make_unique<Flight>(
            Flight{.owner = this, .transfer = &plan_.transfers[number], .number = number, .label = label_});
        flight = flights_[number].get();
      }
      const bool is_last = has_arrived && flight->is_answer;
      lock.unlock();
      Status status = !has_arrived ? push(*flight) : is_last ? take(*flight) : answer(*flight);
      lock.lock();
      if (is_last) {
        ++done_;
        under_way_ -= flight->transfer->elements();
      }
      if (failure_.is_ok()) failure_ = std::move(status);
      served_.notify_one();
    }
  }

  Status start(Flight& flight, const BenchOperation& operation) {
    const Result<int64_t> handle = rank_.submit(operation);
    if (!handle.is_ok()) return handle.status();
    flight.handle = handle.value();
    const auto done = [](void* argument) {
      auto* arrived = static_cast<Flight*>(argument);
      arrived->owner->arrive(arrived);
    };
    const int code = rank_.library().on_done(handle.value(), done, &flight);
    return code == RUEDA_OK ? Status::ok() : Status(static_cast<Code>(code), rank_.library().last_error());
  }

  Status push(Flight& flight) {
    std::vector<int32_t> splits(static_cast<size_t>(rank_.size()));
    int64_t count = 0;
    for (const ServerPiece& piece : flight.transfer->pieces) {
      splits[static_cast<size_t>(plan_.rank_of(piece.server, rank_.size()))] +=
          static_cast<int32_t>(piece.count);
      count += piece.count;
    }
    std::span<const float> values = in_place(*flight.transfer);
    if (values.empty()) {
      flight.packed.reserve(static_cast<size_t>(count));
      for (const ServerPiece& piece : flight.transfer->pieces) {
        const std::span<const float> from = memory_of(piece, piece.count);
        flight.packed.insert(flight.packed.end(), from.begin(), from.end());
      }
      values = flight.packed;
    }
    const std::string name = fmt::format("bench.push.{}.{}", flight.label, flight.number);
    return start(flight, {.what = RUEDA_ALLTOALL,
                          .name = name.c_str(),
                          .count = count,
                          .input = values.data(),
                          .splits = splits});
  }

  // Sums what all ranks pushed for the part that this rank owns, and sends the sums back to all ranks.
  Status answer(Flight& flight) {
    const auto ranks = static_cast<size_t>(rank_.size());
    const Result<std::span<const float>> pushed = rank_.output_of(flight.handle);  // [ranks * mine]
    if (!pushed.is_ok()) {
      rank_.library().release(flight.handle);
      return pushed.status();
    }
    const size_t mine = pushed.value().size() / ranks;
    std::vector<float>& share = flight.share;
    share.resize(ranks * mine);
    std::copy_n(pushed.value().begin(), mine, share.begin());
    for (size_t from = 1; from < ranks; ++from)
      for (size_t i = 0; i < mine; ++i) share[i] += pushed.value()[from * mine + i];
    for (size_t to = 1; to < ranks; ++to) std::copy_n(share.begin(), mine, share.data() + to * mine);
    rank_.library().release(flight.handle);
    flight.is_answer = true;
    const std::vector<int32_t> splits(ranks, static_cast<int32_t>(mine));
    const std::string name = fmt::format("bench.pull.{}.{}", flight.label, flight.number);
    float* const to = flight.packed.empty() ? in_place(*flight.transfer).data() : flight.packed.data();
    return start(flight, {.what = RUEDA_ALLTOALL,
                          .name = name.c_str(),
                          .count = std::ssize(share),
                          .input = share.data(),
                          .output = to,
                          .splits = splits});
  }

  Status take(Flight& flight) {
    Status status = rank_.finish(flight.handle);
    const float* at = flight.packed.data();
    if (status.is_ok() && at != nullptr)
      for (const ServerPiece& piece : flight.transfer->pieces) {
        std::copy_n(at, piece.count, memory_of(piece, piece.count).begin());
        at += piece.count;
      }
    flight.packed = {};
    flight.share = {};
    return status;
  }

  Rank& rank_;
  const Gradients& gradients_;
  const ServerPlan plan_;
  std::mutex mutex_;
  std::condition_variable_any has_work_, served_;
  std::deque<Flight*> arrived_;                   // guarded by mutex_, as are all members below
  std::vector<std::unique_ptr<Flight>> flights_;  // [transfers]; they come and go, by the server's thread
  size_t ready_ = 0, pushed_ = 0, done_ = 0;      // transfers
  int64_t label_ = 0, under_way_ = 0;             // elements
  Status failure_;
  std::jthread server_;  // the last member, so it is destroyed first
};

}  // namespace

std::unique_ptr<GradientExchange> make_parameter_server(Rank& rank, const Gradients& gradients,
                                                        ServerPlan plan) {
  return std::make_unique<ParameterServer>(rank, gradients, std::move(plan));
}

}  // namespace rueda::bench
