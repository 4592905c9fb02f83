// The connections between the members of one communicator: a UNIX socket for each pair, in the abstract
// namespace, so that nothing is left behind. Every wait ends when the communicator is aborted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rueda::fake_nccl {

// What a member tells the others before the first collective.
struct Hello {
  int32_t rank = -1;
  int32_t version = 0;
  uint64_t host_hash = 0;
  unsigned char uuid[16] = {};
};

enum class Wait : uint8_t { kDone, kAborted, kLost };

// One transfer of an exchange. The transfers with one peer and direction run in the order of the list.
struct Transfer {
  int peer = -1;
  bool is_send = false;
  std::byte* data = nullptr;  // not written if is_send
  size_t bytes = 0;
};

class Wire {
 public:
  Wire(int me, int size) : me_(me), fds_(static_cast<size_t>(size), -1) {}
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Connects every pair. hellos: [size], mine at my place; filled with those of the others.
  Wait connect(const std::string& name, std::span<Hello> hellos);
  Wait exchange(std::span<const Transfer> transfers);
  // Any thread.
  void abort() { is_aborted_ = true; }
  [[nodiscard]] bool is_aborted() const { return is_aborted_; }
  // The other members see the end of this one.
  void close();

 private:
  Wait dial(const std::string& name, int peer);
  Wait accept_one(int listener);

  int me_;
  std::vector<int> fds_;  // [member]
  std::atomic<bool> is_aborted_{false};
};

}  // namespace rueda::fake_nccl
