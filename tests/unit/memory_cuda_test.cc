// The CUDA driver, devices, streams, events and buffers, with the libcuda of the tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../soon.h"
#include "fixture.h"
#include "rueda/memory/cuda/deferred_frees.h"
#include "rueda/memory/cuda/kernels.h"

namespace rueda::cuda::memory_cuda_test {
namespace {

using cuda_test::CudaTest;
using cuda_test::DeviceVector;
using cuda_test::finish;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using CudaDriver = CudaTest;
using CudaDevice = CudaTest;
using CudaStream = CudaTest;
using CudaBuffer = CudaTest;

// Loads the driver in a process of its own, because the library reads its environment once.
void expect_refusal(const std::vector<std::pair<const char*, const char*>>& environment,
                    const std::vector<std::string>& texts, bool opens_device = false) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // other tests have started streams, which are threads
  EXPECT_EXIT(
      {
        for (const auto& [name, value] : environment) setenv(name, value, 1);
        // A copy is another library to the loader, with a state of its own.
        const std::string copy =
            (std::filesystem::temp_directory_path() / ("libcuda-" + std::to_string(getpid()))).string();
        std::filesystem::copy_file(RUEDA_FAKE_CUDA, copy);
        const auto driver = Driver::load(copy);
        std::filesystem::remove(copy);
        Status status = driver.status();
        if (driver.is_ok() && opens_device) status = Device::open(driver.value(), 0).status();
        for (const std::string& text : texts)
          if (status.why.find(text) == std::string::npos) {
            std::fprintf(stderr, "%s\n", status.why.c_str());
            std::_Exit(1);
          }
        std::_Exit(status.is_ok() ? 2 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaDriver, that_is_missing_is_named) {
  const auto driver = Driver::load("/nonexistent/libcuda.so.1");
  ASSERT_FALSE(driver.is_ok());
  EXPECT_EQ(driver.status().code, Code::kUnavailable);
  EXPECT_THAT(driver.status().why, HasSubstr("/nonexistent/libcuda.so.1"));
}

TEST_F(CudaDriver, that_is_too_old_says_which_one_is_needed) {
  expect_refusal({{"FAKE_CUDA_VERSION", "11020"}},
                 {"supports CUDA 11.2", "CUDA 11.3 or newer", "update the driver"});
}

TEST_F(CudaDriver, that_lacks_functions_names_all_of_them) {
  expect_refusal({{"FAKE_CUDA_MISSING", "cuStreamIsCapturing,cuLaunchHostFunc"}},
                 {"lacks", "cuStreamIsCapturing", "cuLaunchHostFunc", "12.4"});
}

TEST_F(CudaDevice, is_not_there_if_no_device_is_visible) {
  expect_refusal({{"CUDA_VISIBLE_DEVICES", ""}}, {"no CUDA device 0", "CUDA_VISIBLE_DEVICES=''"}, true);
}

TEST_F(CudaDevice, beyond_those_that_are_visible_is_refused) {
  const auto third = Device::open(cuda_test::driver(), 2);
  ASSERT_FALSE(third.is_ok());
  EXPECT_THAT(third.status().why, AllOf(HasSubstr("no CUDA device 2"), HasSubstr("finds 2 devices")));
}

TEST_F(CudaDevice, leaves_the_context_of_the_thread_as_it_was) {
  const auto one = cuda_test::device(0), other = cuda_test::device(1);
  const ScopedContext current(*one);
  const auto get_current = cuda_test::fake<CUresult(CUcontext*)>("cuCtxGetCurrent");
  CUcontext before = nullptr, after = nullptr;
  get_current(&before);
  (void)Stream::create(other);
  get_current(&after);
  EXPECT_EQ(before, one->context());
  EXPECT_EQ(after, before);
}

TEST_F(CudaDevice, is_made_current_once_by_scopes_inside_one_another) {
  const auto one = cuda_test::device(0), other = cuda_test::device(1);
  auto* const get_current = cuda_test::fake<CUresult(CUcontext*)>("cuCtxGetCurrent");
  const auto current = [&] {
    CUcontext context = nullptr;
    get_current(&context);
    return context;
  };
  const CUcontext before = current();
  const size_t pushes = cuda_test::calls("cuCtxPushCurrent");
  {
    const ScopedContext outer(*one);
    {
      const ScopedContext inner(*one);
      EXPECT_EQ(current(), one->context());
    }
    EXPECT_EQ(current(), one->context());
    EXPECT_EQ(cuda_test::calls("cuCtxPushCurrent") - pushes, 1U);
    {
      const ScopedContext another(*other);
      EXPECT_EQ(current(), other->context());
      const ScopedContext again(*one);
      EXPECT_EQ(current(), one->context());
    }
    EXPECT_EQ(current(), one->context());
  }
  EXPECT_EQ(current(), before);
  EXPECT_EQ(cuda_test::calls("cuCtxPushCurrent") - pushes, 3U);
}

TEST_F(CudaDevice, knows_its_own_memory) {
  const auto one = cuda_test::device(0), other = cuda_test::device(1);
  const DeviceVector<float> mine(one, {1, 2});
  const std::vector<float> host(2);
  EXPECT_TRUE(one->check_memory(mine.data()).is_ok());
  EXPECT_TRUE(one->check_memory(mine.data() + 1).is_ok());
  EXPECT_TRUE(one->check_memory(nullptr).is_ok());
  EXPECT_THAT(other->check_memory(mine.data()).why, HasSubstr("on CUDA device 0, but device 1"));
  EXPECT_THAT(one->check_memory(host.data()).why, HasSubstr("not memory of a CUDA device"));
  const ScopedContext current(*other);
  EXPECT_EQ(device_of(one->driver(), mine.data()), 0);
  EXPECT_EQ(device_of(one->driver(), host.data()), -1);
}

TEST_F(CudaDevice, refuses_memory_of_another_context) {
  const auto one = cuda_test::device(0);
  CUcontext foreign = nullptr;
  ASSERT_EQ(cuda_test::fake<CUresult(CUcontext*, unsigned, int)>("cuCtxCreate_v2")(&foreign, 0, 0), 0);
  CUdeviceptr memory = 0;
  ASSERT_EQ(one->driver().cuMemAlloc(&memory, 64), CUDA_SUCCESS);
  EXPECT_THAT(one->check_memory(pointer_to(memory)).why, HasSubstr("another CUDA context"));
  one->driver().cuMemFree(memory);
  one->driver().cuCtxPopCurrent(&foreign);
}

TEST_F(CudaStream, that_is_being_captured_is_refused) {
  const auto one = cuda_test::device(0);
  const auto stream = Stream::create(one).value();
  EXPECT_TRUE(one->check_stream(stream->handle()).is_ok());
  EXPECT_TRUE(one->check_stream(nullptr).is_ok());
  const cuda_test::Capturing capturing(stream->handle());
  EXPECT_THAT(one->check_stream(stream->handle()).why, HasSubstr("captured into a CUDA graph"));
  const auto event = Event::create(one).value();
  ASSERT_TRUE(stream->record(*event).is_ok());
  EXPECT_THAT(event->outcome()->why, HasSubstr("captured into a CUDA graph"));
}

TEST_F(CudaStream, that_another_thread_captures_is_not_disturbed) {
  const auto one = cuda_test::device(0);
  const auto captured = Stream::create(one).value(), mine = Stream::create(one).value();
  const auto event = Event::create(one).value();
  cuda_test::Capturing capturing(captured->handle());
  std::thread([&] {
    const DeviceVector<int> from(one, {1, 2, 3}), to(one, {0, 0, 0});
    ASSERT_TRUE(mine->copy(to.data(), from.data(), 3 * sizeof(int)).is_ok());
    finish(*mine);
    EXPECT_TRUE(event->outcome()->is_ok());
    EXPECT_TRUE(Kernels::load(one).is_ok());
  }).join();
  EXPECT_TRUE(capturing.end());
}

TEST_F(CudaStream, that_this_thread_captures_is_guarded_from_the_thread_itself_as_before) {
  const auto one = cuda_test::device(0);
  const auto captured = Stream::create(one).value();
  const auto event = Event::create(one).value();
  cuda_test::Capturing capturing(captured->handle());
  EXPECT_TRUE(event->outcome()->is_ok());
  EXPECT_EQ(one->driver().cuEventQuery(event->handle()), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_FALSE(capturing.end());
}

TEST_F(CudaStream, that_is_none_is_refused) {
  int nothing = 0;
  EXPECT_THAT(cuda_test::device()->check_stream(reinterpret_cast<CUstream>(&nothing)).why,
              HasSubstr("not a stream of CUDA"));
}

// As after a loss: the stream of the program waits for a rank that never comes.
TEST_F(CudaStream, that_never_ends_keeps_nobody_who_frees_memory) {
  const auto device = cuda_test::device();
  const auto stream = Stream::create(device).value();
  std::atomic<bool> is_free{false};
  const size_t before = cuda_test::device_bytes();
  {
    const DeferredFrees frees({}, 50 * kMillisecond);
    auto first = DeviceBuffer::allocate(device, 1000).value();
    ASSERT_TRUE(stream->call([&] { is_free.wait(false); }).is_ok());
    first = {};
  }
  { auto second = DeviceBuffer::allocate(device, 1000).value(); }  // behind the first one
  EXPECT_EQ(cuda_test::device_bytes(), before + 2000);
  is_free = true;
  is_free.notify_all();
  for (const Deadline deadline = soon(); cuda_test::device_bytes() != before && !deadline.is_past();)
    std::this_thread::yield();
  EXPECT_EQ(cuda_test::device_bytes(), before);
}

TEST_F(CudaStream, frees_nothing_while_collectives_run_unless_memory_is_short) {
  const auto device = cuda_test::device();
  const size_t before = cuda_test::device_bytes();
  std::atomic<bool> is_busy{true};
  const auto has = [&](size_t bytes) {
    const Deadline deadline = soon();
    while (cuda_test::device_bytes() != before + bytes && !deadline.is_past()) std::this_thread::yield();
    return cuda_test::device_bytes() == before + bytes;
  };
  const DeferredFrees frees([&] { return is_busy.load(); });
  { auto one = DeviceBuffer::allocate(device, 1000).value(); }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(cuda_test::device_bytes(), before + 1000);
  is_busy = false;
  EXPECT_TRUE(has(0));
  is_busy = true;
  { auto one = DeviceBuffer::allocate(device, 1000).value(); }
  cuda_test::set_free_memory(0, 500);
  auto two = DeviceBuffer::allocate(device, 900);
  EXPECT_TRUE(two.is_ok()) << two.status().why;
  EXPECT_EQ(cuda_test::device_bytes(), before + 900);
}

TEST_F(CudaStream, has_a_device) {
  const auto device = cuda_test::device(1), other = cuda_test::device(0);
  const auto stream = Stream::create(device).value();
  EXPECT_EQ(device_of_stream(device->driver(), stream->handle()), 1);
  const ScopedContext current(*other);
  EXPECT_EQ(device_of_stream(device->driver(), stream->handle()), 1);
  EXPECT_EQ(device_of_stream(device->driver(), nullptr), 0) << "that of the device that is current";
  int nothing = 0;
  EXPECT_EQ(device_of_stream(device->driver(), reinterpret_cast<CUstream>(&nothing)), -1);
}

TEST_F(CudaStream, runs_what_it_is_given_in_order_and_later) {
  const auto one = cuda_test::device(0);
  const auto first = Stream::create(one).value(), second = Stream::create(one).value();
  const DeviceVector<int> from(one, {1, 2, 3}), to(one, {0, 0, 0});
  std::atomic<bool> is_free{false};
  ASSERT_TRUE(first->call([&] { is_free.wait(false); }).is_ok());
  ASSERT_TRUE(first->copy(to.data(), from.data(), 3 * sizeof(int)).is_ok());
  const auto copied = Event::create(one).value();
  ASSERT_TRUE(first->record(*copied).is_ok());
  std::vector<int> seen;
  ASSERT_TRUE(second->wait(copied->handle()).is_ok());
  ASSERT_TRUE(second->call([&] { seen = to.read(); }).is_ok());
  EXPECT_FALSE(copied->outcome().has_value());
  EXPECT_THAT(to.read(), Each(0));
  is_free = true;
  is_free.notify_all();
  finish(*second);
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
}

TEST_F(CudaStream, reports_a_failure_of_the_device_with_its_name) {
  const auto one = cuda_test::device(0);
  const auto stream = Stream::create(one).value();
  cuda_test::fail_device(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto event = Event::create(one).value();
  ASSERT_TRUE(stream->record(*event).is_ok());
  std::optional<Status> outcome;
  for (const Deadline deadline = soon(); !outcome && !deadline.is_past();) outcome = event->outcome();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(outcome->why, AllOf(HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"), HasSubstr("device 0")));
}

TEST_F(CudaStream, that_cannot_be_made_says_why) {
  cuda_test::plant("cuStreamCreateWithPriority", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(Stream::create(cuda_test::device()).status().why,
              HasSubstr("create a stream: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"));
}

TEST_F(CudaStream, takes_events_from_the_pool_again) {
  const auto one = cuda_test::device(0);
  EventPool pool(one);
  const CUevent first = pool.take().value()->handle();
  EXPECT_EQ(pool.take().value()->handle(), first);
  const auto kept = pool.take().value();
  EXPECT_NE(pool.take().value()->handle(), kept->handle());
}

TEST_F(CudaBuffer, of_a_full_device_is_one_sentence) {
  const auto one = cuda_test::device(0);
  cuda_test::set_free_memory(0, 100);
  const auto buffer = DeviceBuffer::allocate(one, 101);
  ASSERT_FALSE(buffer.is_ok());
  EXPECT_EQ(buffer.status().code, Code::kUnavailable);
  EXPECT_THAT(buffer.status().why, HasSubstr("allocate 101 bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_F(CudaBuffer, is_freed_once_however_it_moves) {
  const auto one = cuda_test::device(0);
  const size_t device_before = cuda_test::device_bytes(), pinned_before = cuda_test::pinned_bytes();
  {
    DeviceBuffer a = DeviceBuffer::allocate(one, 1000).value();
    DeviceBuffer b = std::move(a);
    b = DeviceBuffer::allocate(one, 500).value();
    EXPECT_EQ(cuda_test::device_bytes() - device_before, 500U);
    PinnedBuffer c = PinnedBuffer::allocate(one, 300).value();
    const PinnedBuffer d = std::move(c);
    EXPECT_EQ(cuda_test::pinned_bytes() - pinned_before, 300U);
    EXPECT_EQ(c.data(), nullptr);  // NOLINT(bugprone-use-after-move): that is the claim
  }
  EXPECT_EQ(cuda_test::device_bytes(), device_before);
  EXPECT_EQ(cuda_test::pinned_bytes(), pinned_before);
}

}  // namespace
}  // namespace rueda::cuda::memory_cuda_test
