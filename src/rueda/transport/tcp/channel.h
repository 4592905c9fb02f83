// One TCP connection as a FIFO channel.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <span>

#include "rueda/base/unique_fd.h"
#include "rueda/transport/host_silence.h"
#include "rueda/transport/poller.h"
#include "rueda/transport/reassembly.h"
#include "rueda/transport/requests.h"
#include "rueda/transport/tcp/arrivals.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

class TcpChannel final : public Endpoint {
 public:
  // All channels of a transport share `scratch`; nothing stays in it between two calls.
  TcpChannel(ChannelName name, UniqueFd fd, Poller& poller, Outcome& outcome, std::span<std::byte> scratch);
  ~TcpChannel() override;

  void send(Ticket ticket, std::span<const std::byte> bytes) override;
  void recv(Ticket ticket, std::span<std::byte> bytes) override;
  void recv_into(Ticket ticket, size_t bytes, size_t unit_bytes, Consumer& consumer) override;
  size_t withdraw(size_t receives) override { return requests_.withdraw(receives, header_bytes_ > 0); }

  [[nodiscard]] std::optional<LinkUse> use() const override;
  [[nodiscard]] Nanos round_trip() const override { return round_trip_.load(std::memory_order_relaxed); }

  [[nodiscard]] std::optional<Nanos> host_silence() const override {
    return is_counted_ ? std::optional(host_silence_.age()) : std::nullopt;
  }

  bool progress();  // true if anything moved
  [[nodiscard]] bool has_work() const;
  // Loses the channel if the other host has acknowledged nothing for too long.
  void check_liveness(Nanos now, Nanos peer_timeout);
  // Bytes that the kernel was given may still wait in it.
  [[nodiscard]] bool may_be_unsent() const { return may_be_unsent_; }
  // Asks the kernel to try such bytes again. Without that, a segment which the host's own queue dropped while
  // no other was on its way waits for a timer of 200 ms or more.
  void push();
  void end(const Status& why);  // completes open tickets with why and closes the connection

 private:
  bool send_some();
  bool recv_some();
  void note_round_trip(uint32_t least_us);
  void take(size_t arrived);
  void account_for(size_t sent);
  void deliver(size_t payload);
  void lose(const Status& why);
  [[nodiscard]] Status lost_by_errno() const;
  void on_hangup();
  void on_deaf_peer();

  ChannelName name_;
  UniqueFd fd_;
  Poller& poller_;
  Watch watch_;
  Outcome& outcome_;
  Requests requests_;
  std::span<std::byte> scratch_;
  bool is_hung_up_ = false;  // the peer closed; bytes it sent before may still be unread
  Status why_deaf_;          // not ok: the peer takes no more bytes, for this reason
  Nanos deaf_since_ = 0;     // when that was first noticed

  std::atomic<Nanos> round_trip_{0};  // the shortest so far; 0: unknown
  bool is_counted_ = true;            // the kernel says what was acknowledged
  HostSilence host_silence_;

  uint32_t send_sequence_ = 0;
  size_t sent_bytes_ = 0;  // of the oldest send, header included
  bool may_be_unsent_ = false;
  int64_t pauses_ = 0;  // how often everything was sent
  uint32_t recv_sequence_ = 0;
  size_t header_bytes_ = 0;  // of the oldest receive
  size_t payload_bytes_ = 0;
  Arrivals arrivals_;
  MessageHeader header_;
  Reassembly reassembly_;
};

}  // namespace rueda::transport
