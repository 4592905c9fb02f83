// What the engine has done, for rueda_describe and tests. Any thread. A batch is counted before its
// operations are done.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "rueda/status/meters.h"

namespace rueda::runtime {

struct EngineCounters {
  std::atomic<int64_t> control_messages{0};      // sent by this rank
  std::atomic<int64_t> negotiation_messages{0};  // of those: about which tensors run
  std::atomic<int64_t> batches{0};               // backend calls
  std::atomic<int64_t> tensors{0};               // in these calls
  std::atomic<int64_t> bytes{0};                 // of their input
  std::atomic<int64_t> plans{0};                 // begun
  std::atomic<int64_t> departures{0};            // plans that ended
  std::atomic<int64_t> planned_batches{0};       // started without negotiation
  std::atomic<int64_t> residual_bytes{0};        // of what wire types have left to be sent later
  std::atomic<const char*> algorithm{""};        // of the last batch; static
  // Of this process, for all epochs. Never null in an engine.
  std::shared_ptr<status::Meters> meters = std::make_shared<status::Meters>();
};

inline void count(std::atomic<int64_t>& counter, int64_t more = 1) {
  counter.fetch_add(more, std::memory_order_relaxed);
}

}  // namespace rueda::runtime
