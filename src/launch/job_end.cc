#include "launch/job_end.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "launch/notices.h"
#include "rueda/base/clock.h"

namespace rueda::launch {
namespace {

constexpr Nanos kLastCopy = 600 * kSecond;  // of logs to another place; Ctrl-C ends the wait

void add_last_lines(Ending& ending, const RankOutput& output) {
  const bool is_silent = output.last_lines(ending.rank, Stream::kStderr).empty();
  const Stream stream = is_silent ? Stream::kStdout : Stream::kStderr;
  ending.last_lines = output.last_lines(ending.rank, stream);
  if (!ending.last_lines.empty()) ending.log_path = output.log(ending.rank, stream);
  ending.stream = is_silent ? "stdout" : "stderr";
}

int finish_logs(int status, RankOutput& output, LogCollector& collector) {
  if (!collector.is_running()) return status;
  const Status copied = collector.finish(Deadline::after(kLastCopy));
  if (!copied.is_ok()) output.say_sentence(copied.why);
  return copied.is_ok() || status != 0 ? status : 1;
}

}  // namespace

int report(JobEnd end, PrefixStyle::Kind kind, RankOutput& output, ResultFiles& results) {
  for (Ending& ending : end.endings) add_last_lines(ending, output);
  const std::optional<size_t> cause = first_cause(end.endings);
  if (!end.verdict.empty()) {
    output.say(verdict_report(end.verdict, end.endings));
    if (cause) results.write_failure(end.endings[*cause]);
    results.write_verdict(end.verdict);
    return 1;
  }
  output.say(failure_report(end.endings, end.interrupt));
  if (cause) {
    results.write_failure(end.endings[*cause]);
    output.say(closing_notice(kind, end.endings[*cause]));
  }
  return job_exit_status(end.endings, end.interrupt);
}

int finish_output(int status, RankOutput& output, LogCollector& collector) {
  output.out().finish();
  if (const int error = output.out().error(); error != 0) {
    output.say_sentence(fmt::format("cannot write the ranks' output to stdout: {}", std::strerror(error)));
    if (status == 0) status = 1;
  }
  status = finish_logs(status, output, collector);
  if (status == 0 && output.has_lost_logs()) status = 1;
  output.err().finish();
  return status;
}

}  // namespace rueda::launch
