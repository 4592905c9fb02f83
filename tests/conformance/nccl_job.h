// Whole engines on the tests' libcuda and libnccl: each rank is a thread with a device of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_job.h"
#include "fixture.h"
#include "nccl_fixture.h"

namespace rueda::runtime::nccl_job {

// Before the first use of the library, which reads it then.
inline const bool has_devices = [] { return setenv("FAKE_CUDA_DEVICES", "4", 0) == 0; }();

inline Env with_nccl(Env more = {}) {
  more["RUEDA_CUDA_LIBRARY"] = RUEDA_FAKE_CUDA;
  more["RUEDA_NCCL_LIBRARY"] = nccl_test::kLibrary;
  return more;
}

inline Deadline soon() { return Deadline::after(30 * kSecond); }

// A rank's device, a stream as a framework has one, and tensors there.
class OnDevice {
 public:
  explicit OnDevice(int32_t ordinal) : device_(cuda_test::device(ordinal)), user_(device_) {}

  template <class T>
  std::shared_ptr<cuda_test::DeviceVector<T>> vector(std::vector<T> values) {
    return std::make_shared<cuda_test::DeviceVector<T>>(device_, std::move(values));
  }
  // In place where the collective allows it.
  template <class T>
  Tensor tensor(Collective what, const std::string& name, const cuda_test::DeviceVector<T>& data,
                DType dtype = DType::kFloat32) {
    Tensor made = make_tensor(what, name, {static_cast<int64_t>(data.size())}, data.data());
    made.request.dtype = dtype;
    made.request.memory = MemoryKind::kDevice;
    made.request.device = device_->ordinal();
    made.memory = {.kind = MemoryKind::kDevice, .device = device_->ordinal(), .ready = user_.record()};
    return made;
  }
  [[nodiscard]] cuda_test::UserStream& user() { return user_; }
  [[nodiscard]] const std::shared_ptr<const cuda::Device>& device() const { return device_; }

 private:
  std::shared_ptr<const cuda::Device> device_;
  cuda_test::UserStream user_;
};

using DeviceBody = std::function<void(Engine&, Rank, OnDevice&)>;

class NcclJob : public cuda_test::CudaTest {
 protected:
  // Each rank has the device of its number.
  static void run_with(const Env& settings, Rank ranks, const DeviceBody& body,
                       const std::string& hosts = {}) {
    const Job job(ranks, "shm,tcp", hosts);
    job.run(
        [&](Engine& engine, Rank rank) {
          OnDevice mine(rank);
          body(engine, rank, mine);
          mine.user().synchronize();
        },
        settings);
  }
  static void run(Rank ranks, const DeviceBody& body, const Env& more = {}, const std::string& hosts = {}) {
    run_with(with_nccl(more), ranks, body, hosts);
  }
  void SetUp() override {
    cuda_test::CudaTest::SetUp();
    nccl_test::control().reset();
  }
  void TearDown() override {
    cuda_test::CudaTest::TearDown();
    EXPECT_EQ(nccl_test::control().communicators, 0) << "communicators are left behind";
  }
};

}  // namespace rueda::runtime::nccl_job
