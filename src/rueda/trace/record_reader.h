// Reads the record file of one rank, one record after the other, in bounded memory. A file that is cut off
// ends early; one that is no record file, or is damaged, says so. A file that is being written can be read on
// after its end. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"
#include "rueda/trace/record_format.h"

namespace rueda::trace {

// The texts of all files: names of tensors, backends, hosts, reasons. The number of names is bounded; those
// beyond share one text.
class Names {
 public:
  uint32_t id_of(std::string_view text);
  [[nodiscard]] std::string_view text(uint32_t id) const { return texts_[id]; }

 private:
  std::deque<std::string> texts_{std::string()};  // stable addresses; 0: no text
  std::unordered_map<std::string_view, uint32_t> ids_;
};

struct Call : CallTrace {
  uint32_t name_id = 0, backend_id = 0;
};

// When this rank asked for it; if it did not, when it was to begin.
inline Nanos begin_of(const Call& call) { return call.submitted != 0 ? call.submitted : call.ordered; }

struct Span : TraceSpan {
  uint32_t text_id = 0;
};
struct TensorRecord {
  std::string_view name;
  std::string_view result;  // "float32 [2, 3]"; empty: this rank took none
  OperationCode operation = 0;
  Nanos submitted = 0, failed = 0;  // 0: it did not come to that
  uint32_t call = 0;                // call_tag() of the call before it
};
struct EpochRecord : EpochTrace {};
struct Gap {
  int64_t records = 0;
  int error = 0;  // why they could not be written (errno); 0: the writer was too slow
};
// Texts live as long as the Names.
using Record = std::variant<EpochRecord, Call, Span, TensorRecord, Gap>;

class RecordReader {
 public:
  // names outlives the reader.
  static Result<RecordReader> open(const std::string& path, Names& names);

  // Null at the end; later there may be more.
  const Record* next();
  void rewind();  // to the start
  // Its rank has stopped recording: what is in the file then is all.
  [[nodiscard]] bool is_stopped() const;
  // Why the file ended before its end; ok if it is whole, or was cut off within a record.
  [[nodiscard]] const Status& fault() const { return fault_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  RecordReader(UniqueFd fd, std::string path, Names& names);
  const RecordSlot* take(size_t slots);  // null at the end of the file
  bool read_name(const RecordSlot& first);
  [[nodiscard]] uint32_t name(uint32_t id) const;
  const Record* read(const RecordSlot& slot);
  const Record* read_gap(Gap gap);
  const Record* read_tensor(const RecordSlot& in);
  const Record* fail(const std::string& what);

  UniqueFd fd_;
  std::string path_;
  Names* names_;
  std::vector<RecordSlot> buffer_;
  size_t at_ = 0, end_ = 0;  // in buffer_
  int64_t read_slots_ = 0;
  Gap at_end_;                                      // what the file says of its end, until it has been read
  std::unordered_map<uint32_t, uint32_t> segment_;  // the names of this segment: id -> Names
  Record record_;
  Status fault_;
};

}  // namespace rueda::trace
