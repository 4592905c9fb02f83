// The record file of one rank: whole records at its end, nothing else. One thread.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"
#include "rueda/trace/record_format.h"

namespace rueda::trace {

// Where a rank records beside the timeline of the job: "t.json" -> "t.json.rank3.rec".
std::string record_path(const std::string& timeline, Rank rank);

class RecordFile {
 public:
  // Creates or empties the file. goes_on: appends if the file is as this object has left it. Refuses a file
  // that another process is writing.
  Status open(const std::string& path, bool goes_on);
  // A write that fails leaves whole records.
  Status append(std::span<const Slot> slots);
  void close();
  [[nodiscard]] bool is_open() const { return fd_.is_open(); }

 private:
  UniqueFd fd_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  off_t size_ = 0;
};

}  // namespace rueda::trace
