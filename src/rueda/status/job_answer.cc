#include "rueda/status/job_answer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "rueda/base/limits.h"
#include "rueda/base/release.h"

namespace rueda::status {
namespace {

constexpr size_t kMaxText = kMaxMessageBytes;
constexpr size_t kMaxName = 4'096;
constexpr size_t kMaxProcesses = 1u << 20;

std::optional<int> number(std::string_view& words) {
  if (!words.starts_with(' ')) return std::nullopt;
  words.remove_prefix(1);
  int value = 0;
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), value);
  if (error != std::errc()) return std::nullopt;
  words.remove_prefix(static_cast<size_t>(end - words.data()));
  return value;
}

void put_processes(ByteWriter& writer, const std::vector<ProcessAnswer>& processes) {
  writer.put_list(processes, [](ByteWriter& to, const ProcessAnswer& one) {
    to.put(one.rank);
    to.put(static_cast<int32_t>(one.pid));
    to.put_string(one.text);
    to.put_string(one.missing);
  });
}

std::vector<ProcessAnswer> get_processes(ByteReader& reader) {
  return reader.get_list(kMaxProcesses, [](ByteReader& from) {
    ProcessAnswer one;
    one.rank = from.get<Rank>();
    one.pid = from.get<int32_t>();
    one.text = from.get_string(kMaxText);
    one.missing = from.get_string(kMaxName);
    return one;
  });
}

HostAnswer get_host(ByteReader& reader) {
  HostAnswer one;
  one.host = reader.get_string(kMaxName);
  one.ranks = reader.get_vector<Rank>(kMaxRanks);
  one.missing = reader.get_string(kMaxName);
  one.processes = get_processes(reader);
  return one;
}

}  // namespace

std::string format_question(const JobQuestion& question) {
  return question.what + " " + std::to_string(question.timeout_ms) + " " + std::to_string(question.rank);
}

std::optional<JobQuestion> parse_question(std::string_view request) {
  JobQuestion question{.what = std::string(request.substr(0, request.find(' ')))};
  static constexpr std::array<std::string_view, 3> kQuestions = {"status", "stacks", "record"};
  if (std::ranges::find(kQuestions, question.what) == kQuestions.end()) return std::nullopt;
  request.remove_prefix(question.what.size());
  const std::optional<int> timeout = number(request), rank = number(request);
  if (!timeout || !rank || !request.empty()) return std::nullopt;
  if (*timeout < 1 || *timeout > kLongestQuestion_ms || *rank < -1 || *rank >= kMaxRanks) return std::nullopt;
  question.timeout_ms = *timeout;
  question.rank = *rank;
  return question;
}

Bytes encode(const std::vector<ProcessAnswer>& processes) {
  ByteWriter writer;
  put_processes(writer, processes);
  return std::move(writer).take();
}

Result<std::vector<ProcessAnswer>> decode_processes(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  std::vector<ProcessAnswer> processes = get_processes(reader);
  if (reader.is_ok() && reader.is_at_end()) return processes;
  return Status(Code::kInternal, "malformed answers of processes arrived.");
}

std::string encode(const JobAnswer& answer) {
  ByteWriter writer;
  writer.put_string(answer.release);
  writer.put(static_cast<int32_t>(answer.launcher));
  writer.put_list(answer.hosts, [](ByteWriter& to, const HostAnswer& one) {
    to.put_string(one.host);
    to.put_vector(one.ranks);
    to.put_string(one.missing);
    put_processes(to, one.processes);
  });
  const Bytes bytes = std::move(writer).take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<JobAnswer> decode_job_answer(std::string_view bytes) {
  ByteReader reader(std::as_bytes(std::span(bytes.data(), bytes.size())));
  JobAnswer answer;
  answer.release = reader.get_string(256);
  if (reader.is_ok() && answer.release != kRelease)
    return Status(Code::kUnsupported, "a launcher of release " + answer.release + " runs, and this is " +
                                          kRelease + "; use the rueda command of that release.");
  answer.launcher = reader.get<int32_t>();
  answer.hosts = reader.get_list(kMaxRanks, get_host);
  if (reader.is_ok() && reader.is_at_end()) return answer;
  return Status(Code::kInternal, "a launcher answered with something else than answers of its hosts.");
}

}  // namespace rueda::status
