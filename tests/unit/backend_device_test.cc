// How calls in device memory are cut into sections, and how sections are copied. Pure, except for the
// copier.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "fixture.h"
#include "rueda/backend/cuda_event.h"
#include "rueda/backend/device/device_copier.h"
#include "rueda/backend/device/sections.h"
#include "rueda/backend/device/staging_buffers.h"

namespace rueda::backend::on_device_test {
namespace {

using cuda_test::CudaTest;
using cuda_test::DeviceVector;
using testing::Each;
using testing::HasSubstr;

constexpr uint64_t kSeed = 20'241'124;

// Tensors of one collective on n ranks, as the ranks see them.
struct Collected {
  Collective what;
  Rank n;
  std::vector<std::vector<int64_t>> counts;  // [tensors], as Segment::counts, or one count

  [[nodiscard]] bool has_counts() const {
    return what != Collective::kAllreduce && what != Collective::kBroadcast;
  }
  [[nodiscard]] std::vector<Segment> segments(Rank me) const {
    const auto mine = static_cast<size_t>(me), ranks = static_cast<size_t>(n);
    std::vector<Segment> made;
    for (const std::vector<int64_t>& one : counts) {
      Segment& segment = made.emplace_back();
      if (has_counts()) segment.counts = one;
      const auto row = one.begin() + static_cast<ptrdiff_t>(mine * ranks);
      if (what == Collective::kAllgather) segment.count = one[mine];
      if (what == Collective::kAlltoall) segment.count = std::accumulate(row, row + n, int64_t{0});
      if (what == Collective::kReducescatter || !has_counts())
        segment.count = std::accumulate(one.begin(), one.end(), int64_t{0});
    }
    return made;
  }
  [[nodiscard]] schedule::Spec spec() const {
    schedule::Spec spec;
    spec.what = what;
    spec.root = 0;
    if (has_counts()) spec.counts.assign(counts.front().size(), 0);
    for (const std::vector<int64_t>& one : counts)
      for (size_t i = 0; i < one.size(); ++i) (has_counts() ? spec.counts[i] : spec.count) += one[i];
    if (what == Collective::kReducescatter)
      spec.count = std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0});
    return spec;
  }
};

Collected random_collected(Collective what, std::mt19937_64& random) {
  Collected made{.what = what, .n = static_cast<Rank>(1 + random() % 4), .counts = {}};
  const auto n = static_cast<size_t>(made.n);
  const size_t numbers = what == Collective::kAlltoall ? n * n : made.has_counts() ? n : 1;
  for (size_t tensor = 0; tensor < 1 + random() % 4; ++tensor) {
    std::vector<int64_t>& counts = made.counts.emplace_back();
    for (size_t i = 0; i < numbers; ++i)
      counts.push_back(random() % 4 == 0 ? 0 : static_cast<int64_t>(random() % 2000));
  }
  return made;
}

// The values of rank r's tensor t: each element is another number.
std::vector<double> values_of(Rank rank, size_t tensor, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(),
            1e6 * static_cast<double>(rank) + 1e5 * static_cast<double>(tensor));
  return values;
}

// What a call in host memory computes for one segment: [ranks] inputs to [ranks] outputs.
std::vector<std::vector<double>> compute(const schedule::Spec& spec,
                                         const std::vector<std::vector<double>>& inputs) {
  const size_t n = inputs.size();
  std::vector<std::vector<double>> outputs(n);
  const auto begin_of = [&](size_t member) {
    return std::accumulate(spec.counts.begin(), spec.counts.begin() + static_cast<ptrdiff_t>(member),
                           int64_t{0});
  };
  for (size_t me = 0; me < n; ++me) {
    std::vector<double> sums = inputs[0];
    for (size_t r = 1; r < n; ++r)
      for (size_t i = 0; i < sums.size(); ++i)
        if (spec.what == Collective::kAllreduce || spec.what == Collective::kReducescatter)
          sums[i] += inputs[r][i];
    switch (spec.what) {
      case Collective::kReducescatter:
        outputs[me].assign(sums.begin() + begin_of(me), sums.begin() + begin_of(me) + spec.counts[me]);
        break;
      case Collective::kAllgather:
        for (const auto& input : inputs) outputs[me].insert(outputs[me].end(), input.begin(), input.end());
        break;
      case Collective::kAlltoall:
        for (size_t from = 0; from < n; ++from) {
          int64_t begin = 0;
          for (size_t to = 0; to < me; ++to) begin += spec.counts[from * n + to];
          const auto at = inputs[from].begin() + begin;
          outputs[me].insert(outputs[me].end(), at, at + spec.counts[from * n + me]);
        }
        break;
      default:
        outputs[me] = sums;
    }
  }
  return outputs;
}

using Memory3 = std::vector<std::vector<std::vector<double>>>;  // [ranks][tensors][elements]

// Runs the call on all ranks, section by section. [ranks][tensors][elements of the output]
Memory3 run_in_sections(const Collected& all, size_t section_bytes, size_t& sections) {
  const auto n = static_cast<size_t>(all.n);
  std::vector<std::vector<Section>> plans;
  Memory3 inputs(n), outputs(n);
  for (Rank me = 0; me < all.n; ++me) {
    Group group{.members = {}, .me = me};
    for (Rank r = 0; r < all.n; ++r) group.members.push_back(r);
    const std::vector<Segment> segments = all.segments(me);
    plans.push_back(cut({.group = &group, .spec = all.spec(), .segments = segments}, section_bytes));
    for (size_t t = 0; t < segments.size(); ++t) {
      inputs[static_cast<size_t>(me)].push_back(values_of(me, t, segments[t].count));
      outputs[static_cast<size_t>(me)].emplace_back();
    }
  }
  sections = plans.front().size();
  for (size_t p = 0; p < sections; ++p) {
    std::vector<std::vector<double>> packed(n);
    for (size_t me = 0; me < n; ++me) {
      EXPECT_EQ(plans[me].size(), sections);
      EXPECT_EQ(plans[me][p].spec, plans[0][p].spec) << "all members compute the same";
      for (const SectionRun& run : plans[me][p].in) {
        EXPECT_EQ(run.at, std::ssize(packed[me])) << "runs leave no gaps";
        const auto from = inputs[me][run.segment].begin() + run.begin;
        packed[me].insert(packed[me].end(), from, from + run.count);
      }
      EXPECT_EQ(std::ssize(packed[me]), plans[me][p].given);
    }
    const auto results = compute(plans[0][p].spec, packed);
    for (size_t me = 0; me < n; ++me) {
      EXPECT_EQ(std::ssize(results[me]), plans[me][p].taken);
      for (const SectionRun& run : plans[me][p].out) {
        std::vector<double>& to = outputs[me][run.segment];
        to.resize(std::max(to.size(), static_cast<size_t>(run.begin + run.count)), -1);
        std::copy_n(results[me].begin() + run.at, run.count, to.begin() + run.begin);
      }
    }
  }
  return outputs;
}

TEST(Sections, together_compute_what_each_tensor_alone_would) {
  std::mt19937_64 random(kSeed);
  size_t most = 0;
  for (const Collective what : {Collective::kAllreduce, Collective::kBroadcast, Collective::kAllgather,
                                Collective::kReducescatter, Collective::kAlltoall}) {
    for (int i = 0; i < 40; ++i) {
      const Collected all = random_collected(what, random);
      size_t sections = 0;
      const Memory3 found = run_in_sections(all, i % 2 == 0 ? 1 : 4096, sections);
      most = std::max(most, sections);
      for (size_t t = 0; t < all.counts.size(); ++t) {
        const Collected alone{.what = what, .n = all.n, .counts = {all.counts[t]}};
        std::vector<std::vector<double>> inputs;
        for (Rank r = 0; r < all.n; ++r) inputs.push_back(values_of(r, t, alone.segments(r).front().count));
        const auto wanted = compute(alone.spec(), inputs);
        for (size_t me = 0; me < wanted.size(); ++me)
          ASSERT_EQ(found[me][t], wanted[me])
              << name_of(what) << ", tensor " << t << ", rank " << me << ", seed " << kSeed << ", case " << i;
      }
    }
  }
  EXPECT_GT(most, 10U) << "some calls were cut";
}

TEST(Sections, of_an_adasum_are_one_and_of_nothing_too) {
  const Group group{.members = {0, 1}, .me = 0};
  const std::vector<Segment> large{{.count = 1 << 20}}, empty{{.count = 0}};
  schedule::Spec spec;
  spec.count = 1 << 20;
  EXPECT_GT(cut({.group = &group, .spec = spec, .segments = large}, 4096).size(), 100U);
  spec.op = ReduceOp::kAdasum;
  spec.segment_counts = {1 << 20};
  const auto adasum = cut({.group = &group, .spec = spec, .segments = large}, 4096);
  ASSERT_EQ(adasum.size(), 1U);
  EXPECT_EQ(adasum.front().spec, spec);
  spec = {};
  EXPECT_EQ(cut({.group = &group, .spec = spec, .segments = empty}, 4096).size(), 1U);
}

TEST(GatheredParts, have_all_bytes_in_order_and_none_is_larger_than_allowed) {
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 100; ++i) {
    std::vector<std::byte> memory(20'000);
    std::vector<cuda::TensorRun> runs;
    size_t place = random() % 100;
    const size_t first = place;
    for (size_t at = 0; at < 10'000;) {
      const size_t bytes = 1 + random() % 900;
      runs.push_back({.tensor = memory.data() + at, .offset = place, .bytes = bytes});
      at += bytes + random() % 3;
      place += bytes;
    }
    const size_t most = 1 + random() % 2000;
    size_t run = 0, done = 0, at = first;
    for (const GatheredPart& part : split_runs(runs, most)) {
      ASSERT_LE(part.bytes, most);
      ASSERT_EQ(part.begin, at);
      size_t within = 0;
      for (const cuda::TensorRun& one : part.runs) {
        ASSERT_EQ(one.offset, within);
        ASSERT_EQ(one.tensor, runs[run].tensor + done);
        within += one.bytes;
        done += one.bytes;
        if (done == runs[run].bytes) ++run, done = 0;
      }
      ASSERT_EQ(within, part.bytes);
      at += part.bytes;
    }
    ASSERT_EQ(run, runs.size());
  }
}

class CudaDeviceCopier : public CudaTest {
 protected:
  std::shared_ptr<const cuda::Device> device_ = cuda_test::device();

  // Copies 100 tensors of 1,000 bytes there and back.
  void round_trip(DeviceCopier& copier) {
    std::vector<DeviceVector<uint8_t>> tensors;
    std::vector<cuda::TensorRun> runs;
    for (size_t i = 0; i < 100; ++i) {
      tensors.emplace_back(device_, std::vector<uint8_t>(1000, static_cast<uint8_t>(i)));
      runs.push_back(
          {.tensor = reinterpret_cast<std::byte*>(tensors[i].data()), .offset = 1000 * i, .bytes = 1000});
    }
    const cuda::PinnedBuffer pinned = cuda::PinnedBuffer::allocate(device_, 100'000).value();
    CudaEvent come({copier.copy(DeviceCopier::Way::kToHost, runs, pinned.data()).value()});
    ASSERT_TRUE(come.wait(Deadline::after(20 * kSecond)).value().is_ok());
    for (size_t i = 0; i < 100'000; ++i) {
      ASSERT_EQ(pinned.data()[i], static_cast<std::byte>(i / 1000));
      pinned.data()[i] = static_cast<std::byte>(200 - i / 1000);
    }
    CudaEvent gone({copier.copy(DeviceCopier::Way::kToDevice, runs, pinned.data()).value()});
    ASSERT_TRUE(gone.wait(Deadline::after(20 * kSecond)).value().is_ok());
    for (size_t i = 0; i < 100; ++i) EXPECT_THAT(tensors[i].read(), Each(200 - i));
  }
};

TEST_F(CudaDeviceCopier, gathers_many_tensors_with_one_launch_and_one_copy) {
  const auto copier = DeviceCopier::open(
                          device_, [] {}, 1 << 20)
                          .value();
  const size_t launches = cuda_test::calls("cuLaunchKernel");
  round_trip(*copier);
  EXPECT_EQ(cuda_test::calls("cuLaunchKernel") - launches, 2U);
}

TEST_F(CudaDeviceCopier, gathers_smaller_parts_with_less_memory_and_copies_each_with_none) {
  // The tensors and the tables need some; what is left is for the copier.
  for (const size_t left : {size_t{66'000} + 100'000 + 20'000, size_t{100'000}}) {
    const size_t launches = cuda_test::calls("cuLaunchKernel");
    const auto copier = DeviceCopier::open(
                            device_, [] {}, 1 << 20)
                            .value();
    cuda_test::set_free_memory(0, left);
    round_trip(*copier);
    const size_t launched = cuda_test::calls("cuLaunchKernel") - launches;
    EXPECT_EQ(launched, left == 100'000 ? 0U : 2U);
    cuda_test::heal();
  }
}

TEST_F(CudaDeviceCopier, copies_each_tensor_and_says_once_why_where_kernels_are_not_compiled) {
  constexpr int kUnsupportedPtx = 222;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    cuda_test::plant("cuModuleLoadData", 1, kUnsupportedPtx);
    const size_t launches = cuda_test::calls("cuLaunchKernel"), copies = cuda_test::calls("cuMemcpyAsync");
    auto copier = DeviceCopier::open(
        device_, [] {}, 1 << 20);
    ASSERT_TRUE(copier.is_ok()) << copier.status().why;
    round_trip(*copier.value());
    EXPECT_EQ(cuda_test::calls("cuLaunchKernel") - launches, 0U);
    EXPECT_EQ(cuda_test::calls("cuMemcpyAsync") - copies, 200U);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  const size_t warning = text.find("small GPU tensors are copied to the host one by one");
  ASSERT_NE(warning, std::string::npos) << text;
  EXPECT_EQ(text.find("small GPU", warning + 1), std::string::npos) << text;
  EXPECT_THAT(text, HasSubstr("cannot compile the kernels for Device of the tests"));
  EXPECT_THAT(text, HasSubstr("libnvidia-ptxjitcompiler.so.1"));
}

TEST_F(CudaDeviceCopier, wakes_the_engine_when_tensors_are_ready_and_when_copies_have_ended) {
  std::atomic<int> wakes{0};
  const auto copier = DeviceCopier::open(
                          device_, [&] { ++wakes, wakes.notify_all(); }, 1 << 20)
                          .value();
  cuda_test::UserStream user(device_);
  const std::vector<cuda::CUevent> events{static_cast<cuda::CUevent>(user.record())};
  ASSERT_TRUE(copier->wake_after(events).is_ok());
  wakes.wait(0);
  ASSERT_TRUE(copier->wake_after(DeviceCopier::Way::kToHost).is_ok());
  wakes.wait(1);
  EXPECT_EQ(wakes, 2);
}

TEST_F(CudaDeviceCopier, a_buffer_is_free_again_only_when_its_copies_have_ended) {
  StagingBuffers buffers(1, 1 << 20);
  StagingBuffer* const buffer = buffers.take(device_, 1000).value();
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(buffers.take(device_, 1000).value(), nullptr) << "it is taken";
  cuda_test::UserStream user(device_);
  std::atomic<bool> is_open{false};
  user.enqueue([&] { is_open.wait(false); });
  cuda::EventPool pool(device_);
  buffer->leaving.push_back(pool.take().value());
  ASSERT_TRUE(user.stream().record(*buffer->leaving.back()).is_ok());
  buffer->is_taken = false;
  EXPECT_EQ(buffers.take(device_, 1000).value(), nullptr) << "a device still reads it";
  is_open = true;
  is_open.notify_all();
  user.synchronize();
  EXPECT_EQ(buffers.take(device_, 1000).value(), buffer);
}

TEST_F(CudaDeviceCopier, a_buffer_that_cannot_be_pinned_says_what_to_set) {
  StagingBuffers buffers(1, 1 << 20);
  cuda_test::plant("cuMemHostAlloc", 1, cuda::CUDA_ERROR_OUT_OF_MEMORY);
  const Status refused = buffers.take(device_, 100'000).status();
  EXPECT_THAT(refused.why, HasSubstr("cannot pin 131072 bytes of host memory"));
  EXPECT_THAT(refused.why, HasSubstr("set RUEDA_STAGING_BYTES lower on rank 0"));
  EXPECT_THAT(refused.why, HasSubstr("ulimit -l"));
  EXPECT_TRUE(buffers.take(device_, 100'000).is_ok()) << "the next call may find memory";
}

TEST_F(CudaDeviceCopier, an_event_that_the_backend_fails_has_happened_for_all_who_wait) {
  cuda_test::UserStream user(device_);
  std::atomic<bool> is_open{false};
  user.enqueue([&] { is_open.wait(false); });
  cuda::EventPool pool(device_);
  std::shared_ptr<cuda::Event> recorded = pool.take().value();
  ASSERT_TRUE(user.stream().record(*recorded).is_ok());
  CudaEvent event({recorded});
  EXPECT_FALSE(event.outcome().has_value());
  EXPECT_FALSE(event.wait(Deadline::after(kMillisecond)).has_value());
  event.fail({Code::kPeerLost, "rank 1 was lost."});
  EXPECT_THAT(event.wait(std::nullopt)->why, HasSubstr("rank 1 was lost"));
  EXPECT_THAT(event.make_stream_wait(user.handle()).why, HasSubstr("rank 1 was lost"));
  is_open = true;
  is_open.notify_all();
  user.synchronize();
  EXPECT_EQ(event.outcome()->code, Code::kPeerLost) << "only the first outcome counts";
}

}  // namespace
}  // namespace rueda::backend::on_device_test
