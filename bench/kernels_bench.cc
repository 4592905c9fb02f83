// Throughput of the reduction kernels per instruction set, in bytes of one operand, as in STREAM.
//   kernels_bench --benchmark_filter='sum/AVX2/float32'
// Sizes: 8 KiB in L1, 512 KiB in L2, 32 MiB beyond.
#include <benchmark/benchmark.h>

#include <array>
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

void register_all() {
  for (const Table& table : usable_tables()) {
    const char* target = table.name;
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
