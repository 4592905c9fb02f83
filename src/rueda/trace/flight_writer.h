// Writes the flight record of a process that goes on: after a stall, and when a signal asks for it. A thread
// of its own does it, so that neither the engine nor a signal handler waits for a file. Any thread.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"
#include "rueda/trace/recorder.h"

namespace rueda::trace {

class FlightWriter {
 public:
  explicit FlightWriter(Recorder& recorder) : recorder_(recorder) {}
  ~FlightWriter() { stop(); }
  FlightWriter(const FlightWriter&) = delete;
  FlightWriter& operator=(const FlightWriter&) = delete;

  // From now on to this path. signal: asks for a record, unless the program handles it itself, which is an
  // error; 0: none. The handler stays for the life of the process, because the signal would end it otherwise.
  Status start(const std::string& path, int signal);
  void stop();
  // Soon. Several requests may make one file; the last is complete. No effect before start().
  void request();

 private:
  void stop_locked();
  void run(const std::string& path, int requests, int signals, int end);

  Recorder& recorder_;
  std::mutex mutex_;  // everything below
  std::thread thread_;
  std::string path_;
  int signal_ = 0;
  UniqueFd requests_, end_;  // eventfds
};

}  // namespace rueda::trace
