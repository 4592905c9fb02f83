// The kernels for CUDA devices, compiled for the host and launched through the tests' libcuda, against the
// scalar definition; and the embedded PTX, which the assembler takes for every kind of device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "fixture.h"
#include "kernels_reference.h"
#include "rueda/memory/cuda/kernels.h"
#include "rueda/memory/cuda/kernels_ptx.h"

namespace rueda::cuda {
namespace {

using cuda_test::CudaTest;
using cuda_test::DeviceVector;
using cuda_test::finish;
using kernels_test::Element;
using testing::HasSubstr;

constexpr uint64_t kSeed = 20'241'124;

class CudaKernels : public CudaTest {
 protected:
  std::shared_ptr<const Device> device_ = cuda_test::device();
  std::unique_ptr<Stream> stream_ = Stream::create(device_).value();
  std::unique_ptr<Kernels> kernels_ = Kernels::load(device_).value();
  std::mt19937_64 random_{kSeed};
};

// 300 tensors of odd sizes and places; one is larger than what a block copies at a time.
struct Tensors {
  std::vector<DeviceVector<uint8_t>> memory;
  std::vector<TensorRun> runs;
  size_t bytes = 0;
};

Tensors many_tensors(const std::shared_ptr<const Device>& device, std::mt19937_64& random) {
  Tensors all;
  for (int i = 0; i < 300; ++i) {
    const size_t shift = random() % 3 == 0 ? random() % 16 : 0;
    const size_t bytes = i == 7 ? 100'003 : i == 8 ? 0 : random() % 3000;
    std::vector<uint8_t> values(bytes + shift);
    for (uint8_t& value : values) value = static_cast<uint8_t>(random());
    all.memory.emplace_back(device, values);
    auto* const begin = reinterpret_cast<std::byte*>(all.memory.back().data()) + shift;
    all.bytes += random() % 2 == 0 ? 0 : random() % 5;
    all.runs.push_back({.tensor = begin, .offset = all.bytes, .bytes = bytes});
    all.bytes += bytes;
  }
  return all;
}

TEST_F(CudaKernels, pack_and_unpack_hundreds_of_tensors_with_one_launch_each) {
  Tensors tensors = many_tensors(device_, random_);
  const DeviceVector<uint8_t> buffer(device_, std::vector<uint8_t>(tensors.bytes));
  auto* const packed = reinterpret_cast<std::byte*>(buffer.data());
  const size_t launches = cuda_test::calls("cuLaunchKernel");
  ASSERT_TRUE(kernels_->pack(*stream_, tensors.runs, packed).is_ok());
  finish(*stream_);
  EXPECT_EQ(cuda_test::calls("cuLaunchKernel") - launches, 1U);
  const std::vector<uint8_t> bytes = buffer.read();
  for (const TensorRun& run : tensors.runs)
    ASSERT_EQ(std::memcmp(bytes.data() + run.offset, run.tensor, run.bytes), 0) << "at " << run.offset;
  std::vector<std::vector<uint8_t>> before;
  for (auto& one : tensors.memory) {
    before.push_back(one.read());
    std::vector<uint8_t> changed = before.back();
    for (uint8_t& byte : changed) byte = static_cast<uint8_t>(~byte);
    one.write(changed);
  }
  ASSERT_TRUE(kernels_->unpack(*stream_, tensors.runs, packed).is_ok());
  finish(*stream_);
  for (size_t i = 0; i < tensors.runs.size(); ++i) {
    const TensorRun& run = tensors.runs[i];
    const auto shift =
        static_cast<size_t>(run.tensor - reinterpret_cast<std::byte*>(tensors.memory[i].data()));
    const std::vector<uint8_t> after = tensors.memory[i].read();
    for (size_t at = 0; at < after.size(); ++at)  // what lies before the run stays as it was
      ASSERT_EQ(after[at], at < shift ? static_cast<uint8_t>(~before[i][at]) : before[i][at]);
  }
}

TEST_F(CudaKernels, copy_the_table_of_runs_once_while_the_runs_stay_the_same) {
  const Tensors tensors = many_tensors(device_, random_), others = many_tensors(device_, random_);
  const DeviceVector<uint8_t> buffer(device_, std::vector<uint8_t>(std::max(tensors.bytes, others.bytes)));
  auto* const packed = reinterpret_cast<std::byte*>(buffer.data());
  const size_t copies = cuda_test::calls("cuMemcpyAsync");
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(kernels_->pack(*stream_, tensors.runs, packed).is_ok());
    ASSERT_TRUE(kernels_->pack(*stream_, others.runs, packed).is_ok());
  }
  finish(*stream_);
  EXPECT_EQ(cuda_test::calls("cuMemcpyAsync") - copies, 2U);
}

TEST_F(CudaKernels, replace_no_table_that_the_stream_still_needs) {
  const DeviceVector<uint8_t> from(device_, std::vector<uint8_t>(400, 1)),
      to(device_, std::vector<uint8_t>(400, 0));
  for (size_t i = 0; i < 200; ++i) {  // more than are kept
    const TensorRun run{
        .tensor = reinterpret_cast<std::byte*>(from.data()) + 2 * i, .offset = 2 * i, .bytes = 1};
    ASSERT_TRUE(
        kernels_->pack(*stream_, std::span(&run, 1), reinterpret_cast<std::byte*>(to.data())).is_ok());
  }
  finish(*stream_);
  const std::vector<uint8_t> bytes = to.read();
  for (size_t i = 0; i < 400; ++i) ASSERT_EQ(bytes[i], i % 2 == 0 ? 1 : 0) << i;
}

TEST_F(CudaKernels, pack_without_memory_of_the_device_for_the_table) {
  const Tensors tensors = many_tensors(device_, random_);
  const DeviceVector<uint8_t> buffer(device_, std::vector<uint8_t>(tensors.bytes));
  cuda_test::set_free_memory(0, 0);
  ASSERT_TRUE(kernels_->pack(*stream_, tensors.runs, reinterpret_cast<std::byte*>(buffer.data())).is_ok());
  finish(*stream_);
  EXPECT_EQ(std::memcmp(buffer.data() + tensors.runs[7].offset, tensors.runs[7].tensor, 100'003), 0);
}

TEST_F(CudaKernels, are_all_found_when_they_are_loaded) {
  const size_t before = cuda_test::calls("cuModuleGetFunction");
  const DeviceVector<float> data(device_, {1, 2, 3});
  for (const double factor : {2.0, 0.5})
    ASSERT_TRUE(
        kernels_->scale(*stream_, DType::kFloat32, data.data(), data.data(), 3, {.factor = factor}).is_ok());
  finish(*stream_);
  EXPECT_EQ(cuda_test::calls("cuModuleGetFunction"), before);
}

TEST_F(CudaKernels, that_cannot_be_launched_say_which) {
  cuda_test::plant("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_FAILED);
  const DeviceVector<float> data(device_, {1});
  EXPECT_THAT(kernels_->scale(*stream_, DType::kFloat32, data.data(), data.data(), 1, {}).why,
              HasSubstr("rueda_scale_float32: CUDA_ERROR_LAUNCH_FAILED"));
}

class CudaKernelsOfType : public CudaKernels, public testing::WithParamInterface<int> {};

TEST_P(CudaKernelsOfType, scale_and_add_as_the_scalar_definition_does) {
  kernels_test::with_type(static_cast<DType>(GetParam()), [this](auto constant) {
    constexpr DType kType = decltype(constant)::value;
    using E = Element<kType>;
    using Raw = typename E::Raw;
    constexpr size_t kCount = 2000;
    const std::vector<Raw> a = kernels_test::random_elements<kType>(kCount, random_);
    const std::vector<Raw> b = kernels_test::random_elements<kType>(kCount, random_);
    const DeviceVector<Raw> one(device_, a), other(device_, b), out(device_, a);
    for (const Scale& scale : {Scale{}, Scale{.factor = 1, .divisor = 3}, Scale{.factor = 0.7, .divisor = 8},
                               Scale{.factor = 1e30, .divisor = 1}}) {
      ASSERT_TRUE(kernels_->scale(*stream_, kType, one.data(), out.data(), kCount, scale).is_ok());
      finish(*stream_);
      const std::vector<Raw> scaled = out.read();
      for (size_t i = 0; i < kCount; ++i) {
        const Raw wanted =
            E::narrow(kernels_test::scale_one<typename E::Acc>(scale, kType == DType::kBool, E::widen(a[i])));
        ASSERT_TRUE(kernels_test::same_element<kType>(scaled[i], wanted))
            << i << " times " << scale.factor << " / " << scale.divisor << ", seed " << kSeed;
      }
    }
    ASSERT_TRUE(kernels_->add(*stream_, kType, one.data(), other.data(), out.data(), kCount).is_ok());
    finish(*stream_);
    const std::vector<Raw> sums = out.read();
    for (size_t i = 0; i < kCount; ++i) {
      const Raw wanted = E::narrow(kernels_test::combine_one<typename E::Acc>(
          ReduceOp::kSum, kType == DType::kBool, E::widen(a[i]), E::widen(b[i])));
      ASSERT_TRUE(kernels_test::same_element<kType>(sums[i], wanted)) << i << ", seed " << kSeed;
    }
  });
}

// As backend/device/peer.h uses it: prescaled inputs, a rank without one, in place.
TEST_P(CudaKernelsOfType, sum_in_rank_order_as_the_scalar_definition_does) {
  kernels_test::with_type(static_cast<DType>(GetParam()), [this](auto constant) {
    constexpr DType kType = decltype(constant)::value;
    constexpr bool kIsBool = kType == DType::kBool;
    using E = Element<kType>;
    using Raw = typename E::Raw;
    using Acc = typename E::Acc;
    constexpr size_t kCount = 1000, kRanks = 5, kWithout = 2;
    for (const double prescale : {1.0, 0.7}) {
      for (const Scale& scale : {Scale{}, Scale{.factor = 0.3, .divisor = 4}}) {
        std::vector<std::vector<Raw>> inputs;
        std::vector<DeviceVector<Raw>> memory;
        std::vector<const void*> sources;
        for (size_t rank = 0; rank < kRanks; ++rank) {
          inputs.push_back(kernels_test::random_elements<kType>(kCount, random_));
          memory.emplace_back(device_, inputs.back());
          sources.push_back(rank == kWithout ? nullptr : memory.back().data());
        }
        const auto value = [&](size_t rank, size_t i) -> Acc {
          if (rank == kWithout) return Acc{};
          const Acc wide = E::widen(inputs[rank][i]);
          if (prescale == 1.0) return wide;
          return E::widen(E::narrow(kernels_test::scale_one<Acc>({.factor = prescale}, kIsBool, wide)));
        };
        ASSERT_TRUE(
            kernels_->sum(*stream_, kType, sources, memory[4].data(), kCount, prescale, scale).is_ok());
        finish(*stream_);
        const std::vector<Raw> sums = memory[4].read();
        for (size_t i = 0; i < kCount; ++i) {
          Acc sum = value(0, i);
          for (size_t rank = 1; rank < kRanks; ++rank)
            sum = kernels_test::combine_one<Acc>(ReduceOp::kSum, kIsBool, sum, value(rank, i));
          const Raw wanted = E::narrow(kernels_test::scale_one<Acc>(scale, kIsBool, sum));
          ASSERT_TRUE(kernels_test::same_element<kType>(sums[i], wanted)) << i << ", seed " << kSeed;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Types, CudaKernelsOfType, testing::Range(0, kDTypeCount), [](const auto& info) {
  return std::string(name_of(static_cast<DType>(info.param)));
});

// The tensors of two vectors: some empty, some of several chunks, and gaps between them.
std::vector<TensorRun> places_of(const std::vector<size_t>& counts, size_t element) {
  std::vector<TensorRun> runs;
  size_t offset = 0;
  for (const size_t count : counts) {
    runs.push_back({.tensor = nullptr, .offset = offset, .bytes = count * element});
    offset += (count * element + 127) / 128 * 128;
  }
  return runs;
}

template <class T>
void expect_adasum(Kernels& kernels, Stream& stream, DType dtype, std::mt19937_64& random) {
  const std::vector<size_t> counts = {5, 0, 16'384, 100'001, 1, 300};
  const std::vector<TensorRun> runs = places_of(counts, sizeof(T));
  const size_t total = runs.back().offset / sizeof(T) + counts.back();
  std::uniform_real_distribution<double> value(-1, 1);
  std::vector<T> a(total), b(total);
  for (size_t i = 0; i < total; ++i) {
    a[i] = static_cast<T>(value(random));
    b[i] = static_cast<T>(a[i] + value(random));
  }
  b[runs[4].offset / sizeof(T)] = 0;  // this tensor's product with itself is 0
  const DeviceVector<T> left(stream.device(), a), right(stream.device(), b), out(stream.device(), b);
  const DeviceVector<std::byte> scratch(stream.device(), std::vector<std::byte>(Kernels::adasum_bytes(runs)));
  const auto bytes = [](const auto& vector) { return reinterpret_cast<std::byte*>(vector.data()); };
  for (auto* const to : {bytes(out), bytes(left)}) {  // elsewhere, and in place
    ASSERT_TRUE(kernels.adasum(stream, dtype, runs, bytes(left), bytes(right), to, scratch.data()).is_ok());
    finish(stream);
  }
  EXPECT_EQ(std::memcmp(left.data(), out.data(), counts[0] * sizeof(T)), 0);
  const std::vector<T> result = left.read(), gaps = out.read();
  size_t next = 0;  // outside all tensors nothing is written
  for (size_t k = 0; k < counts.size(); ++k) {
    const size_t begin = runs[k].offset / sizeof(T);
    for (; next < begin; ++next) ASSERT_EQ(gaps[next], b[next]) << next;
    next = begin + counts[k];
    long double ab = 0, aa = 0, bb = 0;
    for (size_t i = begin; i < next; ++i) {
      const long double x = a[i], y = b[i];
      ab += x * y, aa += x * x, bb += y * y;
    }
    const long double of_a = aa == 0 ? 1 : 1 - ab / (2 * aa), of_b = bb == 0 ? 1 : 1 - ab / (2 * bb);
    for (size_t i = begin; i < next; ++i) {
      const auto wanted = static_cast<double>(of_a * a[i] + of_b * b[i]);
      ASSERT_NEAR(result[i], wanted, 4 * std::numeric_limits<T>::epsilon()) << "tensor " << k << ", at " << i;
    }
  }
}

TEST_F(CudaKernels, weigh_and_add_the_vectors_of_each_tensor_for_adasum) {
  expect_adasum<float>(*kernels_, *stream_, DType::kFloat32, random_);
  expect_adasum<double>(*kernels_, *stream_, DType::kFloat64, random_);
}

template <DType kType>
void expect_casts(Kernels& kernels, Stream& stream, std::mt19937_64& random) {
  using E = Element<kType>;
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const DeviceVector<uint16_t> half(stream.device(), all);
  const DeviceVector<float> wide(stream.device(), std::vector<float>(all.size()));
  ASSERT_TRUE(kernels.cast(stream, kType, half.data(), DType::kFloat32, wide.data(), all.size()).is_ok());
  finish(stream);
  std::vector<float> values = wide.read();
  for (size_t i = 0; i < all.size(); ++i)
    ASSERT_TRUE(kernels_test::same_element<DType::kFloat32>(values[i], E::widen(all[i]))) << i;
  // Every value that is halfway between two, and its neighbours; and any others.
  for (size_t i = 0; i < all.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    const uint32_t half_step = kType == DType::kFloat16 ? 0x1000 : 0x8000;
    values[i] = std::bit_cast<float>(i % 4 == 3 ? static_cast<uint32_t>(random())
                                                : bits + half_step + static_cast<uint32_t>(i % 4) - 1);
  }
  const DeviceVector<float> from(stream.device(), values);
  ASSERT_TRUE(kernels.cast(stream, DType::kFloat32, from.data(), kType, half.data(), all.size()).is_ok());
  finish(stream);
  const std::vector<uint16_t> rounded = half.read();
  for (size_t i = 0; i < all.size(); ++i)
    ASSERT_TRUE(kernels_test::same_element<kType>(rounded[i], E::narrow(values[i]))) << values[i];
}

TEST_F(CudaKernels, cast_every_value_of_16_bits_and_round_to_even) {
  expect_casts<DType::kFloat16>(*kernels_, *stream_, random_);
  expect_casts<DType::kBfloat16>(*kernels_, *stream_, random_);
}

TEST_F(CudaKernels, are_assembled_for_every_kind_of_device) {
  EXPECT_THAT(std::string(kKernelsPtx), HasSubstr(".version 5.0"));  // every supported driver compiles it
  if (std::system("ptxas --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no ptxas; it comes with the CUDA toolkit";
  const auto cubin = std::filesystem::temp_directory_path() / ("kernels-" + std::to_string(getpid()));
  for (const char* kind : {"75", "80", "90", "100", "120"}) {
    const std::string command =
        "ptxas -arch=sm_" + std::string(kind) + " " RUEDA_KERNELS_PTX " -o " + cubin.string();
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  std::filesystem::remove(cubin);
}

}  // namespace
}  // namespace rueda::cuda
