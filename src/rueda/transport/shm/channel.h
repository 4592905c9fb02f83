// A FIFO channel made of a pair of rings and a UNIX socket. A byte on the socket is the doorbell that wakes a
// sleeping peer; the end of the socket means that the peer is gone.
#pragma once

#include <cstddef>
#include <span>

#include "rueda/base/unique_fd.h"
#include "rueda/transport/poller.h"
#include "rueda/transport/reassembly.h"
#include "rueda/transport/requests.h"
#include "rueda/transport/shm/ring_mapping.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

class ShmChannel final : public Endpoint {
 public:
  // A dialer is up when it has the memory that the other end creates. busy: where the channel lists itself
  // when it has something to do; who looks at the list removes it when stays_busy() denies.
  struct Surroundings {
    Poller& poller;
    Outcome& outcome;
    std::vector<ShmChannel*>& busy;
  };
  ShmChannel(ChannelName name, UniqueFd socket, Surroundings around);
  ~ShmChannel() override;

  void offer_memory(size_t ring_bytes);  // the accepting end

  void send(Ticket ticket, std::span<const std::byte> bytes) override;
  void recv(Ticket ticket, std::span<std::byte> bytes) override;
  void recv_into(Ticket ticket, size_t bytes, size_t unit_bytes, Consumer& consumer) override;
  size_t withdraw(size_t receives) override { return requests_.withdraw(receives, is_header_taken_); }

  // Whether progress() and fall_asleep() may have anything to do. A job has many more channels than it uses
  // at a time, and looking at all of them would cost each rank time that grows with their number.
  bool stays_busy();
  bool progress();     // true if anything moved; no system call
  void on_socket();    // to be called after the poller was polled
  bool fall_asleep();  // false: there is work. In both cases wake_up() comes before the next progress().
  void wake_up();
  void end(const Status& why);
  [[nodiscard]] bool is_up() const { return is_up_; }
  [[nodiscard]] bool is_ended() const { return requests_.is_ended(); }

 private:
  void adopt_memory();
  void begin(RingMapping mapping, bool is_creator);  // it is up
  bool send_some();
  bool recv_some();
  bool take_header();  // false: none has arrived, or the channel is lost
  void finish_message();
  bool has_ring_work();
  bool is_at_end();
  void publish_sent();
  void publish_received();
  void ring_doorbell(uint32_t interest);
  void watch_process();
  void lose(const Status& why);
  void lose_if_broken();
  void become_busy();

  ChannelName name_;
  UniqueFd socket_, process_;
  Poller& poller_;
  Watch watch_, process_watch_;
  Outcome& outcome_;
  std::vector<ShmChannel*>& busy_;
  bool is_busy_ = false;  // listed there
  Requests requests_;
  bool is_up_ = false;
  bool is_hung_up_ = false;

  RingMapping mapping_;
  RingWriter writer_;
  RingReader reader_;
  uint32_t* my_sleep_ = nullptr;
  uint32_t* peer_sleep_ = nullptr;

  uint32_t send_sequence_ = 0;
  bool is_header_sent_ = false;  // of the oldest send
  size_t sent_bytes_ = 0;
  uint32_t recv_sequence_ = 0;
  bool is_header_taken_ = false;  // of the oldest receive
  size_t received_bytes_ = 0;
  Reassembly reassembly_;  // used only when the unit does not divide a line
};

}  // namespace rueda::transport
