#include "timeline/record_files.h"

#include <cstring>
#include <filesystem>

#include "rueda/trace/record_file.h"
#include "timeline/units.h"

namespace rueda::timeline {

namespace fs = std::filesystem;

constexpr size_t kMaxClause = 200;

std::vector<std::string> record_files_of(const std::string& argument) {
  const fs::path path(argument);
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const fs::path folder = is_folder ? path : (path.has_parent_path() ? path.parent_path() : fs::path("."));
  const std::string prefix = is_folder ? std::string() : path.filename().string() + ".rank";
  std::vector<std::string> found;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(kRecordSuffix)) found.push_back(entry->path().string());
  }
  return found;
}

Result<std::string> write_record(const std::string& out, Rank rank, std::string_view sent) {
  using trace::RecordSlot;
  const std::string who = "Rank " + std::to_string(rank);
  std::vector<RecordSlot> slots(sent.size() / sizeof(RecordSlot));  // what a rank that ended left half is cut
  if (!slots.empty()) std::memcpy(slots.data(), sent.data(), slots.size() * sizeof(RecordSlot));
  const RecordSlot expected = trace::first_slot();
  if (slots.empty() || slots.front().kind != expected.kind || slots.front().a != expected.a)
    return Status(Code::kUnavailable,
                  who + " has sent no records" +
                      (sent.empty() ? "; its rueda may be older than this one."
                                    : ": " + for_terminal(std::string(sent.substr(0, kMaxClause))) + "."));
  if (slots.front().b != expected.b)
    return Status(Code::kInvalidArgument, who + " has sent version " + std::to_string(slots.front().b) +
                                              " of the format, and this rueda knows " +
                                              std::to_string(expected.b) + "; use the rueda of the job.");
  const std::string path = trace::record_path(out, rank);
  const std::span<const RecordSlot> rest(slots.begin() + 1, slots.end());
  if (Status status = trace::write_whole(path, {&rest, 1}); !status.is_ok()) return status;
  return path;
}

}  // namespace rueda::timeline
