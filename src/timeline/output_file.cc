#include "timeline/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "timeline/record_files.h"

namespace rueda::timeline {

namespace fs = std::filesystem;

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  if (draft_ != path_) std::remove(draft_.c_str());
}

Status OutputFile::open(const std::string& path) {
  if (path.ends_with(kRecordSuffix))
    return {
        Code::kInvalidArgument,
        path + " is the name of a record file, and nothing else is written there; name the output first."};
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  const bool is_replaced = !fs::exists(there) || fs::is_regular_file(there);  // not a pipe or /dev/stdout
  if (fs::is_regular_file(there) && !record_files_of(path).empty())
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

Status check_output(const std::string& path) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  // Opening a pipe would wait for a reader, and closing it would tell that reader that all is there.
  if (fs::exists(there) && !fs::is_regular_file(there) && !fs::is_directory(there)) return Status::ok();
  OutputFile file;
  return file.open(path);  // the draft goes with it
}

Status write_file(const std::string& path, std::string_view text) {
  OutputFile file;
  if (Status status = file.open(path); !status.is_ok()) return status;
  if (Status status = file.write(text); !status.is_ok()) return status;
  return file.close();
}

}  // namespace rueda::timeline
