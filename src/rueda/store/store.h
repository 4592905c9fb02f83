// A key-value store in which ranks find one another. Keys and values are plain bytes; nothing is executed or
// unpickled. One thread at a time may use it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/handshake.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::store {

inline constexpr Nanos kAnyAge = 3'600 * kSecond;  // of a value that never changes once it is there

// One rank's entry in a table that all ranks fill (entries.h).
struct TableEntry {
  std::string_view table;  // the prefix of its keys
  Rank rank = 0;
  std::string_view value;
  Rank host_size = 0;  // ranks of this host that will have an entry, 0 = unknown
};

class Store {
 public:
  virtual ~Store() = default;
  // Overwrites the old value. Keys have at most kMaxStoreKeyBytes, values at most kMaxStoreValueBytes.
  virtual Status set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  // Waits until the key exists. kTimeout names the key and the store's address.
  virtual Result<std::string> get(std::string_view key, Deadline deadline) = 0;
  // Like get, but without waiting: fails with kUnavailable if the key does not exist.
  virtual Result<std::string> try_get(std::string_view key, Deadline deadline) = 0;
  // Adds to the value and returns the new one. An absent key counts as 0. Atomic across clients.
  virtual Result<int64_t> add(std::string_view key, int64_t amount, Deadline deadline) = 0;
  // Sets the key if its value is `expected`; an absent key counts as empty. Returns the value that the key
  // has afterwards: `value`, or that of a rival. Atomic across clients that change this key in this way only.
  // Both values together have at most kMaxStoreValueBytes.
  virtual Result<std::string> compare_and_set(std::string_view key, std::string_view expected,
                                              std::string_view value, Deadline deadline) = 0;
  // Like get and try_get, but the answer may be as old as `age`: ranks of a host that ask soon after one
  // another get one answer of the store.
  virtual Result<std::string> get_shared(std::string_view key, Nanos age, Deadline deadline);
  virtual Result<std::string> try_get_shared(std::string_view key, Nanos age, Deadline deadline);
  // Adds an entry. Those of a host's ranks may become one value of the store. Returns when it is there.
  virtual Status give(const TableEntry& entry, Deadline deadline);
  // The same for an entry that nothing depends on. May return before it is there.
  virtual Status announce(const TableEntry& entry, Deadline deadline);
  // Removes every key that begins with prefix.
  virtual Status remove_prefix(std::string_view prefix, Deadline deadline) = 0;
  // No call is expected for long: closes the connection, which the next call opens again.
  virtual void disconnect() {}
  [[nodiscard]] virtual std::string description() const = 0;  // "tcp://10.0.0.1:4711", for messages
};

std::unique_ptr<Store> make_memory_store();                              // one process; tests
Result<std::unique_ptr<Store>> open_file_store(const std::string& dir);  // file:///dir, shared directory

// A thread that serves a memory store to authenticated clients. Connections that are not authenticated yet
// are limited in number, bytes and time, so garbage does no harm. The destructor stops the thread.
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  [[nodiscard]] virtual int port() const = 0;
  [[nodiscard]] virtual std::string url() const = 0;  // "tcp://host:port"
  // Sets a key as a client would, soon after the call. Any thread.
  virtual void put(std::string key, std::string value) = 0;
  // Why it refused the last caller that did not prove to belong to the job; empty: nobody. Any thread.
  [[nodiscard]] virtual std::string last_refusal() const = 0;
  // The last rank since then that knows the secret, but is of another build of rueda and cannot use this
  // store, in a sentence; empty: there was none. Any thread.
  [[nodiscard]] virtual std::string other_build_since(Nanos began) const = 0;
  // How many commands it has taken. Any thread.
  [[nodiscard]] virtual int64_t commands() const = 0;
  // Called on the server's thread after a client has set a key. The launcher uses it to watch the progress.
  virtual void on_set(std::function<void(std::string_view key, std::string_view value)> callback) = 0;
};
// address: the IP address to listen on ("127.0.0.1"). port: 0 = any free port. Fails with kUnavailable if the
// port is in use.
Result<std::unique_ptr<StoreServer>> serve_store(const std::string& address, int port, const std::string& job,
                                                 const Secret& secret, const std::string& release);
// Tries to connect until the deadline, because the server may start later. Fails at once if the secret or the
// version is wrong.
Result<std::unique_ptr<Store>> open_tcp_store(const std::string& host, int port, const std::string& job,
                                              const Secret& secret, const std::string& release,
                                              Deadline deadline);

}  // namespace rueda::store
