// Whole engines with a device each: a call is launched at once and ends later, streams wait for it, and the
// host waits only where somebody asks for the value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "engine_job.h"
#include "fake_device.h"

namespace rueda::runtime::on_device_test {
namespace {

using device_test::DeviceBackend;
using device_test::Event;
using device_test::Fabric;
using device_test::Stream;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Rank kRanks = 2;
constexpr uint32_t kSeed = 20'240'611;
constexpr int64_t kCount = 1000;

Deadline soon() { return Deadline::after(20 * kSecond); }

using DeviceBody = std::function<void(Engine&, Rank, DeviceBackend&)>;

// Runs body on two ranks whose only backend is the device's.
void run_with_devices(const DeviceBody& body) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const Job job(kRanks, "shm,tcp");
  const auto fabric = std::make_shared<Fabric>(kRanks);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<Session> session = job.start(rank);
      ASSERT_TRUE(session.is_ok()) << session.status().to_string();
      std::vector<std::unique_ptr<backend::Backend>> backends;
      auto device = std::make_unique<DeviceBackend>(fabric, rank, kSeed + static_cast<uint32_t>(rank));
      DeviceBackend& mine = *device;
      backends.push_back(std::move(device));
      session.value().backends = std::make_unique<backend::BackendTable>(std::move(backends));
      session.value().on_data = [](const transport::Completion&) {};
      const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
      body(*engine, rank, mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Tensor on_device(const std::string& name, std::vector<float>& data) {
  Tensor tensor = make_tensor(Collective::kAllreduce, name, {static_cast<int64_t>(data.size())}, data.data());
  tensor.request.memory = MemoryKind::kDevice;
  tensor.request.device = 0;
  tensor.memory = {.kind = MemoryKind::kDevice, .device = 0};
  return tensor;
}

std::vector<float> filled(Rank rank) { return std::vector<float>(kCount, static_cast<float>(rank + 1)); }

TEST(Device, a_stream_that_waits_sees_the_sums_and_the_host_goes_on_meanwhile) {
  run_with_devices([](Engine& engine, Rank rank, DeviceBackend& device) {
    Stream user(kSeed + 100 + static_cast<uint32_t>(rank));
    for (int step = 0; step < 20; ++step) {
      std::vector<float> data = filled(rank), seen;
      device.hold();
      const int64_t handle = must_submit(engine, on_device("grad", data));
      ASSERT_TRUE(engine.wait_on_stream(handle, &user, soon()).is_ok());
      user.enqueue([&] { seen = data; });
      EXPECT_EQ(engine.operations().poll(handle), 0) << "it was launched, and has not ended";
      EXPECT_THAT(data, Each(static_cast<float>(rank + 1)));
      device.release();
      user.synchronize();
      EXPECT_THAT(seen, Each(3.0F)) << "step " << step;
      EXPECT_EQ(engine.operations().poll(handle), 1);
      engine.operations().release(handle);
    }
  });
}

TEST(Device, a_host_wait_ends_with_the_value_or_at_its_deadline) {
  run_with_devices([](Engine& engine, Rank rank, DeviceBackend& device) {
    std::vector<float> data = filled(rank);
    device.hold();
    const int64_t handle = must_submit(engine, on_device("grad", data));
    ASSERT_TRUE(engine.wait_on_stream(handle, nullptr, soon()).code == Code::kInvalidArgument);
    const Status late = engine.wait(handle, Deadline::after(kMillisecond));
    EXPECT_EQ(late.code, Code::kTimeout);
    EXPECT_THAT(late.why, HasSubstr("Operation grad is still running on its device"));
    device.release();
    EXPECT_TRUE(engine.wait(handle, soon()).is_ok());
    EXPECT_THAT(data, Each(3.0F));
  });
}

TEST(Device, launches_do_not_wait_for_one_another_to_end) {
  run_with_devices([](Engine& engine, Rank rank, DeviceBackend& device) {
    Stream user(kSeed + 100 + static_cast<uint32_t>(rank));
    std::vector<std::vector<float>> data(10, filled(rank));
    std::vector<int64_t> handles;
    device.hold();
    for (size_t i = 0; i < data.size(); ++i) {
      handles.push_back(must_submit(engine, on_device("grad" + std::to_string(i), data[i])));
      ASSERT_TRUE(engine.wait_on_stream(handles.back(), &user, soon()).is_ok());
    }
    device.release();
    for (const int64_t handle : handles) EXPECT_TRUE(engine.wait(handle, soon()).is_ok());
    for (const auto& tensor : data) EXPECT_THAT(tensor, Each(3.0F));
  });
}

TEST(Device, the_tensors_of_a_batch_share_its_event) {
  run_with_devices([](Engine& engine, Rank rank, DeviceBackend& device) {
    std::vector<std::vector<float>> data(8, filled(rank));
    std::vector<Tensor> tensors;
    for (auto& each : data) {
      tensors.push_back(on_device("grad" + std::to_string(tensors.size()), each));
      tensors.back().request.group_name = "grads";
      tensors.back().request.group_index = static_cast<int32_t>(tensors.size()) - 1;
      tensors.back().request.group_size = static_cast<int32_t>(data.size());
    }
    const int64_t handle = engine.submissions().submit(std::move(tensors)).value();
    ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
    EXPECT_EQ(device.launches, 1);
    EXPECT_EQ(engine.operations().find(handle)->events.size(), 1U);
    for (const auto& tensor : data) EXPECT_THAT(tensor, Each(3.0F));
  });
}

// Each tensor gets its value just before its event: a backend that reads it sooner adds other numbers.
TEST(Device, the_tensors_of_a_batch_are_read_after_the_event_of_each) {
  for (const size_t last : {0U, 1U}) {
    SCOPED_TRACE("the last event is that of tensor " + std::to_string(last));
    run_with_devices([last](Engine& engine, Rank rank, DeviceBackend& device) {
      std::vector<std::vector<float>> data(2, std::vector<float>(kCount, -1.0F));
      const std::vector<std::shared_ptr<Event>> ready{std::make_shared<Event>(), std::make_shared<Event>()};
      std::vector<Tensor> tensors;
      for (size_t i = 0; i < data.size(); ++i) {
        tensors.push_back(on_device("grad" + std::to_string(i), data[i]));
        tensors[i].memory.ready = ready[i].get();
        tensors[i].request.group_name = "grads";
        tensors[i].request.group_index = static_cast<int32_t>(i);
        tensors[i].request.group_size = static_cast<int32_t>(data.size());
      }
      const int64_t handle = engine.submissions().submit(std::move(tensors)).value();
      Stream user(kSeed + 100 + static_cast<uint32_t>(rank));
      ASSERT_TRUE(engine.wait_on_stream(handle, &user, soon()).is_ok()) << "a launch waits for no event";
      EXPECT_EQ(device.launches, 1);
      EXPECT_THAT(device.awaited, ElementsAre(ready[0].get(), ready[1].get()));
      for (const size_t i : {1 - last, last}) {
        EXPECT_EQ(engine.wait(handle, Deadline::after(5 * kMillisecond)).code, Code::kTimeout);
        EXPECT_THAT(data[i], Each(-1.0F));
        std::ranges::fill(data[i], static_cast<float>(rank + 1));
        ready[i]->happen(Status::ok());
      }
      ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
      for (const auto& tensor : data) EXPECT_THAT(tensor, Each(3.0F));
    });
  }
}

TEST(Device, the_end_of_an_epoch_waits_for_no_event_of_a_tensor) {
  const auto never = std::make_shared<Event>();
  run_with_devices([&](Engine& engine, Rank rank, DeviceBackend& device) {
    std::vector<float> data = filled(rank), refused = filled(rank);
    Tensor tensor = on_device("launched", data);
    tensor.memory.ready = never.get();
    const int64_t handle = must_submit(engine, std::move(tensor));
    Stream user(kSeed + 100 + static_cast<uint32_t>(rank));
    ASSERT_TRUE(engine.wait_on_stream(handle, &user, soon()).is_ok());
    if (rank == 1) device.fail_launches({Code::kUnavailable, "the device has no memory."});
    must_submit(engine, on_device("refused", refused));
    EXPECT_THAT(engine.wait(handle, std::nullopt).why, HasSubstr("the device has no memory"));
    user.synchronize();
  });
}

TEST(Device, that_fails_after_the_launch_fails_the_host_wait_on_its_rank) {
  run_with_devices([](Engine& engine, Rank rank, DeviceBackend& device) {
    std::vector<float> data = filled(rank);
    if (rank == 1) device.fail_on_device({Code::kUnavailable, "the device fell off the bus."});
    const int64_t handle = must_submit(engine, on_device("grad", data));
    const Status status = engine.wait(handle, soon());
    EXPECT_EQ(status.code, rank == 1 ? Code::kUnavailable : Code::kOk);
    if (rank == 0) return;
    EXPECT_THAT(status.why, AllOf(HasSubstr("Operation grad"), HasSubstr("fell off the bus")));
    Stream user(kSeed);
    EXPECT_THAT(engine.wait_on_stream(handle, &user, soon()).why, HasSubstr("fell off the bus"));
  });
}

TEST(Device, the_end_of_an_epoch_ends_the_wait_for_what_was_launched) {
  run_with_devices([](Engine& engine, Rank rank, DeviceBackend& device) {
    Stream user(kSeed + 100 + static_cast<uint32_t>(rank));
    std::vector<float> launched = filled(rank), refused = filled(rank);
    device.hold();  // until the end
    const int64_t pending = must_submit(engine, on_device("launched", launched));
    ASSERT_TRUE(engine.wait_on_stream(pending, &user, soon()).is_ok());
    if (rank == 1) device.fail_launches({Code::kUnavailable, "the device has no memory."});
    must_submit(engine, on_device("refused", refused));
    const Status status = engine.wait(pending, std::nullopt);
    EXPECT_FALSE(status.is_ok());
    EXPECT_THAT(status.why, AllOf(HasSubstr("Operation launched"), HasSubstr("the device has no memory")));
    user.synchronize();
    EXPECT_THAT(launched, Each(static_cast<float>(rank + 1))) << "nothing touches it afterwards";
  });
}

TEST(Device, shutdown_lets_end_what_was_launched) {
  run_with_devices([](Engine& engine, Rank rank, DeviceBackend& device) {
    std::vector<float> data = filled(rank);
    Stream user(kSeed + 100 + static_cast<uint32_t>(rank));
    device.hold();
    const int64_t handle = must_submit(engine, on_device("grad", data));
    ASSERT_TRUE(engine.wait_on_stream(handle, &user, soon()).is_ok());
    // A shutdown that does not wait returns before the release.
    std::thread releaser([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      device.release();
    });
    engine.shutdown();
    EXPECT_EQ(engine.operations().poll(handle), 1);
    EXPECT_THAT(data, Each(3.0F));
    releaser.join();
  });
}

}  // namespace
}  // namespace rueda::runtime::on_device_test
