// The Python stacks of this process. They are read in one of two ways.
//
// First a thread of the front end is asked, which takes the interpreter's lock (the GIL) and writes the
// stacks with faulthandler. Nothing runs Python code meanwhile, so what it reads is whole. If the lock is not
// to be had, some thread has been in C code with it for all that time, and no Python frame changes. Then the
// signal that the front end has registered with faulthandler is raised in the calling thread: its handler
// needs no lock. The other way round, a healthy job could be harmed: frames change while a handler without
// the lock reads them. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"

namespace rueda::status {

// What the front end has prepared. It owns all of this for the life of the process.
struct PythonSource {
  int signal = 0;            // faulthandler.register: writes to without_lock_fd
  int ask_fd = -1;           // a byte here asks the thread
  int done_fd = -1;          // where it answers a byte
  int with_lock_fd = -1;     // a regular file (memfd), to which the thread writes
  int without_lock_fd = -1;  // the same for the signal's handler
  uint64_t thread = 0;       // ident of the thread; its own stack is left out
};
Status set_python_source(const PythonSource& source);

struct PythonText {
  std::string text;       // as python_text.h says; at most 256 KiB
  bool has_lock = false;  // the thread wrote it
  uint64_t thread = 0;    // PythonSource::thread
  std::string missing;    // why there is none
};
// At most one call runs at a time; others wait for it.
PythonText capture_python(Deadline deadline);

}  // namespace rueda::status
