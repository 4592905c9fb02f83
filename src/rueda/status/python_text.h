// What Python's faulthandler writes about all threads, as frames. Pure.
//
//   Thread 0x00007f3a5c9b7740 (most recent call first):
//     File "train.py", line 12 in step
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::status {

struct PythonFrame {
  std::string file;
  int64_t line = 0;
  std::string function;
};

struct PythonThread {
  uint64_t ident = 0;               // as NativeStack::ident
  std::vector<PythonFrame> frames;  // innermost first
};

// Lines that it does not know are left out.
std::vector<PythonThread> parse_python_text(std::string_view text);

}  // namespace rueda::status
