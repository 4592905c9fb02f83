#include "bench/report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "bench/sizes.h"
#include "rueda/base/memory_file.h"
#include "rueda/base/release.h"
#include "rueda/base/unique_fd.h"

namespace rueda::bench {
namespace {

constexpr size_t kAllRowsBytes = size_t{64} << 20;  // more than any benchmark has
constexpr int kPipeBytes = 1 << 20;  // some two thousand rows; what the kernel allows to anybody

Status unwritable(const std::string& path, std::string_view option, int reason) {
  return {Code::kInvalidArgument, fmt::format("cannot write {} ({}); give {} a file in a writable directory",
                                              path, std::strerror(reason), option)};
}

double number(const Row& row, const char* key) { return row.value(key, 0.0); }
std::string text(const Row& row, const char* key) { return row.value(key, std::string()); }
std::string verdict(const Row& row) { return row.value("correct", false) ? "ok" : "WRONG"; }

// "ring", "auto cross-step", "parameter-server", "2 servers, whole"
std::string strategy_text(const Row& row) {
  const int servers = row.value("servers", 0);
  const bool is_usual = servers == row.value("ranks", 0) && text(row, "placement") == "cut";
  if (servers > 0 && !is_usual)
    return fmt::format("{} server{}, {}", servers, servers == 1 ? "" : "s", text(row, "placement"));
  return text(row, "strategy") + (row.value("cross_step", false) ? " cross-step" : "");
}

std::string replay_line(const Row& row) {
  return fmt::format("{:<13}{:>5}  {:<11}{:<18}{:>11}{:>11}{:>11}{:>9.1f} %{:>9.1f} %  {}",
                     text(row, "model"), row.value("ranks", 0), rate_text(row.value("rate_bits", int64_t{0})),
                     strategy_text(row), us_text(1e3 * number(row, "compute_ms")),
                     us_text(1e3 * number(row, "step_ms")), us_text(1e3 * number(row, "exposed_ms")),
                     100 * number(row, "efficiency"), 100 * number(row, "ideal_efficiency"), verdict(row));
}

std::string first_line_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      const size_t colon = line.find(':');
      return colon == std::string::npos ? line : line.substr(std::min(line.size(), colon + 2));
    }
  return {};
}

}  // namespace

std::string us_text(double us) {
  const auto three = [](double value, const char* unit) {
    return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
  };
  if (us < 999.5) return three(us, "us");
  return us < 999.5e3 ? three(us / 1e3, "ms") : three(us / 1e6, "s");
}

std::string table_header(std::string_view what) {
  if (what == "latency")
    return fmt::format("{:>6}{:>10}  {:<9}{:<10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}", "ranks", "size",
                       "memory", "transport", "min", "median", "p90", "p99", "p99.9", "max");
  if (what == "burst")
    return fmt::format("{:<13}{:>5}  {:<9}{:<10}{:<10}{:>8}{:>11}{:>11}{:>11}{:>8}  {}", "model", "ranks",
                       "memory", "transport", "mode", "tensors", "min", "median", "p99", "GB/s", "result");
  if (what == "replay")
    return fmt::format("{:<13}{:>5}  {:<11}{:<18}{:>11}{:>11}{:>11}{:>11}{:>11}  {}", "model", "ranks",
                       "link", "strategy", "compute", "step", "exposed", "efficiency", "ideal", "result");
  return fmt::format("{:<14}{:>6}{:>10}  {:<9}{:<10}{:<19}{:>6}{:>10}{:>10}{:>10}{:>9}{:>9}  {}",
                     "collective", "ranks", "size", "memory", "transport", "algorithm", "calls", "min",
                     "median", "p99", "alg GB/s", "bus GB/s", "result");
}

std::string table_line(std::string_view what, const Row& row) {
  const std::string size = size_text(row.value("bytes", int64_t{0}));
  const int ranks = row.value("ranks", 0);
  const auto us = [&](const char* key) { return us_text(number(row, key)); };
  if (what == "latency")
    return fmt::format("{:>6}{:>10}  {:<9}{:<10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n{}", ranks, size,
                       text(row, "memory"), text(row, "transport"), us("min_us"), us("median_us"),
                       us("p90_us"), us("p99_us"), us("p999_us"), us("max_us"), text(row, "histogram"));
  if (what == "burst")
    return fmt::format("{:<13}{:>5}  {:<9}{:<10}{:<10}{:>8}{:>11}{:>11}{:>11}{:>8.2f}  {}",
                       text(row, "model"), ranks, text(row, "memory"), text(row, "transport"),
                       text(row, "mode"), row.value("tensors", 0), us("min_us"), us("median_us"),
                       us("p99_us"), number(row, "algbw_gbps"), verdict(row));
  if (what == "replay") return replay_line(row);
  return fmt::format("{:<14}{:>6}{:>10}  {:<9}{:<10}{:<19}{:>6}{:>10}{:>10}{:>10}{:>9.3f}{:>9.3f}  {}",
                     text(row, "collective"), ranks, size, text(row, "memory"), text(row, "transport"),
                     text(row, "algorithm"), row.value("iterations", 0), us("min_us"), us("median_us"),
                     us("p99_us"), number(row, "algbw_gbps"), number(row, "busbw_gbps"), verdict(row));
}

Status Report::add(Row row) {
  if (is_mute_) return Status::ok();
  fmt::print("{}\n", table_line(what_, row));
  std::fflush(stdout);
  rows_.push_back(std::move(row));
  if (rows_path_.empty()) return Status::ok();
  std::ofstream file(rows_path_, std::ios::app);
  file << rows_.back().dump() << '\n';
  file.flush();
  if (file) return Status::ok();
  return {Code::kUnavailable,
          fmt::format("cannot write {}; check the free space of its directory", rows_path_)};
}

Result<AppendedRows> AppendedRows::make(std::string path) {
  AppendedRows made(std::move(path));
  if (max_file_bytes() >= kAllRowsBytes) return made;
  if (mkfifo(made.path_.c_str(), 0600) == 0)
    made.pipe_ = UniqueFd(open(made.path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!made.pipe_.is_open())
    return Status(Code::kUnavailable,
                  fmt::format("cannot make the pipe {} ({}); allow larger files (ulimit -f), or set TMPDIR",
                              made.path_, std::strerror(errno)));
  fcntl(made.pipe_.get(), F_SETPIPE_SZ, kPipeBytes);  // else it holds some hundred rows
  return made;
}

Result<std::vector<Row>> AppendedRows::read() const {
  std::string text;
  std::array<char, 65536> chunk;
  const UniqueFd file(pipe_.is_open() ? -1 : open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  const int from = pipe_.is_open() ? pipe_.get() : file.get();
  for (ssize_t size = 0; from >= 0 && (size = ::read(from, chunk.data(), chunk.size())) > 0;)
    text.append(chunk.data(), static_cast<size_t>(size));
  std::vector<Row> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Row row = Row::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object())
      return Status(Code::kUnavailable,
                    fmt::format("{} ends in the middle of a result; run the benchmark again", path_));
    rows.push_back(std::move(row));
  }
  return rows;
}

Row describe_machine() {
  utsname system{};
  uname(&system);
  struct sysinfo memory {};
  sysinfo(&memory);
  double load = 0;
  getloadavg(&load, 1);
  return {{"processor", first_line_of("/proc/cpuinfo", "model name")},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", static_cast<uint64_t>(memory.totalram) * memory.mem_unit},
          {"kernel", std::string(system.release)},
          {"load_1min", load},
          {"rueda", kRelease}};
}

Status check_writable(const std::string& path, std::string_view option) {
  std::error_code error;
  const bool is_new = !std::filesystem::exists(path, error);
  // Nothing but the attempt knows: access() says yes to root where a file system says no. A pipe without a
  // reader answers ENXIO instead of waiting for one.
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!file.is_open() && errno != ENXIO) return unwritable(path, option, errno);
  if (is_new) unlink(path.c_str());
  const auto folder = std::filesystem::absolute(path, error).parent_path();
  const bool is_replaced = is_new || std::filesystem::is_regular_file(path, error);
  if (is_replaced && access(folder.c_str(), W_OK) != 0) return unwritable(path, option, errno);
  return Status::ok();
}

Status write_json(const std::string& path, const std::vector<std::string>& arguments,
                  const std::vector<Row>& rows) {
  const Row root = {{"command", arguments}, {"machine", describe_machine()}, {"results", rows}};
  std::error_code error;
  const bool is_file = !std::filesystem::exists(path, error) || std::filesystem::is_regular_file(path, error);
  const std::string part = is_file ? path + ".part" : path;  // so that a reader never sees half of the file
  std::ofstream file(part);
  file << root.dump(1, ' ', false, Row::error_handler_t::replace) << '\n';
  file.close();
  if (!is_file) return file ? Status::ok() : unwritable(path, "--json", errno);
  if (file) std::filesystem::rename(part, path, error);
  if (file && !error) return Status::ok();
  const int reason = errno;
  std::filesystem::remove(part, error);
  return unwritable(path, "--json", reason);
}

bool are_all_correct(const std::vector<Row>& rows) {
  return std::ranges::all_of(rows, [](const Row& row) { return row.value("correct", true); });
}

}  // namespace rueda::bench
