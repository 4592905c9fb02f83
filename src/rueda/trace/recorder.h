// What this process has done of late: one ring of records (record_format.h), bounded in memory and in time,
// for all epochs. It is always on (the flight record), and it is written in two ways: on request or after a
// failure the ring as it is, and while a timeline is on everything, by a thread of its own. Recording never
// waits for a file: what the writer has not taken in time is dropped and counted. If the disk is full, what
// it cannot take is counted too, and the file goes on when there is room again. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"
#include "rueda/trace/record_file.h"
#include "rueda/trace/record_format.h"

namespace rueda::trace {

inline constexpr size_t kSegmentSlots = 2'048;  // 64 KiB
inline constexpr size_t kSegmentBytes = kSegmentSlots * sizeof(RecordSlot);
inline constexpr size_t kFileRingBytes = 16u << 20;  // the least that may wait for the writer
inline constexpr Nanos kKeptTime = 60 * kSecond;     // older records leave the ring

// Of records: which job they are of, and whose clock they are on; see EpochTrace.
struct Origin {
  int64_t job = 0;
  std::string host_key;
};

class Recorder {
 public:
  Recorder() = default;
  ~Recorder() { stop_file(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // How much memory the flight record may take; 0: nothing is recorded unless a file is open.
  void keep(size_t bytes);
  void begin_epoch(const EpochTrace& epoch);
  [[nodiscard]] bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  // Of the epoch that began last.
  [[nodiscard]] Origin origin() const;
  [[nodiscard]] bool has_file() const { return has_file_.load(std::memory_order_relaxed); }

  void record(const CallTrace& call);
  void record(const TraceSpan& span);
  void record(const TensorTrace& tensor);

  // Everything from now on goes to this file too, and when this returns it says of which job it is. goes_on:
  // append to it if this process has written it last.
  Status start_file(const std::string& path, bool goes_on);
  void stop_file();  // writes what waits, and closes the file
  // Writes the ring to a file.
  Status write_ring(const std::string& path);
  // The bytes of such a file; empty: nothing is kept.
  [[nodiscard]] std::string ring() const;

  // Records that a file lacks because its writer was too slow or the disk was full.
  [[nodiscard]] int64_t dropped() const { return dropped_; }
  [[nodiscard]] size_t ring_bytes() const;

 private:
  struct Segment {
    std::unique_ptr<RecordSlot[]> slots = std::make_unique_for_overwrite<RecordSlot[]>(kSegmentSlots);
    size_t used = 0;
    size_t written = 0;  // by the file's writer
    int64_t number = 0;
    int64_t records = 0, written_records = 0;
    Nanos last = 0;  // when its latest record was made

    void clear() {
      used = written = 0;
      records = written_records = 0;
    }
    void mark_written() {
      written = used;
      written_records = records;
    }
  };
  struct Name {
    uint32_t id = 0;
    int64_t segment = -1;  // in which it is defined
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Constant {  // that has been looked up last, in this segment
    const char* text = nullptr;
    uint32_t id = 0;
  };
  struct Piece {  // slots that the writer may read without the lock: they do not change any more
    std::shared_ptr<const Segment> segment;
    size_t from = 0, to = 0;
    int64_t gap = 0;  // records that are missing before it
    int64_t records = 0;
  };

  // mutex_ is held in all of these.
  void reserve(size_t slots, size_t name_slots, Nanos now);
  void new_segment(Nanos now);
  void drop_old(Nanos now);
  uint32_t id_of(std::string_view text);
  uint32_t id_of(std::string_view name, Constant& last);
  uint32_t id_of_call(std::string_view name);
  void update_is_on();
  std::vector<Piece> take_pieces();
  [[nodiscard]] std::vector<Piece> pieces_of_ring() const;  // takes the lock itself
  int64_t count_lost(std::span<const Piece> pieces);

  void write_loop(bool is_losing);               // is_losing: nothing can be written
  bool write(const std::vector<Piece>& pieces);  // false: what could not be written is counted in the file
  void stop_file_locked();                       // lifecycle_ is held

  std::mutex lifecycle_;   // start_file, stop_file
  std::mutex ring_files_;  // write_ring: two threads may name the same path
  RecordFile file_;        // the writer's, while it runs
  std::thread writer_;

  std::atomic<bool> is_on_{false}, has_file_{false};
  std::atomic<int64_t> dropped_{0};
  mutable std::mutex mutex_;  // everything below
  std::condition_variable wake_;
  bool is_stopping_ = false;
  size_t kept_bytes_ = 0;
  std::deque<std::shared_ptr<Segment>> segments_;
  std::shared_ptr<Segment> spare_;  // the last that was dropped: its memory is used again
  int64_t next_segment_ = 0;
  int64_t gap_ = 0;  // records dropped before the writer took them
  std::unordered_map<std::string, Name, Hash, std::equal_to<>> names_;
  uint32_t next_name_ = 1;  // 0: no text
  Constant backend_, algorithm_;
  std::string call_;  // the name of the last call in this segment: small programs repeat one
  uint32_t call_id_ = 0;
  EpochTrace epoch_;
  std::string host_, host_key_, command_;
};

}  // namespace rueda::trace
