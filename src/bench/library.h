// librueda.so, loaded at run time: the command itself does not contain the core, and `rueda bench` measures
// the library that programs use. Immutable once opened.
#pragma once

#include <cstddef>
#include <string>

#include "rueda/base/status.h"
#include "rueda/rueda.h"

namespace rueda::bench {

struct Library {
  std::string path;
  decltype(&rueda_init) init;
  decltype(&rueda_shutdown) shutdown;
  decltype(&rueda_rank) rank;
  decltype(&rueda_size) size;
  decltype(&rueda_local_rank) local_rank;
  decltype(&rueda_local_size) local_size;
  decltype(&rueda_cross_size) cross_size;
  decltype(&rueda_last_error) last_error;
  decltype(&rueda_describe) describe;
  decltype(&rueda_add_process_set) add_process_set;
  decltype(&rueda_submit) submit;
  decltype(&rueda_submit_for_wait) submit_for_wait;
  decltype(&rueda_wait) wait;
  decltype(&rueda_on_done) on_done;
  decltype(&rueda_result) result;
  decltype(&rueda_release) release;
  decltype(&rueda_error) error;
  decltype(&rueda_alloc) alloc;
  decltype(&rueda_release_memory) release_memory;
};

// Where the library of the command at own_path is: what RUEDA_LIBRARY names, else beside the command, or
// where pip puts the package of a command.
Result<std::string> find_library(const std::string& own_path);

// Loads what find_library() finds. The library stays loaded until the process ends.
Result<Library> open_library(const std::string& own_path);

}  // namespace rueda::bench
