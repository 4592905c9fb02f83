// One communicator of one member. Its start and its launches happen in threads of their own, as those of a
// communicator with blocking = 0 do.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives.h"
#include "control.h"
#include "wire.h"

namespace rueda::fake_nccl {

// The functions of the driver with which work is enqueued, and the current device is identified.
struct Cuda {
  int (*launch_host_func)(void* stream, void (*function)(void*), void* argument) = nullptr;
  int (*get_current)(void** context) = nullptr;
  int (*get_count)(int* devices) = nullptr;
  int (*retain_primary)(void** context, int device) = nullptr;
  int (*release_primary)(int device) = nullptr;
  int (*get_uuid)(void* uuid, int device) = nullptr;           // of the GPU
  int (*get_instance_uuid)(void* uuid, int device) = nullptr;  // of the MIG instance, if it is one

  // False if no primary context of a device is current.
  bool current_uuid(unsigned char* uuid) const;
};
const Cuda* cuda();  // null: the tests' libcuda is not in this process

Control& control();

class Comm : public std::enable_shared_from_this<Comm> {
 public:
  Comm(std::string name, int me, int size);
  ~Comm();

  void begin(const unsigned char* uuid);  // and goes on in the background
  // The state: kSuccess, kInProgress, or the first error.
  [[nodiscard]] nccl::ResultCode state() const;
  [[nodiscard]] std::string last_error() const;
  // Launches a group in the background. Requires state() == kSuccess.
  nccl::ResultCode launch(std::vector<Op> ops, void* stream);
  // Flushes what was launched; in progress until then.
  void finalize() { is_finalizing_ = true; }
  void abort();
  [[nodiscard]] int size() const { return size_; }

 private:
  struct Work {
    std::shared_ptr<Comm> comm;
    std::vector<Op> ops;
  };
  static void run_work(void* argument);
  void start_up(Hello mine);
  [[nodiscard]] nccl::ResultCode check(const std::vector<Hello>& hellos);
  void run(const std::vector<Op>& ops);
  void fail(nccl::ResultCode code, const std::string& why);
  [[nodiscard]] bool is_failing() const { return control().failing_member == me_; }

  std::string name_;
  int me_, size_;
  Wire wire_;
  std::atomic<bool> is_busy_{false}, is_finalizing_{false};
  std::atomic<int> error_{nccl::kSuccess};
  std::atomic<int> open_{0}, running_{0};  // groups that have not ended; that run now
  uint32_t sequence_ = 0;                  // of collectives; the thread of the stream
  mutable std::mutex mutex_;
  std::string last_error_;
  std::thread background_;
};

}  // namespace rueda::fake_nccl
