// Where a process answers `rueda status` and `rueda stacks`: a UNIX socket in the user's private folder, and
// a thread that sleeps until somebody asks. Nothing is on the network. Who asks is proved by the kernel: the
// folder keeps other users out, and SO_PEERCRED names the user of the caller. A secret of the job would
// prove no more, because every process of that user can read it.
//
//   request   one of "status", "stacks", "metrics", "record", and a newline; at most 64 bytes. A launcher is
//             asked otherwise (job_answer.h).
//   reply     the answer, then the end of the stream. "record": the flight record, as the bytes of a record
//             file, or a clause that says why there is none
//
// A child of fork() has neither the socket nor the thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "rueda/status/folder.h"

namespace rueda::status {

class Endpoint {
 public:
  // Called on the endpoint's thread, one at a time; empty: an unknown request, and the caller is hung up on.
  using Answer = std::function<std::string(const std::string& request)>;
  // folder: empty if nobody may ask. tick: called about once a second, for what is written regularly.
  // ending: of the socket's name.
  static Result<std::unique_ptr<Endpoint>> start(const std::string& folder, Answer answer,
                                                 std::function<void()> tick,
                                                 std::string_view ending = kProcessSocket);
  virtual ~Endpoint() = default;  // removes the socket
  [[nodiscard]] virtual const std::string& path() const = 0;
  // Calls the function on the endpoint's thread, unless this object ends before. Any thread; never waits for
  // that thread.
  virtual void call_soon(std::function<void()> function) = 0;
};

}  // namespace rueda::status
