// What C++ tests need to work with the tests' libcuda: its driver, its devices, its own controls, and vectors
// in the memory of a device.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/memory/cuda/buffers.h"
#include "rueda/memory/cuda/device.h"
#include "rueda/memory/cuda/events.h"
#include "rueda/memory/cuda/streams.h"

namespace rueda::cuda_test {

inline void* symbol(const char* name) {
  static void* const library = dlopen(RUEDA_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : dlsym(library, name);
}

template <class Function>
Function* fake(const char* name) {
  auto* const found = reinterpret_cast<Function*>(symbol(name));
  RUEDA_CHECK(found != nullptr, name);
  return found;
}

inline void plant(const char* function, int n, int result) {
  fake<void(const char*, int, int)>("fake_cuda_plant")(function, n, result);
}
inline void fail_device(int device, int result) {
  fake<void(int, int)>("fake_cuda_fail_device")(device, result);
}
inline void heal() { fake<void()>("fake_cuda_heal")(); }
inline void set_free_memory(int device, size_t bytes) {
  fake<void(int, size_t)>("fake_cuda_set_free_memory")(device, bytes);
}
inline size_t calls(const char* function) { return fake<size_t(const char*)>("fake_cuda_calls")(function); }
inline size_t device_bytes() { return fake<size_t()>("fake_cuda_device_bytes")(); }
inline size_t pinned_bytes() { return fake<size_t()>("fake_cuda_pinned_bytes")(); }

inline std::shared_ptr<const cuda::Driver> driver() { return cuda::Driver::load(RUEDA_FAKE_CUDA).value(); }
inline std::shared_ptr<const cuda::Device> device(int32_t ordinal = 0) {
  return cuda::Device::open(driver(), ordinal).value();
}

// Every test leaves the devices as it found them.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override { heal(); }
  void TearDown() override { heal(); }
};

// Waits for everything that a stream has been given.
inline void finish(cuda::Stream& stream) {
  const auto event = cuda::Event::create(stream.device()).value();
  ASSERT_TRUE(stream.record(*event).is_ok());
  for (const Deadline deadline = Deadline::after(20 * kSecond); !event->outcome();)
    ASSERT_FALSE(deadline.is_past()) << "the stream does not end";
}

// Elements in the memory of a device. read() and write() may be used only while no stream works on it.
template <class T>
class DeviceVector {
 public:
  DeviceVector(std::shared_ptr<const cuda::Device> device, const std::vector<T>& values)
      : buffer_(
            cuda::DeviceBuffer::allocate(std::move(device), std::max<size_t>(values.size(), 1) * sizeof(T))
                .value()),
        count_(values.size()) {
    write(values);
  }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  [[nodiscard]] size_t size() const { return count_; }
  [[nodiscard]] std::vector<T> read() const { return {data(), data() + count_}; }
  void write(const std::vector<T>& values) { std::copy(values.begin(), values.end(), data()); }

 private:
  cuda::DeviceBuffer buffer_;
  size_t count_;
};

// A stream as a framework would have one, with events of its own.
class UserStream {
 public:
  explicit UserStream(std::shared_ptr<const cuda::Device> device)
      : stream_(cuda::Stream::create(device).value()), pool_(std::move(device)) {}
  [[nodiscard]] cuda::Stream& stream() { return *stream_; }
  [[nodiscard]] void* handle() const { return stream_->handle(); }
  void enqueue(std::function<void()> work) { ASSERT_TRUE(stream_->call(std::move(work)).is_ok()); }
  // What a tensor's ready event is: it happens after everything enqueued so far. Kept until the end.
  void* record() {
    kept_.push_back(pool_.take().value());
    EXPECT_TRUE(stream_->record(*kept_.back()).is_ok());
    return kept_.back()->handle();
  }
  void synchronize() { finish(*stream_); }

 private:
  std::unique_ptr<cuda::Stream> stream_;
  cuda::EventPool pool_;
  std::vector<std::shared_ptr<cuda::Event>> kept_;
};

// A stream whose work this thread captures into a graph, in the mode that is the default of CUDA and torch.
class Capturing {
 public:
  explicit Capturing(void* stream) : stream_(stream) {
    EXPECT_EQ(fake<int(void*, int)>("cuStreamBeginCapture_v2")(stream_, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL),
              0);
  }
  ~Capturing() {
    if (stream_ != nullptr) (void)end();
  }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;
  // Whether nobody has done what invalidates a capture.
  bool end() {
    void* graph = nullptr;
    return fake<int(void*, void**)>("cuStreamEndCapture")(std::exchange(stream_, nullptr), &graph) == 0;
  }

 private:
  void* stream_;
};

}  // namespace rueda::cuda_test
