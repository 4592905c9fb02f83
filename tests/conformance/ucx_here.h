// What UCX uses in tests, and whether it is there. No test needs a card: the same calls run over TCP on the
// loopback interface, and over shared memory.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "../sanitizers.h"
#include "rueda/transport/ucx/api.h"

namespace rueda::ucx_test {

enum class UcxOver { kTcp, kSharedMemory };

// Why UCX cannot be tested here; "" = it can. Call it before a transport is made.
inline std::string why_no_ucx(UcxOver what) {
#if RUEDA_UNDER_TSAN
  setenv("UCX_MEM_EVENTS", "n", 1);  // UCX patches functions that ThreadSanitizer has replaced
  // No memory of System V: ThreadSanitizer does not know shmat(), and takes what other threads did at these
  // addresses before for a race.
  const char* shared_memory = "posix,self";
#else
  const char* shared_memory = "sm,self";
#endif
  setenv("UCX_TLS", what == UcxOver::kTcp ? "tcp,self" : shared_memory, 1);
  setenv("UCX_NET_DEVICES", what == UcxOver::kTcp ? "lo" : "all", 1);
  return transport::ucx::load_api().status().why;
}

// The same for a value of RUEDA_TRANSPORTS, which need not name ucx.
inline std::string why_no_ucx(std::string_view transports, UcxOver what) {
  return transports.find("ucx") == std::string_view::npos ? std::string() : why_no_ucx(what);
}

}  // namespace rueda::ucx_test
