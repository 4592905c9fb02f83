// The timeline of a job: every rank writes its own records (recorder.h), and rank 0 draws those of all ranks
// as one Chrome trace while the job runs (live_trace.h), on a thread of its own. The loss of rank 0 loses
// nothing of the others, and `rueda timeline` reads the records.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"
#include "rueda/base/types.h"
#include "rueda/trace/flight_writer.h"
#include "rueda/trace/recorder.h"

namespace rueda::trace {

struct TimelineOptions {
  std::string path;  // of the Chrome trace; the records lie beside it
  Rank rank = 0;
  Rank size = 1;  // of the job
  bool mark_cycles = false;
  std::vector<Rank> elsewhere{};  // on other hosts than rank 0
  bool goes_on = false;           // if this timeline has written the file before: append, on the same clock
};

// In elastic jobs each view has a file of its own, because its ranks are others and rank 0 may be another
// process: "trace.view2.json" instead of "trace.json". The first view keeps the name.
std::string path_of_view(const std::string& path, int64_t view);

class Timeline : public TraceSink {
 public:
  // Rank 0 also opens the trace. Fails with kUnavailable if it cannot, naming path and cause, and records
  // nevertheless, as the other ranks do; stop() ends that. A rank that cannot write its records says so in
  // the log. Refuses to go on with a file after another one has been written: it would empty the first.
  virtual Status start(const TimelineOptions& options) = 0;
  // Writes all records; rank 0 draws what there is and closes the trace. It waits so long for other ranks
  // whose files it sees to stop recording, and names in the log those that have not. No effect if none is
  // open. start() may be called again afterwards.
  virtual void stop(Nanos patience) = 0;
  void stop() { stop(0); }
  // A stop() that waits for other ranks ends at once, now and until the next start().
  virtual void stop_waiting() = 0;
  // The flight record, and this rank's file while a timeline is on.
  [[nodiscard]] virtual Recorder& recorder() = 0;
  // Writes the flight record while the process goes on; a stall that is recorded asks for it.
  [[nodiscard]] virtual FlightWriter& flight_writer() = 0;
};
std::unique_ptr<Timeline> make_timeline();

}  // namespace rueda::trace
