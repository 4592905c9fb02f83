#include "timeline/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace rueda::timeline {

namespace fs = std::filesystem;

namespace {

// The records lie beside the timeline that a job has written itself.
bool has_records_beside(const fs::path& path) {
  const std::string start = path.filename().string() + ".rank";
  std::error_code error;
  fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : fs::path("."), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(start) && name.ends_with(".rec")) return true;
  }
  return false;
}

}  // namespace

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  if (draft_ != path_) std::remove(draft_.c_str());
}

Status OutputFile::open(const std::string& path) {
  if (path.ends_with(".rec"))
    return {
        Code::kInvalidArgument,
        path + " is the name of a record file, and nothing else is written there; name the output first."};
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  const bool is_replaced = !fs::exists(there) || fs::is_regular_file(there);  // not a pipe or /dev/stdout
  if (fs::is_regular_file(there) && has_records_beside(path))
    return {Code::kInvalidArgument,
            path + " is the timeline that the job has written; give the output another name."};
  path_ = path;
  draft_ = is_replaced ? path + ".part" + std::to_string(getpid()) : path;
  file_ = std::fopen(draft_.c_str(), "wb");
  return file_ != nullptr ? Status::ok() : failure();
}

Status OutputFile::write(std::string_view bytes) {
  return std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size() ? Status::ok() : failure();
}

Status OutputFile::close() {
  const bool is_written = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (draft_ == path_) return is_written ? Status::ok() : failure();
  if (is_written && std::rename(draft_.c_str(), path_.c_str()) == 0) return Status::ok();
  Status failed = failure();
  std::remove(draft_.c_str());
  return failed;
}

Status OutputFile::failure() const {
  return {Code::kUnavailable, "Cannot write " + path_ + ": " + std::strerror(errno) + "."};
}

}  // namespace rueda::timeline
