// Throughput of the kernels per instruction set, in one thread: of reductions in bytes of one operand, as in
// STREAM, of wire types in bytes of the float32 values that are encoded or decoded.
//   kernels_bench --benchmark_filter='sum/AVX2/float32'
//   kernels_bench --benchmark_filter='(encode|decode|decode_add)/AVX2/int8'
// Sizes: 8 KiB in L1, 512 KiB in L2, 32 MiB beyond.
#include <benchmark/benchmark.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "rueda/kernels/kernels.h"
#include "rueda/kernels/table.h"

namespace rueda::kernels {
namespace {

constexpr std::array<int64_t, 3> kBytes{8 << 10, 512 << 10, 32 << 20};

// sources arrays of `bytes` each, filled with zeros, and one more for the result.
struct Arrays {
  std::vector<std::vector<std::byte>> memory;
  std::vector<const void*> sources;
  size_t count;
  Arrays(DType dtype, int64_t bytes, int64_t how_many) : count(bytes / size_of(dtype)) {
    for (int64_t i = 0; i <= how_many; ++i) {
      memory.emplace_back(bytes);
      fill_identity(ReduceOp::kSum, dtype, memory.back().data(), count);
      if (i < how_many) sources.push_back(memory.back().data());
    }
  }
  void* out() { return memory.back().data(); }
};

void reduce_four(benchmark::State& state, const char* target, DType dtype, Scale scale) {
  if (!select_target(target)) return state.SkipWithError("not usable on this CPU");
  Arrays arrays(dtype, state.range(0), state.range(1));
  for (auto _ : state) {
    reduce_sources(ReduceOp::kSum, dtype, arrays.sources, arrays.out(), arrays.count, scale);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void reduce_in_place(benchmark::State& state, const char* target, DType dtype, ReduceOp op) {
  if (!select_target(target)) return state.SkipWithError("not usable on this CPU");
  Arrays arrays(dtype, state.range(0), 1);
  for (auto _ : state) {
    reduce(op, dtype, arrays.out(), arrays.sources[0], arrays.out(), arrays.count);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void adasum_in_place(benchmark::State& state, const char* target, DType dtype) {
  if (!select_target(target)) return state.SkipWithError("not usable on this CPU");
  Arrays arrays(dtype, state.range(0), 1);
  for (auto _ : state) {
    adasum(dtype, arrays.out(), arrays.sources[0], arrays.out(), arrays.count);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// Values, the errors before and after, and the encoded blocks.
struct WireArrays {
  std::vector<float> values, before, after;
  std::vector<std::byte> encoded;
  size_t blocks;
  WireArrays(Wire wire, int64_t bytes)
      : values(static_cast<size_t>(bytes) / sizeof(float)),
        before(values.size()),
        after(values.size()),
        blocks(values.size() / kWireBlock) {
    encoded.resize(blocks * static_cast<size_t>(wire_block_bytes(wire)));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random);
    encode(wire, values.data(), before.data(), after.data(), encoded.data(), blocks);
    before = after;
  }
};

// With error feedback: reads values and errors, writes errors and blocks.
void encode_blocks(benchmark::State& state, const char* target, Wire wire) {
  if (!select_target(target)) return state.SkipWithError("not usable on this CPU");
  WireArrays arrays(wire, state.range(0));
  for (auto _ : state) {
    encode(wire, arrays.values.data(), arrays.before.data(), arrays.after.data(), arrays.encoded.data(),
           arrays.blocks);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void decode_blocks(benchmark::State& state, const char* target, Wire wire, bool adds) {
  if (!select_target(target)) return state.SkipWithError("not usable on this CPU");
  WireArrays arrays(wire, state.range(0));
  for (auto _ : state) {
    decode(wire, arrays.encoded.data(), adds ? arrays.after.data() : nullptr, arrays.after.data(),
           arrays.after.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void register_wires(const char* target) {
  for (const Wire wire : {Wire::kBfloat16, Wire::kFloat16, Wire::kInt8}) {
    const std::string tail = std::string("/") + target + "/" + std::string(name_of(wire));
    const auto encodes = [=](auto& state) { encode_blocks(state, target, wire); };
    const auto decodes = [=](auto& state) { decode_blocks(state, target, wire, false); };
    const auto adds = [=](auto& state) { decode_blocks(state, target, wire, true); };
    for (const int64_t bytes : kBytes) {
      benchmark::RegisterBenchmark(("encode" + tail).c_str(), encodes)->Arg(bytes);
      benchmark::RegisterBenchmark(("decode" + tail).c_str(), decodes)->Arg(bytes);
      benchmark::RegisterBenchmark(("decode_add" + tail).c_str(), adds)->Arg(bytes);
    }
  }
}

void register_all() {
  for (const Table& table : usable_tables()) {
    const char* target = table.name;
    register_wires(target);
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16, DType::kInt64}) {
      const std::string tail = std::string("/") + target + "/" + std::string(name_of(dtype));
      const auto sum = [=](auto& state) { reduce_in_place(state, target, dtype, ReduceOp::kSum); };
      const auto reduced = [=](auto& state) { reduce_four(state, target, dtype, {}); };
      const auto averaged = [=](auto& state) { reduce_four(state, target, dtype, {1.0, 3}); };
      for (const int64_t bytes : kBytes) {
        benchmark::RegisterBenchmark(("sum" + tail).c_str(), sum)->Arg(bytes);
        benchmark::RegisterBenchmark(("reduce4" + tail).c_str(), reduced)->Args({bytes, 4});
        benchmark::RegisterBenchmark(("average4" + tail).c_str(), averaged)->Args({bytes, 4});
        if (!is_floating(dtype)) continue;
        const auto combined = [=](auto& state) { adasum_in_place(state, target, dtype); };
        benchmark::RegisterBenchmark(("adasum" + tail).c_str(), combined)->Arg(bytes);
      }
    }
  }
}

}  // namespace
}  // namespace rueda::kernels

int main(int argc, char** argv) {
  rueda::kernels::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
