// Two backends with other answers side by side: each kind of tensors is treated as the backend that will run
// it asks for.
#include "rueda/runtime/backend_traits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"
#include "rueda/backend/native/native.h"
#include "rueda/control/rounds.h"

namespace rueda::runtime::backend_traits_test {
namespace {

using control::Request;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Tensors in device memory: nothing is packed, and nothing can be cancelled.
class DeviceBackend final : public backend::Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "device"; }
  [[nodiscard]] bool accepts(const Group&, const schedule::Spec& spec, const Memory& memory) const override {
    return memory.kind == MemoryKind::kDevice && spec.what == Collective::kAllreduce;
  }
  [[nodiscard]] bool has_room(uint64_t) const override { return true; }
  void start(const backend::Call&) override {}
  bool progress(std::vector<backend::Done>&) override { return false; }
  [[nodiscard]] bool is_idle() const override { return true; }
  void abort(const Status&) override {}
};

control::TensorRequest on_device(control::TensorRequest request) {
  request.memory = MemoryKind::kDevice;
  request.device = 0;
  return request;
}

// Rank 0 of two hosts with one rank each.
class HostAndDevice : public testing::Test {
 protected:
  HostAndDevice() {
    backends_.push_back(std::make_unique<DeviceBackend>());
    backends_.push_back(std::make_unique<backend::NativeBackend>(backend::Mesh{}));
    table_ = std::make_unique<backend::BackendTable>(std::move(backends_));
    traits_lookup_ = make_traits_lookup(*table_, groups_);
    control::CoordinatorOptions options = control::world_of(2);
    options.traits_of = traits_lookup_;
    planner_ = std::make_unique<control::Planner>(
        control::Planner::Options{.may_plan = true, .ranks = 2, .traits_of = traits_lookup_});
    rounds_ = std::make_unique<control::Rounds>(options, control::Rounds::Options{}, *planner_);
  }

  std::vector<control::Response> run(const std::vector<Request>& requests) {
    for (Rank rank = 0; rank < 2; ++rank) rounds_->submitted(rank, 0, requests, 0, nullptr);
    std::vector<control::Response> responses = rounds_->take_round(0, 0);
    for (control::Response& response : responses) EXPECT_TRUE(planner_->response(response, 0).is_ok());
    return responses;
  }
  std::vector<std::vector<std::string>> fused(const std::vector<Request>& requests) {
    std::vector<std::vector<std::string>> out;
    for (const control::Response& response : run(requests)) out.push_back(names(response));
    return out;
  }
  bool is_learned(const std::vector<Request>& step) {
    for (int i = 0; i < 10; ++i) {
      run(step);
      if (!rounds_->responded().empty()) return true;
    }
    return false;
  }

  Groups groups_{1, 0, 2};
  std::vector<std::unique_ptr<backend::Backend>> backends_;
  std::unique_ptr<backend::BackendTable> table_;
  control::BackendTraitsLookup traits_lookup_;
  std::unique_ptr<control::Planner> planner_;
  std::unique_ptr<control::Rounds> rounds_;
};

const std::vector<int64_t> kMebibyte = {1 << 18};  // float32

TEST_F(HostAndDevice, large_tensors_travel_alone_only_where_they_would_have_to_be_packed) {
  const auto host = [](const char* name) { return control::allreduce(name, kMebibyte); };
  EXPECT_THAT(fused({host("a"), host("b"), on_device(host("c")), on_device(host("d"))}),
              ElementsAre(ElementsAre("a"), ElementsAre("b"), ElementsAre("c", "d")));
  EXPECT_THAT(fused({control::allreduce("e"), control::allreduce("f")}), ElementsAre(ElementsAre("e", "f")));
}

TEST_F(HostAndDevice, only_host_tensors_become_a_plan) {
  EXPECT_FALSE(is_learned({on_device(control::allreduce("device")), on_device(control::allreduce("more"))}));
  EXPECT_TRUE(is_learned({control::allreduce("host"), control::allreduce("other")}));
}

TEST_F(HostAndDevice, tensors_that_no_backend_takes_are_in_no_plan) {
  const control::TensorRequest nowhere = on_device(control::collective(Collective::kBroadcast, "b"));
  EXPECT_FALSE(traits_lookup_(0, nowhere).can_cancel);
}

TEST_F(HostAndDevice, a_set_that_this_rank_has_not_yet_come_to_is_treated_as_the_world) {
  EXPECT_EQ(traits_lookup_(7, control::allreduce("a")).alone_bytes, 1 << 20);
  EXPECT_EQ(traits_lookup_(7, on_device(control::allreduce("a"))).alone_bytes, 0);
}

}  // namespace
}  // namespace rueda::runtime::backend_traits_test
