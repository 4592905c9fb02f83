// One UCX worker: its context, its descriptor, and the operations that it has not completed. Knows neither
// ranks nor channels. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/transport/ucx/api.h"

namespace rueda::transport {

class UcxWorker;

// The data of an active message that has arrived: bytes in UCX's memory, or a promise of bytes that receive()
// fetches from the sender. Gives them back to UCX when it ends. Must not outlive the worker.
class ActiveMessage {
 public:
  ActiveMessage() = default;
  ActiveMessage(UcxWorker* worker, void* data, size_t bytes, bool is_remote)
      : worker_(worker), data_(data), bytes_(bytes), is_remote_(is_remote) {}
  ActiveMessage(ActiveMessage&& other) noexcept { *this = std::move(other); }
  ActiveMessage& operator=(ActiveMessage&& other) noexcept;
  ~ActiveMessage() { reset(); }

  void reset();
  [[nodiscard]] size_t size() const { return bytes_; }
  [[nodiscard]] bool is_remote() const { return is_remote_; }
  // Of an active message that is not remote.
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), bytes_};
  }

 private:
  friend class UcxWorker;
  UcxWorker* worker_ = nullptr;
  void* data_ = nullptr;  // null: nothing to give back
  size_t bytes_ = 0;
  bool is_remote_ = false;
};

// A send or a receive. Its buffers are UCX's until it is no longer open. Stays at its address while open.
struct UcxOperation {
  bool is_open = false;
  ucx::Code8 code = ucx::kOk;
  UcxWorker* worker = nullptr;
  size_t* open_count = nullptr;  // of its owner, who waits for all of them
};

class UcxWorker {
 public:
  // Called in progress(). The header is valid during the call only. Who wants the active message moves it
  // away; a active message that is left is dropped.
  using OnArrival = std::function<void(std::span<const std::byte> header, ActiveMessage& active_message)>;

  // peers: how many there will be about.
  static Result<std::unique_ptr<UcxWorker>> make(size_t peers, OnArrival on_arrival);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  [[nodiscard]] const Bytes& address() const { return address_; }
  [[nodiscard]] int wake_fd() const { return wake_fd_; }
  [[nodiscard]] std::string describe(ucx::Code8 code) const { return ucx::describe(api_, code); }

  bool progress();  // one look at the devices; true if anything happened
  bool arm();       // true: wake_fd() becomes readable when there is work. False: there is work.

  // why becomes the reason when UCX loses the peer. It stays at its address until disconnect().
  Result<ucx::Peer*> connect(std::span<const std::byte> address, ucx::Code8& why);
  // Everything that is open with this peer then completes with an error, in progress().
  void disconnect(ucx::Peer* peer);

  // header and bytes are borrowed while the operation is open.
  void send(ucx::Peer* peer, std::span<const std::byte> header, std::span<const std::byte> bytes,
            bool is_eager, UcxOperation& operation);
  // Fetches a remote active message.
  void receive(ActiveMessage active_message, std::span<std::byte> into, UcxOperation& operation);

 private:
  friend class ActiveMessage;
  UcxWorker(const ucx::Api& api, OnArrival on_arrival) : api_(api), on_arrival_(std::move(on_arrival)) {}
  Status open(size_t peers);
  Status open_worker();
  Status failed(const char* what, ucx::Code8 code) const;
  void begin(UcxOperation& operation, ucx::RequestParams& params);
  static void settle(UcxOperation& operation, void* result);
  static void finish(UcxOperation& operation, ucx::Code8 code);
  static ucx::Code8 on_message(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                               const ucx::ArrivalParams* params);

  const ucx::Api& api_;
  OnArrival on_arrival_;
  ucx::Context* context_ = nullptr;
  ucx::Worker* worker_ = nullptr;
  Bytes address_;
  int wake_fd_ = -1;  // UCX's own
};

}  // namespace rueda::transport
