// What a store does that knows nothing of hosts.
#include "rueda/store/store.h"

#include "rueda/store/entries.h"

namespace rueda::store {

Result<std::string> Store::get_shared(std::string_view key, Nanos /*age*/, Deadline deadline) {
  return get(key, deadline);
}

Result<std::string> Store::try_get_shared(std::string_view key, Nanos /*age*/, Deadline deadline) {
  return try_get(key, deadline);
}

Status Store::give(const TableEntry& entry, Deadline deadline) {
  const std::string batch = encode_entries({{entry.rank, std::string(entry.value)}});
  return set(entries_key(entry.table, entry.rank), batch, deadline);
}

Status Store::announce(const TableEntry& entry, Deadline deadline) { return Store::give(entry, deadline); }

}  // namespace rueda::store
