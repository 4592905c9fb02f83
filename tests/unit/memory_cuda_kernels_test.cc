// The kernels for CUDA devices, compiled for the host and launched through the tests' libcuda, against the
// scalar definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "fixture.h"
#include "kernels_reference.h"
#include "rueda/memory/cuda/kernels.h"

namespace rueda::cuda::memory_cuda_kernels_test {
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

// What the packing of an average does with one launch instead of two.
template <DType kType>
void expect_scaled_moves(Kernels& kernels, Stream& stream, std::mt19937_64& random) {
  using Raw = typename Element<kType>::Raw;
  const size_t counts[] = {5, 20'001, 0, 64, 1, 9000};
  for (const Scale& scale : {Scale{.factor = 1, .divisor = 8}, Scale{.factor = 0.7, .divisor = 3}}) {
    std::vector<DeviceVector<Raw>> memory;
    std::vector<TensorRun> runs;
    size_t offset = 0;
    for (const size_t count : counts) {  // from the second element on: not always aligned to a load
      memory.emplace_back(stream.device(), kernels_test::random_elements<kType>(count + 1, random));
      auto* const first = reinterpret_cast<std::byte*>(memory.back().data() + (count % 2));
      runs.push_back({.tensor = first, .offset = offset, .bytes = count * sizeof(Raw)});
      offset += (count * sizeof(Raw) + 127) / 128 * 128;
    }
    const size_t total = offset / sizeof(Raw);
    const DeviceVector<Raw> once(stream.device(), std::vector<Raw>(total)),
        twice(stream.device(), std::vector<Raw>(total));
    const auto bytes = [](const auto& vector) { return reinterpret_cast<std::byte*>(vector.data()); };
    ASSERT_TRUE(kernels.pack_scaled(stream, kType, runs, bytes(once), scale).is_ok());
    ASSERT_TRUE(kernels.pack(stream, runs, bytes(twice)).is_ok());
    ASSERT_TRUE(kernels.scale(stream, kType, twice.data(), twice.data(), total, scale).is_ok());
    finish(stream);
    EXPECT_EQ(std::memcmp(once.data(), twice.data(), total * sizeof(Raw)), 0);
    const DeviceVector<Raw> scaled(stream.device(), once.read());
    ASSERT_TRUE(kernels.scale(stream, kType, scaled.data(), scaled.data(), total, scale).is_ok());
    ASSERT_TRUE(kernels.unpack_scaled(stream, kType, runs, bytes(once), scale).is_ok());
    finish(stream);
    for (const TensorRun& run : runs)
      EXPECT_EQ(std::memcmp(run.tensor, bytes(scaled) + run.offset, run.bytes), 0) << "at " << run.offset;
  }
}

TEST_F(CudaKernels, scale_floats_on_the_way_with_the_same_bits) {
  const size_t launches = cuda_test::calls("cuLaunchKernel");
  expect_scaled_moves<DType::kFloat32>(*kernels_, *stream_, random_);
  EXPECT_EQ(cuda_test::calls("cuLaunchKernel") - launches, 2U * (1 + 2 + 1 + 1));
  expect_scaled_moves<DType::kFloat64>(*kernels_, *stream_, random_);
  expect_scaled_moves<DType::kFloat16>(*kernels_, *stream_, random_);
  expect_scaled_moves<DType::kBfloat16>(*kernels_, *stream_, random_);
}

class CudaKernelsOfType : public CudaKernels, public testing::WithParamInterface<int> {};

// Where vectors begin, in elements after an address that is aligned to any load; and how many elements.
struct Places {
  size_t one, other, to, count;
};
constexpr size_t kRoom = 2100;
constexpr Places kPlaces[] = {
    {0, 0, 0, 2048},    // whole groups only
    {3, 3, 3, 1999},    // single elements before and after the groups
    {1, 2, 4, 1997},    // never aligned together
    {0, 1, 0, 517},     //
    {0, 0, 1, 33},      //
    {19, 3, 35, 1001},  // aligned together for all types but those of 8 bytes
    {1, 1, 1, 2},       // no group
    {0, 0, 0, 1},
};

// Whether `out` has at [to, to + count) what `wanted` says, and elsewhere what it had `before`.
template <DType kType, class Raw>
void expect_elements(const std::vector<Raw>& out, const std::vector<Raw>& before, const Places& at,
                     const std::function<Raw(size_t)>& wanted) {
  for (size_t i = 0; i < out.size(); ++i) {
    const bool is_inside = i >= at.to && i < at.to + at.count;
    ASSERT_TRUE(kernels_test::same_element<kType>(out[i], is_inside ? wanted(i - at.to) : before[i]))
        << i << " of " << at.count << " at " << at.one << ", " << at.other << ", " << at.to << ", seed "
        << kSeed;
  }
}

TEST_P(CudaKernelsOfType, scale_as_the_scalar_definition_does) {
  kernels_test::with_type(static_cast<DType>(GetParam()), [this](auto constant) {
    constexpr DType kType = decltype(constant)::value;
    using E = Element<kType>;
    using Raw = typename E::Raw;
    const std::vector<Raw> a = kernels_test::random_elements<kType>(kRoom, random_);
    const std::vector<Raw> before = kernels_test::random_elements<kType>(kRoom, random_);
    const DeviceVector<Raw> one(device_, a);
    DeviceVector<Raw> out(device_, before);
    for (const Places& at : kPlaces) {
      for (const Scale& scale :
           {Scale{}, Scale{.factor = 1, .divisor = 3}, Scale{.factor = 0.7, .divisor = 8},
            Scale{.factor = 1, .divisor = int64_t{1} << 40}, Scale{.factor = 1e30, .divisor = 1}}) {
        out.write(before);
        const Raw* const from = one.data() + at.one;
        ASSERT_TRUE(kernels_->scale(*stream_, kType, from, out.data() + at.to, at.count, scale).is_ok());
        finish(*stream_);
        expect_elements<kType, Raw>(out.read(), before, at, [&](size_t i) {
          return E::narrow(kernels_test::scale_one<typename E::Acc>(scale, kType == DType::kBool,
                                                                    E::widen(a[at.one + i])));
        });
      }
    }
  });
}

TEST_P(CudaKernelsOfType, add_as_the_scalar_definition_does) {
  kernels_test::with_type(static_cast<DType>(GetParam()), [this](auto constant) {
    constexpr DType kType = decltype(constant)::value;
    using E = Element<kType>;
    using Raw = typename E::Raw;
    const std::vector<Raw> a = kernels_test::random_elements<kType>(kRoom, random_);
    const std::vector<Raw> b = kernels_test::random_elements<kType>(kRoom, random_);
    const DeviceVector<Raw> one(device_, a), other(device_, b);
    DeviceVector<Raw> out(device_, b);
    for (const Places& at : kPlaces) {
      out.write(b);
      ASSERT_TRUE(kernels_
                      ->add(*stream_, kType, one.data() + at.one, other.data() + at.other, out.data() + at.to,
                            at.count)
                      .is_ok());
      finish(*stream_);
      expect_elements<kType, Raw>(out.read(), b, at, [&](size_t i) {
        return E::narrow(kernels_test::combine_one<typename E::Acc>(
            ReduceOp::kSum, kType == DType::kBool, E::widen(a[at.one + i]), E::widen(b[at.other + i])));
      });
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
    constexpr size_t kRanks = 5, kWithout = 2, kInPlace = 4;
    const auto expect_sum = [&](const Places& at, double prescale, const Scale& scale) {
      std::vector<std::vector<Raw>> inputs;
      std::vector<DeviceVector<Raw>> memory;
      std::vector<const void*> sources;
      const size_t begins[kRanks] = {at.one, at.other, 0, at.one, at.to};
      for (size_t rank = 0; rank < kRanks; ++rank) {
        inputs.push_back(kernels_test::random_elements<kType>(kRoom, random_));
        memory.emplace_back(device_, inputs.back());
        sources.push_back(rank == kWithout ? nullptr : memory.back().data() + begins[rank]);
      }
      const auto value = [&](size_t rank, size_t i) -> Acc {
        if (rank == kWithout) return Acc{};
        const Acc wide = E::widen(inputs[rank][begins[rank] + i]);
        if (prescale == 1.0) return wide;
        return E::widen(E::narrow(kernels_test::scale_one<Acc>({.factor = prescale}, kIsBool, wide)));
      };
      Raw* const to = memory[kInPlace].data() + at.to;
      ASSERT_TRUE(kernels_->sum(*stream_, kType, sources, to, at.count, prescale, scale).is_ok());
      finish(*stream_);
      expect_elements<kType, Raw>(memory[kInPlace].read(), inputs[kInPlace], at, [&](size_t i) {
        Acc sum = value(0, i);
        for (size_t rank = 1; rank < kRanks; ++rank)
          sum = kernels_test::combine_one<Acc>(ReduceOp::kSum, kIsBool, sum, value(rank, i));
        return E::narrow(kernels_test::scale_one<Acc>(scale, kIsBool, sum));
      });
    };
    for (const Places& at : kPlaces)
      for (const double prescale : {1.0, 0.7})
        for (const Scale& scale : {Scale{}, Scale{.factor = 0.3, .divisor = 4}, Scale{.divisor = 3}})
          expect_sum(at, prescale, scale);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, CudaKernelsOfType, testing::Range(0, kDTypeCount), [](const auto& info) {
  return std::string(name_of(static_cast<DType>(info.param)));
});

// The tensors of two vectors: some empty, some of several chunks, and gaps between them.
std::vector<TensorRun> places_of(const std::vector<size_t>& counts, size_t element, size_t first) {
  std::vector<TensorRun> runs;
  size_t offset = first * element;
  for (const size_t count : counts) {
    runs.push_back({.tensor = nullptr, .offset = offset, .bytes = count * element});
    offset += (count * element + 127) / 128 * 128;
  }
  return runs;
}

// first: elements before the first tensor; shift: by how many elements more the second vector is misaligned.
template <class T>
void expect_adasum(Kernels& kernels, Stream& stream, std::mt19937_64& random, size_t first, size_t shift) {
  const DType dtype = sizeof(T) == sizeof(float) ? DType::kFloat32 : DType::kFloat64;
  const std::vector<size_t> counts = {5, 0, 16'384, 100'001, 1, 300};
  const std::vector<TensorRun> runs = places_of(counts, sizeof(T), first);
  const size_t total = runs.back().offset / sizeof(T) + counts.back();
  std::uniform_real_distribution<double> value(-1, 1);
  std::vector<T> a(total), b(total);
  for (size_t i = 0; i < total; ++i) {
    a[i] = static_cast<T>(value(random));
    b[i] = static_cast<T>(a[i] + value(random));
  }
  b[runs[4].offset / sizeof(T)] = 0;  // this tensor's product with itself is 0
  std::vector<T> shifted(shift);
  shifted.insert(shifted.end(), b.begin(), b.end());
  const DeviceVector<T> left(stream.device(), a), right(stream.device(), shifted), out(stream.device(), b);
  const DeviceVector<std::byte> scratch(stream.device(), std::vector<std::byte>(Kernels::adasum_bytes(runs)));
  const auto bytes = [](const auto& vector) { return reinterpret_cast<std::byte*>(vector.data()); };
  for (auto* const to : {bytes(out), bytes(left)}) {  // elsewhere, and in place
    const std::byte* const other = bytes(right) + shift * sizeof(T);
    ASSERT_TRUE(kernels.adasum(stream, dtype, runs, bytes(left), other, to, scratch.data()).is_ok());
    finish(stream);
  }
  EXPECT_EQ(std::memcmp(left.data() + first, out.data() + first, counts[0] * sizeof(T)), 0);
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
  for (const size_t first : {0, 3}) {
    for (const size_t shift : {0, 1}) {
      expect_adasum<float>(*kernels_, *stream_, random_, first, shift);
      expect_adasum<double>(*kernels_, *stream_, random_, first, shift);
    }
  }
}

// Every value of 16 bits, read and written some elements after an address that is aligned.
template <DType kType>
void expect_casts(Kernels& kernels, Stream& stream, std::mt19937_64& random, const Places& at) {
  using E = Element<kType>;
  constexpr size_t kSpare = 64;
  std::vector<uint16_t> all(at.count + kSpare);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const DeviceVector<uint16_t> half(stream.device(), all);
  const DeviceVector<float> wide(stream.device(), std::vector<float>(all.size(), 7));
  uint16_t* const halves = half.data() + at.one;
  float* const floats = wide.data() + at.to;
  ASSERT_TRUE(kernels.cast(stream, kType, halves, DType::kFloat32, floats, at.count).is_ok());
  finish(stream);
  std::vector<float> values = wide.read();
  expect_elements<DType::kFloat32, float>(values, std::vector<float>(all.size(), 7), at,
                                          [&](size_t i) { return E::widen(all[at.one + i]); });
  // Every value that is halfway between two, and its neighbours; and any others.
  for (size_t i = 0; i < all.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    const uint32_t half_step = kType == DType::kFloat16 ? 0x1000 : 0x8000;
    values[i] = std::bit_cast<float>(i % 4 == 3 ? static_cast<uint32_t>(random())
                                                : bits + half_step + static_cast<uint32_t>(i % 4) - 1);
  }
  const DeviceVector<float> from(stream.device(), values);
  ASSERT_TRUE(kernels.cast(stream, DType::kFloat32, from.data() + at.to, kType, halves, at.count).is_ok());
  finish(stream);
  const Places back = {.one = at.to, .other = 0, .to = at.one, .count = at.count};
  expect_elements<kType, uint16_t>(half.read(), all, back,
                                   [&](size_t i) { return E::narrow(values[at.to + i]); });
}

TEST_F(CudaKernels, cast_every_value_of_16_bits_and_round_to_even) {
  for (const Places& at : {Places{0, 0, 0, 1 << 16}, Places{3, 0, 7, (1 << 16) - 1}, Places{1, 0, 2, 1 << 16},
                           Places{0, 0, 1, 19}, Places{3, 0, 3, 1}}) {
    expect_casts<DType::kFloat16>(*kernels_, *stream_, random_, at);
    expect_casts<DType::kBfloat16>(*kernels_, *stream_, random_, at);
  }
}

}  // namespace
}  // namespace rueda::cuda::memory_cuda_kernels_test
