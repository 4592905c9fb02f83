// How long `rueda timeline summary` takes for a large job: 256 ranks, 1,000 steps, 20 calls in each.
//   timeline_bench [ranks] [steps]
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rueda/trace/recorder.h"
#include "timeline/summary.h"

namespace {

using rueda::CallTrace;
using rueda::kMillisecond;
using rueda::kSecond;
using rueda::Nanos;
using rueda::Rank;
using rueda::SpanKind;
using rueda::TraceSpan;

constexpr int kCalls = 20;

void write_rank(const std::string& base, Rank rank, Rank ranks, int64_t steps) {
  rueda::trace::Recorder recorder;
  recorder.begin_epoch(
      {.epoch = 1, .rank = rank, .size = ranks, .began = kSecond, .host = "a", .host_key = "a|1"});
  if (!recorder.start_file(rueda::trace::record_path(base, rank), false).is_ok()) std::exit(1);
  for (int64_t step = 0; step < steps; ++step) {
    const Nanos begin = kSecond + step * 100 * kMillisecond;
    recorder.record(TraceSpan{.kind = SpanKind::kStep, .begin = begin, .end = begin});
    const Nanos ready = begin + (rank == 3 ? 70 : 60) * kMillisecond;
    for (int call = 0; call < kCalls; ++call) {
      const std::string name = "layer" + std::to_string(call) + ".weight";
      recorder.record(CallTrace{.is_planned = true,
                                .order = static_cast<uint64_t>(step * kCalls + call),
                                .name = name,
                                .backend = "native",
                                .tensors = 4,
                                .bytes = 1 << 20,
                                .submitted = ready,
                                .ordered = ready,
                                .started = ready,
                                .transfer_began = ready,
                                .ended = begin + (71 + call) * kMillisecond});
    }
    recorder.record(TraceSpan{.begin = ready, .end = begin + 91 * kMillisecond});
    if (step % 25 == 24) usleep(2'000);  // the writer keeps up
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto ranks = static_cast<Rank>(argc > 1 ? std::atoi(argv[1]) : 256);
  const int64_t steps = argc > 2 ? std::atoi(argv[2]) : 1'000;
  const std::string folder = "/dev/shm/rueda_timeline_bench." + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  for (Rank rank = 0; rank < ranks; ++rank) write_rank(folder + "/t.json", rank, ranks, steps);
  uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) bytes += file.file_size();
  const Nanos begin = rueda::monotonic_now();
  rueda::timeline::Names names;
  const auto paths = rueda::timeline::find_files({folder});
  const auto job = paths.is_ok() ? rueda::timeline::read_job(paths.value(), -1, names) : paths.status();
  const auto summary = job.is_ok() ? rueda::timeline::summarize(job.value(), names) : job.status();
  const double seconds = static_cast<double>(rueda::monotonic_now() - begin) / 1e9;
  std::filesystem::remove_all(folder);
  if (!summary.is_ok()) return std::fprintf(stderr, "%s\n", summary.status().why.c_str()), 1;
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%d ranks, %ld steps, %.0f MB of records: %.2f s, peak of %.0f MB\n%s\n", ranks,
              static_cast<long>(summary.value().steps), static_cast<double>(bytes) / 1e6, seconds,
              static_cast<double>(usage.ru_maxrss) / 1024, summary.value().advice.front().text.c_str());
  return 0;
}
