// The record file of one rank: whole records at its end, nothing else. What a full disk has taken is counted
// in it: in its first slot, which needs no further room, until there is room again. One thread.
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

// Writes a file that appears at its path when it is whole. If that fails, what was there stays. Refuses a
// file that another process is writing; not for one that this process writes, whose lock it would end.
Status write_whole(const std::string& path, std::span<const std::span<const RecordSlot>> parts);

class RecordFile {
 public:
  // Creates or empties the file. goes_on: appends if the file is as this object has left it. Refuses a file
  // that another process is writing.
  Status open(const std::string& path, bool goes_on);
  // A write that fails leaves whole records. After lose() it begins with a gap.
  Status append(std::span<const RecordSlot> slots);
  // So many records more are missing at the end.
  void lose(int64_t records);
  // After a write has failed: whether so many bytes can be written again.
  [[nodiscard]] bool has_room(size_t bytes) const;
  // Says in the file that nothing follows, until it is opened again.
  void close();
  [[nodiscard]] bool is_at(const std::string& path) const;  // it is open, and this is one of its names
  [[nodiscard]] bool is_open() const { return fd_.is_open(); }

 private:
  Status write(std::span<const RecordSlot> slots);
  void write_first(bool is_stopped);

  UniqueFd fd_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  off_t size_ = 0;
  int64_t missing_ = 0;  // records, at the end
  int error_ = 0;        // of the last write that failed
};

}  // namespace rueda::trace
