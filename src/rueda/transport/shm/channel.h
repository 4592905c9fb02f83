// A FIFO channel made of a pair of rings. It comes up over a UNIX socket, which passes the memory of the
// rings. As long as it is open, a byte on it wakes a sleeping peer, and its end means that the peer is gone.
// Both ends close it when they can do without: then the doorbell of the peer wakes it, memory tells that it
// has left, and ProcessWatch that its process has ended.
#pragma once

#include <cstddef>
#include <span>

#include "rueda/base/unique_fd.h"
#include "rueda/transport/poller.h"
#include "rueda/transport/reassembly.h"
#include "rueda/transport/requests.h"
#include "rueda/transport/shm/doorbell.h"
#include "rueda/transport/shm/process_watch.h"
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
    const Doorbell& doorbell;  // of this rank
    ProcessWatch& processes;
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
  bool progress();   // true if anything moved; no system call
  void on_socket();  // to be called after the poller was polled, while has_socket()
  [[nodiscard]] bool has_socket() const { return socket_.is_open(); }
  // Closes the socket if both ends can do without it. To be called when the channel has come up, and when
  // ProcessWatch has begun to rely on the host.
  void let_go();
  // To be called when there is news: looks whether the peer has left or its process has ended.
  void look_at_peer();
  bool fall_asleep();  // false: there is work. In both cases wake_up() comes before the next progress().
  void wake_up();
  void end(const Status& why);
  [[nodiscard]] const ChannelName& name() const { return name_; }
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
  void see_process();
  void on_hangup();  // the peer has closed the socket
  void hang_up();    // the peer is gone
  void leave();      // this end of the channel is over
  void close_socket();
  [[nodiscard]] RingMapping::End& my_end() const { return mapping_.control().ends[my_place_]; }
  [[nodiscard]] RingMapping::End& peer_end() const { return mapping_.control().ends[1 - my_place_]; }
  void lose(const Status& why);
  void lose_if_broken();
  void become_busy();

  ChannelName name_;
  UniqueFd socket_;
  Watch watch_;
  Surroundings around_;
  bool is_busy_ = false;  // listed there
  Requests requests_;
  bool is_up_ = false;
  bool is_hung_up_ = false;

  RingMapping mapping_;
  int my_place_ = 0;             // in mapping_: 0 where it was created
  bool says_no_socket_ = false;  // my_end() says kNeedsNoSocket
  bool keeps_socket_ = false;    // the peer has no doorbell that this rank can ring
  bool has_left_ = false;
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
