// The Chrome trace of a job while it runs: rank 0 draws what all ranks record. It reads their record files as
// they grow, so nothing is sent for it and no rank waits. Ranks whose files this host does not see are
// missing; `rueda timeline merge` draws them once the files are together. One thread.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/trace/chrome_format.h"
#include "rueda/trace/clock_estimate.h"
#include "rueda/trace/record_reader.h"
#include "rueda/trace/recorder.h"
#include "rueda/trace/tensor_bars.h"
#include "rueda/trace/trace_file.h"

namespace rueda::trace {

class LiveTrace {
 public:
  struct Options {
    std::string path;
    Rank size = 1;
    Origin origin;         // of rank 0: records of other jobs are left alone
    bool goes_on = false;  // if this object has written the file last: append, on the same clock
  };
  Status open(const Options& options);
  // Draws what has been recorded meanwhile; false: not all of it before the deadline.
  bool draw(Deadline deadline);
  [[nodiscard]] bool has_drawn(Rank rank) const;  // anything of it
  // Ranks of this job that have not stopped recording, as far as the last draw() has seen their files.
  [[nodiscard]] std::vector<Rank> recording() const;
  void close();  // ends what is open

 private:
  // The records of one rank, as far as they have been read.
  struct Source {
    std::string path;
    struct stat seen {};
    std::optional<RecordReader> reader;
    bool is_of_job = false;  // its rank has begun to record this job
    bool is_found = false;   // it holds records of this job, so it is read on from where it ended
    bool is_mine = false;    // the records that come next are of this job
    bool is_old = false;     // the last record was of a time before the trace began
    bool is_aligned = true;
    ClockEstimate clock;  // to that of rank 0; empty on its host
    TensorBars bars;
  };
  class Sink;

  bool draw(Rank rank, Source& source, const Deadline& deadline);
  [[nodiscard]] bool is_old(const Source& source, const Record& record) const;
  [[nodiscard]] bool find(Source& source);
  void take(Rank rank, Source& source, const Record& record);
  void flush();

  std::string path_;
  Nanos start_ = 0;  // of the trace, on the clock of rank 0: what was recorded before is not drawn
  Origin origin_;
  Names names_;
  std::vector<std::unique_ptr<Source>> sources_;  // [size]
  std::unique_ptr<ChromeFormat> format_;          // kept to continue a file
  TraceFile file_;
};

}  // namespace rueda::trace
