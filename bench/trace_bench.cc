// What it costs to record: nanoseconds for one record, the reads of the clock that it needs included.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "rueda/trace/recorder.h"

namespace {

using rueda::CallTrace;
using rueda::monotonic_now;
using rueda::Nanos;
using rueda::trace::Recorder;

constexpr size_t kNames = 160;  // tensors of a ResNet-50

std::array<std::string, kNames> names() {
  std::array<std::string, kNames> made;
  for (size_t i = 0; i < kNames; ++i) made[i] = "allreduce.layer" + std::to_string(i) + ".conv.weight";
  return made;
}

void set_up(Recorder& recorder) {
  recorder.keep(8 << 20);
  recorder.begin_epoch({.rank = 0, .size = 2, .host = "host", .host_key = "host|1"});
}

void record_tensors(benchmark::State& state, Recorder& recorder) {
  const auto tracks = names();
  size_t i = 0;
  for (auto _ : state) {
    recorder.record(rueda::TensorTrace{
        .name = tracks[i], .dtype = "float32", .shape = "[1024, 1024]", .submitted = Nanos{1}});
    i = i + 1 == kNames ? 0 : i + 1;
  }
}

// A span as the flight record takes it for each wait: two reads of the clock.
void a_span(benchmark::State& state) {
  Recorder recorder;
  set_up(recorder);
  for (auto _ : state) {
    const Nanos begin = monotonic_now();
    recorder.record(rueda::TraceSpan{.begin = begin, .end = monotonic_now()});
  }
}
BENCHMARK(a_span);

// A tensor of a call, while a timeline is on: two names to look up.
void a_tensor(benchmark::State& state) {
  Recorder recorder;
  set_up(recorder);
  record_tensors(state, recorder);
}
BENCHMARK(a_tensor);

// A collective of the flight record: the six times of a call. Range: how many names come in turn.
void a_call(benchmark::State& state) {
  Recorder recorder;
  set_up(recorder);
  const auto tracks = names();
  const auto names_in_turn = static_cast<uint64_t>(state.range(0));
  uint64_t i = 0;
  for (auto _ : state) {
    CallTrace call{
        .order = i, .name = tracks[i % names_in_turn], .backend = "local", .tensors = 1, .bytes = 4'096};
    call.submitted = monotonic_now();
    call.ordered = monotonic_now();
    call.started = monotonic_now();
    call.transfer_began = monotonic_now();
    call.unpack_began = monotonic_now();
    call.ended = monotonic_now();
    recorder.record(call);
    ++i;
  }
}
BENCHMARK(a_call)->Arg(kNames)->Arg(1);

// The same while a file takes everything.
void a_tensor_into_a_file(benchmark::State& state) {
  Recorder recorder;
  set_up(recorder);
  const std::string path = "/dev/shm/rueda_trace_bench." + std::to_string(getpid());
  if (!recorder.start_file(path, false).is_ok()) return state.SkipWithError("no file");
  record_tensors(state, recorder);
  recorder.stop_file();
  state.counters["dropped"] = static_cast<double>(recorder.dropped());
  std::remove(path.c_str());
}
BENCHMARK(a_tensor_into_a_file)->Iterations(2'000'000);

}  // namespace

BENCHMARK_MAIN();
