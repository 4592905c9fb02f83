// The timeline as the engine of one epoch uses it. The file and its writer thread belong to trace::Timeline,
// which goes on from epoch to epoch. This class starts and stops it. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/runtime/session.h"
#include "rueda/status/meters.h"
#include "rueda/trace/timeline.h"

namespace rueda::runtime {

class Recording {
 public:
  // timeline: of earlier epochs of this process; null: there were none.
  Recording(std::shared_ptr<trace::Timeline> timeline, Rank me);

  // goes_on: as in TimelineOptions.
  Status start(const std::string& path, bool mark_cycles, bool goes_on);
  // What the engine does at its end: it does not wait for the timelines of other ranks, nor for a thread
  // that does.
  void stop();
  // What the program asks for: rank 0 waits some seconds for the other ranks that it sees to do the same.
  void stop_with_others();
  // This rank was connected; the records of all epochs say so.
  void begin_epoch(const Session& session);
  // A thread of the program waited for an operation. Waits that end at once are not worth a record.
  void waited(Nanos begin, Nanos end);
  // How much this rank has sent to the others, every few seconds and at the end. Engine thread.
  void look_at_links(const Links& links, Nanos now, status::Meters& meters, bool is_last = false);
  // The epoch broke. write_flight_record() then writes what happened before.
  void failed(const Status& why);
  void write_flight_record();
  [[nodiscard]] trace::Timeline& timeline() const { return *timeline_; }
  [[nodiscard]] bool is_on() const { return timeline_->recorder().is_on(); }

 private:
  void stop(Nanos patience);
  void watch(int signal);  // 0: none asks for the flight record

  Rank me_;
  Rank world_size_ = 1;
  int64_t view_ = 0;             // of an elastic job
  std::vector<Rank> elsewhere_;  // on other hosts than rank 0
  std::mutex mutex_;
  std::shared_ptr<trace::Timeline> timeline_;
  std::string path_;                     // empty: not started by this epoch
  std::atomic<bool> is_started_{false};  // path_ is not empty
  Nanos next_look_ = 0;                  // at the links
  Nanos last_look_ = 0;                  // 0: none yet
  int64_t sent_then_ = 0;                // over all links, until the last look
  std::string flight_record_;            // where it goes when the epoch breaks
  std::atomic<bool> has_failed_{false};
};

}  // namespace rueda::runtime
