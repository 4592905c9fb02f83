// The engine's C ABI (rueda.h), found at run time. One engine per process serves all front ends, so the
// plugin must use the library that Python has opened. Immutable after find_engine(); any thread.
#pragma once

#include <string>

#include "rueda/rueda.h"

namespace rueda::tensorflow {

struct EngineApi {
  decltype(&rueda_submit) submit;
  decltype(&rueda_wait) wait;
  decltype(&rueda_on_done) on_done;
  decltype(&rueda_result) result;
  decltype(&rueda_detach) detach;
  decltype(&rueda_free) free;
  decltype(&rueda_release) release;
  decltype(&rueda_error) error;
  decltype(&rueda_last_error) last_error;
  decltype(&rueda_is_initialized) is_initialized;
  decltype(&rueda_rank) rank;
  decltype(&rueda_local_rank) local_rank;
  decltype(&rueda_local_size) local_size;
  decltype(&rueda_process_set_ranks) process_set_ranks;
  decltype(&rueda_mark_step) mark_step;
};

extern EngineApi engine;  // all null until find_engine() has succeeded

// Opens RUEDA_LIBRARY, or else librueda.so beside this plugin. Returns an empty string, or a sentence that
// says why it failed.
std::string find_engine();

}  // namespace rueda::tensorflow
