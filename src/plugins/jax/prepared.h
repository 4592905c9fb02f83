// Operations of calls that are made again, prepared in the engine: a start then reads no name there. Any
// thread.
#ifndef RUEDA_PLUGINS_JAX_PREPARED_H_
#define RUEDA_PLUGINS_JAX_PREPARED_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "rueda/rueda.h"

namespace rueda::jax {

class PreparedOperations {
 public:
  // Starts the operation of the call with this number, which tracing gave it, from the second time on that
  // the call asks for the same. Returns its handle, or 0 if it is to be submitted, also where the engine
  // refuses it.
  int64_t start(int64_t id, const rueda_request& request);

 private:
  struct Prepared {
    explicit Prepared(const rueda_request& request);
    // Whether this number belongs to the request: a program that another process exported has numbers of that
    // process.
    [[nodiscard]] bool is(const rueda_request& request) const;

    std::string name;
    std::vector<int64_t> shape;
    rueda_request terms;   // without pointers
    int64_t prepared = 0;  // of the engine; 0: it has run once
  };
  void forget_all();

  std::mutex mutex_;
  std::unordered_map<int64_t, Prepared> by_id_;
};

// The only instance; never destroyed, as that of InFlight.
PreparedOperations& prepared_operations();

}  // namespace rueda::jax

#endif  // RUEDA_PLUGINS_JAX_PREPARED_H_
