// The stacks of all threads of this process, native and Python's together. It stops no training: each thread
// is interrupted for some microseconds. It works while threads hang, with or without the interpreter's lock.
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/status/native_stacks.h"
#include "rueda/status/python_stacks.h"
#include "rueda/status/python_text.h"

namespace rueda::status {

struct ThreadStack {
  NativeStack native;
  std::vector<PythonFrame> python;  // innermost first; empty: no Python thread
};

struct Stacks {
  std::vector<ThreadStack> threads;  // the main thread first
  std::string python_missing;        // why no thread has Python frames
  bool had_lock = false;             // as PythonText::has_lock
};

inline constexpr Nanos kCaptureTime = 2 * kSecond;  // enough for all threads of a busy process

// Takes at most about 3 s longer than the deadline, and that only if a signal handler hangs.
Stacks capture_stacks(Deadline deadline, Caller caller);

// Joins threads by their ident. Pure.
Stacks join_stacks(std::vector<NativeStack> native, const PythonText& python);

// {"threads": [{"tid", "name", "state", "python": [{"file", "line", "function"}], "native": [{"function",
// "module", "offset"}], "native_missing"}], "python_missing", "python_had_lock"}. Pure.
std::string stacks_json(const Stacks& stacks);
// The same for people and logs, one frame a line; at most max_bytes. Pure.
std::string stacks_text(const Stacks& stacks, size_t max_bytes);

}  // namespace rueda::status
