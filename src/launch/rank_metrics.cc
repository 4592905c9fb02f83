#include "launch/rank_metrics.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "launch/agent_messages.h"

namespace rueda::launch {
namespace {

namespace fs = std::filesystem;

std::string name_of(Rank rank) { return fmt::format("metrics.{}", rank); }

}  // namespace

std::string metrics_path(const std::string& private_dir, Rank rank) {
  return private_dir + "/" + name_of(rank);
}

std::string read_metrics(const std::string& private_dir, Rank rank) {
  std::error_code error;
  fs::path newest;
  fs::file_time_type when = fs::file_time_type::min();
  for (const auto& entry : fs::directory_iterator(private_dir, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(name_of(rank) + ".") || !name.ends_with(".prom")) continue;
    const fs::file_time_type written = entry.last_write_time(error);
    if (error || written < when) continue;
    newest = entry.path();
    when = written;
  }
  std::ifstream file(newest, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.size() <= kMaxMetricsBytes ? text : std::string();
}

}  // namespace rueda::launch
