// One Chrome trace of all ranks (JSON array form, readable at any moment) in the shape operators of Horovod
// know: a "process" per tensor name, and in it a "thread" per rank. Rank 0 writes the file; other ranks
// forward their events in batches. emit() only copies a bounded record; a writer thread serialises. A killed
// job leaves a readable file.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"
#include "rueda/base/types.h"

namespace rueda::trace {

struct TimelineOptions {
  std::string path;  // rank 0: the file
  Rank rank = 0;
  bool mark_cycles = false;
  bool goes_on = false;  // where this timeline has written the file before: append, on the same clock
  std::function<void(Bytes batch)> forward;  // other ranks: called on the writer thread, ≤ 1 MiB a batch
};

class Timeline : public TraceSink {
 public:
  // Rank 0 opens the file; kUnavailable says why not (path and errno). Starts the writer thread.
  virtual Status start(const TimelineOptions& options) = 0;
  // Rank 0 only, any thread: events of another rank. offset is added to its times to give this host's clock.
  // A malformed batch is refused.
  virtual Status ingest(Rank from, Nanos offset, std::span<const std::byte> batch) = 0;
  // Drains, closes. Harmless when none is open. After it start() may be called again.
  virtual void stop() = 0;
  // Events lost because the writer did not keep up; also written into the file.
  [[nodiscard]] virtual int64_t dropped() const = 0;
};
std::unique_ptr<Timeline> make_timeline();

}  // namespace rueda::trace
