// What the ranks of one host share besides the rings of their lanes: boards, arenas, bells. Made before the
// lanes, which carry the descriptors, and joined to a LocalHost when all lanes are up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rueda/backend/local/host.h"
#include "rueda/memory/arena.h"
#include "rueda/runtime/facts.h"
#include "rueda/transport/shm/shm.h"

namespace rueda::runtime {

class SharedWithHost {
 public:
  // arena may be null: then this rank offers none. bell: the engine's eventfd.
  static Result<SharedWithHost> create(std::shared_ptr<memory::Arena> arena, int bell);

  // In the order that join() expects. Valid as long as this object lives.
  [[nodiscard]] std::vector<int> descriptors() const;
  // After every lane is up. Null when no other rank of this host gave anything.
  Result<std::shared_ptr<backend::LocalHost>> join(transport::ShmTransport& shm, Rank me,
                                                   const std::vector<Facts>& all) &&;

 private:
  memory::SharedMemory board_, no_arena_;
  std::shared_ptr<memory::Arena> arena_;
  int bell_ = -1;
};

// One sentence about a host with more ranks than boards have room for; "" where there is none.
std::string warn_of_crowded_hosts(const std::vector<Facts>& all);

}  // namespace rueda::runtime
