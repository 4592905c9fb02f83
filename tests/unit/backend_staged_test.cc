// What stands in front of a backend for host memory passes on, without a device.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "rueda/backend/device/staged.h"

namespace rueda::backend::backend_staged_test {
namespace {

// Runs calls until they are cancelled.
class Host : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "host"; }
  [[nodiscard]] bool accepts(const Group&, const schedule::Spec&, const Memory& memory) const override {
    return memory.kind != MemoryKind::kDevice;
  }
  [[nodiscard]] bool has_room(uint64_t) const override { return true; }
  void start(const Call& call) override { running.push_back(call.id); }
  bool progress(std::vector<Done>& done) override {
    for (const CallId id : std::exchange(ended, {})) done.push_back({.id = id, .status = Status::ok()});
    return false;
  }
  [[nodiscard]] bool is_idle() const override { return running.empty() && ended.empty(); }
  [[nodiscard]] bool needs_polling() const override { return !running.empty(); }
  void abort(const Status&) override { running.clear(); }

  std::vector<CallId> running, ended;
};

class CancellingHost final : public Host, public Cancellation {
 public:
  [[nodiscard]] Cancellation* cancellation() override { return this; }
  std::vector<int32_t> pause(CallId call) override { return {static_cast<int32_t>(call), 7}; }
  void cancel(CallId call, std::span<const int32_t>) override {
    std::erase(running, call);
    ended.push_back(call);
  }
  void discard(const Call& call, std::span<const int32_t>) override { ended.push_back(call.id); }
};

const Group& world() {
  static const Group group = [] {
    Group made;
    made.members = {0, 1};
    made.me = 0;
    return made;
  }();
  return group;
}

template <class H>
std::pair<std::unique_ptr<StagedBackend>, H*> stage() {
  auto host = std::make_unique<H>();
  H* const inside = host.get();
  return {std::make_unique<StagedBackend>(std::move(host), nullptr, PeerOptions{}, nullptr), inside};
}

Call call(CallId id) {
  return {.id = id, .group = &world(), .spec = {.count = 1, .counts = {}, .scale = {}, .segment_counts = {}}};
}

TEST(Staged, a_host_that_must_be_asked_again_is_asked_again) {
  const auto [staged, host] = stage<Host>();
  EXPECT_FALSE(staged->needs_polling());
  staged->start(call(1));
  EXPECT_TRUE(staged->needs_polling());
  host->ended = std::exchange(host->running, {});
  std::vector<Done> done;
  staged->progress(done);
  EXPECT_EQ(done.size(), 1u);
  EXPECT_FALSE(staged->needs_polling());
}

TEST(Staged, cancels_calls_if_the_host_does) {
  EXPECT_EQ(stage<Host>().first->cancellation(), nullptr);
  const auto [staged, host] = stage<CancellingHost>();
  Cancellation* const cancellation = staged->cancellation();
  ASSERT_NE(cancellation, nullptr);
  staged->start(call(11));
  ASSERT_EQ(host->running.size(), 1u);
  const auto inner = static_cast<int32_t>(host->running.front());
  EXPECT_EQ(cancellation->pause(11), (std::vector<int32_t>{inner, 7}));
  cancellation->cancel(11, {});
  std::vector<Done> done;
  staged->progress(done);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done.front().id, 11u);
  cancellation->discard(call(12), {});
  staged->progress(done);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done.back().id, 12u);
  EXPECT_TRUE(staged->is_idle());
}

}  // namespace
}  // namespace rueda::backend::backend_staged_test
