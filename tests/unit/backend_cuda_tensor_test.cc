// What is asked of the driver to check the tensors of a call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixture.h"
#include "rueda/backend/cuda_tensor.h"

namespace rueda::backend::cuda_tensor_test {
namespace {

using cuda_test::CudaTest;
using cuda_test::DeviceVector;
using testing::HasSubstr;

class CudaTensors : public CudaTest {
 protected:
  static constexpr size_t kTensors = 100;
  struct Asked {
    size_t attributes, contexts, events;
    bool operator==(const Asked&) const = default;
  };
  static Asked asked() {
    return {cuda_test::calls("cuPointerGetAttributes"), cuda_test::calls("cuCtxPushCurrent"),
            cuda_test::calls("cuEventQuery")};
  }
  // What the driver is asked while the tensors of a call are checked.
  static Asked check(const std::vector<Segment>& segments,
                     const std::vector<std::shared_ptr<const cuda::Device>>& devices) {
    const Asked before = asked();
    {
      TensorChecks tensors;
      for (const Segment& one : segments) {
        const Status status = tensors.check(devices[static_cast<size_t>(one.memory.device)], one);
        EXPECT_TRUE(status.is_ok()) << status.why;
      }
    }
    const Asked after = asked();
    return {after.attributes - before.attributes, after.contexts - before.contexts,
            after.events - before.events};
  }
};

TEST_F(CudaTensors, of_a_call_ask_the_driver_for_each_allocation_and_event_alone) {
  const std::vector<std::shared_ptr<const cuda::Device>> devices = {cuda_test::device(0),
                                                                    cuda_test::device(1)};
  const std::vector<float> values(kTensors);
  const DeviceVector<float> in(devices[0], values), out(devices[0], values), other(devices[1], values);
  cuda_test::UserStream user(devices[0]);
  std::vector<Segment> apart(kTensors), in_place(kTensors);
  void* const shared = user.record();
  for (size_t i = 0; i < kTensors; ++i) {
    const auto memory = [](void* ready) {
      return Memory{.kind = MemoryKind::kDevice, .device = 0, .ready = ready};
    };
    apart[i] = {
        .input = in.data() + i, .output = out.data() + i, .count = 1, .memory = memory(user.record())};
    in_place[i] = {.input = in.data() + i, .output = in.data() + i, .count = 1, .memory = memory(shared)};
  }
  EXPECT_EQ(check(apart, devices), (Asked{2, 1, kTensors}));
  EXPECT_EQ(check(in_place, devices), (Asked{1, 1, 1}));
  in_place[1] = {.input = other.data(), .output = other.data(), .count = 1};
  in_place[1].memory = {.kind = MemoryKind::kDevice, .device = 1, .ready = nullptr};
  EXPECT_EQ(check(in_place, devices), (Asked{3, 3, 1})) << "another device, and back";
}

TEST_F(CudaTensors, on_another_device_fail_on_this_rank_alone) {
  const auto device = cuda_test::device(0), other = cuda_test::device(1);
  const DeviceVector<float> mine(device, {1}), foreign(other, {1});
  Segment segment = {.input = mine.data(), .output = foreign.data(), .count = 1};
  TensorChecks tensors;
  const Status refused = tensors.check(device, segment);
  EXPECT_EQ(refused.code, Code::kUnavailable);
  EXPECT_THAT(refused.why, HasSubstr("on CUDA device 1, but device 0"));
  segment.output = mine.data();
  EXPECT_TRUE(tensors.check(device, segment).is_ok());
}

}  // namespace
}  // namespace rueda::backend::cuda_tensor_test
