// One Chrome trace of all ranks (JSON array form, readable at any moment) in the shape operators of Horovod
// know: a "process" per tensor name, and in it a "thread" per rank. Rank 0 writes the file; other ranks
// forward their events in batches. emit() only copies a bounded record; a writer thread serialises. A killed
// job leaves a readable file.
//
// Beside that file every rank writes the records of its own (recorder.h): the loss of rank 0 loses nothing,
// and `rueda timeline` reads them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"
#include "rueda/base/types.h"
#include "rueda/trace/flight_writer.h"
#include "rueda/trace/recorder.h"

namespace rueda::trace {

struct TimelineOptions {
  std::string path;  // rank 0: the file
  Rank rank = 0;
  Rank size = 1;  // ranks whose events come to rank 0
  bool mark_cycles = false;
  bool goes_on = false;  // if this timeline has written the file before: append, on the same clock
  std::function<void(Bytes batch)> forward;  // other ranks: called on the writer thread, with at most 1 MiB
};

class Timeline : public TraceSink {
 public:
  // Starts the writer thread; rank 0 also opens the file. Fails with kUnavailable, naming path and errno.
  // Refuses to go on with a file after another one has been written: it would empty the first.
  virtual Status start(const TimelineOptions& options) = 0;
  // Rank 0 only, any thread: adds events of another rank. offset is added to their times to convert them to
  // the clock of this host. A malformed batch is refused.
  virtual Status ingest(Rank from, Nanos offset, std::span<const std::byte> batch) = 0;
  // Writes all events and closes the file. No effect if none is open. start() may be called again afterwards.
  virtual void stop() = 0;
  // The flight record, and this rank's file while a timeline is on.
  [[nodiscard]] virtual Recorder& recorder() = 0;
  // Writes the flight record while the process goes on; a stall that is recorded asks for it.
  [[nodiscard]] virtual FlightWriter& flight_writer() = 0;
  // How many events were lost because the writer was too slow. The number is also written into the file.
  [[nodiscard]] virtual int64_t dropped() const = 0;
};
std::unique_ptr<Timeline> make_timeline();

}  // namespace rueda::trace
