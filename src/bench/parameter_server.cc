// Sharded parameter servers, one on each rank. Each tensor, or each slice of a large one, is sent to the rank
// that owns it, summed there in rank order, and sent back to all ranks. Both directions are an alltoall with
// uneven splits, so that exactly these bytes cross the network.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "bench/gradients.h"

namespace rueda::bench {
namespace {

// A tensor with at least this many elements is cut over all servers. The limit of other systems is higher (a
// million in MXNet). But the engine runs one alltoall after the other, so whole tensors would use the link of
// one server at a time and make parameter servers look worse than they are.
constexpr int64_t kCutFrom = 16'384;

class ParameterServer final : public Exchange {
 public:
  ParameterServer(Rank& rank, const Gradients& gradients) : rank_(rank), gradients_(gradients) {
    std::vector<int64_t> counts;
    for (size_t i = 0; i < gradients.size(); ++i) counts.push_back(std::ssize(gradients.tensor(i)));
    shards_ = assign_shards(counts, rank.size());
    shares_.resize(gradients.size());
    server_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }

  Status begin(size_t index, int64_t label) override {
    const std::span<float> values = gradients_.tensor(index);
    const std::string name = fmt::format("bench.push.{}.{}", label, index);
    const Result<int64_t> handle = rank_.submit({.what = RUEDA_ALLTOALL,
                                                 .name = name.c_str(),
                                                 .count = std::ssize(values),
                                                 .input = values.data(),
                                                 .splits = shards_[index]});
    if (!handle.is_ok()) return handle.status();
    ++begun_;
    pushes_.push_back(std::make_unique<Push>(Push{this, index, label, handle.value()}));
    const int code = rank_.library().on_done(
        handle.value(),
        [](void* push) {
          auto* done = static_cast<Push*>(push);
          done->owner->arrive(done);
        },
        pushes_.back().get());
    return code == RUEDA_OK ? Status::ok() : Status(static_cast<Code>(code), rank_.library().last_error());
  }

  Status finish() override {
    std::unique_lock lock(mutex_);
    const auto limit = std::chrono::duration<double>(kWaitLimitS);
    const bool is_served =
        served_.wait_for(lock, limit, [&] { return pulls_.size() == begun_ || !failure_.is_ok(); });
    Status first = is_served ? failure_ : Status(Code::kTimeout, "a parameter server did not answer in time");
    std::vector<int64_t> pulls = std::exchange(pulls_, {});
    lock.unlock();
    for (const int64_t handle : pulls) {
      Status status = rank_.finish(handle);
      if (first.is_ok()) first = std::move(status);
    }
    if (first.is_ok()) pushes_.clear();  // otherwise a late push may still arrive
    begun_ = 0;
    return first;
  }

 private:
  struct Push {
    ParameterServer* owner;
    size_t index;
    int64_t label;
    int64_t handle;
  };

  void arrive(Push* push) {  // engine thread; only puts it into the queue
    const std::lock_guard lock(mutex_);
    arrived_.push_back(push);
    has_arrived_.notify_one();
  }

  void serve(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (has_arrived_.wait(lock, stop, [&] { return !arrived_.empty(); })) {
      const Push* push = arrived_.front();
      arrived_.pop_front();
      lock.unlock();
      Result<int64_t> pull = answer(*push);
      lock.lock();
      if (pull.is_ok())
        pulls_.push_back(pull.value());
      else if (failure_.is_ok())
        failure_ = pull.status();
      served_.notify_one();
    }
  }

  // Sums what all ranks pushed for the part that this rank owns, and sends the sums back to all ranks.
  Result<int64_t> answer(const Push& push) {
    const size_t ranks = static_cast<size_t>(rank_.size());
    const Result<std::span<const float>> pushed = rank_.output_of(push.handle);  // [ranks * mine]
    if (!pushed.is_ok()) {
      rank_.library().release(push.handle);
      return pushed.status();
    }
    const size_t mine = pushed.value().size() / ranks;
    std::vector<float>& share = shares_[push.index];  // [ranks * mine], the same for every rank
    share.resize(ranks * mine);
    std::copy_n(pushed.value().begin(), mine, share.begin());
    for (size_t from = 1; from < ranks; ++from)
      for (size_t i = 0; i < mine; ++i) share[i] += pushed.value()[from * mine + i];
    for (size_t to = 1; to < ranks; ++to) std::copy_n(share.begin(), mine, share.data() + to * mine);
    rank_.library().release(push.handle);
    const std::vector<int32_t> splits(ranks, static_cast<int32_t>(mine));
    const std::string name = fmt::format("bench.pull.{}.{}", push.label, push.index);
    return rank_.submit({.what = RUEDA_ALLTOALL,
                         .name = name.c_str(),
                         .count = std::ssize(share),
                         .input = share.data(),
                         .output = gradients_.tensor(push.index).data(),
                         .splits = splits});
  }

  Rank& rank_;
  const Gradients& gradients_;
  std::vector<std::vector<int32_t>> shards_;  // [tensors][ranks]
  std::vector<std::vector<float>> shares_;    // [tensors]; server thread only
  std::vector<std::unique_ptr<Push>> pushes_;
  size_t begun_ = 0;
  std::mutex mutex_;
  std::condition_variable_any has_arrived_, served_;
  std::deque<const Push*> arrived_;  // guarded by mutex_, as are all members below
  std::vector<int64_t> pulls_;
  Status failure_;
  std::jthread server_;  // the last member, so it is destroyed first
};

}  // namespace

std::vector<std::vector<int32_t>> assign_shards(std::span<const int64_t> counts, int servers) {
  std::vector<int64_t> load(static_cast<size_t>(servers));
  std::vector<std::vector<int32_t>> shards;
  for (const int64_t count : counts) {
    std::vector<int32_t> shard(load.size());
    if (count >= kCutFrom) {
      for (size_t server = 0; server < load.size(); ++server)
        shard[server] = static_cast<int32_t>(count * static_cast<int64_t>(server + 1) / servers -
                                             count * static_cast<int64_t>(server) / servers);
    } else {
      const auto least = std::ranges::min_element(load) - load.begin();
      shard[static_cast<size_t>(least)] = static_cast<int32_t>(count);
    }
    for (size_t server = 0; server < load.size(); ++server) load[server] += shard[server];
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::unique_ptr<Exchange> make_parameter_server(Rank& rank, const Gradients& gradients) {
  return std::make_unique<ParameterServer>(rank, gradients);
}

}  // namespace rueda::bench
